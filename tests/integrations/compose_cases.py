# ruff: noqa: E501
"""Small Compose files, which Compose and tvsnap read: the same values come out, or both find them wrong."""

from __future__ import annotations

MAIN = "services:\n  main:\n    image: debian:bookworm-slim\n"


def main(lines: str, **files: str) -> dict[str, str]:
    """Returns the files of a case with one service that has these lines, too."""
    text = "".join(f"    {line}\n" for line in lines.strip("\n").split("\n"))
    return {"docker-compose.yaml": MAIN + text, **named(files)}


def whole(text: str, **files: str) -> dict[str, str]:
    """Returns the files of a case with this Compose file."""
    return {"docker-compose.yaml": text.lstrip("\n"), **named(files)}


def named(files: dict[str, str]) -> dict[str, str]:
    """Returns files with names that keywords cannot have: `.env` for `dot_env`, `a.env` for `a_env`."""
    names = {"dot_env": ".env"}
    return {names.get(name, name.replace("_", ".")): text for name, text in files.items()}


SCALARS = """
12:30 23:59:59 190:20:30 1.0 1.10 24.10 1e3 1e+3 1E5 1e21 1234567.0 1000000.0 0.00001 .5 5. -0.0 +1.5 6.02e23 -1e-7
0o17 0O17 017 08 09 0x1F 0XFF 0b101 -0x10 +12 1_000 1__0 0_1 1_0.5 -- . .. ... ~x
123456789012345678 18446744073709551615 18446744073709551616 -9223372036854775808 -9223372036854775809
2024-01-01 2024-1-2 2024-13-01 24-01-01 2024-01-01T10:00:00Z 2024-01-01T10:00:00.5+02:00 2024-01-01T10:00:00
yes No on OFF y n Y N true True TRUE false False tRue null_ nul inf nan .infinity
1,000 1.2.3 1.2.3.4 v1 1e 1e+ 0x 0b2 0o8 1:2:3 = <<x =x
"""
"""Plain values of YAML that mean something else to some reader."""

CASES: dict[str, dict[str, str]] = {
    **{f"scalar {text}": main(f"environment:\n  A: {text}") for text in SCALARS.split()},
    "spaced time": main("environment:\n  A: 2024-01-01 10:00:00\n  B: 2024-1-2 5:6:7.25\n  C: 2024-01-01 10:00"),
    "list of variables": main("environment:\n  - A=1.0\n  - B=12:30\n  - C=\n  - D=a=b\n  - E= x\n  - 'F=\"q\"'"),
    "quoted values": main(
        "environment:\n  A: '1.0'\n  B: \"0o17\"\n  C: ''\n  D: |\n    two\n    lines\n  E: >-\n    one\n    line"
    ),
    "truth": main("environment:\n  A: 'true'\n  B: !!str true\n  C: !!str 1.0"),
    "empty values": main("environment:\n  A:\n  B: ~\n  C: null\n  D: ''"),
    "a name without a value": main(
        "env_file: a.env\nenvironment: [A, B, C=]", a_env="A=file\nB=file\nC=file\nD=file\n", dot_env="B=dot\n"
    ),
    "a name without a value, as a mapping": main(
        "env_file: a.env\nenvironment:\n  A:\n  B:", a_env="A=file\nB=file\n", dot_env="B=dot\n"
    ),
    "files that refer to files": main(
        "env_file: [a.env, b.env]", a_env="A=1\nB=${A}2\n", b_env="C=${A}${B}3\nA=9\nD=$A\n", dot_env="X=x\n"
    ),
    "files and .env": main("env_file: a.env", a_env="A=$X\nX=own\nB=$X\nC=$Y\n", dot_env="X=dot\nY=y\n"),
    "file syntax": main(
        "env_file: a.env",
        a_env="# c\n\nexport A=1\n B = 2 \nC: 3\nD=\"q # no\" # yes\nE='s $A' # c\nF=a#b\nG=a #b\nH=\nI=\"l1\nl2\"\nJ='m1\nm2'\n",
    ),
    "file escapes": main(
        "env_file: a.env", a_env='A="a\\nb"\nB=a\\nb\nC=\'a\\nb\'\nD="\\$X $$X"\nE="\\t|\\\\|\\x"\nF="\\"q\\""\n'
    ),
    "file escapes of other letters": main("env_file: a.env", a_env='A="C:\\Users\\new"\nB="\\d+\\.\\w"\nC="a\\\\nb"\n'),
    "file dollars": main(
        "env_file: a.env", a_env="A=x\nB=$$A\nC=${A:-d}\nD=${N:-d}\nE=${N-}\nF=${A:+y}\nG='$A'\nH=a$\nI=$1\n"
    ),
    "file in windows' lines": main("env_file: a.env", a_env="A=1\r\nB=\"2\"\r\nC='3'\r\n"),
    "file with a mark": main("env_file: a.env", a_env="\ufeffA=1\nB=2\n"),
    ".env with a mark": main('environment: ["A=$A"]', dot_env="\ufeffA=1\n"),
    "file of names": main("env_file: a.env", a_env="A\nexport B\nC=1\n", dot_env="A=dot\n"),
    "file with dots": main("env_file: a.env", a_env="a.b=1\nc-d=2\n_e=3\n"),
    "file that repeats": main("env_file: a.env", a_env="A=1\nA=2\nB=$A\n"),
    "file that may miss": main("env_file:\n  - path: a.env\n    required: false\n  - path: b.env", b_env="B=1\n"),
    "file with trailing words": main("env_file: a.env", a_env="A='x'y\nB=\"x\"\nC=x'y'\nD=a 'b' c\n"),
    "backtick and tabs": main("env_file: a.env", a_env="A=`x`\n\tB=\ta\tb\t\nC=a\t#c\n"),
    "interpolation": main(
        "environment:\n  A: ${A:-b}\n  B: ${B-b}\n  C: ${C:+c}\n  D: ${D+d}\n  E: $$E\n  F: ${A:-${B:-x}}\n  G: a${A}b\n  H: ${X:-a:b}\n  I: ${X:-a-b}",
        dot_env="B=\nC=1\nD=\n",
    ),
    "interpolation of numbers": main("environment:\n  A: $X\n  B: ${X}\n  C: ${X:-1.0}\n  D: 1${X}", dot_env="X=1.0\n"),
    "interpolation in many places": main(
        "user: ${U}\nworking_dir: /${D}\nhostname: h${U}\nmem_limit: ${M}\ntmpfs: /${D}\ncommand: run $U\nexpose: ['${P}']",
        dot_env="U=7\nD=dir\nM=64m\nP=80\n",
    ),
    "interpolation of dollars": main("environment:\n  A: a$$b$$$$c\n  B: '$${A}'\n  C: $$$X", dot_env="X=x\n"),
    "dollars that begin nothing": main("environment:\n  A: a $ b\n  B: a$1\n  C: a$\n  D: $-x"),
    "a project's name with capitals": whole(
        "name: Some.Project\n" + MAIN + "    environment: ['A=$COMPOSE_PROJECT_NAME']\n"
    ),
    "a default of JSON": main('environment:\n  A: \'${A:-{"x": {"y": 1}}}z\'\n  B: ${A-}${B:-$$}'),
    "a comment instead of a value": main("env_file: a.env", a_env="A= # c\nB=#c\nC=x#y # c\n"),
    "nested defaults": main(
        "environment:\n  A: ${A:-${B:-${C:-deep}}}\n  B: ${A:-$C}\n  C: ${A:-a}b}", dot_env="C=c\n"
    ),
    "project": whole("name: some-project\n" + MAIN + "    environment: ['A=$COMPOSE_PROJECT_NAME']\n"),
    "project of .env": main("environment: ['A=$COMPOSE_PROJECT_NAME']", dot_env="COMPOSE_PROJECT_NAME=from-env\n"),
    "project of both": whole(
        "name: said\n" + MAIN + "    environment: ['A=$COMPOSE_PROJECT_NAME']\n",
        dot_env="COMPOSE_PROJECT_NAME=from-env\n",
    ),
    "project by variable": whole("name: ${N:-some}\n" + MAIN + "    environment: ['A=$COMPOSE_PROJECT_NAME']\n"),
    **{
        f"command {text}": main(f"command: {text}")
        for text in (
            "a b  c",
            "a; b",
            "a && b",
            "a | b",
            "a > b",
            "a 2>&1",
            "a < b",
            "a &",
            "'a \"b;c\" d'",
            "\"a 'b;c' d\"",
            r"""'a "b\nc" d'""",
            r"a\ b c",
            r"""'a "b\\c" "d\"e" f\ g'""",
            "echo $$HOME",
            "echo $$(date)",
            "echo `date`",
            "'a \"\" b'",
            "sh -c 'a; b'",
            "''",
            "'   '",
            "a\\;b",
            "a#b",
            "'a #b'",
            "[a, '1', 12:30, yes, on, 1.0.0]",
            "'[\"a\"]'",
            "'a\\\\b'",
            "a=b 'c d'=e",
            "a;",
            "$$",
            'a"b"c',
        )
    },
    "command over lines": main('command: >\n  bash -c "a\n  && b"\nentrypoint: |\n  /bin/x\n  -y'),
    "empty command": main("command: []\nentrypoint: []"),
    "command unset": main("command:\nentrypoint: ''"),
    "entrypoint": main("entrypoint: /bin/x -y 'a b'\ncommand: [c, d]"),
    "numbers in a command": main('command: [sleep, 12:30, yes, "0.50", v1]'),
    "user": main("user: '1000'"),
    "user and group": main("user: '1000:1000'"),
    "sizes": main("mem_limit: 1.5g\ncpus: 0.5\npids_limit: 100"),
    "size in bytes": main("mem_limit: 536870912"),
    "size with a unit": main("mem_limit: 512MB"),
    "size in words": main("mem_limit: 1GiB"),
    "deploy": main("deploy:\n  resources:\n    limits: {cpus: '0.50', memory: 50M, pids: 7}"),
    "quota": main("cpu_quota: 50000\ncpu_period: 100000"),
    "tmpfs": main("tmpfs:\n  - /run\n  - /tmp:size=64m,mode=1777"),
    "tmpfs alone": main("tmpfs: /run"),
    "volumes": main("volumes:\n  - ./data:/data:ro\n  - /anonymous\n  - .:/here", data="x"),
    "volumes in full": main(
        "volumes:\n  - {type: bind, source: ./data, target: /data}\n  - {type: tmpfs, target: /t}", data="x"
    ),
    "network": main("network_mode: none"),
    "merge keys": whole("""
x-a: &a {environment: {A: 1.0, B: b}, working_dir: /a}
x-b: &b {working_dir: /b, user: "1"}
services:
  main:
    <<: [*a, *b]
    image: debian:bookworm-slim
    environment: {C: c}
"""),
    "merge keys within": whole("""
x-env: &env {A: 1, B: 2}
services:
  main:
    image: debian:bookworm-slim
    environment: {<<: *env, B: 3, C: 0x10}
"""),
    "anchors of scalars": whole("x-v: &v 1.10\n" + MAIN + "    environment: {A: *v}\n"),
    "a file with a mark": whole("\ufeff" + MAIN + "    environment: {A: b}\n"),
    "extends": whole(
        MAIN + "    extends: {service: base}\n    environment: {B: 2.0}\n    command: own\n  base:\n    image: x\n"
        "    environment: [A=1, B=1]\n    command: base it\n    working_dir: /w\n    expose: ['1']\n"
    ),
    "extends a file": whole(
        MAIN + "    extends: {file: other.yaml, service: base}\n    environment: {B: two}\n",
        other_yaml="services:\n  base:\n    image: y\n    environment: {A: 1.0, B: one}\n    env_file: a.env\n    tmpfs: /t\n",
        a_env="F=file\n",
    ),
    "include": whole(
        "include: [other.yaml]\n" + MAIN + "    depends_on: [db]\n",
        other_yaml="services:\n  db:\n    image: postgres:16\n    environment: {A: 1.0}\n    command: a; b\n",
    ),
    "several services": whole("""
services:
  main: {image: a, depends_on: {db: {condition: service_healthy}, web: {condition: service_started}}}
  db:
    image: b
    healthcheck: {test: pg_isready -q, interval: 1m30s, timeout: 500ms, retries: 7, start_period: 2s}
    expose: [5432, "5433"]
    environment: {V: 1e3}
    networks: {default: {aliases: [database]}}
    container_name: the-db
  web: {image: c, ports: ["8080:80", "81", {target: 82}, "127.0.0.1:8001:83/tcp"], depends_on: [db], command: "serve; rest"}
  off: {image: d, profiles: [debug]}
networks: {default: {}}
"""),
    "a service that need not be there": whole(
        "services:\n  main: {image: a, depends_on: {b: {condition: service_started, required: false}}}\n  b: {image: a, profiles: [p]}\n"
    ),
    "ranges of ports": whole(
        "services:\n  main: {image: a}\n  db: {image: b, ports: ['3000-3002', '9000-9001:4000-4001'], expose: ['50-51']}\n"
    ),
    "health": whole("""
services:
  main: {image: a}
  one: {image: b, healthcheck: {test: [CMD, x, '1.0'], interval: 1h, retries: 0x3}}
  two: {image: b, healthcheck: {disable: true}}
  three: {image: b, healthcheck: {test: [NONE]}}
  four: {image: b, healthcheck: {test: [CMD-SHELL, "a || exit 1"], start_period: 1m, start_interval: 5s}}
  five: {image: b, healthcheck: {test: "a $$B", timeout: 1.5s}}
"""),
    "shared volumes": whole("""
services:
  main: {image: a, volumes: ["shared:/s"]}
  db: {image: b, volumes: [{type: volume, source: shared, target: /d}, "own:/o"]}
volumes: {shared: {}, own: {}}
"""),
    "durations": whole("""
services:
  main: {image: a}
  one: {image: b, healthcheck: {test: x, interval: 1m0.5s, timeout: 1500ms, start_period: 0s}}
  two: {image: b, healthcheck: {test: x, interval: 1h1m1s, timeout: 0.5m, retries: 0}}
  three: {image: b, healthcheck: {test: x, interval: 1s1m, timeout: 1us1ns, retries: "4"}}
"""),
    "build": whole(
        """
services:
  main:
    build: {context: ., dockerfile: Dockerfile, args: {A: 1.0, B: 08, C: }, target: t}
    image: named
""",
        dot_env="C=dot\n",
    ),
    "build with a list": whole("services:\n  main:\n    build: {context: ., args: [A=1.0, C, D]}\n", dot_env="C=dot\n"),
}

WRONG: dict[str, dict[str, str]] = {
    "a variable must be there": main("environment:\n  A: ${A:?must be set}"),
    "a variable must not be empty": main("environment:\n  A: ${A:?no}", dot_env="A=\n"),
    "an open brace": main("environment:\n  A: ${A"),
    "an invalid name": main("environment:\n  A: ${1A}"),
    "an unknown operator": main("environment:\n  A: ${A!b}"),
    "a file that is missing": main("env_file: none.env"),
    "an open quote in a file": main("env_file: a.env", a_env='A="x\n'),
    "a file with two words": main("env_file: a.env", a_env="two words\n"),
    "an open quote in a command": main("command: a 'b"),
    "a parenthesis in a command": main("command: f()"),
    "a key twice": whole(MAIN + "    user: a\n    user: b\n"),
    "a service that is missing": main("depends_on: [none]"),
    "a service that waits for itself": main("depends_on: [main]"),
    "services that wait for each other": whole(
        "services:\n  main: {image: a, depends_on: [b]}\n  b: {image: a, depends_on: [main]}\n"
    ),
    "extends nothing": main("extends: {service: none}"),
    "extends itself": main("extends: {service: main}"),
    "a volume that is not declared": main("volumes: ['data:/d']"),
    "a list for a mapping": whole("services: [main]\n"),
    "a mapping in the environment": main("environment: {A: {b: c}}"),
    "a list in the environment": main("environment: {A: [b]}"),
    "a number that is no size": main("mem_limit: much"),
    "a text for cpus": main("cpus: many"),
    "a text for retries": main("healthcheck: {test: x, retries: many}"),
    "a duration without a unit": main("healthcheck: {test: x, interval: 30}"),
    "a condition that is unknown": whole(
        "services:\n  main: {image: a, depends_on: {b: {condition: up}}}\n  b: {image: a}\n"
    ),
    "a name of a service": whole("services:\n  'a b': {image: a}\n"),
    "an empty file": whole(""),
    "a duration in days": main("healthcheck: {test: x, interval: 1d}"),
    "a duration that is a number": main("healthcheck: {test: x, interval: '30'}"),
    "a service that is not started": whole(
        "services:\n  main: {image: a, depends_on: [b]}\n  b: {image: a, profiles: [p]}\n"
    ),
    "a number as a user": main("user: 1000"),
    "a number in a command": main("command: [sleep, 10]"),
    "a truth value in an entrypoint": main("entrypoint: [x, true]"),
    "a number in a health check": main("healthcheck: {test: [CMD, sleep, 1]}"),
    "numbers that are none": main("environment: {A: .inf}"),
    "working_dir as a list": main("working_dir: [a]"),
    "a number as a command": main("command: 5"),
    "an undefined anchor": whole(MAIN + "    user: *u\n"),
    "a tab": whole("services:\n\tmain: {image: a}\n"),
    "a health check without a kind": main("healthcheck: {test: [curl, x]}"),
    "a network that is not declared": main("networks: [other]"),
    "a limit beside deploy": main("cpus: 1\ndeploy: {resources: {limits: {memory: 1g}}}"),
    "quota and deploy": main("cpus: 1\ndeploy: {resources: {limits: {cpus: '2'}}}"),
}
"""Files that Compose refuses."""

READ_ALL_THE_SAME = {
    "an unknown key": main("comand: a"),
    "an unknown top-level key": whole(MAIN + "service: {}\n"),
    "neither image nor build": whole("services:\n  main: {command: a}\n"),
    "a raw file": main("env_file: [{path: a.env, format: raw}]", a_env="A='x' $B\n"),
}
"""Files that this version of Compose refuses, and tvsnap reads: newer ones know more keys, and a task has an image."""

NOT_READ = {
    "several documents": whole(MAIN + "    environment: {A: b}\n---\nservices:\n  main:\n    environment: {B: c}\n"),
    "a value that is taken back": whole(
        MAIN + "    extends: {service: base}\n    environment: !reset {}\n  base: {image: a, environment: {A: b}}\n"
    ),
    "a value that is replaced": whole(
        MAIN
        + "    extends: {service: base}\n    environment: !override {B: c}\n  base: {image: a, environment: {A: b}}\n"
    ),
    "no service": whole("services: {}\n"),
    "a service's name with a dot": whole("services:\n  a.b: {image: a}\n"),
    "a link by another name": whole("services:\n  main: {image: a, links: ['b:c']}\n  b: {image: a}\n"),
}
"""Files that Compose reads, and tvsnap refuses by name."""
