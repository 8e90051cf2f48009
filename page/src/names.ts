// What is shown, and what is in addresses: names and texts may hold anything.
import { options, type VNode } from "preact";

// As in cli/text.py: characters that control a terminal or that make text look different from what it is.
const UNSAFE =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/** Returns a text with all that is no plain text shown as text: `^[` for escape, `\x9b`, `\u202e`. */
export function visible(text: string): string {
  return text.replace(UNSAFE, (character) => {
    const code = character.codePointAt(0)!;
    if (code < 0x20) return `^${String.fromCharCode(code + 0x40)}`;
    if (code === 0x7f) return "^?";
    const byte = code >= 0xdc80 && code <= 0xdcff ? code - 0xdc00 : code;
    const [letter, digits] = byte < 0x100 ? ["x", 2] : byte < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${letter}${byte.toString(16).padStart(digits as number, "0")}`;
  });
}

/** Returns a name as `visible` does, with its line breaks and tabs shown, too, and the blanks that it begins or ends with. */
export function visibleName(name: string): string {
  return visible(name).replaceAll("\n", "^J").replaceAll("\t", "^I").replace(/^ +| +$/g, (blanks) => "\\x20".repeat(blanks.length));
}

/** Has all texts, titles and labels of the page shown by `visible`: what is searched, copied into addresses or sent stays as it is. */
export function showVisibly(): void {
  const before = options.vnode;
  options.vnode = (node: VNode) => {
    const shown = node as unknown as { type: unknown; props: string | Record<string, unknown> };
    if (shown.type === null && typeof shown.props === "string") shown.props = visible(shown.props);
    else if (typeof shown.type === "string" && typeof shown.props === "object")
      for (const name of ["title", "aria-label"]) {
        const words = shown.props[name];
        if (typeof words === "string") shown.props[name] = visible(words);
      }
    before?.(node);
  };
}

/** Returns a text as part of an address. A lone surrogate from \udc80 to \udcff is a byte that is not UTF-8, as the server tells names. */
export function encode(text: string): string {
  const pieces = text.split(/([\udc80-\udcff])/u);
  return pieces.map((piece, place) => (place % 2 ? `%${(piece.charCodeAt(0) - 0xdc00).toString(16)}` : encodeURIComponent(piece))).join("");
}

/** Returns what `encode` was given; a `%` that stands for nothing is left as it is. */
export function decode(text: string): string {
  return text.replace(/(?:%[0-9a-f]{2})+/gi, (escapes) => {
    const bytes = Uint8Array.from(escapes.slice(1).split("%"), (digits) => parseInt(digits, 16));
    let found = "";
    for (let at = 0; at < bytes.length;) {
      const read = [1, 2, 3, 4].map((length) => character(bytes.subarray(at, at + length))).find((one) => one !== null);
      const length = read ? new TextEncoder().encode(read).length : 1;
      found += read ?? String.fromCharCode(0xdc00 + bytes[at]!);
      at += length;
    }
    return found;
  });
}

function character(bytes: Uint8Array<ArrayBuffer>): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}
