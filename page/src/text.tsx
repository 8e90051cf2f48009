// Texts: figures and times in words, and what sandboxes print, which is never taken for markup.
import type { VNode } from "preact";
import type { Call, Edge, Part, Result } from "./api.ts";

/** Returns seconds in words. */
export function seconds(value: number): string {
  if (value < 0) return `-${seconds(-value)}`;
  if (!value) return "0 s";
  if (value < 0.0995) return `${(value * 1000).toPrecision(2)} ms`;
  if (value < 99.5) return `${value.toPrecision(3)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

/** Returns bytes in words. */
export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit += 1) bytes /= 1024;
  return `${unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

/** Returns a number of things in words. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Returns a part in percent. */
export function percent(part: number, whole: number): string {
  return whole ? `${((100 * part) / whole).toFixed(0)} %` : "";
}

/** Returns a moment, given in seconds since the epoch, in words. */
export function moment(time: number): string {
  return new Date(time * 1000).toISOString().replace("T", " ").slice(0, 19);
}

// As in tvsnap/model/calls.py.
const MAIN = ["command", "query", "code", "what", "path", "keys", "sql"];

const words = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

/** Returns all of a call: the command of `bash` alone, else the tool's name and a line for each argument. */
export function callText({ name, arguments: given }: Call): string {
  if (name === "bash" && typeof given.command === "string" && Object.keys(given).length === 1) return given.command;
  return [name, ...Object.entries(given).map(([key, value]) => `${key}: ${words(value)}`)].join("\n");
}

/** Returns a call in one line, as `call_line` of cli/text.py does. */
export function callLine({ name, arguments: given }: Call): string {
  const line = (text: string) => text.replace(/^\n+|\n+$/g, "").replace(/[ \t]+/g, " ").replaceAll("\n", "⏎").trim();
  const main = MAIN.find((key) => typeof given[key] === "string");
  const others = Object.keys(given).filter((key) => key !== main).sort();
  return [
    ...(name === "bash" ? [] : [name]), ...(main ? [line(given[main] as string)] : []), ...others.map((key) => `${key}=${line(words(given[key]))}`),
  ].join(" ") || name;
}

/** Returns how a call failed; empty if it did not. */
export function failure(result: Pick<Result, "timed_out" | "exit_code">): string {
  if (result.timed_out) return "✗ timed out";
  return result.exit_code ? `✗ ${result.exit_code}` : "";
}

/** Returns why a call answers no others; empty if it does. */
export function unserved(edge: Edge): string {
  if (edge.shared && edge.deterministic) return "";
  const reason = edge.reason ?? (edge.result.timed_out ? "timed out" : "no reason given");
  return `${edge.shared ? "not deterministic" : "not shared"}: ${reason}`;
}

/** Cuts a text in its end, between two characters. */
export function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, Math.max(0, length - 1)).replace(/[\ud800-\udbff]$/, "").trimEnd()}…`;
}

/** Cuts a text so that it differs from others that begin in the same way, as `cut_apart` of cli/text.py does. */
export function cutApart(text: string, others: string[], length: number): string {
  const shown = cut(text, length);
  const alike = others.filter((other) => other !== text && other.startsWith(shown.replace(/…$/, "")));
  if (shown === text || !alike.length) return shown;
  const least = Math.min(text.length, ...alike.map((other) => other.length));
  let common = 0;
  while (common < least && alike.every((other) => other[common] === text[common])) common += 1;
  const blank = text.slice(0, common).lastIndexOf(" ") + 1;
  const near = Math.max(0, common - Math.floor(length / 3));
  const word = [...text.slice(0, common).matchAll(/(?<=[^\p{L}\p{N}_])[\p{L}\p{N}_]/gu)].find(({ index }) => index >= near);
  const begin = blank >= near ? blank : word ? word.index : common - Math.floor(length / 6);
  return cut(`${cut(text.split(" ", 1)[0]!, Math.floor(length / 3))} …${text.slice(begin)}`, length);
}

interface Look { front: string; back: string; bold: boolean; faint: boolean; italic: boolean; underlined: boolean; inverse: boolean }
const PLAIN: Look = { front: "", back: "", bold: false, faint: false, italic: false, underlined: false, inverse: false };
// Control sequences: those that end with a letter, those with a text, and two letters alone.
const SEQUENCES = /\x1b\[([0-9;:]*)([ -/]*[@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|\x1b/g;

/** Returns a text of a terminal: colours become classes, other control sequences are left out, the rest is text. */
export function terminalText(text: string): (VNode | string)[] {
  const found: (VNode | string)[] = [];
  let look = PLAIN;
  let from = 0;
  const add = (piece: string) => {
    if (!piece) return;
    const names = classes(look);
    found.push(names ? <span class={names}>{piece}</span> : piece);
  };
  text = text.replaceAll("\r\n", "\n");
  for (const match of text.matchAll(SEQUENCES)) {
    add(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") look = next(look, match[1]!.split(/[;:]/).map(Number));
  }
  add(text.slice(from));
  return found;
}

function classes(look: Look): string {
  const { front, back } = look.inverse ? { front: look.back || "inverse", back: look.front || "inverse" } : look;
  const flags = (["bold", "faint", "italic", "underlined"] as const).filter((name) => look[name]).map((name) => `ansi-${name}`);
  return [...(front ? [`ansi-${front}`] : []), ...(back ? [`ansi-on-${back}`] : []), ...flags].join(" ");
}

function next(look: Look, numbers: number[]): Look {
  look = { ...look };
  for (let place = 0; place < numbers.length; place += 1) {
    const number = numbers[place]!;
    if (number === 0) look = { ...PLAIN };
    else if (number === 1) look.bold = true;
    else if (number === 2) look.faint = true;
    else if (number === 3) look.italic = true;
    else if (number === 4) look.underlined = true;
    else if (number === 7) look.inverse = true;
    else if (number === 22) look.bold = look.faint = false;
    else if (number === 23) look.italic = false;
    else if (number === 24) look.underlined = false;
    else if (number === 27) look.inverse = false;
    else if (number >= 30 && number <= 37) look.front = `${number - 30}`;
    else if (number >= 90 && number <= 97) look.front = `${number - 82}`;
    else if (number >= 40 && number <= 47) look.back = `${number - 40}`;
    else if (number >= 100 && number <= 107) look.back = `${number - 92}`;
    else if (number === 39) look.front = "";
    else if (number === 49) look.back = "";
    else if (number === 38 || number === 48) {
      const indexed = numbers[place + 1] === 5;
      const colour = indexed ? numbers[place + 2] ?? 0 : nearest(numbers.slice(place + 2, place + 5));
      place += indexed ? 2 : 4;
      look[number === 38 ? "front" : "back"] = `${colour < 16 ? colour : nearest(components(colour))}`;
    }
  }
  return look;
}

/** Returns red, green and blue of one of the 256 colours from 16 on. */
function components(colour: number): number[] {
  if (colour >= 232) return Array(3).fill(8 + 10 * (colour - 232));
  const level = (step: number) => (step ? 55 + 40 * step : 0);
  return [level(Math.floor((colour - 16) / 36)), level(Math.floor((colour - 16) / 6) % 6), level((colour - 16) % 6)];
}

/** Returns which of the 16 colours is near to one. */
function nearest([red = 0, green = 0, blue = 0]: number[]): number {
  const highest = Math.max(red, green, blue);
  if (highest < 50) return 0;
  const bits = [red, green, blue].reduce((sum, value, bit) => sum + (value > 0.6 * highest ? 1 << bit : 0), 0);
  if (bits === 7) return highest > 220 ? 15 : highest > 120 ? 7 : 8;
  return bits + (highest > 190 ? 8 : 0);
}

/** What a call returned. */
export function Output({ parts }: { parts: Part[] }) {
  return (
    <>
      {parts.map((part) =>
        typeof part.data === "string" ? (
          <pre class="output" tabIndex={0} aria-label={part.media_type}>{part.data ? terminalText(part.data) : <span class="note">no output</span>}</pre>
        ) : (
          <p class="note">{part.media_type}, {size(Math.floor((part.data.base64.length * 3) / 4))}</p>
        ),
      )}
    </>
  );
}
