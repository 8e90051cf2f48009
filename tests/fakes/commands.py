"""The fake shell's builtins and programs, each a function of the interpreter and its arguments."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fakes.files import FileTree, Inode, error, join
from tests.fakes.shell import (
    SIGNALS,
    CallTimedOut,
    FunctionReturn,
    Interpreter,
    LoopControl,
    ShellExit,
    Variable,
    decode,
    encode,
)
from tests.fakes.syntax import unescape

Command = Callable[[Interpreter, list[str]], int]
COMMANDS: dict[str, Command] = {}


def command(*names: str) -> Callable[[Command], Command]:
    def register(function: Command) -> Command:
        for name in names:
            COMMANDS[name] = function
        return function

    return register


def split_flags(arguments: list[str]) -> tuple[str, list[str]]:
    """Returns the letters of all flags, and the operands."""
    letters, operands = "", []
    for index, argument in enumerate(arguments):
        if argument == "--":
            operands.extend(arguments[index + 1 :])
            break
        if argument.startswith("-") and len(argument) > 1:
            letters += argument.lstrip("-")
        else:
            operands.append(argument)
    return letters, operands


def place(shell: Interpreter, path: str) -> str:
    return join(shell.shell.cwd, path)


def tree(shell: Interpreter) -> FileTree:
    return shell.machine.files


def complain(shell: Interpreter, text: str, failure: OSError) -> None:
    shell.say(f"{text}: {failure.strerror}")


def for_each(shell: Interpreter, operands: list[str], complaint: str, action: Callable[[str], None]) -> int:
    """Does `action` to each operand; says `complaint` of those that fail. Returns the exit status."""

    def attempt(operand: str) -> int:
        try:
            action(operand)
        except OSError as failure:
            complain(shell, complaint.format(operand), failure)
            return 1
        return 0

    return max([attempt(operand) for operand in operands], default=0)


# Builtins


@command(":", "true")
def do_nothing(shell: Interpreter, arguments: list[str]) -> int:
    return 0


@command("false")
def do_false(shell: Interpreter, arguments: list[str]) -> int:
    return 1


@command("exit")
def do_exit(shell: Interpreter, arguments: list[str]) -> int:
    raise ShellExit(int(arguments[0]) & 255 if arguments else shell.shell.status)


@command("return")
def do_return(shell: Interpreter, arguments: list[str]) -> int:
    raise FunctionReturn(int(arguments[0]) & 255 if arguments else shell.shell.status)


@command("break")
def do_break(shell: Interpreter, arguments: list[str]) -> int:
    raise LoopControl(int(arguments[0]) if arguments else 1, again=False)


@command("continue")
def do_continue(shell: Interpreter, arguments: list[str]) -> int:
    raise LoopControl(int(arguments[0]) if arguments else 1, again=True)


@command("exec")
def do_exec(shell: Interpreter, arguments: list[str]) -> int:
    raise ShellExit(shell.command(arguments))


@command("eval")
def do_eval(shell: Interpreter, arguments: list[str]) -> int:
    return shell.run_text(" ".join(arguments)) if arguments else 0


@command("command", "builtin")
def do_command(shell: Interpreter, arguments: list[str]) -> int:
    if arguments[:1] == ["-v"]:
        found = [name for name in arguments[1:] if name in COMMANDS or name in shell.shell.functions]
        shell.write(1, encode("".join(name + "\n" for name in found)))
        return int(not found)
    program = COMMANDS.get(arguments[0])
    if program is None:
        shell.say(f"bash: line 1: {arguments[0]}: command not found")
        return 127
    return program(shell, arguments[1:])


@command("type", "which")
def do_type(shell: Interpreter, arguments: list[str]) -> int:
    status = 0
    for name in arguments:
        kind = "a function" if name in shell.shell.functions else "a program" if name in COMMANDS else ""
        shell.write(1, encode(f"{name} is {kind}\n" if kind else ""))
        status |= int(not kind)
    return status


@command("source", ".")
def do_source(shell: Interpreter, arguments: list[str]) -> int:
    try:
        text = decode(tree(shell).read(place(shell, arguments[0])))
    except OSError as failure:
        complain(shell, f"bash: {arguments[0]}", failure)
        return 1
    saved = shell.shell.arguments
    shell.shell.arguments = arguments[1:] or saved
    try:
        return shell.run_text(text)
    except FunctionReturn as end:
        return end.status
    finally:
        shell.shell.arguments = saved


@command("cd")
def do_cd(shell: Interpreter, arguments: list[str]) -> int:
    target = arguments[0] if arguments else shell.shell.get("HOME") or "/"
    if target == "-":
        target = shell.shell.get("OLDPWD") or shell.shell.cwd
        shell.write(1, encode(target + "\n"))
    path = posixpath.normpath(place(shell, target))
    try:
        _, inode = tree(shell).need(path)
        if inode.kind != "directory":
            raise error(errno.ENOTDIR, path)
    except OSError as failure:
        complain(shell, f"bash: line 1: cd: {target}", failure)
        return 1
    shell.shell.set("OLDPWD", shell.shell.cwd)
    shell.shell.cwd = path
    shell.shell.set("PWD", path)
    return 0


@command("pwd")
def do_pwd(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, encode(shell.shell.cwd + "\n"))
    return 0


@command("echo")
def do_echo(shell: Interpreter, arguments: list[str]) -> int:
    end, escapes = "\n", False
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        flags = arguments[0]
        end = "" if "n" in flags else end
        escapes = "e" in flags or (escapes and "E" not in flags)
        arguments = arguments[1:]
    text = " ".join(arguments)
    shell.write(1, encode((unescape(text) if escapes else text) + end))
    return 0


@command("printf")
def do_printf(shell: Interpreter, arguments: list[str]) -> int:
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if arguments[:1] == ["-v"]:
        shell.shell.set(arguments[1], "".join(formatted(arguments[2], arguments[3:])))
        return 0
    for piece in formatted(arguments[0], arguments[1:]):
        shell.write(1, encode(piece))
    return 0


def formatted(template: str, values: list[str]) -> Iterator[str]:
    """Yields what `printf` writes; the template is used again while values are left."""
    pattern = re.compile(r"%([-0+ #]*)(\d*)(?:\.(\d+))?([sdixXocbqu%])")
    template = unescape(template)
    takes = [match for match in pattern.finditer(template) if match.group(4) != "%"]
    values = list(values)
    while True:

        def convert(match: re.Match[str]) -> str:
            flags, width, precision, kind = match.groups()
            if kind == "%":
                return "%"
            value = values.pop(0) if values else ""
            if kind in "diuxXo":
                digits = value[1:] if value[:1] in "'\"" else value
                number = ord(digits[0]) if value[:1] in ("'", '"') else int(digits or "0", 0)
                return f"%{flags}{width}{'d' if kind == 'u' else kind}" % number
            if kind == "b":
                value = unescape(value)
            if kind == "q" and not re.fullmatch(r"[\w./-]+", value):
                value = "'" + value.replace("'", "'\\''") + "'"
            if kind == "c":
                value = value[:1]
            if precision is not None:
                value = value[: int(precision)]
            return f"%{flags.replace('0', '')}{width}s" % value

        yield pattern.sub(convert, template)
        if not values or not takes:
            return


@command("export")
def do_export(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    for operand in operands:
        name, separator, value = operand.partition("=")
        variable = shell.shell.variables.get(name)
        if separator:
            shell.shell.variables[name] = Variable(value, True)
        elif "n" in flags and variable is not None:
            variable.exported = False
        elif variable is not None:
            variable.exported = True
    return 0


@command("declare", "local", "readonly", "typeset")
def do_declare(shell: Interpreter, arguments: list[str]) -> int:
    _, operands = split_flags(arguments)
    for operand in operands:
        name, separator, value = operand.partition("=")
        if separator:
            shell.shell.set(name, value)
    return 0


@command("unset")
def do_unset(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    for name in operands:
        if "f" in flags or (name not in shell.shell.variables and "v" not in flags):
            shell.shell.functions.pop(name, None)
        else:
            shell.shell.variables.pop(name, None)
    return 0


@command("set")
def do_set(shell: Interpreter, arguments: list[str]) -> int:
    names = {"errexit": "e", "nounset": "u", "noglob": "f", "noclobber": "C", "xtrace": "x", "allexport": "a"}
    if not arguments:
        for name, variable in sorted(shell.shell.variables.items()):
            shell.write(1, encode(f"{name}={variable.value}\n"))
        return 0
    while arguments:
        argument = arguments.pop(0)
        if argument == "--":
            shell.shell.arguments = arguments
            return 0
        if argument in ("-o", "+o") and arguments:
            name = arguments.pop(0)
            options = {names.get(name, name)}
        elif argument[:1] in "-+" and len(argument) > 1:
            options = set(argument[1:])
        else:
            shell.shell.arguments = [argument, *arguments]
            return 0
        if argument.startswith("-"):
            shell.shell.options |= options
        else:
            shell.shell.options -= options
    return 0


@command("shopt")
def do_shopt(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    if "s" in flags:
        shell.shell.options |= set(operands)
    elif "u" in flags:
        shell.shell.options -= set(operands)
    else:
        return int(not set(operands) <= shell.shell.options)
    return 0


@command("shift")
def do_shift(shell: Interpreter, arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 1
    if count > len(shell.shell.arguments):
        return 1
    del shell.shell.arguments[:count]
    return 0


@command("alias")
def do_alias(shell: Interpreter, arguments: list[str]) -> int:
    status = 0
    for argument in arguments or list(shell.shell.aliases):
        name, separator, value = argument.partition("=")
        if separator:
            shell.shell.aliases[name] = value
        elif name in shell.shell.aliases:
            shell.write(1, encode(f"alias {name}='{shell.shell.aliases[name]}'\n"))
        else:
            shell.say(f"bash: line 1: alias: {name}: not found")
            status = 1
    return status


@command("unalias")
def do_unalias(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    for name in list(shell.shell.aliases) if "a" in flags else operands:
        shell.shell.aliases.pop(name, None)
    return 0


@command("umask")
def do_umask(shell: Interpreter, arguments: list[str]) -> int:
    if arguments:
        shell.shell.umask = int(arguments[0], 8)
    else:
        shell.write(1, b"%04o\n" % shell.shell.umask)
    return 0


@command("trap")
def do_trap(shell: Interpreter, arguments: list[str]) -> int:
    traps = shell.shell.traps
    if not arguments or arguments[0] == "-p":
        for name, text in sorted(traps.items()):
            shown = name if name in ("EXIT", "ERR", "DEBUG") else "SIG" + name
            shell.write(1, encode(f"trap -- '{text}' {shown}\n"))
        return 0
    action, *names = arguments[1:] if arguments[0] == "--" else arguments
    for given in names:
        name = "EXIT" if given == "0" else given.removeprefix("SIG")
        if action == "-":
            traps.pop(name, None)
        else:
            traps[name] = action
    return 0


@command("read")
def do_read(shell: Interpreter, arguments: list[str]) -> int:
    _, names = split_flags(arguments)
    line = decode(shell.read_line())
    values = line.rstrip("\n").split(None, max(len(names) - 1, 0)) if names else [line.rstrip("\n")]
    for index, name in enumerate(names or ["REPLY"]):
        shell.shell.set(name, values[index] if index < len(values) else "")
    return int(not line)


@command("test", "[")
def do_test(shell: Interpreter, arguments: list[str]) -> int:
    if arguments[-1:] == ["]"]:
        arguments = arguments[:-1]
    try:
        return int(not evaluate_test(shell, list(arguments)))
    except (ValueError, IndexError):
        shell.say(f"bash: line 1: [: {' '.join(arguments)}: bad expression")
        return 2


@command("[[")
def do_conditional(shell: Interpreter, arguments: list[str]) -> int:
    return do_test(shell, [{"==": "=~glob"}.get(word, word) for word in arguments if word != "]]"])


def evaluate_test(shell: Interpreter, words: list[str]) -> bool:
    for operator in ("-o", "-a"):
        if operator in words[1:-1]:
            index = words.index(operator, 1)
            left, right = evaluate_test(shell, words[:index]), evaluate_test(shell, words[index + 1 :])
            return left or right if operator == "-o" else left and right
    if not words:
        return False
    if words[0] == "!" and len(words) != 3:
        return not evaluate_test(shell, words[1:])
    if len(words) == 1:
        return words[0] != ""
    if len(words) == 2:
        return test_one(shell, *words)
    left_word, operator, right_word = words
    if words[0] == "!":
        return not evaluate_test(shell, words[1:])
    if operator in ("=", "=="):
        return left_word == right_word
    if operator == "=~glob":
        return fnmatch.fnmatchcase(left_word, right_word)
    if operator == "!=":
        return left_word != right_word
    if operator in ("-ef", "-nt"):
        left_inode = tree(shell).lookup(place(shell, left_word))
        right_inode = tree(shell).lookup(place(shell, right_word))
        if operator == "-ef":
            return left_inode is not None and left_inode is right_inode
        return left_inode is not None and (right_inode is None or left_inode.mtime > right_inode.mtime)
    difference = int(left_word) - int(right_word)
    return {
        "-eq": difference == 0,
        "-ne": difference != 0,
        "-lt": difference < 0,
        "-le": difference <= 0,
        "-gt": difference > 0,
        "-ge": difference >= 0,
    }[operator]


def test_one(shell: Interpreter, operator: str, operand: str) -> bool:
    if operator == "-n":
        return operand != ""
    if operator == "-z":
        return operand == ""
    inode = tree(shell).lookup(place(shell, operand), follow=operator not in ("-L", "-h")) if operand else None
    if inode is None:
        return False
    kinds = {"-f": "file", "-d": "directory", "-L": "symlink", "-h": "symlink", "-p": "fifo", "-S": "socket"}
    if operator in kinds:
        return inode.kind == kinds[operator]
    if operator == "-s":
        return bool(inode.data)
    if operator == "-x":
        return bool(inode.mode & 0o111)
    return operator in ("-e", "-r", "-w")


# Time and processes


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d*\.?\d+|inf|infinity)([smhd]?)", text)
    if match is None:
        raise ValueError(text)
    return float(match.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match.group(2)]


@command("sleep")
def do_sleep(shell: Interpreter, arguments: list[str]) -> int:
    try:
        shell.sleep(sum(seconds(argument) for argument in arguments))
    except ValueError as failure:
        shell.say(f"sleep: invalid time interval '{failure}'")
        return 1
    return 0


@command("timeout")
def do_timeout(shell: Interpreter, arguments: list[str]) -> int:
    saved, shell.deadline = shell.deadline, min(shell.deadline, shell.machine.clock + seconds(arguments[0]))
    mine = shell.deadline < saved
    try:
        return shell.command(arguments[1:])
    except CallTimedOut:
        if not mine:
            raise
        return 124
    finally:
        shell.deadline = saved


@command("jobs")
def do_jobs(shell: Interpreter, arguments: list[str]) -> int:
    flags, _ = split_flags(arguments)
    for job in shell.machine.jobs.values():
        if "p" in flags:
            shell.write(1, b"%d\n" % job.pid)
        else:
            mark = "+" if job.pid == shell.shell.background else "-"
            state = "Stopped" if job.stopped else "Running"
            shell.write(1, encode(f"[{job.number}]{mark}  {state:<24}{job.command} &\n"))
    return 0


@command("kill")
def do_kill(shell: Interpreter, arguments: list[str]) -> int:
    signal = "TERM"
    if arguments and arguments[0] == "-s":
        signal, arguments = arguments[1], arguments[2:]
    elif arguments and re.fullmatch(r"-[A-Z0-9]+", arguments[0]):
        signal, arguments = arguments[0][1:], arguments[1:]
    signal = signal.removeprefix("SIG")
    if signal.isdigit():
        signal = next((name for name, number in SIGNALS.items() if str(number) == signal), signal)
    status = 0
    for target in arguments:
        status |= deliver(shell, signal, target)
    return status


def deliver(shell: Interpreter, signal: str, target: str) -> int:
    machine = shell.machine
    if target.startswith("%"):
        pid = next((job.pid for job in machine.jobs.values() if str(job.number) == target[1:]), 0)
    else:
        pid = int(target) if target.lstrip("-").isdigit() else 0
    if pid == machine.shell.pid:
        action = machine.shell.traps.get(signal)
        if action:
            shell.run_text(action)
            return 0
        if signal in ("0", "TERM", "INT", "CONT", "QUIT"):
            return 0
        raise ShellExit(128 + SIGNALS.get(signal, 0))
    job = machine.jobs.get(pid)
    if job is None:
        shell.say(f"bash: line 1: kill: ({target}) - No such process")
        return 1
    if signal == "STOP":
        job.stopped = True
    elif signal == "CONT":
        job.stopped = False
    elif signal != "0":
        machine.end_job(pid, 128 + SIGNALS.get(signal, 15))
    return 0


@command("wait")
def do_wait(shell: Interpreter, arguments: list[str]) -> int:
    machine = shell.machine
    pids = [int(argument) for argument in arguments if argument.isdigit()] or list(machine.jobs)
    status = 0
    for pid in pids:
        while pid in machine.jobs:
            job = machine.jobs[pid]
            if job.stopped or job.wake == float("inf"):
                shell.block()
            shell.sleep(max(job.wake - machine.clock, 0.0))
        status = machine.finished.get(pid, 127) if arguments else 0
    return status


@command("disown")
def do_disown(shell: Interpreter, arguments: list[str]) -> int:
    return 0


@command("ps")
def do_ps(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, b"  PID COMMAND\n%5d bash\n" % shell.machine.shell.pid)
    for job in shell.machine.jobs.values():
        shell.write(1, encode(f"{job.pid:5} {job.command}\n"))
    return 0


@command("bash", "sh")
def do_bash(shell: Interpreter, arguments: list[str]) -> int:
    if arguments[:1] == ["-c"]:
        return shell.fresh_shell(arguments[1], arguments[3:])
    if not arguments:
        return shell.fresh_shell(decode(shell.read_all()), [])
    try:
        text = decode(tree(shell).read(place(shell, arguments[0])))
    except OSError as failure:
        complain(shell, f"bash: {arguments[0]}", failure)
        return 127
    return shell.fresh_shell(text, arguments[1:])


@command("env", "printenv")
def do_env(shell: Interpreter, arguments: list[str]) -> int:
    variables = shell.shell.variables
    if arguments:
        found = [variables[name].value for name in arguments if name in variables and variables[name].exported]
        shell.write(1, encode("".join(value + "\n" for value in found)))
        return int(len(found) < len(arguments))
    for name, variable in sorted(variables.items()):
        if variable.exported:
            shell.write(1, encode(f"{name}={variable.value}\n"))
    return 0


@command("whoami")
def do_whoami(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, encode(shell.shell.user + "\n"))
    return 0


@command("id")
def do_id(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, b"0\n" if shell.shell.user == "root" else b"1000\n")
    return 0


@command("hostname")
def do_hostname(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, b"sandbox\n")
    return 0


@command("date")
def do_date(shell: Interpreter, arguments: list[str]) -> int:
    """Writes a number that no two calls of a backend share: a clock, as far as a cache can tell."""
    shell.write(1, b"%d\n" % shell.machine.chance.randrange(10**12))
    return 0


# Files


def walk_operands(shell: Interpreter, program: str, operands: list[str]) -> Iterator[tuple[str, str, Inode]]:
    """Yields (operand, resolved name, inode) of those that exist; complains of the others."""
    for operand in operands:
        try:
            name, inode = tree(shell).need(place(shell, operand))
        except OSError as failure:
            complain(shell, f"{program}: cannot access '{operand}'", failure)
            continue
        yield operand, name, inode


def inputs(shell: Interpreter, program: str, operands: list[str]) -> tuple[bytes, int]:
    """Returns the contents of the operands, or standard input where there are none, and a status."""
    if not operands:
        return shell.read_all(), 0
    data, status = b"", 0
    for operand in operands:
        if operand == "-":
            data += shell.read_all()
            continue
        if operand == "/dev/null":
            continue
        try:
            data += tree(shell).read(place(shell, operand))
        except OSError as failure:
            complain(shell, f"{program}: {operand}", failure)
            status = 1
    return data, status


@command("cat")
def do_cat(shell: Interpreter, arguments: list[str]) -> int:
    _, operands = split_flags(arguments)
    status = 0
    for operand in operands or ["-"]:
        data, failed = inputs(shell, "cat", [operand])
        shell.write(1, data)
        status |= failed
    return status


@command("tee")
def do_tee(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    data = shell.read_all()
    shell.write(1, data)
    for operand in operands:
        tree(shell).write(place(shell, operand), data, mode=0o666 & ~shell.shell.umask, append="a" in flags)
    return 0


@command("ls")
def do_ls(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    files = tree(shell)
    status = 0

    def show(shown: str, name: str) -> None:
        inode = files.at(name)
        assert inode is not None
        if "l" in flags:
            letter = {"directory": "d", "symlink": "l", "fifo": "p", "socket": "s"}.get(inode.kind, "-")
            target = f" -> {decode(inode.data)}" if inode.kind == "symlink" else ""
            shell.write(1, encode(f"{letter}{inode.mode:04o} {len(inode.data)} {shown}{target}\n"))
        else:
            shell.write(1, encode(shown + "\n"))

    for operand in operands or ["."]:
        try:
            name, inode = files.need(place(shell, operand), follow="l" not in flags)
        except OSError as failure:
            complain(shell, f"ls: cannot access '{operand}'", failure)
            status = 2
            continue
        if inode.kind != "directory" or "d" in flags:
            show(operand, name)
            continue
        if len(operands) > 1:
            shell.write(1, encode(f"{operand}:\n"))
        for entry in files.list(name):
            if not entry.startswith(".") or "a" in flags or "A" in flags:
                show(entry, join(name, entry))
    return status


@command("find")
def do_find(shell: Interpreter, arguments: list[str]) -> int:
    roots = []
    while arguments and not arguments[0].startswith("-"):
        roots.append(arguments.pop(0))
    kind = {"f": "file", "d": "directory", "l": "symlink"}
    wanted = kind[arguments[arguments.index("-type") + 1]] if "-type" in arguments else None
    pattern = arguments[arguments.index("-name") + 1] if "-name" in arguments else "*"
    for operand, name, _ in walk_operands(shell, "find", roots or ["."]):
        for path in tree(shell).walk(name):
            inode = tree(shell).at(path)
            assert inode is not None
            if wanted in (None, inode.kind) and fnmatch.fnmatchcase(posixpath.basename(path), pattern):
                shell.write(1, encode(operand + path[len(name) :] + "\n"))
    return 0


@command("stat")
def do_stat(shell: Interpreter, arguments: list[str]) -> int:
    template = "%n"
    operands = []
    while arguments:
        argument = arguments.pop(0)
        if argument in ("-c", "--format"):
            template = arguments.pop(0)
        else:
            operands.append(argument)
    status = 0
    for operand in operands:
        try:
            name, inode = tree(shell).need(place(shell, operand), follow=False)
        except OSError as failure:
            complain(shell, f"stat: cannot statx '{operand}'", failure)
            status = 1
            continue
        shown = template
        number = tree(shell).names[name]
        links = sum(1 for other in tree(shell).names.values() if other == number)
        kinds = {"file": "regular file" if inode.data else "regular empty file", "symlink": "symbolic link"}
        values = {
            "%n": operand,
            "%a": f"{inode.mode:o}",
            "%s": str(len(inode.data)),
            "%i": str(number),
            "%h": str(links),
            "%F": kinds.get(inode.kind, inode.kind),
            "%Y": str(inode.mtime),
            "%U": "root",
        }
        for mark, value in values.items():
            shown = shown.replace(mark, value)
        shell.write(1, encode(shown + "\n"))
    return status


@command("rm")
def do_rm(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)

    def remove(operand: str) -> None:
        if "f" in flags and tree(shell).lookup(place(shell, operand), follow=False) is None:
            return
        name, inode = tree(shell).need(place(shell, operand), follow=False)
        if inode.kind == "directory" and not ("r" in flags or "R" in flags):
            raise error(errno.EISDIR, operand)
        tree(shell).remove(name)

    return for_each(shell, operands, "rm: cannot remove '{}'", remove)


@command("rmdir")
def do_rmdir(shell: Interpreter, arguments: list[str]) -> int:
    def remove(operand: str) -> None:
        name, inode = tree(shell).need(place(shell, operand), follow=False)
        if inode.kind != "directory":
            raise error(errno.ENOTDIR, operand)
        if tree(shell).list(name):
            raise error(errno.ENOTEMPTY, operand)
        tree(shell).remove(name)

    return for_each(shell, arguments, "rmdir: failed to remove '{}'", remove)


@command("mkdir")
def do_mkdir(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    mode = 0o777 & ~shell.shell.umask

    def make(operand: str) -> None:
        if "p" in flags:
            tree(shell).make_directories(place(shell, operand), mode=mode)
        else:
            tree(shell).add(tree(shell).resolve(place(shell, operand).rstrip("/")), Inode("directory", mode=mode))

    return for_each(shell, operands, "mkdir: cannot create directory '{}'", make)


@command("mkfifo")
def do_mkfifo(shell: Interpreter, arguments: list[str]) -> int:
    def make(operand: str) -> None:
        tree(shell).add(tree(shell).resolve(place(shell, operand)), Inode("fifo", mode=0o666 & ~shell.shell.umask))

    return for_each(shell, arguments, "mkfifo: cannot create fifo '{}'", make)


@command("touch")
def do_touch(shell: Interpreter, arguments: list[str]) -> int:
    _, operands = split_flags(arguments)

    def touch(operand: str) -> None:
        name = tree(shell).resolve(place(shell, operand))
        inode = tree(shell).at(name)
        if inode is None:
            tree(shell).add(name, Inode("file", mode=0o666 & ~shell.shell.umask))
        else:
            tree(shell).change(name, inode)

    return for_each(shell, operands, "touch: cannot touch '{}'", touch)


@command("truncate")
def do_truncate(shell: Interpreter, arguments: list[str]) -> int:
    size = int(arguments[arguments.index("-s") + 1])
    path = place(shell, arguments[-1])
    inode = tree(shell).lookup(path)
    data = (inode.data if inode else b"")[:size].ljust(size, b"\0")
    tree(shell).write(path, data, mode=0o666 & ~shell.shell.umask)
    return 0


@command("chmod")
def do_chmod(shell: Interpreter, arguments: list[str]) -> int:
    mode, *operands = [argument for argument in arguments if argument != "-R"]

    def change(operand: str) -> None:
        name, inode = tree(shell).need(place(shell, operand))
        tree(shell).inodes[tree(shell).names[name]] = replace(inode, mode=new_mode(inode.mode, mode))

    return for_each(shell, operands, "chmod: cannot access '{}'", change)


def new_mode(mode: int, text: str) -> int:
    """Returns permission bits after an octal or symbolic change."""
    if text.isdigit():
        return int(text, 8)
    for clause in text.split(","):
        match = re.fullmatch(r"([ugoa]*)([-+=])([rwx]*)", clause)
        if match is None:
            continue
        who, operator, letters = match.groups()
        shifts = {"u": 6, "g": 3, "o": 0}
        bits = sum({"r": 4, "w": 2, "x": 1}[letter] for letter in set(letters))
        for letter in set((who or "ugo").replace("a", "ugo")):
            shift = shifts[letter]
            if operator == "+":
                mode |= bits << shift
            elif operator == "-":
                mode &= ~(bits << shift)
            else:
                mode = mode & ~(7 << shift) | bits << shift
    return mode


@command("ln")
def do_ln(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    source = operands[0]
    target = operands[1] if len(operands) > 1 else posixpath.basename(source)
    files = tree(shell)
    try:
        name = files.resolve(place(shell, target), follow=False)
        inode = files.lookup(place(shell, target))
        if inode is not None and inode.kind == "directory":
            name = join(files.resolve(place(shell, target)), posixpath.basename(source))
        if "f" in flags and name in files.names:
            files.remove(name)
        if "s" in flags:
            files.add(name, Inode("symlink", encode(source), 0o777))
        else:
            origin, original = files.need(place(shell, source), follow=False)
            if original.kind == "directory":
                raise error(errno.EPERM, source)
            files.link(origin, name)
    except OSError as failure:
        complain(shell, f"ln: failed to create link '{target}'", failure)
        return 1
    return 0


def destination(shell: Interpreter, source: str, target: str) -> str:
    """Returns the resolved name that `cp` and `mv` write to."""
    name = tree(shell).resolve(place(shell, target))
    inode = tree(shell).at(name)
    if inode is not None and inode.kind == "directory":
        return join(name, posixpath.basename(source.rstrip("/")))
    return name


@command("cp")
def do_cp(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    recursive = any(letter in flags for letter in "rRa")
    *sources, target = operands
    files = tree(shell)
    status = 0
    for source in sources:
        try:
            origin, inode = files.need(place(shell, source), follow=not recursive)
            name = destination(shell, source, target)
            if inode.kind == "directory":
                if not recursive:
                    shell.say(f"cp: -r not specified; omitting directory '{source}'")
                    status = 1
                    continue
                for path in list(files.walk(origin)):
                    copied = files.at(path)
                    assert copied is not None
                    files.add(name + path[len(origin) :], copied)
            else:
                existing = files.at(name)
                if existing is None:
                    mode = inode.mode if "p" in flags or "a" in flags else inode.mode & ~shell.shell.umask
                    files.add(name, replace(inode, mode=mode))
                else:
                    files.change(name, replace(existing, data=inode.data))
        except OSError as failure:
            complain(shell, f"cp: cannot copy '{source}' to '{target}'", failure)
            status = 1
    return status


@command("mv")
def do_mv(shell: Interpreter, arguments: list[str]) -> int:
    _, operands = split_flags(arguments)
    *sources, target = operands

    def move(source: str) -> None:
        origin, _ = tree(shell).need(place(shell, source), follow=False)
        tree(shell).rename(origin, destination(shell, source, target))

    return for_each(shell, sources, "mv: cannot move '{}'", move)


@command("readlink", "realpath")
def do_readlink(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    for operand in operands:
        try:
            if "f" in flags:
                text = tree(shell).resolve(place(shell, operand))
            else:
                _, inode = tree(shell).need(place(shell, operand), follow=False)
                if inode.kind != "symlink":
                    return 1
                text = decode(inode.data)
        except OSError:
            return 1
        shell.write(1, encode(text + "\n"))
    return 0


@command("basename")
def do_basename(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, encode(posixpath.basename(arguments[0].rstrip("/")) + "\n"))
    return 0


@command("dirname")
def do_dirname(shell: Interpreter, arguments: list[str]) -> int:
    shell.write(1, encode((posixpath.dirname(arguments[0]) or ".") + "\n"))
    return 0


# Text


def number_flag(arguments: list[str], letter: str, default: int) -> tuple[int, list[str]]:
    """Takes `-n 5`, `-n5` or `-5` off the arguments."""
    rest = []
    value = default
    arguments = list(arguments)
    while arguments:
        argument = arguments.pop(0)
        if argument == "-" + letter:
            value = int(arguments.pop(0))
        elif re.fullmatch(rf"-{letter}?\d+", argument):
            value = int(argument.lstrip("-" + letter))
        else:
            rest.append(argument)
    return value, rest


@command("head")
def do_head(shell: Interpreter, arguments: list[str]) -> int:
    if "-c" in arguments:
        count, operands = number_flag(arguments, "c", 0)
        if operands == ["/dev/zero"]:
            shell.write(1, bytes(count))
            return 0
        if operands == ["/dev/urandom"]:
            shell.write(1, shell.machine.chance.randbytes(count))
            return 0
        data, status = inputs(shell, "head", operands)
        shell.write(1, data[:count])
        return status
    count, operands = number_flag(arguments, "n", 10)
    data, status = inputs(shell, "head", operands)
    shell.write(1, b"".join(data.splitlines(keepends=True)[:count]))
    return status


@command("tail")
def do_tail(shell: Interpreter, arguments: list[str]) -> int:
    count, operands = number_flag(arguments, "c" if "-c" in arguments else "n", 10)
    data, status = inputs(shell, "tail", operands)
    shell.write(1, data[-count:] if "-c" in arguments else b"".join(data.splitlines(keepends=True)[-count:]))
    return status


@command("wc")
def do_wc(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    data, status = inputs(shell, "wc", operands)
    counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
    shown = [str(counts[letter]) for letter in "lwc" if letter in (flags or "lwc")]
    shell.write(1, encode(" ".join(shown + operands) + "\n"))
    return status


@command("grep")
def do_grep(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    pattern, *paths = operands
    expression = re.compile(encode(re.escape(pattern) if "F" in flags else pattern), re.I if "i" in flags else 0)
    data, status = inputs(shell, "grep", paths)
    found = [line for line in data.splitlines() if bool(expression.search(line)) != ("v" in flags)]
    if "c" in flags:
        shell.write(1, b"%d\n" % len(found))
    elif "q" not in flags:
        shell.write(1, b"".join(line + b"\n" for line in found))
    return 2 if status else int(not found)


@command("sort")
def do_sort(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)
    data, status = inputs(shell, "sort", operands)
    lines = sorted(set(data.splitlines()) if "u" in flags else data.splitlines(), reverse="r" in flags)
    if "n" in flags:
        lines.sort(key=lambda line: int(re.match(rb"\s*(-?\d+)?", line).group(1) or 0))  # type: ignore[union-attr]
    shell.write(1, b"".join(line + b"\n" for line in lines))
    return status


@command("uniq")
def do_uniq(shell: Interpreter, arguments: list[str]) -> int:
    data, status = inputs(shell, "uniq", arguments)
    lines = data.splitlines()
    kept = [line for index, line in enumerate(lines) if index == 0 or lines[index - 1] != line]
    shell.write(1, b"".join(line + b"\n" for line in kept))
    return status


@command("tr")
def do_tr(shell: Interpreter, arguments: list[str]) -> int:
    flags, operands = split_flags(arguments)

    def characters(text: str) -> bytes:
        text = re.sub(
            r"(.)-(.)", lambda match: "".join(map(chr, range(ord(match[1]), ord(match[2]) + 1))), unescape(text)
        )
        return encode(text)

    data = shell.read_all()
    before = characters(operands[0])
    if "d" in flags:
        shell.write(1, data.translate(None, before))
        return 0
    after = characters(operands[1])
    after = after.ljust(len(before), after[-1:])[: len(before)]
    shell.write(1, data.translate(bytes.maketrans(before, after)))
    return 0


@command("sed")
def do_sed(shell: Interpreter, arguments: list[str]) -> int:
    """Knows `s/a/b/[g]` and `-i`."""
    flags, operands = split_flags(arguments)
    script, *paths = operands
    match = re.fullmatch(r"s(.)(.*)\1(.*)\1(g?)", script)
    if match is None:
        shell.say(f"sed: unknown command: `{script}'")
        return 1
    _, pattern, replacement, everywhere = match.groups()

    def edit(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        count = 0 if everywhere else 1
        return b"".join(re.sub(encode(pattern), encode(replacement), line, count=count) for line in lines)

    if "i" not in flags:
        data, status = inputs(shell, "sed", paths)
        shell.write(1, edit(data))
        return status
    for path in paths:
        tree(shell).write(place(shell, path), edit(tree(shell).read(place(shell, path))))
    return 0


@command("seq")
def do_seq(shell: Interpreter, arguments: list[str]) -> int:
    numbers = [int(argument) for argument in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) > 2 else 1
    shell.write(1, encode("".join(f"{number}\n" for number in range(first, numbers[-1] + 1, step))))
    return 0


@command("sha256sum", "md5sum")
def do_checksum(shell: Interpreter, arguments: list[str]) -> int:
    status = 0
    for operand in arguments or ["-"]:
        data, failed = inputs(shell, "sha256sum", [operand])
        status |= failed
        if not failed:
            shell.write(1, encode(f"{hashlib.sha256(data).hexdigest()}  {operand}\n"))
    return status


@command("expr")
def do_expr(shell: Interpreter, arguments: list[str]) -> int:
    value = shell.arithmetic(" ".join(arguments))
    shell.write(1, b"%d\n" % value)
    return int(value == 0)


@command("let")
def do_let(shell: Interpreter, arguments: list[str]) -> int:
    values = [shell.arithmetic(argument) for argument in arguments]
    return int(values[-1] == 0)
