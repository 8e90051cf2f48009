#!/usr/bin/env bash
# Python's `pty` (3.11.7, of the system): the size of a new terminal
#
# Guess: 24 lines of 80 columns, as terminals begin, or the size of the terminal around it.
# Behaviour: a new pseudoterminal has 0 lines of 0 columns, and `pty.spawn` sets none. What depends on the width asks
# elsewhere then, or believes in 80 columns, as `shutil.get_terminal_size` does.
. "$(dirname "$0")/common.sh"
python3 --version

cat >size.py <<'END'
import os, pty, sys
pty.spawn(["stty", "size"], lambda fd: os.read(fd, 100))
END
cat >columns.py <<'END'
import os, pty
command = "import os, shutil; print(*shutil.get_terminal_size())"
pty.spawn(["env", "-u", "COLUMNS", "-u", "LINES", "python3", "-c", command], lambda fd: os.read(fd, 100))
END
seen "shutil.get_terminal_size in pty.spawn" "$(python3 columns.py </dev/null | tr -d '\r')" "80 24"
seen "stty size in pty.spawn" "$(python3 size.py </dev/null | tr -d '\r')" "0 0"
