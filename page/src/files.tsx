// The files of a state, in a sandbox that is made for looking and ends with the view.
import { useEffect, useState } from "preact/hooks";
import { endSandbox, makeSandbox, post, request } from "./api.ts";
import { moment, size, terminalText } from "./text.tsx";
import { useLoaded } from "./use.ts";

interface Entry { name: string; kind: string; mode: string; size: number; changed: number }

/** So many bytes of a file are shown at most; a download has all of it. */
const SHOWN = 256 * 1024;
const KINDS: Record<number, string> = { 0o04: "folder", 0o10: "file", 0o12: "link", 0o01: "pipe", 0o14: "socket", 0o02: "device", 0o06: "device" };
// Each entry as its mode in hexadecimal, size, time and name, as GNU's programs and BusyBox' both can.
const LIST = 'cd "$FOLDER" && find . -mindepth 1 -maxdepth 1 -exec stat -c "%f %s %Y %n" {} +';

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
  const { data, error } = useLoaded(async () => {
    const done = await post<{ exit_code: number; output: { base64: string } }>(`/v1/sandboxes/${sandbox}/exec`, { command: LIST, timeout: 60, env: { FOLDER: path }, user: "root" });
    const printed = new TextDecoder().decode(Uint8Array.from(atob(done.output.base64), (character) => character.charCodeAt(0)));
    if (done.exit_code) throw new Error(printed || `${path} cannot be listed`);
    return entries(printed);
  }, [sandbox, path]);
  const [file, setFile] = useState("");
  const full = (name: string) => `${path === "/" ? "" : path}/${name}`;
  const address = (folder: string) => `#/state/${state}/files${folder.split("/").map(encodeURIComponent).join("/")}`;
  const above = path.split("/").filter(Boolean);
  return (
    <>
      <nav aria-label="Folders above" class="group">
        <a href={address("/")}>/</a>{above.map((name, number) => <><a href={address(`/${above.slice(0, number + 1).join("/")}`)}>{name}</a><span>/</span></>)}
      </nav>
      {error && <p role="alert" class="error">{error}</p>}
      {!data ? !error && <p role="status">Listing…</p> : !data.length ? <p>The folder is empty.</p> : (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Files in ${path}`}>
          <table>
            <thead><tr>{["name", "kind", "mode", "size", "changed (UTC)", "download"].map((name) => <th scope="col">{name}</th>)}</tr></thead>
            <tbody>
              {data.map((entry) => (
                <tr>
                  <th scope="row">{entry.kind === "folder" ? <a href={address(full(entry.name))}>{entry.name}/</a>
                    : entry.kind === "file" ? <button type="button" class="link" onClick={() => setFile(full(entry.name))}>{entry.name}</button> : entry.name}</th>
                  <td>{entry.kind}</td><td>{entry.mode}</td><td>{size(entry.size)}</td><td>{moment(entry.changed)}</td>
                  <td>{entry.kind === "file" && <button type="button" aria-label={`Download ${entry.name}`} onClick={() => download(sandbox, full(entry.name))}>↓</button>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {file && <Shown key={file} sandbox={sandbox} path={file} />}
    </>
  );
}

function entries(listing: string): Entry[] {
  return [...listing.matchAll(/^([0-9a-f]+) (\d+) (-?\d+) \.\/(.*)$/gm)].map(([, mode, bytes, changed, name]) => {
    const bits = parseInt(mode!, 16);
    return { name: name!, kind: KINDS[bits >> 12] ?? "other", mode: (bits & 0o7777).toString(8).padStart(4, "0"), size: Number(bytes), changed: Number(changed) };
  }).sort((a, b) => Number(b.kind === "folder") - Number(a.kind === "folder") || (a.name < b.name ? -1 : 1));
}

function read(sandbox: string, path: string): Promise<Response> {
  return request("GET", `/v1/sandboxes/${sandbox}/files?path=${encodeURIComponent(path)}`);
}

async function download(sandbox: string, path: string): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await read(sandbox, path)).blob());
  link.download = path.slice(path.lastIndexOf("/") + 1);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function Shown({ sandbox, path }: { sandbox: string; path: string }) {
  const { data, error } = useLoaded(async () => new Uint8Array(await (await read(sandbox, path)).arrayBuffer()), [path]);
  if (error) return <p role="alert" class="error">{error}</p>;
  if (!data) return <p role="status">Reading {path}…</p>;
  return (
    <section class="card" aria-label={path}>
      <h2><code>{path}</code></h2>
      {data.subarray(0, 8192).includes(0) ? <p>This is no text; a download has its {size(data.length)}.</p> : <pre tabIndex={0}>{terminalText(new TextDecoder().decode(data.subarray(0, SHOWN)))}</pre>}
      {data.length > SHOWN && <p class="note">These are the first {size(SHOWN)} of {size(data.length)}.</p>}
    </section>
  );
}
