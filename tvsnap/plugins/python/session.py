"""The interpreter of the environment `python`; runs inside the sandbox, with the image's own Python (3.7 or newer).

Two processes: a supervisor, as root, that answers requests on a Unix socket one at a time; and the interpreter itself,
as the image's user, that runs code. So code that takes too long can be interrupted, and the end of the interpreter can
be reported. If the image has IPython its shell runs the code, otherwise the standard library does.

This file is copied into the sandbox as it is, and imports nothing of tvsnap.
"""

from __future__ import annotations

import ast
import base64
import codecs
import contextlib
import fcntl
import io
import json
import linecache
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
import types
from typing import Any

GRACE = 2.0  # seconds in which code must stop after it was interrupted
START = 60.0  # seconds that an interpreter may take to start
MOST_PICTURES = 8 << 20  # bytes of all pictures of one call
CUT = "\n[... output cut here ...]\n"
CONTINUING = bytes(range(0x80, 0xC0))  # continuation bytes of UTF-8: at most three follow a first byte
INTERRUPTED = "[interrupted after %g s]\n"
LOST = "[the interpreter ended, and its variables with it; a fresh one takes its place]\n"


# -- the interpreter ------------------------------------------------------------------------------------------------


class Pictures:
    """The pictures of the current call, as PNG."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def add(self, data: Any) -> None:
        """Adds a picture, given as bytes or in base64, unless there are too many bytes."""
        png = base64.b64decode(data) if isinstance(data, str) else bytes(data)
        if sum(map(len, self.taken)) + len(png) > MOST_PICTURES:
            print(f"[a picture of {len(png)} bytes was left out]")
        else:
            self.taken.append(png)

    def take(self) -> list[str]:
        """Returns the pictures in base64, including matplotlib's figures, and forgets them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            for number in pyplot.get_fignums():
                buffer = io.BytesIO()
                pyplot.figure(number).savefig(buffer, format="png")
                self.add(buffer.getvalue())
            pyplot.close("all")
        pngs, self.taken = self.taken, []
        return [base64.b64encode(png).decode() for png in pngs]


class PlainShell:
    """Runs code like the interactive interpreter, with the standard library only."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._count = 0
        self._module = sys.modules["__main__"] = types.ModuleType("__main__")

    def run(self, code: str) -> bool:
        self._count += 1
        name = f"<call {self._count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        try:
            tree = ast.parse(code, name)
            last: Any = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec"), self._module.__dict__)
            if last is not None:
                self._show(eval(compile(ast.Expression(last.value), name, "eval"), self._module.__dict__))
        except SystemExit:
            raise
        except BaseException as error:
            self._complain(error, name)
            return True
        return False

    def _show(self, value: Any) -> None:
        if value is None:
            return
        self._module.__dict__["_"] = value
        draw = getattr(value, "_repr_png_", None)
        picture = draw() if callable(draw) else None
        print(repr(value))
        if picture:
            self._pictures.add(picture)

    def _complain(self, error: BaseException, name: str) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        sys.stdout.flush()
        traceback.print_exception(type(error), error, trace)


def ipython_shell(pictures: Pictures) -> Any:
    """Returns IPython's shell with `PlainShell`'s method; raises ImportError without IPython."""
    os.environ.setdefault("IPYTHONDIR", "/tmp/.ipython")
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    def show(data: Any) -> None:
        if "text/plain" in data:
            print(data["text/plain"])
        if "image/png" in data:
            pictures.add(data["image/png"])

    class Publisher(DisplayPublisher):  # type: ignore[misc,unused-ignore]
        def publish(self, data: Any, *arguments: Any, **options: Any) -> None:
            show(data)

        def clear_output(self, wait: bool = False) -> None:
            pass

    class Hook(DisplayHook):  # type: ignore[misc,unused-ignore]
        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            show(format_dict)

    class Session(InteractiveShell):  # type: ignore[misc,unused-ignore]
        complained = leaves = False

        def showtraceback(self, *arguments: Any, **options: Any) -> None:
            self.complained = True  # of what an expression's display raises, too, which is no failure to IPython
            super().showtraceback(*arguments, **options)  # type: ignore[no-untyped-call,unused-ignore]

        def ask_exit(self) -> None:
            self.leaves = True

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.color_info = False
    shell = Session.instance(config=config, display_pub_class=Publisher, displayhook_class=Hook)
    sys.modules["__main__"] = shell.user_module

    class Shell:
        def run(self, code: str) -> bool:
            shell.complained = shell.leaves = False
            result = shell.run_cell(code, store_history=True)  # type: ignore[no-untyped-call,unused-ignore]
            if shell.leaves:
                raise SystemExit
            return shell.complained or not result.success

    return Shell()


def interpret(channel: socket.socket) -> None:
    """Runs the code that is received from a channel, one line of JSON per call, until its end."""
    pictures = Pictures()
    os.environ.setdefault("MPLBACKEND", "Agg")
    shell: Any
    try:
        shell = ipython_shell(pictures)
    except ImportError:
        shell = PlainShell(pictures)
    stream = channel.makefile("rwb")

    def say(message: Any) -> None:
        stream.write(json.dumps(message).encode() + b"\n")
        stream.flush()

    say({})
    while True:
        line = stream.readline()
        if not line:
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ends = False
        try:
            failed = shell.run(json.loads(line.decode())["code"])
            shown = pictures.take()
        except KeyboardInterrupt:
            failed, shown = True, []
        except SystemExit as end:
            failed, shown, ends = end.code not in (None, 0), [], True
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for each in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the code may have closed the stream
                each.flush()
        say({"failed": failed, "pictures": shown, "ends": ends})
        if ends:
            return


# -- the supervisor -------------------------------------------------------------------------------------------------


def whole(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Removes partial UTF-8 characters at a cut, given the output before and after it; keeps other bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(head[-3:])
    incomplete = len(decoder.getstate()[0])
    rest = len(tail[:4]) - len(tail[:4].lstrip(CONTINUING))
    return head[: len(head) - incomplete], tail[rest if rest < 4 else 0 :]


class Output:
    """Printed output, of which the first and the last part are kept, half of a limit each."""

    def __init__(self, limit: int) -> None:
        self._head, self._tail = b"", b""
        self._limit = limit
        self.truncated = False

    def add(self, data: bytes) -> None:
        room = self._limit // 2 - len(self._head)
        self._head += data[: max(0, room)]
        tail = self._tail + data[max(0, room) :]
        most = self._limit - self._limit // 2
        self.truncated = self.truncated or len(tail) > most
        self._tail = tail[len(tail) - most :] if len(tail) > most else tail

    def text(self) -> str:
        head, tail = self._head, self._tail
        if self.truncated:
            head, tail = whole(head, tail)
            head += CUT.encode()
        text = (head + tail).decode("utf-8", "replace")
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


class Interpreter:
    """A live interpreter, as seen by its supervisor."""

    def __init__(self, user: str, directory: str) -> None:
        ours, theirs = socket.socketpair()
        self._printed, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(user, directory, theirs, write)
                interpret(socket.socket(fileno=3))
            except SystemExit:
                pass
            except BaseException:
                traceback.print_exc()
            finally:
                with contextlib.suppress(BaseException):
                    sys.stdout.flush()
                os._exit(0)
        theirs.close()
        os.close(write)
        self._channel = ours
        self._stream = ours.makefile("rb")
        started, output, _ = self._answer(START, 1 << 16)
        if started is None:
            raise RuntimeError(output.text() or "the interpreter does not start")

    def run(self, code: str, timeout: float, limit: int) -> tuple[dict[str, Any], bool]:
        began = time.monotonic()
        try:
            self._channel.sendall(json.dumps({"code": code}).encode() + b"\n")
            report, output, late = self._answer(timeout, limit)
        except OSError:
            report, output, late = None, Output(limit), False
        lives = report is not None and not report["ends"]
        if not lives:
            self.end()
        text = output.text()
        for line in ([INTERRUPTED % timeout] if late else []) + ([] if lives else [LOST]):
            text += ("" if not text or text.endswith("\n") else "\n") + line
        return {
            "output": text,
            "pictures": [] if report is None else report["pictures"],
            "failed": report is None or report["failed"],
            "timed_out": late,
            "truncated": output.truncated,
            "duration": time.monotonic() - began,
        }, lives

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._stream.close()
        self._channel.close()
        os.close(self._printed)

    def _answer(self, timeout: float, limit: int) -> tuple[Any, Output, bool]:
        """Returns its answer (None if it ended), the output until then, and whether it was interrupted."""
        output, late = Output(limit), False
        deadline = time.monotonic() + timeout
        line = b""
        watched: list[Any] = [self._channel, self._printed]
        while not line.endswith(b"\n"):
            ready, _, _ = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))
            if self._printed in ready:
                output.add(os.read(self._printed, 1 << 16))
            if self._channel in ready:
                data = self._channel.recv(1 << 20)
                if not data:
                    line = b""
                    break
                line += data
            if not ready:
                if late:
                    line = b""
                    break
                late, deadline = True, time.monotonic() + GRACE
                with contextlib.suppress(OSError):
                    os.killpg(self.pid, signal.SIGINT)
        while select.select([self._printed], [], [], 0)[0]:
            data = os.read(self._printed, 1 << 16)
            if not data:
                break
            output.add(data)
        return (json.loads(line.decode()) if line else None), output, late


def become(user: str, directory: str, channel: socket.socket, printed: int) -> None:
    """Makes a forked process the interpreter: changes the user, and descriptors 0 to 3."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    # Duplicates above all target numbers, so that none is overwritten while it is still needed.
    sources = (nothing, printed, printed, channel.fileno())
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, len(sources)) for fd in sources]
    for number, fd in enumerate(copies):
        os.dup2(fd, number)
    os.closerange(4, 1 << 12)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    uid, groups, home = user.split(":", 2)
    gids = [int(gid) for gid in groups.split(",")]
    if (os.getuid(), {os.getgid(), *os.getgroups()}) != (int(uid), set(gids)) or os.getgid() != gids[0]:
        os.setgroups(gids)
        os.setgid(gids[0])
        os.setuid(int(uid))
    os.environ["HOME"] = home
    with contextlib.suppress(OSError):
        os.chdir(directory)
    sys.path.insert(0, "")
    sys.argv = [""]
    sys.stdin = os.fdopen(0)
    options: Any = {"buffering": 1, "encoding": "utf-8", "errors": "backslashreplace", "closefd": False}
    sys.stdout, sys.stderr = os.fdopen(1, "w", **options), os.fdopen(2, "w", **options)


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def serve(listener: socket.socket, user: str, directory: str, ready: int) -> None:
    """Answers requests until the sandbox ends; writes to `ready` once its interpreter is ready."""
    interpreter = Interpreter(user, directory)
    listener.listen(8)
    os.write(ready, b"ready")
    os.close(ready)
    while True:
        connection, _ = listener.accept()
        try:
            request = json.loads(read_all(connection).decode())
            answer, lives = interpreter.run(request["code"], request["timeout"], request["limit"])
            if not lives:
                interpreter = Interpreter(user, directory)
        except Exception as error:
            answer = {"broken": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(answer).encode())
        connection.close()


def end_supervisor(path: str) -> None:
    """Ends the supervisor that listens at a Unix socket, if there is one, and its interpreter."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(path)
        supervisor, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        os.kill(supervisor, signal.SIGSTOP)  # so that it does not start another interpreter
        with contextlib.suppress(OSError), open(f"/proc/{supervisor}/task/{supervisor}/children") as children:
            for interpreter in children.read().split():
                os.killpg(int(interpreter), signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)


def shorten_command_line() -> None:
    """Makes `ps` and `pgrep -f` show only the first word of this process's command line, and not the files' paths.

    If the last byte of the arguments is not NUL, the kernel assumes that they were overwritten, and shows only the
    first string.
    """
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as stat:
        end = int(stat.read().rpartition(b")")[2].split()[46])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(end - 1)
            memory.write(b".")


def start(user: str, home: str, directory: str, path: str) -> None:
    """Starts the supervisor in the background, and returns once it listens; ends an abandoned one at that socket.

    `user` has the interpreter's user in the form of PID 1's program: number, groups and home directory; `home` is the
    home directory that the image sets, or empty.
    """
    ids, _, own = user.rpartition(":")
    user = f"{ids}:{home or own}"
    end_supervisor(path)
    ready, say = os.pipe()
    if os.fork():
        os.close(say)
        reason = b"".join(iter(lambda: os.read(ready, 1 << 16), b""))
        if reason != b"ready":
            sys.exit(reason.decode("utf-8", "replace") or "the supervisor ended")
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    shorten_command_line()
    os.close(ready)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o600)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.close(nothing)
        serve(listener, user, directory, say)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(say, str(error).encode())
    os._exit(1)


if __name__ == "__main__":
    start(*sys.argv[2:])
