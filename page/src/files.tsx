// The files of a state, in a sandbox that is made for looking and ends with the view.
import { useEffect, useState } from "preact/hooks";
import { endSandbox, get, makeSandbox, request } from "./api.ts";
import { encode, visibleName } from "./names.ts";
import { count, moment, size, terminalText } from "./text.tsx";
import { useLoaded } from "./use.ts";

interface Entry { name: string; kind: string; mode: number; uid: number; gid: number; size: number; mtime_ns: number; target: string | null }
interface Listing { entries: Entry[]; cut: boolean }

/** So many bytes of a file are shown at most; a download has all of it. */
const SHOWN = 256 * 1024;
/** So many names of a folder are shown until more are asked for. */
const NAMES = 1000;

/** A folder of a state, or a file. */
export function Files({ state, path }: { state: string; path: string }) {
  const sandbox = useSandbox(state);
  return sandbox.error ? <p role="alert" class="error">{sandbox.error}</p>
    : !sandbox.id ? <p role="status">Making a sandbox in this state…</p>
    : <Folder key={path} sandbox={sandbox.id} state={state} path={path} />;
}

function useSandbox(state: string): { id: string; error: string } {
  const [made, set] = useState({ id: "", error: "" });
  useEffect(() => {
    let left = false;
    let end = () => { left = true; };
    makeSandbox(state).then((id) => {
      end = () => endSandbox(id);
      if (left) end();
      else set({ id, error: "" });
    }, (error: Error) => set({ id: "", error: error.message }));
    const leave = () => end();
    window.addEventListener("pagehide", leave);
    return () => { window.removeEventListener("pagehide", leave); end(); };
  }, [state]);
  return made;
}

function Folder({ sandbox, state, path }: { sandbox: string; state: string; path: string }) {
  const { data, error } = useLoaded(async (signal) => {
    const { entries, cut } = await get<Listing>(`/v1/sandboxes/${sandbox}/folder?path=${encode(path)}`, signal);
    return { cut, entries: entries.sort((a, b) => Number(b.kind === "directory") - Number(a.kind === "directory")) };
  }, [sandbox, path]);
  const [file, setFile] = useState("");
  const [trouble, setTrouble] = useState("");
  const [words, setWords] = useState("");
  const [most, setMost] = useState(NAMES);
  const full = (name: string) => `${path === "/" ? "" : path}/${name}`;
  const address = (folder: string) => `#/state/${state}/files${folder.split("/").map(encode).join("/")}`;
  const above = path.split("/").filter(Boolean);
  const found = data?.entries.filter(({ name }) => name.toLowerCase().includes(words.toLowerCase())) ?? [];
  const fetched = (name: string) => {
    setTrouble("");
    download(sandbox, full(name)).catch((failed: Error) => setTrouble(`${visibleName(full(name))}: ${failed.message}`));
  };
  return (
    <>
      <nav aria-label="Folders above" class="group">
        <a href={address("/")}>/</a>{above.map((name, number) => <><a href={address(`/${above.slice(0, number + 1).join("/")}`)}>{visibleName(name)}</a><span>/</span></>)}
      </nav>
      {error && <p role="alert" class="error">{error}</p>}
      {trouble && <p role="alert" class="error">{trouble}</p>}
      {data?.cut && <p role="alert" class="error">The folder has more names than these {data.entries.length.toLocaleString("en")}, and which are listed is chance: the terminal has all.</p>}
      {!data ? !error && <p role="status">Listing…</p> : !data.entries.length ? <p>The folder is empty.</p> : (
        <>
          {data.entries.length > NAMES && <p><label>Filter <input type="search" value={words} onInput={(event) => setWords(event.currentTarget.value)} /></label></p>}
          <div class="scroll" tabIndex={0} role="region" aria-label={`Files in ${visibleName(path)}`}>
            <table class="folding">
              <thead><tr>{["name", "kind", "mode", "owner", "size", "changed (UTC)", "download"].map((name) => <th scope="col">{name}</th>)}</tr></thead>
              <tbody>
                {found.slice(0, most).map((entry) => (
                  <tr key={entry.name}>
                    <th scope="row">{entry.kind === "directory" ? <a href={address(full(entry.name))}>{visibleName(entry.name)}/</a>
                      : entry.kind === "file" ? <button type="button" class="link" onClick={() => setFile(full(entry.name))}>{visibleName(entry.name)}</button>
                      : visibleName(entry.name)}{entry.target !== null && ` → ${visibleName(entry.target)}`}</th>
                    <td>{entry.kind}</td><td>{entry.mode.toString(8).padStart(4, "0")}</td><td>{entry.uid}:{entry.gid}</td>
                    <td>{size(entry.size)}</td><td>{moment(entry.mtime_ns / 1e9)}</td>
                    <td>{entry.kind === "file" && <button type="button" aria-label={`Download ${visibleName(entry.name)}`} onClick={() => fetched(entry.name)}>↓</button>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {found.length > most && <p>These are {most.toLocaleString("en")} of {count(found.length, "name")}. <button type="button" onClick={() => setMost(Infinity)}>Show all</button></p>}
        </>
      )}
      {file && <Shown key={file} sandbox={sandbox} path={file} />}
    </>
  );
}

function read(sandbox: string, path: string): Promise<Response> {
  return request("GET", `/v1/sandboxes/${sandbox}/files?path=${encode(path)}`);
}

async function download(sandbox: string, path: string): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await read(sandbox, path)).blob());
  link.download = visibleName(path.slice(path.lastIndexOf("/") + 1));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function Shown({ sandbox, path }: { sandbox: string; path: string }) {
  const { data, error } = useLoaded(async () => new Uint8Array(await (await read(sandbox, path)).arrayBuffer()), [path]);
  if (error) return <p role="alert" class="error">{error}</p>;
  if (!data) return <p role="status">Reading {visibleName(path)}…</p>;
  return (
    <section class="card" aria-label={visibleName(path)}>
      <h2><code>{visibleName(path)}</code></h2>
      {data.subarray(0, 8192).includes(0) ? <p>This is no text; a download has its {size(data.length)}.</p> : <pre tabIndex={0}>{terminalText(new TextDecoder().decode(data.subarray(0, SHOWN)))}</pre>}
      {data.length > SHOWN && <p class="note">These are the first {size(SHOWN)} of {size(data.length)}.</p>}
    </section>
  );
}
