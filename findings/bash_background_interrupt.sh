#!/usr/bin/env bash
# bash 5.2.15 and Python 3.11.7 (of the system): `kill -INT` for a server that a script or `bash -c` started with &
#
# Guess: it ends, by KeyboardInterrupt, and stores what it has to store, as on Ctrl-C.
# Behaviour: nothing happens. Without job control, as in each script, bash starts what stands before & with SIGINT and SIGQUIT
# ignored; Python then makes no KeyboardInterrupt of it, and its children ignore it, too. With `set -m`, as in an interactive
# shell, and for SIGTERM, it is ended.
. "$(dirname "$0")/common.sh"
bash --version | sed -n 1p
python3 --version

cat >server.py <<'PYTHON'
import time
try:
    open("ready", "w").close()
    time.sleep(1)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
PYTHON
cat >task.sh <<'END'
rm -f ready
python3 server.py &
until [ -e ready ]; do sleep 0.05; done
kill -INT $!
wait $!
END
{ echo "set -m"; cat task.sh; } >jobs.sh
run() { env --default-signal=INT,QUIT "$@"; } # as started from a terminal
seen "in a script" "$(run bash task.sh)" "not interrupted"
seen "in a script with set -m" "$(run bash jobs.sh)" "interrupted"
