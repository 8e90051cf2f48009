#!/usr/bin/env bash
# Linux 6.18.44 with Python 3.11.7: a long line that a harness types at a terminal, to a program that reads lines
#
# Guess: the program reads what was typed; a writer that is too fast waits.
# Behaviour: of a line that is longer than 4095 bytes the rest is dropped, and the line end is not: the program goes on with
# the first 4095, and the write says that all of it was written. Programs that edit lines themselves (bash) have all of it.
. "$(dirname "$0")/common.sh"
uname -r

cat >type.py <<'PYTHON'
import os, pty, sys, threading
def typed(*command):
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    seen = b""
    def read():
        nonlocal seen
        try:
            while part := os.read(terminal, 65536):
                seen += part
                if b"ready" in part:
                    ready.set()
        except OSError:
            pass
    ready = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    ready.wait(20)
    written = os.write(terminal, b"x" * 6000 + b"\n")
    os.waitpid(child, 0)
    reader.join()
    os.close(terminal)
    return written, seen.split()[-1].decode()
print(*typed(sys.executable, "-c", "print('ready', flush=True); import sys; print(len(sys.stdin.readline()) - 1)"))
print(*typed("sh", "-c", "echo ready; read -r line; echo ${#line}"))
PYTHON
python3 type.py >out
seen "bytes written, characters that Python has read" "$(sed -n 1p out)" "6001 4095"
seen "the same for sh" "$(sed -n 2p out)" "6001 4095"
