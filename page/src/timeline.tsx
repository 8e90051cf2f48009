// Rollouts in time: what each was thinking, waiting for, executing, or answered at once.
import { get } from "./api.ts";
import { encode } from "./names.ts";
import { rolloutAddress } from "./rollout.tsx";
import { count, cutApart, moment, seconds } from "./text.tsx";
import { useLoaded } from "./use.ts";

interface Step { source: string; ended: number; seconds: number; duration: number; exit_code: number | null; timed_out: boolean; call: string; state: string | null }
interface InTime { id: string; label: string; started: number; finished: number | null; state: string; epoch: number | null; reward: number | null; steps: Step[] }
interface Piece { kind: string; from: number; to: number; step?: Step }

const KINDS = { answered: "answered", waiting: "waiting for another rollout", forking: "forking or starting a sandbox", executing: "executing", failed: "failed", thinking: "thinking" };
const WIDTH = 1000;
const ROW = 16;
const LATEST = 50;
/** So many characters of a label find room. */
const LETTERS = 22;

/** The latest rollouts of a task, each from its beginning on. */
export function Timeline({ task }: { task: string }) {
  const chosen = task ? `&task=${encode(task)}` : "";
  const { data, error } = useLoaded(async (signal) => (await get<{ rollouts: InTime[] }>(`/v1/timeline?limit=${LATEST}${chosen}`, signal)).rollouts, [task], 5000);
  const rows = (data ?? []).map((rollout) => ({ rollout, pieces: piecesOf(rollout) })).sort((a, b) => (b.rollout.epoch ?? -1) - (a.rollout.epoch ?? -1));
  const longest = rows.reduce((most, { pieces }) => Math.max(most, pieces.at(-1)?.to ?? 0), 0) || 1;
  const labels = rows.map(({ rollout }) => rollout.label);
  const x = (time: number) => (WIDTH * time) / longest;
  return (
    <section aria-label="Timeline of rollouts">
      <h2>Timeline</h2>
      {error && <p role="alert" class="error">{error}</p>}
      {data && !rows.length && <p>No rollouts are recorded here yet.</p>}
      {rows.length > 0 && (
        <>
          <p class="note">{rows.length === 1 ? "The latest rollout, from its" : `The latest ${rows.length} rollouts, each from its`} beginning; the whole width is {seconds(longest)}. A click opens the state that a call led to; a name, the rollout.</p>
          <ul class="legend">
            {Object.entries(KINDS).map(([kind, words]) => <li><svg width="16" height="10" aria-hidden="true"><rect class={`t-${kind}`} width="16" height="10" /></svg> {words}</li>)}
          </ul>
          <div class="timeline">
            {rows.map(({ rollout, pieces }, place) => (
              <>
              {rollout.epoch !== (place ? rows[place - 1]!.rollout.epoch : null) && <Epoch epoch={rollout.epoch} rollouts={(data ?? []).filter(({ epoch }) => epoch === rollout.epoch)} />}
              <div class="lane">
                <a href={rolloutAddress(rollout.id)} title={`${rollout.label || rollout.id}, began ${moment(rollout.started)} UTC`}>{cutApart(rollout.label, labels, LETTERS) || rollout.id.slice(0, 8)}</a>
                <svg viewBox={`0 0 ${WIDTH} ${ROW}`} preserveAspectRatio="none" role="img"
                  aria-label={`${rollout.steps.length} calls in ${seconds(pieces.at(-1)?.to ?? 0)}${rollout.finished ? "" : ", still open"}`}>
                  {pieces.map((piece) => (
                    <rect class={`t-${piece.kind}`} x={x(piece.from)} width={Math.max(piece.kind === "thinking" ? 0 : 1.5, x(piece.to - piece.from))} height={ROW}
                      onClick={() => { if (piece.step?.state) location.hash = `/state/${piece.step.state}`; }}>
                      <title>{`${piece.step?.call ?? ""} ${KINDS[piece.kind as keyof typeof KINDS]}, ${seconds(piece.to - piece.from)}`}</title>
                    </rect>
                  ))}
                </svg>
                <span class="note">{rollout.reward === null ? (rollout.finished ? "" : "open") : `reward ${rollout.reward.toPrecision(3)}`}</span>
              </div>
              </>
            ))}
          </div>
        </>
      )}
    </section>
  );
}

function Epoch({ epoch, rollouts }: { epoch: number | null; rollouts: InTime[] }) {
  const rewards = rollouts.flatMap(({ reward }) => (reward === null ? [] : [reward]));
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  return <h3>{epoch === null ? "No epoch" : `Epoch ${epoch}`} <span class="note">{count(rollouts.length, "rollout")}{rewards.length ? `, mean reward ${mean.toPrecision(3)}` : ""}</span></h3>;
}

/** Returns what a rollout did, in seconds from its beginning. */
function piecesOf({ started, finished, steps }: InTime): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const step of steps) {
    const end = step.ended - started;
    const begin = Math.max(at, end - step.seconds);
    if (begin > at) pieces.push({ kind: "thinking", from: at, to: begin });
    if (step.source === "hit") pieces.push({ kind: "answered", from: begin, to: end, step });
    else if (step.source === "coalesced") pieces.push({ kind: "waiting", from: begin, to: end, step });
    else if (step.source === "failed") pieces.push({ kind: "failed", from: begin, to: end, step });
    else {
      const middle = step.source === "executed" ? begin : Math.max(begin, end - step.duration);
      if (middle > begin) pieces.push({ kind: "forking", from: begin, to: middle, step });
      pieces.push({ kind: "executing", from: middle, to: end, step });
    }
    at = end;
  }
  if (finished !== null && finished - started > at) pieces.push({ kind: "thinking", from: at, to: finished - started });
  return pieces;
}
