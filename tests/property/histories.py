"""Random histories of tool calls whose results depend on nothing but the calls before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "d/x", "d/y"])
DIRECTORIES = st.sampled_from(["d", "e", "d/e"])
VARIABLES = st.sampled_from(["x", "y", "PATH_LIKE"])
WORDS = st.sampled_from(["one", "two three", "", "é☃", "$HOME", "it's"])
MODES = st.sampled_from(["600", "644", "755", "u+x", "a-w"])
NUMBERS = st.integers(1, 4)


@dataclass(frozen=True)
class Call:
    """One tool call of a history; `timeout` in seconds, None for the default."""

    name: str
    arguments: Mapping[str, Any]
    timeout: float | None = None

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments.values()))})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def bash(template: str, **choices: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    """Returns calls of `bash` from a template with `{name}` for each choice."""

    def fill(values: dict[str, Any]) -> Call:
        return Call("bash", {"command": template.format(**values)})

    return st.fixed_dictionaries(choices).map(fill)


def puts(**choices: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    """Returns calls of `Rollout.put`, of which the argument `content` is what the file holds."""
    return st.fixed_dictionaries(choices).map(lambda values: Call("put", values))


CHANGES: list[st.SearchStrategy[Call]] = [
    bash("echo {word} > {name}", word=WORDS.map(quoted), name=NAMES),
    bash("echo {word} >> {name}", word=WORDS.map(quoted), name=NAMES),
    bash("rm {name}", name=NAMES),
    bash("rm -rf {directory}", directory=DIRECTORIES),
    bash("mkdir -p {directory}", directory=DIRECTORIES),
    bash("mv {name} {other}", name=NAMES, other=NAMES),
    bash("cp {name} {other}", name=NAMES, other=NAMES),
    bash("ln -s {name} {other}", name=NAMES, other=NAMES),
    bash("ln {name} {other}", name=NAMES, other=NAMES),
    bash("chmod {mode} {name}", mode=MODES, name=NAMES),
    puts(path=NAMES, content=WORDS),
    bash("umask {mask}", mask=st.sampled_from(["022", "027"])),
    bash("cd {directory}", directory=st.sampled_from(["d", "..", "/tmp", "/", "-"])),
    bash("{variable}={word}", variable=VARIABLES, word=WORDS.map(quoted)),
    bash("export {variable}={word}", variable=VARIABLES, word=WORDS.map(quoted)),
    bash("unset {variable}", variable=VARIABLES),
    bash("n=$((n + {number})); echo $n", number=NUMBERS),
    bash("f() {{ echo {word} $1 $n; return {number}; }}", word=WORDS.map(quoted), number=NUMBERS),
    bash("alias g='echo {word}'", word=st.sampled_from(["one", "two"])),
    bash("set {sign}{option}", sign=st.sampled_from("-+"), option=st.sampled_from("uf")),
    bash("trap 'echo caught {number}' USR1", number=NUMBERS),
    bash("set -- {word} {number}", word=WORDS.map(quoted), number=NUMBERS),
    bash("sleep {number}000 &", number=NUMBERS),
    bash("{{ kill %{number} && wait %{number}; }} > /dev/null 2>&1; echo $?", number=st.integers(1, 2)),
    bash("exit {number}", number=NUMBERS),
    bash("(exit {number})", number=NUMBERS),
    bash("touch temporary; rm temporary"),
    bash("seq 1 {number}0000 > {name}", number=NUMBERS, name=NAMES),
    bash("echo mine > /etc/hostname"),
    bash("rm -f /etc/os-release"),
    st.builds(lambda name, word: Call("write_file", {"path": name, "content": word}), NAMES, WORDS),
    st.builds(lambda name: Call("exec", {"command": f"echo by-exec >> {name}; pwd", "cwd": "/tmp"}), NAMES),
]

LOOKS: list[st.SearchStrategy[Call]] = [
    bash("echo $?"),
    bash("pwd; ls"),
    bash("cat {name}", name=NAMES),
    bash("wc -c < {name}; tail -n 2 {name}", name=NAMES),
    bash("ls -d d/* e/* * 2>&1"),
    bash("stat -c '%n %a %s %h %F' {name}", name=NAMES),
    bash('echo "[${variable}]" $#; bash -c \'echo "[${variable}]"\'', variable=VARIABLES),
    bash("f {word}; echo $?", word=WORDS.map(quoted)),
    bash("g\ntype f > /dev/null 2>&1; echo $?"),
    bash("umask; trap -p USR1; kill -USR1 $$; echo here"),
    bash("jobs -p | wc -l; jobs | grep -c sleep"),
    bash("seq 1 {number}00000", number=NUMBERS),
    bash("readlink a b c; test a -ef b; echo $?"),
    bash("cat /etc/hostname; test -e /etc/os-release; echo $?"),
    bash("echo $x; false"),
    bash("no-such-command-here"),
    bash("if then"),
    bash("printf '\\377\\000x'"),
    st.builds(lambda name: Call("read_file", {"path": name}), NAMES),
    st.builds(lambda variable: Call("exec", {"command": f'echo "[${variable}]"; pwd; ls'}), VARIABLES),
    NAMES.map(lambda name: Call("get", {"path": name})),
]

BLOCKED: list[st.SearchStrategy[Call]] = [
    st.just(Call("bash", {"command": "echo first; cat; echo never"}, timeout=0.5)),
    st.just(Call("bash", {"command": "n=7; sleep 100; n=8"}, timeout=0.5)),
]

# What the scripted backend in memory understands: thousands of histories of it take seconds.
SCRIPTED: list[st.SearchStrategy[Call]] = [
    bash("echo {word} > {name}", word=WORDS.map(quoted), name=NAMES),
    bash("echo {word} >> {name}", word=WORDS.map(quoted), name=NAMES),
    bash("rm {name}", name=NAMES),
    bash("rm -f {name}; rm -f d", name=NAMES),
    bash("mkdir {directory} 2> /dev/null", directory=DIRECTORIES),
    bash("chmod {mode} {name}", mode=st.sampled_from(["600", "644"]), name=NAMES),
    bash("ln -s {name} {other}", name=NAMES, other=NAMES),
    bash("cat {name} > {other}", name=NAMES, other=NAMES),
    bash("cd {directory}", directory=st.sampled_from(["d", "..", "/tmp", "/"])),
    bash("{variable}={word}", variable=VARIABLES, word=WORDS.map(quoted)),
    bash('n="$n"{number}; echo $n', number=NUMBERS),
    bash("(exit {number})", number=NUMBERS),
    bash("exit {number}", number=NUMBERS),
    bash("sleep {number}000 &", number=NUMBERS),
    bash("kill %{number}", number=st.integers(1, 2)),
    bash("echo > temporary; rm temporary"),
    bash("echo mine > /etc/hostname"),
    bash("echo $?"),
    bash("pwd; ls"),
    bash("cat {name} || echo {word}", name=NAMES, word=WORDS.map(quoted)),
    bash("test -s {name}; echo $?", name=NAMES),
    bash('echo "[${variable}]"', variable=VARIABLES),
    bash("cat /etc/hostname; jobs"),
    st.builds(lambda name, word: Call("write_file", {"path": name, "content": word}), NAMES, WORDS),
    st.builds(lambda name: Call("read_file", {"path": name}), NAMES),
    st.builds(lambda name: Call("exec", {"command": f"echo by-exec >> {name}; pwd", "cwd": "/tmp"}), NAMES),
]

# What only real processes can do: hold state in memory that no file and no shell variable shows.
PROCESSES: list[st.SearchStrategy[Call]] = [
    bash(
        '[ -n "${{C_PID-}}" ] || '
        "{{ coproc C {{ m=0; while read -r l; do m=$((m + l)); echo $m; done; }}; }} 2> /dev/null"
    ),
    bash(
        'if [ -n "${{C_PID-}}" ]; then echo {number} >&${{C[1]}}; read -r -t 10 l <&${{C[0]}}; echo $l; fi',
        number=NUMBERS,
    ),
    bash("exec 7>> through-descriptor; echo {number} >&7; cat through-descriptor", number=NUMBERS),
    bash("arr[{number}]=v; echo ${{!arr[@]}}", number=NUMBERS),
    bash("python3 -c 'import os; print(sorted(os.listdir(\".\")), os.getcwd(), os.umask(0))'"),
    bash(
        "mkfifo p 2> /dev/null; (read -r l < p; echo $l > heard) & echo {number} > p; wait $!; cat heard",
        number=NUMBERS,
    ),
]


Kind = Literal["scripted", "shell", "programs"]


def histories(kind: Kind, *, longest: int) -> st.SearchStrategy[list[list[Call]]]:
    """Returns groups of rollouts that share prefixes: each goes a way along the first, then its own way.

    Args:
        kind: of calls: those of the scripted backend, those of a shell, or also such as need real processes.
        longest: how many calls a rollout has at most.
    """
    if kind == "scripted":
        call = st.one_of(*SCRIPTED, *BLOCKED)
    elif kind == "shell":
        call = st.one_of(*CHANGES, *LOOKS, *CHANGES, *BLOCKED)
    else:
        weighted = st.one_of(*CHANGES, *LOOKS, *PROCESSES, *CHANGES)
        call = st.one_of(weighted, weighted, weighted, st.one_of(*BLOCKED))
    rollout = st.lists(call, min_size=1, max_size=longest)

    @st.composite
    def group(draw: st.DrawFn) -> list[list[Call]]:
        first = draw(rollout)
        found = [first]
        for _ in range(draw(st.integers(1, 2))):
            shared = draw(st.integers(0, len(first)))
            rest = draw(st.lists(call, max_size=longest - shared))
            found.append([*first[:shared], *rest])
        return found

    return group()
