"""Asks a subshell for facts that its shell's dump lacks: parse positions, order of the environment, byte limits, ...

A subshell is a copy, so its own changes do not affect the shell.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvsnap.guest.protocol import INIT
from tvsnap.sandboxes.shell.dump import ShellDump, quote

PROBE_LIMIT = 16 * 1024 * 1024
"""Bytes of a probe's output; an environment has at most a few million."""

ShellProbe = Mapping[str, str]
"""The answers by topic; shells with equal ones are equal."""


class ProbeFailed(Exception):
    """The answers are missing, or show that the shell cannot be captured; the message has the reason."""


# The user's options, aliases, IFS and unset variables must have no effect here. `getopts` reads the next option of a
# cluster of options. Normally this is the first option. In the middle of the user's cluster it is one at the same
# position in ours, or, if that is beyond its end, the first one again; two clusters of different lengths rule out that
# both look normal. A variable that bash computes cannot be assigned; one that was unset and set again can.
_PROBE = r"""
\builtin set +efkuvxnC +o posix; \builtin shopt -u failglob nullglob extdebug; IFS=$' \t\n'
\builtin printf '\n\1seconds\n%s\n' "${SECONDS-0}"
\builtin printf '\1directory\n'; \builtin pwd -P
\builtin printf '\1getopts\n'
\builtin set --; while (( $# + 1 < ${OPTIND:-0} )); do \builtin set -- "$@" -; done
for __tvsnap_n in 4096 4097; do
  \builtin printf -v __tvsnap_c '%*s' "$__tvsnap_n" ''; \builtin set -- "$@" "-%${__tvsnap_c// /^}"
  ( \builtin getopts :%^ __tvsnap_m "$@"
    \builtin printf '%s %s %s %s\n' "$?" "$__tvsnap_m" "$((OPTIND - $#))" "${OPTARG-}" )
  \builtin set -- "${@:1:$#-1}"
done
\builtin printf '\1plain\n'
for __tvsnap_m in BASHPID BASH_COMMAND EPOCHREALTIME EPOCHSECONDS HISTCMD LINENO RANDOM SECONDS SRANDOM; do
  \builtin declare -p "$__tvsnap_m" >/dev/null || continue
  \builtin declare +i "$__tvsnap_m"; \builtin printf -v "$__tvsnap_m" xyz
  [[ ${!__tvsnap_m} != xyz ]] || \builtin printf '%s\n' "$__tvsnap_m"
done
\builtin printf '\1loaded\n'; \builtin enable -a
for __tvsnap_m in $$/comm $$/limits $$/oom_score_adj $$/stat $$/status 1/stat 1/status; do
  \builtin printf '\1%s\n' "${__tvsnap_m/#$$/shell}"
  \builtin mapfile -t __tvsnap_c <"/proc/$__tvsnap_m" && \builtin printf '%s\n' "${__tvsnap_c[@]}"
done
"""
# The last answer, because it may contain anything.
_ENVIRONMENT = rf"\builtin printf '\1environment\n'; {INIT} get /proc/self/environ {PROBE_LIMIT}"

# Comparing key bindings costs more than all the rest. So they are not compared with those of the shell that is made,
# but must equal those of any new shell here. (The size of the history is also in a variable.)
_KEYS = r"""
__tvsnap_c="bind 'set history-size 0'; bind -psvX"
__tvsnap_n=$([[ -o vi ]] && \builtin printf vi || \builtin printf emacs)
__tvsnap_m=$(BASH_ENV= LC_ALL=${LC_ALL:-${LC_CTYPE:-${LANG-}}} /bin/bash --norc -o "$__tvsnap_n" -c "$__tvsnap_c")
[[ $(\builtin eval "$__tvsnap_c") == "$__tvsnap_m" ]] || \builtin printf '\1keys\n'
"""

_STATUS = ("Umask", "Uid", "Gid", "Groups", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
           "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed")  # fmt: skip
_INHERITED = ("Cpus_allowed", "Mems_allowed")
_STAT = {"nice": 16, "real-time priority": 37, "policy": 38}
"""Indices in /proc/PID/stat, counted from the field after the name."""


def probe_command(shell: ShellDump, *, keys: bool = False) -> bytes:
    """Returns the command that asks, which leaves the shell unchanged, including `$?`.

    With `keys`, it also asks about key bindings.
    """
    where = f"[[ . -ef {quote(shell.cwd)} ]] || \\builtin printf '\\1elsewhere\\n'\n"
    quoted = quote(_PROBE + where + _KEYS * keys + _ENVIRONMENT)
    return (
        rf"( \builtin unalias -a; \builtin eval {quoted} ) 2>/dev/null || :"
        "\n"
        rf"__tvsnap_status {shell.status} && :"
    ).encode("latin-1")


def read_probe(output: bytes) -> tuple[ShellProbe, float]:
    """Parses the output of `probe_command`; returns the answers, and the shell's clock SECONDS.

    Other output may precede it. Raises ProbeFailed if answers are missing, or show something that cannot be captured.
    """
    _, _, text = output.decode("latin-1").rpartition("\n\1seconds\n")
    text, _, environment = text.partition("\1environment\n")
    parts = [part.split("\n", 1) for part in f"seconds\n{text}".split("\1")]
    answers = {part[0]: part[1] for part in parts if len(part) == 2}
    if not environment or not {"shell/limits", "shell/oom_score_adj"} <= answers.keys():
        raise ProbeFailed("it could not be asked")
    if "keys" in answers:
        raise ProbeFailed("its key bindings were changed")
    if "elsewhere" in answers:
        raise ProbeFailed("its working directory was moved or deleted")
    if answers["plain"]:
        raise ProbeFailed(f"{answers['plain'].split()[0]} was unset and set again")
    if answers["getopts"] != "0 % 0 \n" * 2:
        raise ProbeFailed("getopts stands within a cluster of options")
    own, inherited = _attributes(answers, "shell"), _attributes(answers, "1")
    for name in (*_STAT, *_INHERITED):
        if own[name] != inherited[name]:
            raise ProbeFailed(f"its {name} was changed")
    if answers["shell/comm"] != "bash\n":
        raise ProbeFailed("its name was changed")
    probe = {
        "the directory's true path": answers["directory"],
        "loaded builtins": answers["loaded"],
        "limits in bytes": answers["shell/limits"],
        "the memory killer's score": answers["shell/oom_score_adj"],
        "the environment's order": environment,
    }
    return probe | {f"the shell's {name}": value for name, value in own.items()}, float(answers["seconds"])


def _attributes(answers: Mapping[str, str], of: str) -> dict[str, str]:
    try:
        fields = answers[f"{of}/stat"].rpartition(") ")[2].split()
        attributes = {name: fields[index] for name, index in _STAT.items()}
        lines = dict(line.split(":\t", 1) for line in answers[f"{of}/status"].split("\n") if ":\t" in line)
        attributes |= {name: lines.get(name, "") for name in _STATUS}
        return attributes
    except (KeyError, IndexError):
        raise ProbeFailed("/proc says too little") from None
