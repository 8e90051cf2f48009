// One state: how it came about, what its calls returned, what differs, its files, a terminal in a fork of it.
import { get, type Edge, type Shown } from "./api.ts";
import { encode } from "./names.ts";
import { Diff } from "./diff.tsx";
import { Files } from "./files.tsx";
import { Shell } from "./shell.tsx";
import { callText, count, cut, failure, moment, Output, seconds, size, unserved } from "./text.tsx";
import { useKeys, useLoaded } from "./use.ts";

const TABS = [["output", "Output"], ["diff", "Difference"], ["files", "Files"], ["terminal", "Terminal"]] as const;

/** The view of a state, named by its hash or a prefix of it. */
export function StatePage({ name, tab, rest }: { name: string; tab: string; rest: string[] }) {
  const { data, error } = useLoaded((signal) => get<Shown>(`/v1/states/${encode(name)}`, signal), [name]);
  const parent = data?.state.parent;
  useKeys({ u: () => { if (parent) location.hash = `/state/${parent}`; } });
  if (error) return <><h1>State <code>{name.slice(0, 12)}</code></h1><p role="alert" class="error">{error}</p><p>Its task may have been forgotten: see the <a href="#/tasks">tasks</a>.</p></>;
  if (!data) return <p>Loading…</p>;
  const { state, root, lineage, snapshots, refusal } = data;
  const made = lineage.at(-1);
  return (
    <>
      <h1>State <code>{state.hash.slice(0, 12)}</code></h1>
      <p class="note">
        {[
          `image ${root.image_name}`, root.salt ? `salt ${root.salt}` : "", root.network !== "none" ? `network ${root.network}` : "", count(state.depth, "call") + " from its root", `first reached ${moment(state.created)} UTC`,
          state.private ? `private: ${state.private}` : "", ...snapshots.map((one) => `snapshot of ${size(one.size)}, forked ${count(one.forks, "time")}`),
          refusal ? `no snapshot: ${refusal}` : "", made?.active ? `may change by itself: ${made.active}` : "",
        ].filter(Boolean).join("; ")}
      </p>
      <p class="group">
        {parent && <a class="button" href={`#/state/${parent}`}>Parent</a>}
        <a class="button" href={`#/task/?state=${state.hash}&root=${state.root}`}>In the tree</a>
      </p>
      <nav class="tabs" aria-label="Parts of the state">
        {TABS.map(([id, words]) => <a href={`#/state/${state.hash}/${id}`} aria-current={id === tab ? "page" : undefined}>{words}</a>)}
      </nav>
      {tab === "diff" ? <Diff key={rest[0]} state={state.hash} parent={parent ?? null} other={rest[0] ?? ""} />
        : tab === "files" ? <Files state={state.hash} path={`/${rest.filter(Boolean).join("/")}`} />
        : tab === "terminal" ? <Shell state={state.hash} />
        : tab === "output" ? <Calls shown={data} />
        : <p role="alert" class="error">A state has no part {tab}.</p>}
    </>
  );
}

function Calls({ shown: { lineage, calls, state } }: { shown: Shown }) {
  const made = lineage.at(-1);
  const unchanging = calls.filter((edge) => edge.next_state === state.hash);
  const changing = calls.filter((edge) => edge.next_state !== state.hash);
  return (
    <>
      {made ? <><h2>The call that led here</h2><Made edge={made} /></> : <p>This is a root: the image as it starts.</p>}
      {unchanging.length > 0 && <h2>Calls here that changed nothing</h2>}
      {unchanging.map((edge) => <Made edge={edge} />)}
      {changing.length > 0 && (
        <>
          <h2>Calls that lead on</h2>
          <ul class="steps">{changing.map((edge) => <Step edge={edge} />)}</ul>
        </>
      )}
      {lineage.length > 1 && (
        <details><summary>{count(lineage.length, "call")} from the root to here</summary><ol class="steps">{lineage.map((edge) => <Step edge={edge} />)}</ol></details>
      )}
    </>
  );
}

function Step({ edge }: { edge: Edge }) {
  return <li><a href={`#/state/${edge.next_state}`}><code>{cut(callText(edge.call), 200)}</code></a>{" "}
    <span class="failure">{failure(edge.result)}</span> <span class="note">{seconds(edge.result.duration)}</span></li>;
}

function Made({ edge }: { edge: Edge }) {
  return (
    <article class="card">
      <pre class="call" tabIndex={0} aria-label={`Call of ${edge.call.name}`}>{callText(edge.call)}</pre>
      <p class="note">
        {[edge.call.name, `exit status ${edge.result.exit_code ?? "none"}`, failure(edge.result), seconds(edge.result.duration),
          `answered ${count(edge.hits, "call")}`, unserved(edge), edge.result.strain ?? "", edge.result.truncated ? "the output was cut" : ""].filter(Boolean).join(", ")}
      </p>
      <Output parts={edge.result.parts} />
    </article>
  );
}
