// What the cache did, and what it uses now: figures and plots, which are loaded again and again.
import { get, type Tally } from "./api.ts";
import { Bars, ByEpoch } from "./plots.tsx";
import { count, percent, seconds, size } from "./text.tsx";
import { useLoaded } from "./use.ts";

interface Reason { reason: string; count: number; advice?: string }
interface Figures {
  home: string; rollouts: number; tasks: number; states: number; calls: number; hits: number; coalesced: number; executed: number; hit_rate: number;
  answered_s: number; saved_s: number; forks: number; snapshots: number; snapshot_bytes: number; disk_bytes: number; free_bytes: number;
  sandboxes: number; sandbox_memory_bytes: number; snapshots_refused: number; by_depth: { from: number; to: number; calls: number; answered: number }[];
  reasons: Reason[]; unshared: Reason[]; without_snapshot: Reason[];
}
interface Stats { sandboxes: number; parked: number; ready: number; trouble: string | null; budget: Record<string, [number, number | null]> }

/** The figures of the data directory; of a tenant, the server tells none. */
export function Overview() {
  const { data, error } = useLoaded(async (signal) => {
    const [{ stats, figures }, { tallies }] = await Promise.all([
      get<{ stats: Stats; figures: Figures }>("/v1/stats", signal),
      get<{ tallies: Tally[] }>("/v1/tallies?by=epoch", signal),
    ]);
    return { stats, figures, epochs: tallies };
  }, [], 3000);
  if (error && !data) return <><h1>Overview</h1><p role="alert" class="error">{error}</p><p><a href="#/tasks">Tasks</a></p></>;
  if (!data) return <><h1>Overview</h1><p>Loading…</p></>;
  const { stats, figures, epochs } = data;
  const disk = stats.budget.disk?.[1];
  const cards: [string, string, string][] = [
    ["hit rate", figures.calls ? percent(figures.hits + figures.coalesced, figures.calls) : "–", `of ${count(figures.calls, "call")} in ${count(figures.rollouts, "rollout")}`],
    [figures.saved_s < 0 ? "time not saved" : "time saved", seconds(Math.abs(figures.saved_s)),
      `answered calls had taken ${seconds(figures.answered_s)}; answers, forks and snapshots, ${seconds(figures.answered_s - figures.saved_s)}`],
    ["states", figures.states.toLocaleString("en"), `of ${count(figures.tasks, "task")}`],
    ["sandboxes", `${figures.sandboxes}`, `${size(figures.sandbox_memory_bytes)}; here ${stats.parked} parked, ${stats.ready} made ahead`],
    ["snapshots", figures.snapshots.toLocaleString("en"), `${size(figures.snapshot_bytes)}${disk ? ` of at most ${size(disk)}` : ""}, ${count(figures.forks, "fork")}`],
    ["disk", size(figures.disk_bytes), `${size(figures.free_bytes)} are free`],
  ];
  return (
    <>
      <h1>Overview</h1>
      <p class="note"><code>{figures.home}</code></p>
      {error && <p role="alert" class="error">{error}</p>}
      {stats.trouble && <p role="alert" class="error">No snapshots are taken now: {stats.trouble}</p>}
      <dl class="cards">{cards.map(([name, value, words]) => <div class="card"><dt>{name}</dt><dd><strong>{value}</strong><span class="note">{words}</span></dd></div>)}</dl>
      <div class="plots">
        <ByEpoch epochs={epochs} />
        <Bars title="Hit rate by a call's place in its rollout" names={figures.by_depth.map((one) => (one.from === one.to ? `${one.from}` : `${one.from}-${one.to}`))}
          series={[{ name: "", values: figures.by_depth.map((one) => (100 * one.answered) / one.calls) }]} words={(value) => `${value.toFixed(0)} %`} most={100} />
      </div>
      <Reasons title="Why calls were executed" reasons={figures.reasons} none="None was." />
      <Reasons title="Calls that are not shared" reasons={figures.unshared} none="All recorded calls answer others." />
      <Reasons title="States that could not be kept by a snapshot" reasons={figures.without_snapshot} none="None was refused." />
      {figures.snapshots_refused > 0 && <p>{count(figures.snapshots_refused, "snapshot")} were not taken for want of room.</p>}
    </>
  );
}

function Reasons({ title, reasons, none }: { title: string; reasons: Reason[]; none: string }) {
  return (
    <>
      <h2>{title}</h2>
      {reasons.length ? (
        <div class="scroll" tabIndex={0} role="region" aria-label={title}>
          <table><thead><tr><th scope="col">reason</th><th scope="col">number</th>{reasons[0]!.advice && <th scope="col" class="wraps">for more answers</th>}</tr></thead>
            <tbody>{reasons.map((one) => <tr><th scope="row" class="wraps">{one.reason}</th><td>{one.count.toLocaleString("en")}</td>{one.advice && <td class="wraps">{one.advice}</td>}</tr>)}</tbody></table>
        </div>
      ) : <p>{none}</p>}
    </>
  );
}
