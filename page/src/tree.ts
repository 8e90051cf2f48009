// Decides what is drawn of a tree of states: which chains and branches are folded, and where each mark stands.
import type { Edge, Outlined, Rollout, Root } from "./api.ts";
import { callLine, failure } from "./text.tsx";

/** So many states of a chain, besides its first and its last, are folded. */
const CHAIN = 3;
/** How many branches of a state are shown at most, as long as its fold is not opened. */
const BRANCHES = 9;
const SHADES = 5;
/** What the colour of a mark shows: the share of answered calls, the mean reward of the rollouts that came through, or by how much it exceeds that above. */
export type Colour = "source" | "reward" | "change";

export interface Branch {
  hash: string; made: Outlined | null; unchanging: Outlined[]; above: Branch | null; children: Branch[]; calls: number; hits: number; rewards: number; graded: number; text: string;
}
/** The name of a colour in page.css: s0 to s4 from few to many, d0 to d4 from worse to better. */
export type Shade = `${"s" | "d"}${number}`;
export interface Mark {
  key: string; kind: "root" | "kept" | "bare" | "private" | "folded"; branches: Branch[]; fold: "" | "chain" | "branches";
  parent: Mark | null; children: Mark[]; column: number; row: number; visits: number; shade: Shade | null; opened: string[];
}

/** What is folded as long as it is not opened, so that the whole tree is seen: of several branches, those whose rank is `shown` or more, and what has no column. */
export interface Shape { ranks: Map<Branch, number>; shown: number; columns: number }

/** Returns how often a state was come to. */
export function visits(branch: Branch): number { return 1 + (branch.made?.hits ?? 0); }

/** Returns whether one of some calls led to a state, or was made in it without changing it. */
export function hasCall({ made, unchanging }: Branch, ids: Set<number>): boolean {
  return (made !== null && ids.has(made.id)) || unchanging.some(({ id }) => ids.has(id));
}

/** Builds trees of calls, of which those come first that lead to others; returns their roots. */
export function build(calls: Outlined[], roots: Root[], rollouts: Rollout[]): Branch[] {
  const branches = new Map<string, Branch>();
  const add = (hash: string, above: Branch | null, made: Outlined | null) => {
    const branch: Branch = { hash, made, unchanging: [], above, children: [], calls: 0, hits: 0, rewards: 0, graded: 0, text: "" };
    branches.set(hash, branch);
    above?.children.push(branch);
    return branch;
  };
  for (const { hash } of roots) add(hash, null, null);
  for (const call of calls) {
    const above = branches.get(call.state) ?? add(call.state, null, null);
    if (call.next_state === null) above.unchanging.push(call);
    else if (!branches.has(call.next_state)) add(call.next_state, above, call);
  }
  for (const { state, reward } of rollouts) {
    const branch = branches.get(state);
    if (branch && reward !== null) [branch.rewards, branch.graded] = [branch.rewards + reward, branch.graded + 1];
  }
  const all = [...branches.values()];
  for (const branch of all) branch.text = words(branch);
  for (const branch of all.toReversed()) {
    const made = [...branch.unchanging, ...branch.children.flatMap((child) => (child.made ? [child.made] : []))];
    branch.calls += made.length;
    branch.hits += made.reduce((sum, edge) => sum + edge.hits, 0);
    if (!branch.above) continue;
    branch.above.calls += branch.calls;
    branch.above.hits += branch.hits;
    branch.above.rewards += branch.rewards;
    branch.above.graded += branch.graded;
  }
  return all.filter((branch) => !branch.above);
}

/** Returns what a search looks at here; texts are searched by the server. */
function words({ hash, made, unchanging }: Branch): string {
  const of = (call: Outlined) => `${failure(call)} exit ${call.exit_code}`;
  return [hash, ...(made ? [of(made)] : []), ...unchanging.map(of)].join("\n").toLowerCase();
}

/** Returns the shape by which a tree has as many rows and columns as there is room for, or fewer: the most used branches are shown. */
export function shapeFor(tops: Branch[], rows: number, columns: number): Shape {
  const ranked = tops.flatMap(below).sort((a, b) => weight(b) + b.calls - weight(a) - a.calls);
  const ranks = new Map(ranked.map((branch, rank) => [branch, rank]));
  const fits = (shown: number) => leaves(fold(tops, new Set(), { ranks, shown, columns })) <= Math.max(rows, 2 * tops.length);
  let [low, high] = [0, ranked.length];
  if (fits(high)) low = high;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return { ranks, shown: low, columns };
}

/** Returns the marks in the order of the drawing, parents before their children; folds in `open` are shown whole. */
export function layout(tops: Branch[], open: Set<string>, colour: Colour, shape: Shape): Mark[] {
  const marks = fold(tops, open, shape);
  const shade = shadeBy(colour, tops.flatMap(below));
  let row = 0;
  for (const mark of marks) {
    if (!mark.children.length) mark.row = row++;
    mark.shade = shade(mark);
  }
  for (const mark of marks.toReversed()) if (mark.children.length) mark.row = (mark.children[0]!.row + mark.children.at(-1)!.row) / 2;
  return marks;
}

function leaves(marks: Mark[]): number { return marks.reduce((sum, mark) => sum + (mark.children.length ? 0 : 1), 0); }

function below(top: Branch): Branch[] {
  const found = [top];
  for (let place = 0; place < found.length; place += 1) found.push(...found[place]!.children);
  return found;
}

function fold(tops: Branch[], open: Set<string>, { ranks, shown: most, columns }: Shape): Mark[] {
  const marks: Mark[] = [];
  const add = (branches: Branch[], parent: Mark | null, folded: Mark["fold"], key: string): Mark => {
    const numbers = branches.map(visits);
    const mark: Mark = {
      key, branches, fold: folded, parent, children: [], column: parent ? parent.column + 1 : 0, row: 0, shade: null, opened: [],
      kind: folded ? "folded" : kindOf(branches[0]!),
      visits: folded === "chain" ? numbers.reduce((a, b) => Math.max(a, b), 0) : numbers.reduce((a, b) => a + b, 0),
    };
    parent?.children.push(mark);
    marks.push(mark);
    return mark;
  };
  // Without recursion: trees may be deeper than the stack. A task makes one mark, and pushes those below it.
  const pending: (() => void)[] = [];
  const follow = (branch: Branch, mark: Mark, inChain: boolean) => {
    const tasks: (() => void)[] = [];
    const chain = !inChain && branch.above && (mark.column + 3 <= columns || mark.column + 1 >= columns) ? chainBelow(branch) : [];
    if (chain.length > CHAIN) {
      const key = `chain-${chain[0]!.hash}`;
      if (open.has(key)) {
        mark.opened.push(key);
        tasks.push(() => state(chain[0]!, mark, true));
      } else tasks.push(() => {
        const folded = add(chain.slice(0, -1), mark, "chain", key);
        state(chain.at(-1)!, folded, false);
      });
    } else {
      const key = `branches-${branch.hash}`;
      const last = !inChain && mark.column + 2 >= columns;  // what comes next stands in the last column, and what follows that in none
      const shown = open.has(key) ? branch.children : choose(branch.children, (child) => ranks.get(child)! < most).filter((child) => !last || !child.children.length);
      if (open.has(key)) mark.opened.push(key);
      const hidden = branch.children.filter((child) => !shown.includes(child));
      const alone = hidden.length === 1 && !last;  // a fold of one would take as much room
      const rest = alone ? [] : hidden;
      // A chain that was opened goes on to its end without being folded anew.
      for (const child of alone ? branch.children : shown) tasks.push(() => state(child, mark, inChain && branch.children.length === 1));
      if (rest.length) tasks.push(() => { add(rest, mark, "branches", key); });
    }
    pending.push(...tasks.toReversed());
  };
  const state = (branch: Branch, parent: Mark | null, inChain: boolean) =>
    follow(branch, add([branch], parent, "", branch.hash), inChain);
  for (const top of tops.toReversed()) pending.push(() => state(top, null, false));
  for (let task = pending.pop(); task; task = pending.pop()) task();
  return marks;
}

function chainBelow(branch: Branch): Branch[] {
  const chain: Branch[] = [];
  for (let at = branch; at.children.length === 1; at = chain.at(-1)!) chain.push(at.children[0]!);
  return chain;
}

function choose(children: Branch[], isShown: (child: Branch) => boolean): Branch[] {
  let shown = children;
  if (children.length > BRANCHES) {
    const heaviest = [...children].sort((a, b) => weight(b) - weight(a) || b.calls - a.calls).slice(0, BRANCHES - 1);
    shown = children.filter((child) => heaviest.includes(child));
  }
  return children.length > 1 ? shown.filter(isShown) : shown;
}

function weight(branch: Branch): number { return branch.hits + (branch.made?.hits ?? 0); }

function kindOf({ made }: Branch): Mark["kind"] {
  if (!made) return "root";
  return made.private ? "private" : made.kept ? "kept" : "bare";
}

/** Returns the function that gives marks their colour, in a tree of these branches. */
function shadeBy(colour: Colour, all: Branch[]): (mark: Mark) => Shade | null {
  if (colour === "source") return shadeOfSource;
  const figures = all.flatMap((branch) => (colour === "reward" ? [meanOf([branch])] : [changeOf([branch])])).filter((figure) => figure !== null);
  const [least, most] = [figures.reduce((a, b) => Math.min(a, b), Infinity), figures.reduce((a, b) => Math.max(a, b), -Infinity)];
  const widest = Math.max(-least, most);
  return (mark) => {
    const branches = mark.fold === "chain" ? mark.branches.slice(0, 1) : mark.branches;
    const figure = colour === "reward" ? meanOf(branches) : changeOf(branches);
    if (figure === null) return null;
    if (colour === "reward") return `s${least === most ? SHADES - 1 : Math.round(((SHADES - 1) * (figure - least)) / (most - least))}`;
    return `d${Math.round(((SHADES - 1) / 2) * (1 + (widest && figure / widest)))}`;
  };
}

/** Returns the mean reward of the rollouts that came through branches; null if none was graded. */
function meanOf(branches: Branch[]): number | null {
  const graded = branches.reduce((sum, branch) => sum + branch.graded, 0);
  return graded ? branches.reduce((sum, branch) => sum + branch.rewards, 0) / graded : null;
}

/** Returns by how much this mean exceeds that of all rollouts that came through the state above; null of a root. */
function changeOf(branches: Branch[]): number | null {
  const [mean, above] = [meanOf(branches), branches[0]!.above];
  return mean === null || !above ? null : mean - meanOf([above])!;
}

function shadeOfSource(mark: Mark): Shade | null {
  const made = mark.branches.flatMap(({ made }) => (made ? [made] : []));
  if (!made.length) return null;
  const hits = made.reduce((sum, edge) => sum + edge.hits, 0);
  const share = hits / (hits + made.length);
  if (!hits) return "s0";
  const step = [0.5, 0.75, 0.9].findIndex((most) => share <= most);
  return `s${step < 0 ? SHADES - 1 : step + 1}`;
}

/** Opens folds until a state has a mark of its own; returns that mark. */
export function reveal(target: Branch, tops: Branch[], open: Set<string>, shape: Shape): Mark | undefined {
  for (;;) {
    const marks = new Map(layout(tops, open, "source", shape).flatMap((mark) => mark.branches.map((branch) => [branch, mark])));
    let at: Branch | null = target;
    while (at && !marks.has(at)) at = at.above;
    const mark = at ? marks.get(at) : undefined;
    if (!mark || (at === target && !mark.fold) || open.has(mark.key)) return mark;
    open.add(mark.key);
  }
}

/** Returns the label of a mark, null of a root; that of a call whose text has not come yet is `…`. */
export function label(mark: Mark, texts: Map<number, Edge | null>): string | null {
  if (mark.fold === "chain") return `⋮ ${mark.branches.length} calls`;
  if (mark.fold) return `… ${mark.branches.length} ${mark.branches.length === 1 ? "branch" : "branches"}`;
  const { made } = mark.branches[0]!;
  if (!made) return null;
  const edge = texts.get(made.id);
  return edge ? callLine(edge.call) : edge === null ? "no record" : "…";
}
