// What the page asks of the server: the operations that all clients use, with the token in a header.
import { decode } from "./names.ts";

export interface Call { name: string; arguments: Record<string, unknown> }
export interface Part { media_type: string; data: string | { base64: string } }
export interface Result {
  parts: Part[]; exit_code: number | null; duration: number; timed_out: boolean; truncated: boolean; strain: string | null;
}
export interface Edge {
  id: number; state: string; call: Call; result: Result; next_state: string; deterministic: boolean; shared: boolean;
  reason: string | null; hits: number; created: number; active: string | null; refusals: Record<string, string>;
}
export interface State { hash: string; root: string; parent: string | null; depth: number; private: string | null; created: number }
/** A call without its texts, as /v1/outline tells it. */
export interface Outlined {
  id: number; state: string; next_state: string | null; exit_code: number | null; timed_out: boolean; duration: number; hits: number;
  served: boolean; private: boolean; kept: boolean;
}
export interface Snapshot { backend: string; size: number; forks: number; created: number; processes: string[] }
export interface Root { hash: string; image_name: string; image_digest: string; environment: string; limits: string; salt: string; network: string }
export interface Shown { state: State; root: Root; lineage: Edge[]; calls: Edge[]; snapshots: Snapshot[]; refusal: string | null }
export interface Rollout {
  id: string; task: string; label: string; image: string; root: string; started: number; finished: number | null; state: string;
  epoch: number | null; reward: number | null; outcome: string | null;
}
/** A rollout with how it ended, or that it runs, and what tells its root apart. */
export interface Summary { rollout: Rollout; ended: string; network: string; salt: string }
/** A call of a rollout: how it was answered, for how many seconds its caller waited, and how many it took where it was executed. */
export interface Step {
  place: number; source: string; ended: number; seconds: number; duration: number; exit_code: number | null; timed_out: boolean; note: string | null;
  call: Call | null; edge: Edge | null;
}
export interface Tally {
  key: string | null; rollouts: number; reward: number | null; calls: number; hits: number; coalesced: number; failing: number;
  waited_s: number; took_s: number;
}
export interface FileAt { kind: string; size: number; mode: number; uid: number; gid: number }
export interface Difference {
  files: { path: string; kind: "+" | "-" | "M"; before: FileAt | null; after: FileAt | null; patch: string }[];
  ended: { pid: number; command: string }[];
  started: { pid: number; command: string }[];
  shell: { name: string; before: string | null; after: string | null }[];
}

const KEY = "tvsnap-token";
let listener = (): void => undefined;

/** An error that the server told; `wantsToken` says that it wants another token. */
export class Refused extends Error {
  constructor(message: string, readonly wantsToken: boolean) { super(message); }
}

/** Calls `changed` when the token was found wrong. */
export function onTokenRefused(changed: () => void): void { listener = changed; }

/** Returns the token of this tab; null before one was given. */
export function token(): string | null { return sessionStorage.getItem(KEY); }

/** Keeps a token for this tab. */
export function keepToken(text: string): void { sessionStorage.setItem(KEY, text); }

/** Takes the token from the address, where no link has it from then on; returns whether there was one. */
export function takeTokenOfAddress(): boolean {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return false;
  keepToken(decode(found[1]!));
  history.replaceState(null, "", "/#/");
  return true;
}

/** Sends a request; returns its answer, or throws what the server told. */
export async function request(method: string, path: string, body?: unknown, more: RequestInit = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const shown = token();
  if (shown) headers.authorization = `Bearer ${shown}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? null : JSON.stringify(body), ...more });
  } catch (error) {
    if (more.signal?.aborted) throw error;
    throw new Refused("the server cannot be reached; is it running?", false);
  }
  if (answer.ok) return answer;
  const told = await answer.json().then((data) => `${data.error.message}`, () => `the server answered ${answer.status}`);
  const wantsToken = answer.status === 401 && (shown !== null || method === "GET");  // else it lets a page read, and no more
  if (wantsToken) listener();
  throw new Refused(told, wantsToken);
}

/** Returns the JSON of an answer. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request("GET", path, undefined, signal ? { signal } : {})).json();
}

type Told = [number, string, string | null, number | null, boolean, number, number, boolean, boolean, boolean, boolean];

/** Returns the calls of a task, or below a root, or all, those first that lead to others. */
export async function outline(chosen: Record<string, string>, signal: AbortSignal): Promise<Outlined[]> {
  const calls: Outlined[] = [];
  for (let after: number | null = 0; after !== null;) {
    const part: { calls: Told[]; next: number | null } = await get(`/v1/outline?${new URLSearchParams({ after: `${after}`, ...chosen })}`, signal);
    for (const [id, state, next_state, exit_code, timed_out, duration, hits, served, , privately, kept] of part.calls)
      calls.push({ id, state, next_state, exit_code, timed_out, duration, hits, served, private: privately, kept });
    after = part.next;
  }
  return calls;
}

/** Returns the ids of the calls that have a text in their arguments or outputs; with a task, only its own. */
export async function search(text: string, task: string, signal: AbortSignal): Promise<Set<number>> {
  const ids = new Set<number>();
  for (let after: number | null = 0; after !== null;) {
    const asked = new URLSearchParams({ text, after: `${after}`, ...(task ? { task } : {}) });
    const part: { ids: number[]; next: number | null } = await get(`/v1/search?${asked}`, signal);
    for (const id of part.ids) ids.add(id);
    after = part.next;
  }
  return ids;
}

/** Posts JSON; returns the JSON of the answer. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await request("POST", path, body)).json();
}

/** Opens a WebSocket; the token is a subprotocol's name, as a page can set no header, and addresses are logged. */
export function openSocket(path: string): WebSocket {
  const shown = token();
  const bytes = String.fromCharCode(...new TextEncoder().encode(shown ?? ""));
  const name = `tvsnap.token.${btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
  return new WebSocket(`${location.origin.replace(/^http/, "ws")}${path}`, shown ? ["tvsnap", name] : ["tvsnap"]);
}

/** Makes a sandbox in a state; returns its id. */
export async function makeSandbox(state: string): Promise<string> {
  const made = await post<{ sandboxes: { id: string }[] }>(`/v1/states/${state}/sandboxes`, {});
  return made.sandboxes[0]!.id;
}

/** Ends a sandbox, also while the page is being left. */
export function endSandbox(id: string): void {
  request("DELETE", `/v1/sandboxes/${id}`, undefined, { keepalive: true }).catch(() => undefined);
}
