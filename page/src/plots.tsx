// Charts of bars; their texts have the size of those around them, as a chart is about as wide as it is drawn for.
import type { Tally } from "./api.ts";
import { seconds } from "./text.tsx";

interface Series { name: string; values: (number | null)[] }
interface BarsProps { title: string; names: string[]; series: Series[]; words: (value: number) => string; most?: number }
const [WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LABELS] = [340, 150, 58, 12, 22, 10];

/** A chart with a bar for each name and series; a value of null has none. */
export function Bars({ title, names, series, words, most }: BarsProps) {
  if (!names.length) return null;
  const all = series.flatMap(({ values }) => values).filter((value) => value !== null);
  const low = Math.min(0, ...all);
  const top = most ?? (Math.max(low, 0, ...all) || (low ? 0 : 1));
  const step = (WIDTH - LEFT) / names.length;
  const high = HEIGHT - TOP - BOTTOM;
  const y = (value: number) => TOP + (high * (top - value)) / (top - low);
  const wide = Math.min(60, 0.8 * step) / series.length;
  const told = (value: number | null) => (value === null ? "none" : words(value));
  const toldAt = (place: number) => series.map(({ name, values }) => [name, told(values[place]!)].filter(Boolean).join(" ")).join(", ");
  return (
    <figure class="card">
      <figcaption>{title}</figcaption>
      {series.length > 1 && (
        <ul class="legend">{series.map(({ name }, number) => <li><svg width="16" height="10" aria-hidden="true"><rect class={`bar ${number ? "second" : ""}`} width="16" height="10" /></svg> {name}</li>)}</ul>
      )}
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${names.map((name, place) => `${name} ${toldAt(place)}`).slice(-40).join(", ")}`}>
        {[...new Set([low, low ? 0 : top / 2, top])].map((value) => (
          <>
            <path class="rule" d={`M${LEFT} ${y(value)}H${WIDTH}`} />
            <text x={LEFT - 6} y={y(value) + 4} text-anchor="end">{words(value)}</text>
          </>
        ))}
        {names.map((name, place) => {
          const middle = LEFT + step * (place + 0.5);
          return (
            <>
              {series.map(({ values }, number) => {
                const value = values[place] ?? 0;
                return (
                  <rect class={`bar ${number ? "second" : ""}`} x={middle + wide * (number - series.length / 2)} width={wide}
                    y={y(Math.max(0, Math.min(top, value)))} height={Math.abs(y(Math.min(top, value)) - y(0))}><title>{`${name}: ${toldAt(place)}`}</title></rect>
                );
              })}
              {place % Math.ceil(names.length / LABELS) === 0 && <text x={middle} y={HEIGHT - 6} text-anchor="middle">{name}</text>}
            </>
          );
        })}
      </svg>
    </figure>
  );
}

/** What rollouts came to by epoch: hit rates, rewards, times. Nothing where no epoch is known. */
export function ByEpoch({ epochs: known }: { epochs: Tally[] }) {
  const epochs = known.filter((one) => one.calls);
  if (!epochs.some(({ key }) => key !== null)) return null;
  const names = epochs.map(({ key }) => key ?? "none");
  const of = (value: (one: Tally) => number | null, name = "") => ({ name, values: epochs.map(value) });
  return (
    <>
      <Bars title="Hit rate by epoch" names={names} series={[of((one) => (100 * (one.hits + one.coalesced)) / one.calls)]} words={(value) => `${value.toFixed(0)} %`} most={100} />
      {epochs.some(({ reward }) => reward !== null) && (
        <Bars title="Mean reward by epoch" names={names} series={[of(({ reward }) => reward)]} words={(value) => (value ? value.toPrecision(2) : "0")} />
      )}
      <Bars title="Time of a call, by epoch" names={names} series={[of((one) => one.waited_s / one.calls, "waited for"), of((one) => one.took_s / one.calls, "takes where executed")]} words={seconds} />
    </>
  );
}
