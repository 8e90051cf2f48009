// The tree, drawn: width is visits, colour is source, reward or its change; with a search, zoom, a minimap and keys.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Edge, get, type Outlined, type Rollout, type Root, search as searchServer } from "./api.ts";
import { toldApart } from "./roots.ts";
import { build, type Branch, type Colour, hasCall, label, layout, type Mark, reveal, shapeFor } from "./tree.ts";
import { callText, count, cut, cutApart, failure, seconds, unserved } from "./text.tsx";
import { useKeys } from "./use.ts";

const within = (value: number, [least, most]: readonly [number, number]) => Math.min(most, Math.max(least, value));

/** How wide a column may be, and how high a row: as wide and high as all of them find room. */
const WIDEST = 320;
const ROWS = [28, 44] as const;
/** So many rows there are at least before branches are folded for want of room. */
const FEWEST = 12;
/** What a frame that is narrower than so many pixels has, and a wider one: the least width of a column, so many columns at least, the root's among
    them, and so many characters of a root at most. */
const NARROW = 560;
const leastOf = (width: number) => (width < NARROW ? { column: 104, columns: 2, letters: 14 } : { column: 150, columns: 4, letters: 30 });
const TOP = 26;
/** The height that is left below the tree for what is said of the chosen state. */
const BELOW = 140;
/** The width of a character, and of one in a note. */
const [LETTER, SMALL] = [6.65, 5.75];
const BEND = 34;
/** What is right of the last column. */
const END = 16;
/** Marks are drawn that stand so many pixels outside of what is seen, or nearer. */
const MARGIN = 600;
/** Outputs are searched when nothing was typed for so many milliseconds. */
const PAUSE = 300;
const LEGENDS: Record<Colour, readonly string[]> = {
  source: ["executed once", "answered up to half", "up to 3 in 4", "up to 9 in 10", "more"],
  reward: ["least reward", "", "", "", "most reward"],
  change: ["less reward than from the state above", "", "as much", "", "more"],
};

/** So many calls are asked for at once, at most. */
const ASKED = 500;

interface Props { calls: Outlined[]; roots: Root[]; rollouts: Rollout[]; task: string; state: string; search: string }

/** The tree of a task. */
export function TreeView({ calls, roots, rollouts, task, state, search }: Props) {
  const tops = useMemo(() => build(calls, roots, rollouts), [calls, roots, rollouts]);
  const names = useMemo(() => rootNames(roots, rollouts), [roots, rollouts]);
  const [open, setOpen] = useState(new Set<string>());
  const [colour, setColour] = useState<Colour>("source");
  const [words, setWords] = useState(search);
  const [place, setPlace] = useState(-1);
  const [chosen, setChosen] = useState("");
  const [scale, setScale] = useState(1);
  const [seen, setSeen] = useState({ left: 0, top: 0, width: 1000, height: 600 });
  const [room, setRoom] = useState({ width: 1000, height: 500 });
  const frame = useRef<HTMLDivElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const wanted = useRef("");

  const least = leastOf(room.width);
  const left = useMemo(() => 24 + tops.reduce((most, { hash, unchanging }) => Math.max(most, LETTER * cut(names(hash).text, least.letters).length, SMALL * belowOf(names(hash).note, unchanging, least.letters).length), 0), [tops, names, least.letters]);
  const shape = useMemo(() => shapeFor(tops, Math.max(FEWEST, Math.floor((room.height - TOP) / ROWS[0])), Math.max(least.columns, 1 + Math.floor((room.width - left - END) / least.column))), [tops, room, left]);
  const marks = useMemo(() => layout(tops, open, colour, shape), [tops, open, colour, shape]);
  const columns = useMemo(() => marks.reduce((most, mark) => Math.max(most, mark.column), 1), [marks]);
  const column = Math.floor(within((room.width - left - END) / columns, [least.column, WIDEST]));
  const row = Math.floor(within((room.height - TOP) / rowsOf(marks), ROWS));
  const all = useMemo(() => below(tops), [tops]);
  const text = words.trim().toLowerCase();
  const [answer, setAnswer] = useState({ text: "", ids: new Set<number>(), error: "" });
  useEffect(() => {  // the server alone has the outputs
    if (!text) return;
    const ending = new AbortController();
    const ask = () => searchServer(text, task, ending.signal).then(
      (ids) => setAnswer({ text, ids, error: "" }),
      (error: Error) => { if (!ending.signal.aborted) setAnswer({ text, ids: new Set(), error: error.message }); },
    );
    const timer = window.setTimeout(ask, PAUSE);
    return () => { window.clearTimeout(timer); ending.abort(); };
  }, [text, task, calls.length]);
  const found = useMemo(() => {
    const ids = answer.text === text ? answer.ids : new Set<number>();
    return text ? all.filter((branch) => branch.text.includes(text) || hasCall(branch, ids)) : [];
  }, [all, text, answer]);
  const matches = useMemo(() => new Set(found), [found]);
  const width = left + column * columns + END;
  const height = TOP + row * rowsOf(marks);
  const x = (mark: Mark) => left + column * mark.column;
  const y = (mark: Mark) => TOP + row * mark.row;
  const of = (key: string) => marks.find((mark) => mark.key === key);

  const look = () => {
    const at = frame.current;
    if (at) setSeen({ left: at.scrollLeft, top: at.scrollTop, width: at.clientWidth, height: at.clientHeight });
  };
  useLayoutEffect(() => {
    const measure = () => {
      const at = frame.current!;
      const top = at.getBoundingClientRect().top + window.scrollY;
      const [wide, high] = [at.clientWidth, Math.max(FEWEST * ROWS[0] + TOP, window.innerHeight - top - BELOW)];
      setRoom((before) => (before.width === wide && before.height === high ? before : { width: wide, height: high }));
      look();
    };
    measure();
    const watching = new ResizeObserver(measure);
    watching.observe(frame.current!);
    window.addEventListener("resize", measure);
    return () => { watching.disconnect(); window.removeEventListener("resize", measure); };
  }, []);
  useLayoutEffect(() => {  // after the drawing has what is to be seen
    const mark = of(wanted.current);
    if (!mark || !frame.current) return;
    wanted.current = "";
    frame.current.scrollTo({ left: x(mark) * scale - frame.current.clientWidth / 2, top: y(mark) * scale - frame.current.clientHeight / 2 });
    look();
  });
  const show = (branch: Branch) => {
    const folds = new Set(open);
    const mark = reveal(branch, tops, folds, shape);
    setOpen(folds);
    if (mark) { setChosen(mark.key); wanted.current = mark.key; }
  };
  useEffect(() => {
    const branch = state && all.find(({ hash }) => hash.startsWith(state));
    if (branch) show(branch);
  }, [state, all.length === 0, room]);
  useEffect(() => {  // what is chosen stays in view when the tree has grown, and is folded anew
    const branch = chosen && !of(chosen) && all.find(({ hash }) => hash === chosen);
    if (!branch) return;
    const folds = new Set(open);
    reveal(branch, tops, folds, shape);
    setOpen(folds);
  }, [marks]);

  const go = (step: number) => {
    if (!found.length) return;
    const next = place < 0 ? (step > 0 ? 0 : found.length - 1) : (place + step + found.length) % found.length;
    setPlace(next);
    show(found[next]!);
  };
  const toggle = (mark: Mark) => {
    const folds = new Set(open);
    if (mark.fold) { folds.add(mark.key); setChosen(mark.parent!.key); }
    else if (mark.opened.length) mark.opened.forEach((key) => folds.delete(key));
    else return;
    setOpen(folds);
  };
  const zoom = (factor: number, at = { x: seen.width / 2, y: seen.height / 2 }) => {
    const next = factor ? Math.min(2, Math.max(0.15, scale * factor)) : Math.min(1, Math.max(0.15, Math.min(room.width / width, room.height / height)));
    const part = next / scale;
    setScale(next);
    requestAnimationFrame(() => {
      frame.current?.scrollTo({ left: (seen.left + at.x) * part - at.x, top: (seen.top + at.y) * part - at.y });
      look();
    });
  };
  const choose = (mark: Mark | undefined) => {
    if (mark) { setChosen(mark.key); wanted.current = mark.key; }
  };
  useKeys({
    "/": () => input.current?.focus(),
    "+": () => zoom(1.25),
    "-": () => zoom(0.8),
    0: () => zoom(0),
  });
  const typed = (event: KeyboardEvent) => {
    const mark = of(chosen) ?? marks[0]!;
    const rows = () => marks.filter((one) => one.column === mark.column).sort((a, b) => a.row - b.row);
    const acts: Record<string, () => void> = {
      ArrowLeft: () => choose(mark.parent ?? mark),
      ArrowRight: () => choose(mark.children[0] ?? mark),
      ArrowUp: () => choose(rows()[rows().indexOf(mark) - 1] ?? mark),
      ArrowDown: () => choose(rows()[rows().indexOf(mark) + 1] ?? mark),
      Home: () => choose(marks[0]),
      " ": () => toggle(mark),
      Enter: () => (mark.fold ? toggle(mark) : openState(mark)),
    };
    const act = acts[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  };
  useEffect(() => {  // by hand, as a browser may not be kept from zooming by a listener that is passive
    const at = frame.current!;
    const turned = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = at.getBoundingClientRect();
      zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - box.left, y: event.clientY - box.top });
    };
    at.addEventListener("wheel", turned, { passive: false });
    return () => at.removeEventListener("wheel", turned);
  });

  const inSight = (mark: Mark) => {
    const [px, py] = [x(mark) * scale, y(mark) * scale];
    const above = mark.parent ? y(mark.parent) * scale : py;
    return px > seen.left - MARGIN && px - column * scale < seen.left + seen.width + MARGIN
      && Math.max(py, above) > seen.top - MARGIN && Math.min(py, above) < seen.top + seen.height + MARGIN;
  };
  const current = of(chosen);
  const seenMarks = marks.filter(inSight);
  const beside = (mark: Mark) => (mark.parent?.children ?? []).filter((one) => !one.fold);
  const wantedTexts = new Set([...seenMarks.flatMap((mark) => [mark, ...beside(mark)]), ...(current ? [current] : [])]);
  const texts = useTexts([...wantedTexts].flatMap(({ fold, branches: [branch] }) => (!fold && branch!.made ? [branch!.made.id] : [])));
  const textOf = (mark: Mark) => label(mark, texts) ?? names(mark.branches[0]!.hash).text;
  return (
    <section aria-label="Tree of states">
      <div class="tools">
        <label>Search <input ref={input} type="search" value={words} placeholder="calls, outputs, states, exit status" onInput={(event) => { setWords(event.currentTarget.value); setPlace(-1); }}
          onKeyDown={(event) => { if (event.key === "Enter") go(event.shiftKey ? -1 : 1); if (event.key === "Escape") event.currentTarget.blur(); }} /></label>
        <output aria-live="polite">{!text ? "" : place < 0 ? `${found.length} found` : `${place + 1} of ${found.length}`}</output>
        {text && answer.text === text && answer.error && <span role="alert" class="error">Outputs were not searched: {answer.error}</span>}
        <label>Colour <select value={colour} onChange={(event) => setColour(event.currentTarget.value as Colour)}>
          <option value="source">source</option><option value="reward">reward</option><option value="change">change of reward</option>
        </select></label>
        <span class="group">
          <button type="button" aria-label="Smaller" onClick={() => zoom(0.8)}>−</button>
          <button type="button" aria-label="Larger" onClick={() => zoom(1.25)}>+</button>
          <button type="button" onClick={() => zoom(0)}>Whole</button>
        </span>
        <button type="button" disabled={!open.size} onClick={() => { setOpen(new Set()); setChosen(""); }}>Fold all</button>
      </div>
      <div class="above">
      <ul class="legend">
        {LEGENDS[colour].map((words, shade) => (
          <li><svg width="22" height="8" aria-hidden="true"><path class={`edge ${colour === "change" ? "d" : "s"}${shade}`} stroke-width="6" d="M0 4h22" /></svg>{" "}{words}</li>
        ))}
        <li class="note">filled: has a snapshot; dashed: not shared; width: visits</li>
      </ul>
      <Minimap marks={marks} matches={matches} x={x} y={y} column={column} width={width} height={height} scale={scale} seen={seen}
        go={(left, top) => { frame.current?.scrollTo({ left, top }); look(); }} />
      </div>
        <div class="frame" ref={frame} tabIndex={0} style={{ height: `${Math.min(room.height, height)}px` }} role="tree" aria-label="States" aria-activedescendant={current && inSight(current) ? `m-${current.key}` : undefined}
          onScroll={look} onKeyDown={typed}>
          <svg width={width * scale} height={height * scale} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="xMinYMin" role="presentation"
            class={`${text ? "searching" : ""} ${scale < 0.5 ? "small" : ""}`}>
            {seenMarks.map((mark) => (
              <Drawn key={mark.key} mark={mark} x={x(mark)} y={y(mark)} column={column} above={mark.parent ? y(mark.parent) - y(mark) : 0} text={textOf(mark)} beside={beside(mark).map(textOf)}
                note={mark.parent ? "" : names(mark.branches[0]!.hash).note} longest={least.letters} isChosen={mark.key === chosen}
                matches={mark.branches.some((branch) => matches.has(branch))} act={() => { setChosen(mark.key); if (mark.fold) toggle(mark); }} />
            ))}
          </svg>
        </div>
      {current && !current.fold ? <Chosen mark={current} toggle={() => toggle(current)} names={names} texts={texts} /> : <p class="card note">Choose a state: by a click, or by the arrow keys.</p>}
    </section>
  );
}

function openState(mark: Mark): void { location.hash = `/state/${mark.branches[0]!.hash}`; }

/** Returns calls, without outputs, that have been asked for by their ids; null for those of which there is no record any more. */
function useTexts(wanted: number[]): Map<number, Edge | null> {
  const [texts, setTexts] = useState(new Map<number, Edge | null>());
  const missing = wanted.filter((id) => !texts.has(id)).slice(0, ASKED);
  useEffect(() => {
    if (!missing.length) return;
    const ending = new AbortController();
    get<{ calls: Edge[] }>(`/v1/calls?ids=${missing.join(",")}`, ending.signal).then(({ calls }) => {
      const found = new Map(calls.map((edge) => [edge.id, edge]));
      setTexts((known) => new Map([...known, ...missing.map((id): [number, Edge | null] => [id, found.get(id) ?? null])]));
    }, () => undefined);  // what is loaded again and again tells that the server cannot be reached, and asks again
    return () => ending.abort();
  }, [missing.join(",")]);
  return texts;
}

function below(tops: Branch[]): Branch[] {
  const found = [...tops];
  for (let place = 0; place < found.length; place += 1) found.push(...found[place]!.children);
  return found;
}

function rowsOf(marks: Mark[]): number { return marks.reduce((rows, mark) => rows + (mark.children.length ? 0 : 1), 0) || 1; }

interface RootName { text: string; note: string }

/** Returns what says of a root its image, how many rollouts began there, and what tells it from others of the image. */
function rootNames(roots: Root[], rollouts: Rollout[]): (hash: string) => RootName {
  const begun = new Map<string, number>();
  for (const { root } of rollouts) begun.set(root, (begun.get(root) ?? 0) + 1);
  const known = new Map(roots.map((root) => [root.hash, root]));
  const apart = toldApart(roots);
  return (hash) => ({ text: `${known.get(hash)?.image_name ?? hash.slice(0, 8)} ×${begun.get(hash) ?? 0}`, note: apart.get(hash) ?? "" });
}

/** Returns what stands below a mark: a note of at most so many characters, and how many calls changed nothing there. */
function belowOf(note: string, unchanging: Outlined[], longest: number): string {
  return [cut(note, longest), unchanging.length ? `+ ${count(unchanging.length, "call")}` : ""].filter(Boolean).join(", ");
}

interface DrawnProps {
  mark: Mark; x: number; y: number; column: number; above: number; text: string; beside: string[]; note: string; longest: number; isChosen: boolean; matches: boolean; act: () => void;
}

function Drawn({ mark, x, y, column, above, text, beside, note, longest, isChosen, matches, act }: DrawnProps) {
  const { unchanging } = mark.branches[0]!;
  const made = mark.fold ? null : mark.branches[0]!.made;
  const wide = Math.min(12, 1.5 + Math.log2(mark.visits));
  const unshared = made && !made.served ? "unshared" : "";
  const failed = made ? failure(made) : "";
  const tx = mark.parent ? BEND + 4 - column : -10;
  const letters = mark.parent ? Math.floor((column - BEND - 12) / LETTER) - (failed ? failed.length + 1 : 0) : longest;
  const shown = cutApart(text, beside, letters);
  const below = belowOf(note, mark.fold ? [] : unchanging, longest);
  const filled = mark.kind === "kept" || mark.kind === "root";
  return (
    <g id={`m-${mark.key}`} role="treeitem" aria-level={mark.column + 1} aria-selected={isChosen} aria-label={[shown, failed, below].filter(Boolean).join(" ")}
      aria-expanded={mark.fold ? false : mark.children.length ? true : undefined} class={`mark ${isChosen ? "chosen" : ""} ${matches ? "match" : ""}`}
      transform={`translate(${x} ${y})`} onClick={act} onDblClick={() => !mark.fold && openState(mark)}>
      {mark.parent && <path class={`edge ${mark.shade ?? ""} ${unshared}`} stroke-width={wide}
        d={`M${5 - column} ${above}C${BEND - column} ${above} ${-column} 0 ${BEND - column} 0H0`} />}
      <text x={tx} y={mark.parent ? -wide / 2 - 3 : -4} text-anchor={mark.parent ? "start" : "end"}>{shown}{failed && <tspan class="failure"> {failed}</tspan>}</text>
      {below && <text class="note" x={tx} y={mark.parent ? wide / 2 + 10 : 12} text-anchor={mark.parent ? "start" : "end"}>{below}</text>}
      {mark.kind === "folded" || mark.kind === "private"
        ? <rect class={mark.kind} x="-4" y="-4" width="8" height="8" transform={mark.kind === "private" ? "rotate(45)" : undefined} />
        : <circle class={filled ? "filled" : "hollow"} r="5" />}
    </g>
  );
}

interface ChosenProps { mark: Mark; toggle: () => void; names: (hash: string) => RootName; texts: Map<number, Edge | null> }

function Chosen({ mark, toggle, names, texts }: ChosenProps) {
  const { hash, made, unchanging, rewards, graded } = mark.branches[0]!;
  const edge = made && texts.get(made.id);
  return (
    <aside class="card" aria-label="The chosen state">
      <p><a class="button" href={`#/state/${hash}`}>Open the state {hash.slice(0, 8)}</a>{" "}
        {mark.opened.length > 0 && <button type="button" onClick={toggle}>Close the fold here</button>}</p>
      <pre class="call" tabIndex={0}>{edge ? cut(callText(edge.call), 2000) : made ? "…" : [names(hash).text, names(hash).note].filter(Boolean).join(", ")}</pre>
      <p class="note">
        {[
          made && seconds(made.duration), made && (made.hits ? `answered ${count(made.hits, "call")}` : "answered no call yet"), made && failure(made), edge && unserved(edge),
          made?.kept ? "has a snapshot" : "", graded ? `reward ${(rewards / graded).toPrecision(3)}, the mean of ${graded}` : "",
          unchanging.length ? `${count(unchanging.length, "call")} that changed nothing` : "",
        ].filter(Boolean).join(", ")}
      </p>
    </aside>
  );
}

interface MinimapProps {
  marks: Mark[]; matches: Set<Branch>; x: (mark: Mark) => number; y: (mark: Mark) => number; column: number; width: number; height: number; scale: number;
  seen: { left: number; top: number; width: number; height: number }; go: (left: number, top: number) => void;
}

/** The whole tree in small, where not all of it is in view. */
function Minimap({ marks, matches, x, y, column, width, height, scale, seen, go }: MinimapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [w, h] = [150, 44];
  const needed = width * scale > seen.width * 1.05 || height * scale > seen.height * 1.05;
  useEffect(() => {
    const pen = canvas.current?.getContext("2d");
    if (!pen) return;
    const colours = getComputedStyle(canvas.current!);
    pen.clearRect(0, 0, w, h);
    for (const mark of marks) {
      const [mx, my] = [(x(mark) / width) * w, (y(mark) / height) * h];
      const isMatch = mark.branches.some((branch) => matches.has(branch));
      pen.fillStyle = colours.getPropertyValue(isMatch ? "--accent" : mark.shade === null ? "--line" : `--${mark.shade}`);
      const long = mark.parent ? ((column - BEND) / width) * w : 2;
      pen.fillRect(mx - long, my - 0.5, long, isMatch ? 3 : Math.max(1, Math.min(3, Math.log2(mark.visits))));
    }
    pen.strokeStyle = colours.getPropertyValue("--accent");
    pen.strokeRect((seen.left / scale / width) * w + 0.5, (seen.top / scale / height) * h + 0.5,
      Math.min(w - 1, (seen.width / scale / width) * w), Math.min(h - 1, (seen.height / scale / height) * h));
  });
  const move = (event: PointerEvent) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = canvas.current!.getBoundingClientRect();
    go(((event.clientX - box.left) / w) * width * scale - seen.width / 2, ((event.clientY - box.top) / h) * height * scale - seen.height / 2);
  };
  return needed ? <canvas class="minimap" ref={canvas} width={w} height={h} aria-hidden="true" onPointerDown={move} onPointerMove={move} /> : null;
}
