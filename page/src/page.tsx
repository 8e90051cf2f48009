// The page: its head, the view that the address names, and the form that asks for the token.
import { render } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { keepToken, onTokenRefused, takeTokenOfAddress } from "./api.ts";
import { decode, showVisibly, visibleName } from "./names.ts";
import { Overview } from "./overview.tsx";
import { RolloutPage } from "./rollout.tsx";
import { StatePage } from "./state.tsx";
import { Task, Tasks } from "./tasks.tsx";
import { useKeys, usePath } from "./use.ts";

const HELP = [
  ["o, t", "overview, tasks"],
  ["/", "search in the tree"],
  ["Enter, Shift+Enter", "next and previous find"],
  ["arrows", "move in the tree: to the parent, to a child, to the mark above or below"],
  ["Space", "open or close a fold of the tree"],
  ["Enter", "open the chosen state"],
  ["+, -, 0", "zoom of the tree"],
  ["u", "from a state to its parent"],
  ["?", "these keys"],
];

function Page() {
  const path = usePath();
  const [failed, again] = useErrorBoundary();
  useEffect(() => { if (failed) again(); }, [path]);  // another view may be shown
  const [refused, setRefused] = useState(false);
  const [help, setHelp] = useState(false);
  const [, ...rest] = path.split("?")[0]!.split("/");
  const [view, name = "", ...parts] = rest.map(decode);
  const title = view === "task" ? name || "All states" : view === "state" ? `${name.slice(0, 12)} ${parts[0] ?? ""}` : view === "rollout" ? `Rollout ${name.slice(0, 12)}` : view === "tasks" ? "Tasks" : view ? "No such view" : "Overview";
  useEffect(() => { document.title = `${visibleName(title.trim())} · tvsnap`; }, [title]);
  onTokenRefused(() => setRefused(true));
  useKeys({
    o: () => { location.hash = "/"; },
    t: () => { location.hash = "/tasks"; },
    "?": () => setHelp(!help),
    Escape: () => setHelp(false),
  });
  const here = (at: boolean) => (at ? "page" : undefined);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the contents</a>
      <header>
        <strong>tvsnap</strong>
        <nav aria-label="Views">
          <a href="#/" aria-current={here(!view)}>Overview</a>
          <a href="#/tasks" aria-current={here(view === "tasks" || view === "task" || view === "rollout")}>Tasks</a>
        </nav>
        <button type="button" aria-expanded={help} onClick={() => setHelp(!help)}>Keys</button>
      </header>
      {help && <dl class="keys card">{HELP.map(([key, words]) => <div><dt>{key}</dt><dd>{words}</dd></div>)}</dl>}
      <main id="main" tabIndex={-1}>
        {failed ? <p role="alert" class="error">The page cannot show this: {String(failed)}. <a href="#/">Overview</a></p>
          : refused ? <TokenForm done={() => setRefused(false)} />
          : view === "tasks" ? <Tasks />
          : view === "task" ? <Task key={name} task={name} query={path.split("?")[1] ?? ""} />
          : view === "rollout" ? <RolloutPage key={name} name={name} />
          : view === "state" ? <StatePage key={name} name={name} tab={parts[0] ?? "output"} rest={parts.slice(1)} />
          : !view ? <Overview />
          : <><h1>No such view</h1><p role="alert" class="error">The page has no view {visibleName(path)}. It has the <a href="#/">overview</a>, <a href="#/tasks">tasks</a>, #/task/NAME, #/rollout/ID and #/state/HASH.</p></>}
      </main>
    </>
  );
}

function TokenForm({ done }: { done: () => void }) {
  const sent = (event: Event) => {
    event.preventDefault();
    keepToken(new FormData(event.target as HTMLFormElement).get("token") as string);
    done();
  };
  return (
    <form class="card" onSubmit={sent}>
      <h1>Token</h1>
      <p>The server wants a token that it knows: a line of its token file, or what tvsnap web has printed. A server without
        a token file (tvsnap serve) lets a page read, and refuses what changes something.</p>
      <label>Token <input name="token" type="password" autocomplete="off" required autofocus /></label>
      <button type="submit">Use it</button>
    </form>
  );
}

showVisibly();
takeTokenOfAddress();
window.addEventListener("hashchange", () => { if (takeTokenOfAddress()) location.reload(); });
render(<Page />, document.getElementById("page")!);
