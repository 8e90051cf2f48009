// Hooks: what the server tells, where the reader is, and keys.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> { data: T | null; error: string; again: () => void }

/** Loads something when `keys` change, and each `every` milliseconds while the page is looked at; less often what takes long. */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, keys: unknown[], every = 0): Loaded<T> {
  const [{ data, error }, set] = useState<{ data: T | null; error: string }>({ data: null, error: "" });
  const again = useRef<() => void>(() => undefined);
  useEffect(() => {
    const ending = new AbortController();
    let timer = 0;
    set({ data: null, error: "" });
    const go = async () => {
      window.clearTimeout(timer);
      const began = performance.now();
      try {
        if (!document.hidden || !every) {
          const loaded = await load(ending.signal);
          if (!ending.signal.aborted) set({ data: loaded, error: "" });
        }
      } catch (failed) {
        if (!ending.signal.aborted) set((before) => ({ ...before, error: (failed as Error).message }));
      }
      if (every && !ending.signal.aborted) timer = window.setTimeout(go, Math.max(every, 20 * (performance.now() - began)));
    };
    again.current = go;
    go();
    return () => { ending.abort(); window.clearTimeout(timer); };
  }, keys);
  return { data, error, again: () => again.current() };
}

/** Returns the part of the address behind `#`, as the page's path. */
export function usePath(): string {
  const [path, set] = useState(location.hash.slice(1) || "/");
  useEffect(() => {
    const changed = () => set(location.hash.slice(1) || "/");
    window.addEventListener("hashchange", changed);
    changed();  // it may have changed before anybody listened
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return path;
}

/** Calls functions by keys that are typed where no text is being written. */
export function useKeys(keys: Record<string, (event: KeyboardEvent) => void>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => {  // before anything is seen that keys could be meant for
    const typed = (event: KeyboardEvent) => {
      const at = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || at.closest("input, textarea, select, .xterm")) return;
      const act = latest.current[event.key];
      if (act) { event.preventDefault(); act(event); }
    };
    window.addEventListener("keydown", typed);
    return () => window.removeEventListener("keydown", typed);
  }, []);
}
