// The tab with a terminal, whose program is loaded when it is opened.
import { useEffect, useRef, useState } from "preact/hooks";

/** A terminal in a fork of a state. */
export function Shell({ state }: { state: string }) {
  const frame = useRef<HTMLDivElement>(null);
  const [words, tell] = useState("Opening a fork of the state…");
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let end = () => undefined as void;
    let left = false;
    import("./terminal.tsx").then(({ openTerminal }) => {
      if (!left) end = openTerminal(frame.current!, state, tell);
    }, () => tell("The terminal's program could not be loaded; look at the page anew."));
    return () => { left = true; end(); };
  }, [state, turn]);
  return (
    <>
      <p class="group"><span role="status">{words}</span> <button type="button" onClick={() => { tell("Opening a fork of the state…"); setTurn(turn + 1); }}>In a new fork</button></p>
      <div class="shell" ref={frame} key={turn} />
    </>
  );
}
