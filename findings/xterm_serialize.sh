#!/usr/bin/env bash
# @xterm/headless 6.0.0 with @xterm/addon-serialize 0.14.0: a terminal as text, written to a new one, as editors keep terminals across restarts
#
# Guess: the new terminal shows the same, and goes on in the same way.
# Behaviour: it shows the same, and goes on in another way: the region that scrolls, the saved cursor, the character set for boxes and removed tab stops are lost, so that a
# line of status scrolls away, and a box is letters.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund @xterm/headless@6.0.0 @xterm/addon-serialize@0.14.0 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: @xterm/headless@6.0.0 @xterm/addon-serialize@0.14.0; Node.js $(node --version)"

cat >terminal.mjs <<'JS'
import headless from '@xterm/headless'
import serialize from '@xterm/addon-serialize'
const write = (terminal, text) => new Promise(done => terminal.write(text, done))
const make = () => {
  const terminal = new headless.Terminal({ cols: 20, rows: 4, allowProposedApi: true })
  terminal.addon = new serialize.SerializeAddon()
  terminal.loadAddon(terminal.addon)
  return terminal
}
const shown = terminal => [0, 1, 2, 3].map(row => terminal.buffer.active.getLine(terminal.buffer.active.baseY + row).translateToString(true)).join('/')
for (const [before, after] of [
  ['\x1b[1;2r\x1b[4;1Hstatus\x1b[1;1Hone\r\n', 'two\r\nthree\r\nfour'], ['\x1b(0', 'lqk'], ['\x1b[2;5H\x1b7\x1b[H', '\x1b8X'], ['\x1b[3g', '\tx'],
]) {
  const first = make(), second = make()
  await write(first, before)
  await write(second, first.addon.serialize())
  const same = shown(first) === shown(second)
  for (const terminal of [first, second]) await write(terminal, after)
  console.log(`${same}|${shown(first)}|${shown(second)}`)
}
JS
node terminal.mjs >out
echo "the same at first | later, the first one | later, the new one:"
seen "a status line below a region of two lines, and three lines" "$(sed -n 1p out)" "true|three/four//status|one/two/three/fourus"
seen "a box" "$(sed -n 2p out)" "true|┌─┐///|lqk///"
seen "a saved cursor, and X there" "$(sed -n 3p out)" "true|/    X//|X///"
seen "no tab stops, and x behind a tab" "$(sed -n 4p out)" "true|$(printf '%19sx///' '')|$(printf '%8sx///' '')"
