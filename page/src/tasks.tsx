// The tasks, and one task: its tree, its rollouts in time.
import { useMemo, useState } from "preact/hooks";
import { get, outline, type Root, type Rollout, type Tally } from "./api.ts";
import { encode } from "./names.ts";
import { ByEpoch } from "./plots.tsx";
import { count, percent, seconds } from "./text.tsx";
import { Timeline } from "./timeline.tsx";
import { TreeView } from "./treeview.tsx";
import { useLoaded } from "./use.ts";

const FIGURES = ["rollouts", "reward", "calls", "answered", "failing", "waited", "took"];

/** Returns the address of a task's view. */
export function taskAddress(task: string): string { return `#/task/${encode(task)}`; }

/** The list of tasks; of a tenant, the server tells only the names. */
export function Tasks() {
  const [words, setWords] = useState("");
  const { data, error } = useLoaded(async (signal) => {
    const { tasks } = await get<{ tasks: string[] }>("/v1/tasks", signal);
    const tallies = await get<{ tallies: Tally[] }>("/v1/tallies?by=task", signal).then((found) => found.tallies, () => []);
    const known = new Map(tallies.map((one) => [one.key, one]));
    return tasks.map((task) => ({ task, tally: known.get(task) }));
  }, [], 5000);
  const found = data?.filter(({ task }) => task.toLowerCase().includes(words.toLowerCase()));
  return (
    <>
      <h1>Tasks</h1>
      <p><label>Filter <input type="search" value={words} onInput={(event) => setWords(event.currentTarget.value)} /></label>{" "}
        <a href="#/task/">All states, whatever their task</a></p>
      {error && <p role="alert" class="error">{error}</p>}
      {!found ? <p>Loading…</p> : !found.length ? <p>No task has such a name.</p> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Tasks">
          <table class="folding">
            <thead><tr>{["task", ...FIGURES].map((name) => <th scope="col">{name}</th>)}</tr></thead>
            <tbody>
              {found.map(({ task, tally }) => (
                <tr>
                  <th scope="row"><a href={taskAddress(task)}>{task}</a></th>
                  {tally && [
                    tally.rollouts.toLocaleString("en"), tally.reward?.toPrecision(3) ?? "", tally.calls.toLocaleString("en"),
                    percent(tally.hits + tally.coalesced, tally.calls), tally.failing.toLocaleString("en"),
                    seconds(tally.waited_s), seconds(tally.took_s),
                  ].map((text, place) => <td data-name={FIGURES[place]}>{text}</td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** One task; without a name, all states. */
export function Task({ task, query }: { task: string; query: string }) {
  const asked = useMemo(() => new URLSearchParams(query), [query]);
  const root = asked.get("root") ?? "";
  const chosen: Record<string, string> = task ? { task } : root ? { root } : {};
  const { data, error, again } = useLoaded(async (signal) => {
    const [calls, { roots }, { rollouts }, epochs] = await Promise.all([
      outline(chosen, signal),
      get<{ roots: Root[] }>("/v1/roots", signal),
      get<{ rollouts: Rollout[] }>(`/v1/history?${new URLSearchParams(chosen)}`, signal),
      get<{ tallies: Tally[] }>(`/v1/tallies?${new URLSearchParams({ by: "epoch", ...(task ? { task } : {}) })}`, signal).then(({ tallies }) => tallies, () => []),  // a tenant is told none
    ]);
    const begun = new Set(rollouts.map((one) => one.root));
    return { calls, rollouts, epochs, roots: roots.filter(({ hash }) => (task ? begun.has(hash) : !root || hash === root)) };
  }, [task, root], 10_000);
  return (
    <>
      <h1>{task || "All states"}</h1>
      {error && <p role="alert" class="error">{error}</p>}
      {!data ? !error && <p>Loading…</p> : !data.roots.length && !data.calls.length ? <p>{task ? "The task has no states: no such task is known, or its states were forgotten. " : "No states are recorded here yet. "}<a href="#/tasks">Tasks</a></p> : (
        <>
          <p class="note">{count(data.roots.length + data.calls.filter(({ next_state }) => next_state !== null).length, "state")}, {count(data.rollouts.length, "rollout")}{" "}
            <button type="button" onClick={again}>Look again</button></p>
          <TreeView calls={data.calls} roots={data.roots} rollouts={data.rollouts} task={task} state={asked.get("state") ?? ""} search={asked.get("search") ?? ""} />
          {data.epochs.some(({ key }) => key !== null) && <><h2>Epochs</h2><div class="plots"><ByEpoch epochs={data.epochs} /></div></>}
        </>
      )}
      <Timeline task={task} />
    </>
  );
}
