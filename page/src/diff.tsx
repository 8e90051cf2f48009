// How a state differs from its parent, or from any other state of its image.
import { useState } from "preact/hooks";
import { get, type Difference, type FileAt } from "./api.ts";
import { encode, visibleName } from "./names.ts";
import { useLoaded } from "./use.ts";

const KINDS = { "+": "added", "-": "deleted", M: "changed" };

/** The difference from `other`, where that is chosen, or the parent, to a state. */
export function Diff({ state, parent, other }: { state: string; parent: string | null; other: string }) {
  const [typed, setTyped] = useState(other);
  const from = other || parent || "";
  const { data, error } = useLoaded(
    async (signal) => (from ? (await get<{ difference: Difference }>(`/v1/states/${encode(from)}/diff/${state}?patch=true`, signal)).difference : null),
    [state, from],
  );
  const compare = (event: Event) => { event.preventDefault(); location.hash = `/state/${state}/diff/${typed.trim()}`; };
  const nothing = data && !(data.files.length || data.started.length || data.ended.length || data.shell.length);
  return (
    <>
      <form class="tools" onSubmit={compare}>
        <label>Compare with <input value={typed} placeholder={parent ? `${parent.slice(0, 8)}, the parent` : "a state's hash"} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
        <button type="submit">Compare</button>
      </form>
      {error && <p role="alert" class="error">{error}</p>}
      {!from ? <p>A root has no parent: name another state.</p> : !data ? !error && <p role="status">Comparing sandboxes of both states…</p> : (
        <>
          <p class="note">From <a href={`#/state/${from}`}>{from.slice(0, 8)}</a> to {state.slice(0, 8)}.</p>
          {nothing && <p>They do not differ.</p>}
          {data.files.map((file) => (
            <details class="card" open={data.files.length < 20}>
              <summary><code>{visibleName(file.path)}</code> <span class="note">{KINDS[file.kind]}{what(file.before, file.after)}</span></summary>
              {file.patch && <Patch text={file.patch} />}
            </details>
          ))}
          <Listed title="Processes that were started" lines={data.started.map(({ pid, command }) => `${pid} ${command}`)} />
          <Listed title="Processes that ended" lines={data.ended.map(({ pid, command }) => `${pid} ${command}`)} />
          {data.shell.length > 0 && (
            <>
              <h2>Shell</h2>
              <dl class="pairs">{data.shell.map(({ name, before, after }) => <div><dt>{name}</dt><dd>{before ?? "not set"} → {after ?? "not set"}</dd></div>)}</dl>
            </>
          )}
        </>
      )}
    </>
  );
}

function what(before: FileAt | null, after: FileAt | null): string {
  if (!before || !after) return `, ${(before ?? after)?.kind ?? ""}`;
  const octal = (mode: number) => mode.toString(8).padStart(4, "0");
  return [
    "", ...(before.kind === after.kind ? [] : [`${before.kind} became ${after.kind}`]),
    ...(before.mode === after.mode ? [] : [`mode ${octal(before.mode)} became ${octal(after.mode)}`]),
    ...(before.uid === after.uid && before.gid === after.gid ? [] : [`owner ${before.uid}:${before.gid} became ${after.uid}:${after.gid}`]),
  ].join(", ");
}

function Patch({ text }: { text: string }) {
  const kind = (line: string) => (/^(\+\+\+|---)/.test(line) ? "note" : line[0] === "+" ? "added" : line[0] === "-" ? "removed" : line[0] === "@" ? "note" : "");
  return <pre class="patch" tabIndex={0} aria-label="Lines that differ">{text.trimEnd().split("\n").map((line) => <span class={kind(line)}>{line}{"\n"}</span>)}</pre>;
}

function Listed({ title, lines }: { title: string; lines: string[] }) {
  return lines.length ? <><h2>{title}</h2><pre tabIndex={0}>{lines.join("\n")}</pre></> : null;
}
