"""The task of `tvsnap demo` and the six scripted rollouts of it."""

from __future__ import annotations

from tvsnap.model.calls import ToolCall
from tvsnap.upkeep.rollout_files import PlannedCall, PlannedRollout

TASK = "demo"

_PROJECT = """\
mkdir -p /root/shop && cd /root/shop && git init -q .
cat > prices.py <<'END'
PRICE = 0.35


def total(apples):
    return int(apples * PRICE * 100) / 100
END
cat > test_prices.py <<'END'
from prices import total

for apples, expected in ((1, 0.35), (2, 0.70), (3, 1.05), (10, 3.50)):
    verdict = "ok  " if total(apples) == expected else "FAIL"
    print(f"{verdict} {apples} apples cost {total(apples):.2f}, expected {expected:.2f}")
END
cat > server.py <<'END'
import itertools, socketserver
from prices import total

numbers = itertools.count(1)


class Ask(socketserver.StreamRequestHandler):
    def handle(self):
        apples = int(self.rfile.readline())
        answer = f"{apples} apples cost {total(apples):.2f} (request {next(numbers)})"
        self.wfile.write(answer.encode())


socketserver.TCPServer.allow_reuse_address = True
socketserver.TCPServer(("127.0.0.1", 7000), Ask).serve_forever(None)
END
cat > ask.py <<'END'
import socket, sys

with socket.create_connection(("127.0.0.1", 7000)) as server:
    server.sendall(sys.argv[1].encode() + b"\\n")
    print(server.recv(100).decode())
END
cat > Makefile <<'END'
install:
\t@echo installing; sleep 2; touch installed
build: installed
\t@echo compiling; sleep 1; echo built
END
echo "checked out: $(ls | tr '\\n' ' ')\""""

_START = """\
python3 server.py >server.log 2>&1 &
for try in $(seq 50); do python3 ask.py 3 2>/dev/null && break; sleep 0.1; done"""
_RESTART = "kill $!; wait $! 2>/dev/null\n" + _START


def _edit(old: str, new: str) -> str:
    return f"sed -i 's|{old}|{new}|' prices.py && tail -n 1 prices.py"


_TRUNCATED = "int(apples \\* PRICE \\* 100) / 100"
_ROUND = _edit(_TRUNCATED, "round(apples * PRICE, 2)")
_ADD = _edit(_TRUNCATED, "int(apples * PRICE * 100 + 0.001) / 100")
_CENTS = _edit(_TRUNCATED, "apples * round(PRICE * 100) / 100")
_CEIL = _edit(_TRUNCATED, "-int(-apples * PRICE * 100) / 100")
_CEIL_TO_ROUND = _edit("-int(-apples \\* PRICE \\* 100) / 100", "round(apples * PRICE, 2)")
_CEIL_TO_CENTS = _edit("-int(-apples \\* PRICE \\* 100) / 100", "apples * round(PRICE * 100) / 100")

_TEST = "python3 test_prices.py"
_CHECK = ("make build", _TEST, _RESTART)

COMMON = (_PROJECT, "cat prices.py", "make install", "make build", _TEST, _START)
"""The first calls of all rollouts."""

_ROLLOUTS = {
    "rounds": (*COMMON, _ROUND, *_CHECK, "git diff --no-index /dev/null prices.py | tail -n 1"),
    "rounds-too": (*COMMON, "cat test_prices.py", _ROUND, *_CHECK, "python3 ask.py 10"),
    "ceils-first": (*COMMON, _CEIL, "make build", _TEST, _CEIL_TO_ROUND, *_CHECK),
    "counts-cents": (*COMMON, "python3 ask.py 1", _CENTS, *_CHECK),
    "ceils-too": (*COMMON, _CEIL, "make build", _TEST, _CEIL_TO_CENTS, *_CHECK),
    "adds-a-bit": (*COMMON, "cat Makefile", _ADD, *_CHECK),
}


def demo_rollouts() -> list[PlannedRollout]:
    """Returns the rollouts of the demonstration."""
    return [
        PlannedRollout(
            TASK,
            name,
            None,
            tuple(PlannedCall(ToolCall("bash", {"command": command})) for command in commands),
        )
        for name, commands in _ROLLOUTS.items()
    ]
