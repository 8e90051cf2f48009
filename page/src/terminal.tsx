// A terminal in a fork of a state, which ends with the view.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { openSocket } from "./api.ts";

/** Opens a terminal in an element; returns what ends it. `tell` is given its state, in words. */
export function openTerminal(element: HTMLElement, state: string, tell: (words: string) => void): () => void {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const terminal = new Terminal({
    fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace',
    fontSize: 13,
    scrollback: 5000,
    screenReaderMode: true,
    theme: { background: colour("--paper"), foreground: colour("--ink"), cursor: colour("--accent") },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(element);
  fit.fit();
  const socket = openSocket(`/v1/states/${state}/terminal?columns=${terminal.cols}&rows=${terminal.rows}`);
  socket.binaryType = "arraybuffer";
  let why = "The terminal could not be opened: all sandboxes may be used, or the server wants a token.";
  socket.onopen = () => { why = "The connection has ended, and the fork with it."; tell("Open, in a fork of the state."); terminal.focus(); };
  socket.onmessage = ({ data }) => {
    if (typeof data === "string") why = "The shell has ended, and the fork with it.";
    else terminal.write(new Uint8Array(data));
  };
  socket.onclose = ({ reason }) => tell(reason || why);
  const send = (data: string | ArrayBuffer) => { if (socket.readyState === WebSocket.OPEN) socket.send(data); };
  terminal.onData((keys) => send(new TextEncoder().encode(keys).buffer as ArrayBuffer));
  terminal.onBinary((keys) => send(Uint8Array.from(keys, (key) => key.charCodeAt(0)).buffer));
  terminal.onResize(({ cols, rows }) => send(JSON.stringify({ columns: cols, rows })));
  const watching = new ResizeObserver(() => fit.fit());
  watching.observe(element);
  return () => { watching.disconnect(); socket.onclose = null; socket.close(); terminal.dispose(); };
}
