"""Probes of a whole state: files, processes, the shell, tables. Each is a call that any rollout may make."""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import Step, bash, execute

FOLDERS = ("/app", "/root", "/tmp", "/home", "/etc", "/opt", "/srv", "/mnt", "/var/tmp", "/usr/local")

_FILES = r"""
import hashlib, os, stat, sys
inodes = sys.argv[1] == "inodes"
for top in sys.argv[2:]:
    found = [top] + [os.path.join(at, name) for at, folders, files in os.walk(top) for name in folders + files]
    for path in sorted(found):
        try:
            s = os.lstat(path)
            kind = stat.filemode(s.st_mode)
            if inodes:
                print(path, s.st_ino if s.st_ino >> 63 else "made", "" if kind[0] == "d" else s.st_nlink)
                continue
            said = [path, kind, "%d:%d" % (s.st_uid, s.st_gid)]
            if kind[0] == "l":
                said.append(os.readlink(path))
            elif kind[0] == "-":
                with open(path, "rb") as f:
                    said += [s.st_size, hashlib.sha256(f.read()).hexdigest()[:16]]
            said += ["%s=%s" % (n, os.getxattr(path, n, follow_symlinks=False).hex())
                for n in sorted(os.listxattr(path, follow_symlinks=False))]
            print(*said)
        except OSError as error:
            print(path, error.strerror)
"""

_PROCESSES = r"""
import os, re, sys
ids = sys.argv[1] == "ids"
def of(pid, name):
    try:
        return open("/proc/%s/%s" % (pid, name)).read()
    except OSError as error:
        return ""
stats = {p: of(p, "stat") for p in os.listdir("/proc") if p.isdigit()}
parents = {p: s.rpartition(")")[2].split()[1] for p, s in stats.items() if s}
mine, at = set(), str(os.getpid())
while at in parents and at != "1":
    mine.add(at)
    at = parents[at]
command = {p: of(p, "cmdline").replace("\0", " ").strip()[:80] for p in parents}
for p in sorted(parents, key=int):
    if p in mine or parents[p] in mine:
        continue
    name = command[p] or of(p, "comm").strip()
    if ids:
        print(name, "id", p, "parent", parents[p])
        continue
    field = stats[p].rpartition(")")[2].split()
    fds = []
    for fd in sorted(os.listdir("/proc/%s/fd" % p), key=int) if p != "1" else []:  # what PID 1 has open is ours
        try:
            target = re.sub(r"\d{3,}|(?<=tvsnap/out)[ .].*", "N", os.readlink("/proc/%s/fd/%s" % (p, fd)))
        except OSError:
            continue
        fds.append("%s>%s" % (fd, target))
    wanted = "Sig(Blk|Ign|Cgt)|Cap(Eff|Bnd)|Seccomp:|NoNew|Uid|Gid"
    signals = " ".join(" ".join(line.split()) for line in of(p, "status").splitlines() if re.match(wanted, line))
    print("%s | of %s | nice %s | comm %s | oom %s | core %s | cwd %s | %s | %s" % (
        name, command.get(parents[p], ""), field[16], of(p, "comm").strip(), of(p, "oom_score_adj").strip(),
        of(p, "coredump_filter").strip(), os.readlink("/proc/%s/cwd" % p), " ".join(fds), signals))
for line in open("/proc/net/tcp").readlines()[1:]:
    part = line.split()
    if part[3] == "0A":
        print("listens", part[1])
"""

_UNSTEADY = "_|S?RANDOM|SECONDS|EPOCH[A-Z]*|LINENO|BASHPID|BASH_[A-Z]*|PIPESTATUS|HISTCMD|FUNCNAME|__tvsnap[a-z_]*"
"""Variables that change by themselves, or that say how many calls there were."""

_SHELL = (
    f"{{ declare -p | grep -vE '^declare -[-a-zA-Z]+ ({_UNSTEADY})(=|$)'; declare -f; alias; set +o; shopt; umask; "
    "trap; jobs | sed 's/^/job /'; dirs -v; ulimit -a; enable -n; complete -p; hash -l; history | sed 's/^/history /'; "
    "bind -s; ls -l /proc/$$/fd | sed -E 's/.* ([0-9]* ->)/fd \\1/; s/[0-9]{3,}/N/'; } 2> /dev/null | grep -v ^total"
)

PROBES: dict[str, Step] = {
    "files": execute(f"python3 -c '{_FILES}' contents {' '.join(FOLDERS)}".replace("\n\n", "\n"), lines=True),
    "inodes": execute(f"python3 -c '{_FILES}' inodes {' '.join(FOLDERS[:6])}", lines=True, free="inode"),
    "processes": execute(f"python3 -c '{_PROCESSES}' others", lines=True),
    "ids": execute(f"python3 -c '{_PROCESSES}' ids", lines=True, free="pid"),
    "shell": bash(_SHELL, lines=True),
}

TABLES = {
    "sqlite": "sqlite3 /srv/sqlite/shop.db .dump; sqlite3 /srv/sqlite/spare.db .dump",
    "postgres": (
        'pg_dump --inserts -d shop; for t in $(psql -XAtd shop -c "select quote_ident(tablename) from pg_tables where '
        "schemaname = 'public' order by 1\"); do psql -XAtd shop -c \"select '$t', ctid, * from $t\"; done"
    ),
    "mariadb": "mariadb-dump --skip-dump-date --skip-comments --skip-extended-insert --databases shop spare",
}
"""Commands that print all that is committed, in the order in which the system has it."""


def probes(environment: str) -> list[Step]:
    """Returns the probes of an environment's states."""
    found = [replace(step, topic=f"probe of {name}") for name, step in PROBES.items()]
    if environment in TABLES:
        # The system's own processes and files come and go by themselves.
        found = [step for step in found if step.topic in ("probe of files", "probe of shell")]
        found.append(execute(TABLES[environment], lines=True, topic="probe of tables"))
    return found
