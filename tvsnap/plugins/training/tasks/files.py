"""Tasks on files: write, count, rename, change modes, look through logs."""

from __future__ import annotations

import hashlib
import random

from tvsnap.plugins.training.tasks.task import WORDS, Draft, stays, write


def file(chance: random.Random) -> Draft:
    name, word = chance.choice(WORDS), chance.choice(WORDS)
    path = f"/app/{name}.txt"
    return Draft(
        f"Create the file {path} that has the word {word} in it, and nothing else.",
        "cd /app",
        f"goal('content', lambda: text({path!r}).split() == [{word!r}])\n",
        [
            [f"echo {word} > {path}"],
            [f"touch {path}", f"printf {word} >> {path}"],
            ["cd /app", f"echo {word} > {name}.txt"],
        ],
        [[f"echo {word}"], [f"touch {path}"], [f"echo {word}{word} > {path}"]],
    )


def count(chance: random.Random) -> Draft:
    wanted, other = chance.sample(WORDS, 2)
    lines = [f"{number} {chance.choice((wanted, other))}" for number in range(chance.randint(6, 30))]
    count = sum(line.endswith(wanted) for line in lines)
    content = "\n".join(lines)
    return Draft(
        f"How many lines of /app/log.txt contain the word {wanted}? Write the number to /app/answer.txt. "
        "Leave the log as it is.",
        write("/app/log.txt", content),
        f"goal('answer', lambda: value(text('/app/answer.txt')) == {count})\n" + stays({"/app/log.txt": content}),
        [
            [f"grep -c {wanted} /app/log.txt > /app/answer.txt"],
            ["cat /app/log.txt", f"grep {wanted} /app/log.txt | wc -l > /app/answer.txt"],
            [f"grep -c {wanted} /app/log.txt", f"echo {count} > /app/answer.txt"],
        ],
        [[f"grep -c {wanted} /app/log.txt"], [f"echo {count + 1} > /app/answer.txt"], ["rm /app/log.txt"]],
    )


def rename(chance: random.Random) -> Draft:
    names = chance.sample(WORDS, chance.randint(2, 4))
    other = chance.choice([word for word in WORDS if word not in names])
    checks = "".join(
        f"goal({name!r}, lambda: unchanged({{'/app/docs/{name}.md': '{name}\\n'}}) and "
        f"not os.path.lexists('/app/docs/{name}.txt'))\n"
        for name in names
    )
    every = " && ".join(f"mv /app/docs/{name}.txt /app/docs/{name}.md" for name in names)
    setup = [f"mkdir -p /app/docs && echo {other} > /app/docs/{other}.csv"]
    return Draft(
        f"Rename each of the {len(names)} .txt files in /app/docs, {', '.join(sorted(names))}, so that it ends in .md "
        "instead. Leave their contents and all other files as they are.",
        " && ".join([*setup, *(f"echo {name} > /app/docs/{name}.txt" for name in names)]),
        checks
        + "".join(
            f"keep('content of {name}', lambda: unchanged({{'/app/docs/{name}.md': '{name}\\n'}}) or "
            f"unchanged({{'/app/docs/{name}.txt': '{name}\\n'}}))\n"
            for name in names
        )
        + stays({f"/app/docs/{other}.csv": other}),
        [
            [every],
            ["cd /app/docs", 'for f in *.txt; do mv "$f" "${f%.txt}.md"; done'],
            ["cd /app/docs", "ls", *(f"mv {name}.txt {name}.md" for name in names)],
        ],
        [["ls /app/docs"], ["rm /app/docs/*"], ["cd /app/docs && for f in *.txt; do cp $f ${f%.txt}.md; done"]],
    )


def modes(chance: random.Random) -> Draft:
    script, secret = chance.sample(WORDS, 2)
    contents = {f"/app/{script}.sh": f"#!/bin/sh\necho {script}", f"/app/{secret}.key": secret}
    checks = (
        f"goal('script', lambda: mode('/app/{script}.sh') & 0o500 == 0o500)\n"
        f"goal('secret', lambda: mode('/app/{secret}.key') == 0o600)\n"
        f"keep('owner', lambda: os.stat('/app/{secret}.key').st_uid == os.stat('/app/{script}.sh').st_uid)\n"
        + stays(contents)
    )
    setup = [write(path, content) for path, content in contents.items()]
    return Draft(
        f"Make /app/{script}.sh executable, and let nobody but its owner read or write /app/{secret}.key (mode 600). "
        "Leave their contents as they are.",
        "\n".join([*setup, f"cd /app && chmod 644 {script}.sh {secret}.key"]),
        checks,
        [
            [f"chmod +x /app/{script}.sh; chmod 600 /app/{secret}.key"],
            ["cd /app", "ls -l", f"chmod 755 {script}.sh", f"chmod u=rw,go= {secret}.key"],
        ],
        [["ls -l /app"], [f"chmod +x /app/{script}.sh; echo > /app/{secret}.key"], [f"chmod 400 /app/{secret}.key"]],
    )


def logs(chance: random.Random) -> Draft:
    addresses = [f"10.0.{chance.randint(0, 9)}.{number}" for number in chance.sample(range(1, 250), 4)]
    most = addresses[0]
    lines = [most] * 9 + addresses[1:2] * 5 + addresses[2:3] * 4 + addresses[3:]
    chance.shuffle(lines)
    content = "\n".join(f'{address} - - "GET /{chance.choice(WORDS)}" 200' for address in lines)
    counted = "cut -d' ' -f1 /app/access.log | sort | uniq -c | sort -rn"
    key = hashlib.sha256(content.encode()).hexdigest()[:6]
    return Draft(
        f"Which address made most of the requests in /app/access.log (log {key})? Write it to /app/answer.txt. "
        "Leave the log as it is.",
        write("/app/access.log", content),
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{most}')\n" + stays({"/app/access.log": content}),
        [
            [f"{counted} | head -n 1 | awk '{{print $2}}' > /app/answer.txt"],
            ["head -n 3 /app/access.log", counted, f"echo {most} > /app/answer.txt"],
        ],
        [[counted], [f"echo {addresses[1]} > /app/answer.txt"], [f"echo {most} > /app/answer.txt; rm /app/access.log"]],
    )


def readable(chance: random.Random) -> Draft:
    names = chance.sample(WORDS, 5)
    others = {name: f"{number}.{name}" for number, name in enumerate(names)}
    closed = set(chance.sample(names, 2))
    checks = "".join(f"goal({name!r}, lambda: read_by_others('/app/site/{others[name]}'))\n" for name in sorted(closed))
    checks += "".join(
        f"keep('mode of {name}', lambda: mode('/app/site/{others[name]}') == 0o644)\n"
        for name in names
        if name not in closed
    )
    checks += (
        "keep('owner', lambda: not any(mode(f'/app/site/{name}') & 0o622 != 0o600 for name in "
        f"{sorted(others.values())!r}))\n"
    )
    checks += stays({f"/app/site/{file}": name for name, file in others.items()})
    setup = ["mkdir -p /app/site && cd /app/site"]
    setup += [f"echo {name} > {file} && chmod {600 if name in closed else 644} {file}" for name, file in others.items()]
    every = " ".join(f"/app/site/{others[name]}" for name in sorted(closed))
    return Draft(
        "A web server, which is neither the owner nor of the group, cannot read some of the files "
        f"{', '.join(sorted(others.values()))} in /app/site. Let it read these, too; nobody but the owner may write to "
        "them. Leave the other files and all contents as they are.",
        " && ".join(setup),
        checks,
        [
            [f"chmod o+r {every}"],
            ["chmod 644 /app/site/*"],
            ["cd /app/site", "ls -l", "find . -type f ! -perm -004 -exec chmod a+r {} +", "ls -l"],
        ],
        [["ls -l /app/site"], ["chmod -R 777 /app/site"], ["chmod 604 /app/site/*"]],
    )


def errors(chance: random.Random) -> Draft:
    programs = chance.sample(WORDS, 3)
    lines = [
        f"2026-0{chance.randint(1, 9)}-{chance.randint(10, 28)} {chance.choice(('INFO', 'ERROR', 'WARNING'))} "
        f"{chance.choice(programs)}: {chance.choice(WORDS)} {chance.randint(1, 999)}"
        for _ in range(chance.randint(20, 40))
    ]
    program = programs[0]
    lines += [f"2026-09-30 ERROR {program}: out of memory", f"2026-09-30 ERROR {programs[1]}: no {program}: file"]
    chance.shuffle(lines)
    content = "\n".join(lines)
    wanted = [line for line in lines if f" ERROR {program}:" in line]
    key = hashlib.sha256(content.encode()).hexdigest()[:6]
    return Draft(
        f"Write all lines of /app/system.log (log {key}) that are errors (ERROR) of the program {program} to "
        f"/app/{program}.log, as they are and in the same order. Their form is: DATE LEVEL PROGRAM: TEXT. "
        "Leave the log as it is.",
        write("/app/system.log", content),
        f"goal('lines', lambda: text('/app/{program}.log').removesuffix('\\n') == {chr(10).join(wanted)!r})\n"
        + stays({"/app/system.log": content}),
        [
            [f"grep ' ERROR {program}:' /app/system.log > /app/{program}.log"],
            [
                "cd /app",
                "head -n 5 system.log",
                "grep ERROR system.log > errors",
                f"awk '$3 == \"{program}:\"' errors > {program}.log",
                "rm errors",
            ],
        ],
        [
            [f"grep ERROR /app/system.log > /app/{program}.log"],
            [f"grep 'ERROR.*{program}:' /app/system.log > /app/{program}.log"],
            [f"grep ' ERROR {program}:' /app/system.log > /app/{program}.log; echo > /app/system.log"],
        ],
    )
