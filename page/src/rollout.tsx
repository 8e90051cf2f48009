// One rollout: its calls in order, how each was answered, how long it took, and why it was executed.
import { useState } from "preact/hooks";
import { get, type Rollout, type Step, type Summary } from "./api.ts";
import { encode } from "./names.ts";
import { callText, count, cut, failure, moment, Output, percent, seconds, unserved } from "./text.tsx";
import { useLoaded } from "./use.ts";

const ANSWERED = ["hit", "coalesced"];
const SOURCES: Record<string, string> = {
  hit: "answered from the cache", coalesced: "answered by waiting for another rollout that was executing the same",
  executed: "executed in the rollout's own sandbox", parked: "executed in a sandbox that was kept in this state", ready: "executed in a sandbox that was made ahead of time",
  forked: "executed in a fork of the state", started: "executed in a fresh sandbox", replayed: "executed in a sandbox in which the calls before were made again",
  failed: "came to an error of tvsnap, and not to a result",
};

/** Returns the address of a rollout's view. */
export function rolloutAddress(id: string): string { return `#/rollout/${encode(id)}`; }

/** The view of a rollout, named by its id, a prefix of it or its label. */
export function RolloutPage({ name }: { name: string }) {
  const { data, error } = useLoaded(async (signal) => {
    const told = await get<{ rollout: Rollout | null; steps: Step[] }>(`/v1/transcripts/${encode(name)}`, signal);
    const found = told.rollout && (await get<{ rollouts: Summary[] }>(`/v1/transcripts?id=${encode(told.rollout.id)}`, signal)).rollouts;
    return { ...told, summary: found?.[0] };
  }, [name], 10_000);
  if (error && !data) return <><h1>Rollout {cut(name, 40)}</h1><p role="alert" class="error">{error}</p></>;
  if (!data) return <><h1>Rollout {cut(name, 40)}</h1><p>Loading…</p></>;
  const { rollout, steps, summary } = data;
  if (!rollout) return <><h1>Rollout {cut(name, 40)}</h1><p role="alert" class="error">No such rollout is known: it may have been forgotten.</p><p><a href="#/tasks">Tasks</a></p></>;
  const answered = steps.filter(({ source }) => ANSWERED.includes(source)).length;
  const sum = (of: (step: Step) => number) => steps.reduce((total, step) => total + of(step), 0);
  const sources = Object.keys(SOURCES).filter((source) => steps.some((step) => step.source === source));
  return (
    <>
      <h1>Rollout {rollout.label || <code>{rollout.id.slice(0, 12)}</code>}</h1>
      <p class="note">
        {[
          rollout.label ? rollout.id.slice(0, 12) : "", rollout.epoch === null ? "" : `epoch ${rollout.epoch}`, `image ${rollout.image}`,
          summary?.salt ? `salt ${summary.salt}` : "", summary && summary.network !== "none" ? `network ${summary.network}` : "", `began ${moment(rollout.started)} UTC`,
          rollout.finished === null ? summary?.ended ?? "has not ended" : `ended ${seconds(rollout.finished - rollout.started)} later`, rollout.outcome ?? "",
          rollout.reward === null ? "no reward" : `reward ${rollout.reward.toPrecision(3)}`,
        ].filter(Boolean).join("; ")}
      </p>
      <p class="note">
        {count(steps.length, "call")}, {answered} of them answered{steps.length ? ` (${percent(answered, steps.length)})` : ""}; it waited {seconds(sum((step) => step.seconds))} for
        calls that take {seconds(sum((step) => step.duration))} where they are executed.
      </p>
      <p class="group">
        {rollout.task && <a class="button" href={`#/task/${encode(rollout.task)}?state=${rollout.state}`}>In the tree of {cut(rollout.task, 40)}</a>}
        <a class="button" href={`#/state/${rollout.state}`}>Its last state</a>
      </p>
      {error && <p role="alert" class="error">{error}</p>}
      {steps.length > 0 && (
        <>
          <div class="scroll" tabIndex={0} role="region" aria-label="Calls of the rollout">
            <table class="calls">
              <thead><tr>{[["", "place"], ["call", "wraps"], ["source", "source"], ["exit", ""], ["waited", ""], ["takes", ""]].map(([words, name]) => <th scope="col" class={name!}>{words}</th>)}</tr></thead>
              <tbody>{steps.map((step) => <Row key={step.place} step={step} />)}</tbody>
            </table>
          </div>
          <ul class="legend note">{sources.map((source) => <li><b>{source}</b>: {SOURCES[source]}</li>)}<li><b>takes</b>: where it is executed</li></ul>
        </>
      )}
    </>
  );
}

function Row({ step: { place, source, exit_code, timed_out, seconds: waited, duration, note, call, edge } }: { step: Step }) {
  const [open, setOpen] = useState(false);
  const text = call ? callText(call) : "(its record was deleted)";
  const failed = source === "failed";
  const isAnswered = ANSWERED.includes(source);
  const why = [note && !isAnswered ? (failed ? note : `executed: ${note}`) : "", edge ? unserved(edge) : "", edge && edge.next_state === edge.state ? "changed nothing" : ""].filter(Boolean);
  return (
    <tr>
      <td class="note place">{place}</td>
      <th scope="row" class="wraps">
        {edge ? <a href={`#/state/${edge.next_state}`}><code>{cut(text, 300)}</code></a> : <code>{cut(text, 300)}</code>}
        {why.length > 0 && <div class={failed ? "error" : "note"}>{why.join("; ")}</div>}
        {edge && <details onToggle={(event) => setOpen(event.currentTarget.open)}><summary class="note">output</summary>{open && <Output parts={edge.result.parts} />}</details>}
      </th>
      <td class="source"><span class={isAnswered ? "answered" : failed ? "failure" : ""} title={SOURCES[source] ?? ""}>{source}</span></td>
      <td><span class={exit_code || timed_out ? "failure" : "note"}>{failure({ exit_code, timed_out }) || (exit_code ?? "")}</span></td>
      <td>{seconds(waited)}</td>
      <td class="note">{failed ? "" : seconds(duration)}</td>
    </tr>
  );
}
