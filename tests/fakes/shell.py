"""The fake shell: interprets the trees of `syntax` on a machine in memory, with virtual time.

It knows as much of POSIX as tests need. Where it does not know a construct it fails loudly, as a command not found.
"""

from __future__ import annotations

import ast
import fnmatch
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.fakes import syntax
from tests.fakes.files import FileTree, join

STEP_LIMIT = 20_000
JOB_STEP_LIMIT = 2_000
SUBSTITUTION_DEPTH = 50
NULL, TERMINAL = "null", "terminal"
SIGNALS = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "KILL": 9,
    "USR1": 10,
    "USR2": 12,
    "PIPE": 13,
    "TERM": 15,
    "CONT": 18,
    "STOP": 19,
}
IGNORED_VARIABLES = {"RANDOM", "SECONDS", "LINENO", "_"}


class ShellExit(Exception):
    """The shell ended."""

    def __init__(self, status: int) -> None:
        self.status = status


class CallTimedOut(Exception):
    """The call's time is over; `blocked` if it merely waited."""

    def __init__(self, blocked: bool) -> None:
        self.blocked = blocked


class FunctionReturn(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


class LoopControl(Exception):
    """`break` or `continue`, through `levels` loops."""

    def __init__(self, levels: int, again: bool) -> None:
        self.levels = levels
        self.again = again


class LineAborted(Exception):
    """The present command line cannot go on (an unbound variable, a bad substitution)."""

    def __init__(self, message: str) -> None:
        self.message = message


@dataclass
class Sink:
    """Where output is gathered."""

    data: bytearray = field(default_factory=bytearray)


@dataclass
class Source:
    """Input that was gathered before."""

    data: bytes
    position: int = 0


@dataclass(frozen=True)
class OpenFile:
    """A file opened for writing, by its path: every write appends."""

    path: str


Stream = Sink | Source | OpenFile | str
Streams = dict[int, Stream]


@dataclass
class Variable:
    value: str
    exported: bool = False


@dataclass
class Shell:
    """The state of one shell."""

    cwd: str
    variables: dict[str, Variable]
    functions: dict[str, syntax.Function] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    options: set[str] = field(default_factory=set)
    traps: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    status: int = 0
    pid: int = 2
    user: str = "root"
    background: int = 0
    arguments: list[str] = field(default_factory=list)
    depth: int = 0

    def copy(self) -> Shell:
        """Returns a shell of the same state, as a subshell has it."""
        return Shell(
            cwd=self.cwd,
            variables={name: Variable(variable.value, variable.exported) for name, variable in self.variables.items()},
            functions=dict(self.functions),
            aliases=dict(self.aliases),
            options=set(self.options),
            traps=dict(self.traps),
            umask=self.umask,
            status=self.status,
            pid=self.pid,
            user=self.user,
            background=self.background,
            arguments=list(self.arguments),
            depth=self.depth,
        )

    def get(self, name: str) -> str | None:
        variable = self.variables.get(name)
        return None if variable is None else variable.value

    def set(self, name: str, value: str) -> None:
        variable = self.variables.get(name)
        if variable is None:
            self.variables[name] = Variable(value, "a" in self.options)
        else:
            variable.value = value

    def state(self) -> dict[str, str]:
        """Returns what of the shell a later command could see, by name."""
        found = {f"var {name}": repr(variable) for name, variable in self.variables.items()}
        found = {name: text for name, text in found.items() if name[4:] not in IGNORED_VARIABLES}
        found.update({f"function {name}": function.text for name, function in self.functions.items()})
        found.update({f"alias {name}": text for name, text in self.aliases.items()})
        found.update({f"option {name}": "on" for name in self.options})
        found.update({f"trap {name}": text for name, text in self.traps.items()})
        found["cwd"] = self.cwd
        found["arguments"] = repr(self.arguments)
        found["background"] = str(self.background)
        found["umask"] = f"{self.umask:04o}"
        found["status"] = str(self.status)
        return found


@dataclass
class Frame:
    """One level of a background job's program: a list and how far it came, and its loop's head if it has one."""

    items: tuple[syntax.Item, ...]
    index: int = 0
    loop: syntax.Loop | None = None
    pending: list[str] = field(default_factory=list)
    variable: str = ""

    def copy(self) -> Frame:
        return Frame(self.items, self.index, self.loop, list(self.pending), self.variable)


@dataclass
class Job:
    """A background job: a program that goes on whenever virtual time passes."""

    number: int
    pid: int
    command: str
    shell: Shell
    frames: list[Frame]
    streams: Streams
    wake: float = 0.0
    steps: int = 0
    stopped: bool = False
    born_in: int = 0

    def copy(self) -> Job:
        streams: Streams = {}
        for number, stream in self.streams.items():
            streams[number] = NULL if isinstance(stream, Sink) else stream
        return Job(
            self.number,
            self.pid,
            self.command,
            self.shell.copy(),
            [frame.copy() for frame in self.frames],
            streams,
            self.wake,
            self.steps,
            self.stopped,
            self.born_in,
        )


class Machine:
    """All of one fake sandbox's state: files, the persistent shell, jobs and a virtual clock."""

    def __init__(self, files: FileTree, base: FileTree, shell: Shell, chance: random.Random) -> None:
        self.files = files
        self.base = base
        self.shell = shell
        self.chance = chance
        self.jobs: dict[int, Job] = {}
        self.finished: dict[int, int] = {}
        self.next_pid = 3
        self.changes = 0
        self.clock = 0.0
        self.calls = 0
        self.process_limit = 512

    def copy(self) -> Machine:
        other = Machine(self.files.copy(), self.base, self.shell.copy(), self.chance)
        other.jobs = {pid: job.copy() for pid, job in self.jobs.items()}
        other.finished = dict(self.finished)
        other.next_pid = self.next_pid
        other.changes = self.changes
        other.clock = self.clock
        other.calls = self.calls
        other.process_limit = self.process_limit
        return other

    def begin_call(self) -> None:
        """Numbers the processes to come as in any other execution of what came before."""
        self.next_pid = 3 + self.changes * 64

    def take_pid(self) -> int:
        """Returns the id of a new process."""
        while self.next_pid in self.jobs:
            self.next_pid += 1
        self.next_pid += 1
        self.finished.pop(self.next_pid - 1, None)
        return self.next_pid - 1

    def advance(self, seconds: float) -> None:
        """Lets virtual time pass, and the jobs that are due in it run."""
        target = self.clock + seconds
        while True:
            due = [job for job in self.jobs.values() if job.wake <= target and not job.stopped]
            if not due:
                break
            job = min(due, key=lambda candidate: (candidate.wake, candidate.pid))
            self.clock = max(self.clock, job.wake)
            self.run_job(job)
        self.clock = target

    def run_job(self, job: Job) -> None:
        """Runs a job until it sleeps, has ended, or had its share of steps."""
        interpreter = Interpreter(self, job.shell, job.streams, job=job)
        try:
            for _ in range(JOB_STEP_LIMIT):
                job.wake = self.clock
                interpreter.step()
                if not job.frames:
                    raise ShellExit(job.shell.status)
                if job.wake > self.clock:
                    return
            job.wake = self.clock + 0.01
        except ShellExit as end:
            self.end_job(job.pid, end.status)
        except (LineAborted, FunctionReturn, LoopControl, CallTimedOut):
            self.end_job(job.pid, 1)

    def end_job(self, pid: int, status: int) -> None:
        if self.jobs.pop(pid, None) is not None:
            self.finished[pid] = status


class Interpreter:
    """Runs trees in one shell with the given streams."""

    def __init__(
        self,
        machine: Machine,
        shell: Shell,
        streams: Streams,
        *,
        deadline: float = float("inf"),
        job: Job | None = None,
        budget: list[int] | None = None,
        sleeper: Callable[[float], None] | None = None,
    ) -> None:
        self.machine = machine
        self.shell = shell
        self.streams = streams
        self.deadline = deadline
        self.job = job
        self.budget = budget if budget is not None else [STEP_LIMIT]
        self.sleeper = sleeper
        self.tested = 0

    def child(self, shell: Shell, streams: Streams) -> Interpreter:
        other = Interpreter(
            self.machine,
            shell,
            streams,
            deadline=self.deadline,
            job=self.job,
            budget=self.budget,
            sleeper=self.sleeper,
        )
        other.tested = self.tested
        return other

    # Streams

    def write(self, descriptor: int, data: bytes) -> None:
        stream = self.streams.get(descriptor, NULL)
        if isinstance(stream, Sink):
            stream.data += data
        elif isinstance(stream, OpenFile) and data:
            self.machine.files.write(stream.path, data, append=True)

    def say(self, message: str) -> None:
        """Writes a line to standard error."""
        self.write(2, encode(message + "\n"))

    def read_all(self) -> bytes:
        """Returns the rest of standard input; a terminal has none and would block."""
        stream = self.streams.get(0, NULL)
        if isinstance(stream, Source):
            data = stream.data[stream.position :]
            stream.position = len(stream.data)
            return data
        if stream == TERMINAL:
            self.block()
        return b""

    def read_line(self) -> bytes:
        stream = self.streams.get(0, NULL)
        if isinstance(stream, Source):
            end = stream.data.find(b"\n", stream.position)
            end = len(stream.data) if end < 0 else end + 1
            line = stream.data[stream.position : end]
            stream.position = end
            return line
        if stream == TERMINAL:
            self.block()
        return b""

    def block(self) -> None:
        """Waits for what never comes."""
        self.machine.advance(max(0.0, self.deadline - self.machine.clock) if self.deadline != float("inf") else 0.0)
        raise CallTimedOut(blocked=True)

    def sleep(self, seconds: float) -> None:
        """Lets virtual time pass for this program."""
        if self.job is not None:
            self.job.wake = max(self.job.wake, self.machine.clock) + seconds
            return
        allowed = self.deadline - self.machine.clock
        pause = min(seconds, allowed)
        if self.sleeper is not None:
            self.sleeper(pause)
        if pause == float("inf"):
            raise CallTimedOut(blocked=True)
        self.machine.advance(pause)
        if seconds >= allowed:
            raise CallTimedOut(blocked=True)

    # Running

    def run_text(self, text: str) -> int:
        """Runs a text line by line, as bash reads it; returns the exit status of the last command."""
        parser = syntax.Parser(text, self.shell.aliases)
        while True:
            try:
                line = parser.next_line()
            except syntax.ShellSyntaxError as error:
                self.say(f"bash: {error}")
                self.shell.status = 2
                return 2
            if line is None:
                return self.shell.status
            try:
                self.node(line)
            except LineAborted as aborted:
                self.say(f"bash: {aborted.message}")
                self.shell.status = 1
                return 1

    def node(self, node: syntax.Node) -> int:
        """Runs one tree; returns and records its exit status."""
        self.budget[0] -= 1
        if self.budget[0] <= 0:
            raise CallTimedOut(blocked=False)
        match node:
            case syntax.Sequence():
                status = 0
                for item in node.items:
                    status = self.item(item)
                return status
            case syntax.Simple():
                status = self.simple(node)
            case syntax.AndOr():
                return self.and_or(node)
            case syntax.Pipeline():
                status = self.pipeline(node)
            case syntax.Function():
                self.shell.functions[node.name] = node
                status = 0
            case _:
                status = self.compound(node)
                if not (isinstance(node, syntax.Group) and node.subshell):
                    self.shell.status = status
                    return status
        self.shell.status = status
        negated = isinstance(node, syntax.Pipeline) and node.negated
        if status and "e" in self.shell.options and not self.tested and not negated:
            raise ShellExit(status)
        return status

    def item(self, item: syntax.Item) -> int:
        if not item.background:
            return self.node(item.node)
        machine = self.machine
        if len(machine.jobs) + 2 >= machine.process_limit:
            self.say("bash: fork: retry: Resource temporarily unavailable")
            self.shell.status = 254
            return 254
        pid = machine.take_pid()
        number = max([job.number for job in machine.jobs.values()], default=0) + 1
        shell = self.shell.copy()
        shell.options.discard("e")
        streams = dict(self.streams)
        streams[0] = NULL
        job = Job(number, pid, item.text, shell, [Frame((syntax.Item(item.node, False, item.text),))], streams)
        job.wake = machine.clock
        job.born_in = machine.calls
        machine.jobs[pid] = job
        self.shell.background = pid
        self.shell.status = 0
        machine.run_job(job)
        return 0

    def and_or(self, node: syntax.AndOr) -> int:
        last = len(node.rest)
        status = self.guarded(node.first)
        for index, (operator, command) in enumerate(node.rest, 1):
            if (status == 0) == (operator == "&&"):
                status = self.node(command) if index == last else self.guarded(command)
        return status

    def guarded(self, node: syntax.Node) -> int:
        """Runs a tree whose status is tested, so that `set -e` does not apply."""
        self.tested += 1
        try:
            return self.node(node)
        finally:
            self.tested -= 1

    def pipeline(self, node: syntax.Pipeline) -> int:
        if len(node.commands) == 1:
            status = self.guarded(node.commands[0])
        else:
            statuses = []
            feed: Stream | None = None
            for index, command in enumerate(node.commands):
                last = index == len(node.commands) - 1
                streams = dict(self.streams)
                if feed is not None:
                    streams[0] = feed
                sink = Sink()
                if not last:
                    streams[1] = sink
                statuses.append(self.child(self.inherited(), streams).subshell(command))
                feed = Source(bytes(sink.data))
            status = statuses[-1]
            if "pipefail" in self.shell.options:
                status = next((code for code in reversed(statuses) if code), 0)
        return int(status == 0) if node.negated else status

    def inherited(self) -> Shell:
        """Returns the shell that a subshell begins with: an EXIT trap is not inherited."""
        shell = self.shell.copy()
        shell.traps.pop("EXIT", None)
        return shell

    def subshell(self, node: syntax.Node) -> int:
        """Runs a tree as the whole program of this (sub)shell."""
        try:
            status = self.node(node)
        except ShellExit as end:
            status = end.status
        except LineAborted as aborted:
            self.say(f"bash: {aborted.message}")
            status = 1
        except FunctionReturn as end:
            status = end.status
        return self.at_exit(status)

    def at_exit(self, status: int) -> int:
        """Runs the EXIT trap; returns the exit status."""
        command = self.shell.traps.pop("EXIT", None)
        if command is not None:
            try:
                self.run_text(command)
            except ShellExit as end:
                return end.status
        return status

    def compound(self, node: syntax.Node) -> int:
        assert not isinstance(node, syntax.Sequence | syntax.Simple | syntax.AndOr | syntax.Pipeline | syntax.Function)
        saved = dict(self.streams)
        if not self.redirect(node.redirects):
            self.streams = saved
            return 1
        try:
            match node:
                case syntax.Group(subshell=True):
                    return self.child(self.inherited(), self.streams).subshell(node.body)
                case syntax.Group():
                    return self.node(node.body)
                case syntax.If():
                    for condition, body in node.branches:
                        if self.guarded(condition) == 0:
                            return self.node(body)
                    return self.node(node.otherwise) if node.otherwise is not None else 0
                case syntax.Loop():
                    return self.loop(node)
                case syntax.For():
                    return self.for_loop(node)
                case syntax.Case():
                    subject = self.text(node.subject)
                    for patterns, body in node.branches:
                        if any(self.matches(subject, pattern) for pattern in patterns):
                            return self.node(body)
                    return 0
                case syntax.ArithmeticCommand():
                    return int(self.arithmetic(self.text(node.expression)) == 0)
        finally:
            self.streams = saved

    def loop(self, node: syntax.Loop) -> int:
        status = 0
        while (self.guarded(node.condition) == 0) != node.until:
            status, ends = self.turn(node.body)
            if ends:
                break
        return status

    def for_loop(self, node: syntax.For) -> int:
        status = 0
        values = list(self.shell.arguments) if node.words is None else self.fields(node.words)
        for value in values:
            self.shell.set(node.name, value)
            status, ends = self.turn(node.body)
            if ends:
                break
        return status

    def turn(self, body: syntax.Sequence) -> tuple[int, bool]:
        """Runs a loop's body once; returns its status and whether the loop ends with it."""
        try:
            return self.node(body), False
        except LoopControl as control:
            if control.levels > 1:
                raise LoopControl(control.levels - 1, control.again) from None
            return 0, not control.again

    def redirect(self, redirects: tuple[syntax.Redirect, ...]) -> bool:
        """Applies redirections to the streams; says what is wrong and returns False if it cannot."""
        files = self.machine.files
        for redirect in redirects:
            operator, number = redirect.operator, redirect.descriptor
            if isinstance(redirect.target, syntax.HereDocument):
                self.streams[number] = Source(encode(self.text(redirect.target.body)))
                continue
            target = self.text(redirect.target)
            if operator == "<<<":
                self.streams[number] = Source(encode(target + "\n"))
                continue
            if operator in (">&", "<&") and (target.isdigit() or target == "-"):
                self.streams[number] = NULL if target == "-" else self.streams.get(int(target), NULL)
                continue
            if target == "/dev/null":
                stream: Stream = NULL
            else:
                path = join(self.shell.cwd, target)
                try:
                    if operator == "<":
                        stream = Source(files.read(path))
                    else:
                        inode = files.lookup(path)
                        if inode is not None and inode.kind == "file" and "C" in self.shell.options and operator == ">":
                            self.say(f"bash: {target}: cannot overwrite existing file")
                            return False
                        files.write(path, b"", mode=0o666 & ~self.shell.umask, append=operator in (">>", "&>>"))
                        stream = OpenFile(path)
                except OSError as failure:
                    self.say(f"bash: {target}: {failure.strerror}")
                    return False
            self.streams[number] = stream
            if operator in ("&>", "&>>"):
                self.streams[2] = stream
        return True

    def simple(self, node: syntax.Simple) -> int:
        shell = self.shell
        substituted = shell.status
        literal = bool(node.words) and node.words[0].plain == "[["
        fields = [self.text(word) for word in node.words] if literal else self.fields(node.words)
        saved_streams = dict(self.streams)
        if not self.redirect(node.redirects):
            self.streams = saved_streams
            return 1
        keep_streams = False
        saved_variables: dict[str, Variable | None] = {}
        try:
            had_substitution = False
            for name, append, word in node.assignments:
                value = self.text(word)
                had_substitution |= any(isinstance(part, syntax.CommandSubstitution) for part in word.parts)
                if append:
                    value = (shell.get(name) or "") + value
                if fields:
                    saved_variables[name] = shell.variables.get(name)
                    shell.variables[name] = Variable(value, True)
                else:
                    shell.set(name, value)
            if not fields:
                return shell.status if had_substitution else 0
            shell.status = substituted
            if fields[0] == "exec" and len(fields) == 1:
                keep_streams = True
                return 0
            return self.command(fields)
        finally:
            for name, variable in saved_variables.items():
                if variable is None:
                    shell.variables.pop(name, None)
                else:
                    shell.variables[name] = variable
            if not keep_streams:
                self.streams = saved_streams

    def command(self, fields: list[str]) -> int:
        """Runs a function, builtin or program by name."""
        from tests.fakes.commands import COMMANDS

        name, *arguments = fields
        function = self.shell.functions.get(name)
        if function is not None:
            return self.call(function, arguments)
        program = COMMANDS.get(name)
        if program is not None:
            return program(self, arguments)
        if "/" in name:
            return self.script(name, arguments)
        self.say(f"bash: line 1: {name}: command not found")
        return 127

    def call(self, function: syntax.Function, arguments: list[str]) -> int:
        shell = self.shell
        if shell.depth >= SUBSTITUTION_DEPTH:
            raise LineAborted(f"{function.name}: maximum function nesting level exceeded")
        saved, shell.arguments = shell.arguments, arguments
        shell.depth += 1
        try:
            return self.node(function.body)
        except FunctionReturn as end:
            return end.status
        finally:
            shell.arguments = saved
            shell.depth -= 1

    def script(self, name: str, arguments: list[str]) -> int:
        """Runs a shell script file, or a known program by its path."""
        from tests.fakes.commands import COMMANDS

        try:
            _, inode = self.machine.files.need(join(self.shell.cwd, name))
        except OSError as failure:
            program = COMMANDS.get(name.rpartition("/")[2]) if name.startswith(("/bin/", "/usr/bin/")) else None
            if program is not None:
                return program(self, arguments)
            self.say(f"bash: line 1: {name}: {failure.strerror}")
            return 127
        if inode.kind == "directory":
            self.say(f"bash: line 1: {name}: Is a directory")
            return 126
        if not inode.mode & 0o111:
            self.say(f"bash: line 1: {name}: Permission denied")
            return 126
        return self.fresh_shell(decode(inode.data), arguments)

    def fresh_shell(self, text: str, arguments: list[str]) -> int:
        """Runs a text in a new shell that inherits exported variables and the cwd."""
        variables = {name: Variable(each.value, True) for name, each in self.shell.variables.items() if each.exported}
        shell = Shell(self.shell.cwd, variables, umask=self.shell.umask, user=self.shell.user, arguments=arguments)
        shell.pid = self.machine.take_pid()
        other = self.child(shell, dict(self.streams))
        other.tested = 0
        try:
            status = other.run_text(text)
        except ShellExit as end:
            status = end.status
        return other.at_exit(status)

    def step(self) -> None:
        """Runs one step of this interpreter's job."""
        job = self.job
        assert job is not None
        frame = job.frames[-1]
        try:
            if frame.index >= len(frame.items):
                if frame.variable and frame.pending:
                    job.shell.set(frame.variable, frame.pending.pop(0))
                    frame.index = 0
                elif frame.loop is not None and (self.guarded(frame.loop.condition) == 0) != frame.loop.until:
                    frame.index = 0
                else:
                    job.frames.pop()
                return
            node = frame.items[frame.index].node
            frame.index += 1
            self.step_into(job, node)
        except LoopControl as control:
            levels = control.levels
            while job.frames:
                frame = job.frames[-1]
                if frame.loop is not None or frame.variable:
                    levels -= 1
                    if levels == 0:
                        break
                job.frames.pop()
            if job.frames and not control.again:
                job.frames.pop()
            elif job.frames:
                job.frames[-1].index = len(job.frames[-1].items)

    def step_into(self, job: Job, node: syntax.Node) -> None:
        outermost = len(job.frames) == 1
        enters = isinstance(node, syntax.Sequence | syntax.Group | syntax.Loop | syntax.For)
        redirects = () if not enters or isinstance(node, syntax.Sequence) else node.redirects  # type: ignore[union-attr]
        if enters and (outermost or not redirects):
            if not self.redirect(redirects):
                job.frames.clear()
                job.shell.status = 1
                return
            job.streams.update(self.streams)
            if isinstance(node, syntax.Sequence):
                job.frames.append(Frame(node.items))
            elif isinstance(node, syntax.Group):
                job.frames.append(Frame(node.body.items))
            elif isinstance(node, syntax.Loop):
                job.frames.append(Frame(node.body.items, len(node.body.items), loop=node))
            elif isinstance(node, syntax.For):
                values = [] if node.words is None else self.fields(node.words)
                job.frames.append(Frame(node.body.items, len(node.body.items), pending=values, variable=node.name))
            return
        job.steps += 1
        self.budget[0] = STEP_LIMIT
        self.node(node)

    # Expansion

    def text(self, word: syntax.Word) -> str:
        """Returns a word expanded without splitting."""
        return "".join(self.part(part) for part in word.parts)

    def part(self, part: syntax.Part) -> str:
        match part:
            case syntax.Literal():
                return part.text
            case syntax.Parameter():
                return self.parameter(part)
            case syntax.CommandSubstitution():
                return self.substitute(part.source)
            case syntax.Arithmetic():
                return str(self.arithmetic(self.text(part.expression)))

    def substitute(self, source: str) -> str:
        sink = Sink()
        shell = self.shell.copy()
        shell.traps = {}
        shell.depth += 1
        if shell.depth > SUBSTITUTION_DEPTH:
            raise LineAborted("too many nested substitutions")
        other = self.child(shell, {**self.streams, 1: sink})
        try:
            status = other.run_text(source)
        except ShellExit as end:
            status = end.status
        self.shell.status = status
        return decode(bytes(sink.data).replace(b"\0", b"")).rstrip("\n")

    def value(self, name: str) -> str | None:
        """Returns a parameter's value, None if it is unset."""
        shell = self.shell
        special: Mapping[str, Callable[[], str]] = {
            "?": lambda: str(shell.status),
            "$": lambda: str(shell.pid),
            "!": lambda: str(shell.background) if shell.background else "",
            "#": lambda: str(len(shell.arguments)),
            "@": lambda: " ".join(shell.arguments),
            "*": lambda: " ".join(shell.arguments),
            "-": lambda: "".join(sorted(option for option in shell.options if len(option) == 1)),
            "0": lambda: "bash",
            "RANDOM": lambda: str(self.machine.chance.randrange(32768)),
            "SECONDS": lambda: str(int(self.machine.clock)),
            "LINENO": lambda: "1",
        }
        if name in special:
            return special[name]()
        if name.isdigit():
            index = int(name) - 1
            return shell.arguments[index] if index < len(shell.arguments) else None
        return shell.get(name)

    def parameter(self, part: syntax.Parameter) -> str:
        value = self.value(part.name)
        operator = part.operator
        if operator in ("-", ":-", "=", ":=", "+", ":+", "?", ":?"):
            missing = value is None or (operator.startswith(":") and value == "")
            assert part.argument is not None
            if operator.endswith("+"):
                return "" if missing else self.text(part.argument)
            if not missing:
                assert value is not None
                return value
            argument = self.text(part.argument)
            if operator.endswith("?"):
                raise LineAborted(f"{part.name}: {argument or 'parameter null or not set'}")
            if operator.endswith("="):
                self.shell.set(part.name, argument)
            return argument
        if value is None:
            if "u" in self.shell.options and part.name not in ("@", "*"):
                raise LineAborted(f"{part.name}: unbound variable")
            value = ""
        if operator == "length":
            return str(len(value))
        if operator:
            assert part.argument is not None
            return self.trim(value, operator, part.argument)
        return value

    def trim(self, value: str, operator: str, pattern: syntax.Word) -> str:
        """Removes a matching prefix (`#`) or suffix (`%`): the longest if the operator is doubled."""
        expression = self.pattern(pattern)
        lengths = range(len(value) + 1)
        for length in reversed(lengths) if len(operator) == 2 else lengths:
            piece = value[:length] if operator[0] == "#" else value[len(value) - length :]
            if re.fullmatch(expression, piece, re.DOTALL):
                return value[length:] if operator[0] == "#" else value[: len(value) - length]
        return value

    def fields(self, words: tuple[syntax.Word, ...]) -> list[str]:
        """Returns words expanded, split and matched against files."""
        found: list[str] = []
        for word in words:
            for pieces in self.split(word):
                found.extend(self.glob(pieces))
        return found

    def split(self, word: syntax.Word) -> list[list[tuple[str, bool]]]:
        """Returns a word's fields; each is a list of texts and whether they were quoted."""
        done: list[list[tuple[str, bool]]] = []
        current: list[tuple[str, bool]] = []
        for index, part in enumerate(word.parts):
            if isinstance(part, syntax.Literal):
                text = part.text
                if index == 0 and not part.quoted and text.startswith("~") and text[1:2] in ("", "/"):
                    current.append((self.shell.get("HOME") or "/root", True))
                    text = text[1:]
                current.append((text, part.quoted))
                continue
            if isinstance(part, syntax.Parameter) and part.name == "@" and part.quoted and not part.operator:
                for number, argument in enumerate(self.shell.arguments):
                    if number:
                        done.append(current)
                        current = []
                    current.append((argument, True))
                continue
            value = self.part(part)
            if part.quoted:
                current.append((value, True))
                continue
            chunks = re.split(r"[ \t\n]+", value)
            for number, chunk in enumerate(chunks):
                if number:
                    if current:
                        done.append(current)
                    current = []
                if chunk:
                    current.append((chunk, False))
        if current:
            done.append(current)
        return done

    def glob(self, pieces: list[tuple[str, bool]]) -> list[str]:
        plain = "".join(text for text, _ in pieces)
        wild = any(not quoted and any(mark in text for mark in "*?[") for text, quoted in pieces)
        if not wild or "f" in self.shell.options:
            return [plain]
        pattern = "".join(re.sub(r"([*?\[])", r"[\1]", text) if quoted else text for text, quoted in pieces)
        found = [("/", "/")] if pattern.startswith("/") else [(self.shell.cwd, "")]
        files = self.machine.files
        for component in [part for part in pattern.split("/") if part]:
            matching = []
            for directory, shown in found:
                try:
                    name, inode = files.need(directory)
                except OSError:
                    continue
                if inode.kind != "directory":
                    continue
                for entry in files.list(name):
                    if fnmatch.fnmatchcase(entry, component) and entry.startswith(".") == component.startswith("."):
                        separator = "" if not shown or shown.endswith("/") else "/"
                        matching.append((join(name, entry), shown + separator + entry))
            found = matching
        return sorted(shown for _, shown in found) or [plain]

    def pattern(self, word: syntax.Word) -> str:
        """Returns a shell pattern as a regular expression."""
        pieces = []
        for part in word.parts:
            text = self.part(part)
            pieces.append(re.escape(text) if part.quoted else fnmatch.translate(text)[len("(?s:") : -len(r")\Z")])
        return "".join(pieces)

    def matches(self, subject: str, word: syntax.Word) -> bool:
        return re.fullmatch(self.pattern(word), subject, re.DOTALL) is not None

    def arithmetic(self, text: str) -> int:
        """Returns an arithmetic expression's value, with assignments and increments done."""
        text = text.strip()
        step = re.fullmatch(r"(\w+)\s*(\+\+|--)|(\+\+|--)\s*(\w+)", text)
        if step:
            name = step.group(1) or step.group(4)
            before = self.arithmetic(name)
            after = before + (1 if (step.group(2) or step.group(3)) == "++" else -1)
            self.shell.set(name, str(after))
            return before if step.group(1) else after
        assignment = re.fullmatch(r"([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)(.*)", text, re.DOTALL)
        if assignment:
            name, operator, rest = assignment.groups()
            value = self.arithmetic(f"{name} {operator} ({rest})" if operator else rest)
            self.shell.set(name, str(value))
            return value

        def number(match: re.Match[str]) -> str:
            value = self.value(match.group()) or "0"
            return str(int(value)) if re.fullmatch(r"-?\d+", value) else str(self.arithmetic(value))

        expression = re.sub(r"\$?\b[A-Za-z_]\w*", number, text)
        expression = expression.replace("&&", " and ").replace("||", " or ")
        expression = re.sub(r"!(?!=)", " not ", expression)
        try:
            return evaluate(ast.parse(expression.strip() or "0", mode="eval").body)
        except (SyntaxError, ValueError):
            raise LineAborted(f"{text}: syntax error in expression") from None
        except ZeroDivisionError:
            raise LineAborted(f"{text}: division by 0") from None


def evaluate(node: ast.expr) -> int:
    """Returns the integer value of a Python expression made of C's arithmetic."""
    match node:
        case ast.Constant(value=int()):
            return int(node.value)  # type: ignore[arg-type]
        case ast.UnaryOp():
            value = evaluate(node.operand)
            if isinstance(node.op, ast.Not):
                return int(not value)
            return -value if isinstance(node.op, ast.USub) else value
        case ast.BoolOp():
            values = [evaluate(value) != 0 for value in node.values]
            return int(all(values) if isinstance(node.op, ast.And) else any(values))
        case ast.Compare(ops=[operator], comparators=[right]):
            difference = evaluate(node.left) - evaluate(right)
            return int(
                {
                    ast.Lt: difference < 0,
                    ast.LtE: difference <= 0,
                    ast.Gt: difference > 0,
                    ast.GtE: difference >= 0,
                    ast.Eq: difference == 0,
                    ast.NotEq: difference != 0,
                }[type(operator)]
            )
        case ast.BinOp():
            left, right_value = evaluate(node.left), evaluate(node.right)
            match node.op:
                case ast.Add():
                    return left + right_value
                case ast.Sub():
                    return left - right_value
                case ast.Mult():
                    return left * right_value
                case ast.Div():
                    quotient = abs(left) // abs(right_value)
                    return quotient if (left < 0) == (right_value < 0) else -quotient
                case ast.Mod():
                    remainder = abs(left) % abs(right_value)
                    return remainder if left >= 0 else -remainder
                case ast.Pow():
                    return int(left**right_value)
    raise ValueError(ast.dump(node))


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
