#!/usr/bin/env bash
# pyte 0.8.2: what a policy sees of a terminal after an editor has ended, and of what xterm's entry of terminfo allows
#
# Guess: the screen from before the editor; unknown sequences are left out.
# Behaviour: there is no second screen: the shell's lines are gone, and the editor's text stays. A character that is to be repeated
# (`rep`, CSI b) is there once, so that lines of boxes and bars are shorter; colours with colons, and strings of DCS and APC,
# are printed as text. A line that is deleted keeps its text if nothing was ever written to the one below it.
. "$(dirname "$0")/common.sh"
packages pyte==0.8.2

cat >screen.py <<'PYTHON'
import pyte
def shown(text):
    screen = pyte.Screen(30, 3)
    pyte.Stream(screen).feed(text)
    return " / ".join(line.rstrip() for line in screen.display if line.strip())
print(shown("$ vim\r\n\x1b[?1049h\x1b[H\x1b[2JEDITOR\x1b[?1049l$ "))
print(shown("-\x1b[9b|"))
print(shown("\x1b[38:2::1:2:3mtext"))
print(shown("\x1bPqabc\x1b\\text"))
print(shown("deleted\r\x1b[M"))
PYTHON
python screen.py >out
seen "a prompt, an editor that is left, a prompt" "$(sed -n 1p out)" 'EDITOR$'
seen "a dash ten times, and a bar" "$(sed -n 2p out)" "-|"
seen "a colour with colons, and a text" "$(sed -n 3p out)" "2::1:2:3mtext"
seen "a picture (DCS), and a text" "$(sed -n 4p out)" "qabctext"
seen "a line that is deleted" "$(sed -n 5p out)" "deleted"
