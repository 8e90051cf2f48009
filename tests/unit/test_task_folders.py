"""Folders of benchmark tasks: what is taken over from them, what is named as unsupported, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tvsnap.images import ImageNotFound, ImageSpecError, ImageStore, find_source
from tvsnap.images.descriptions.detect import load_source
from tvsnap.images.descriptions.service_spec import ServiceSettings
from tvsnap.images.descriptions.spec import DockerfileBase, DockerImageBase, FileCopy, ImageSpec
from tvsnap.images.descriptions.values import Place
from tvsnap.model.errors import UsageError
from tvsnap.model.images import ImageLimits, Timeouts
from tvsnap.model.network import NO_NETWORK
from tvsnap.model.task import Task, TaskPhase, TaskStep
from tvsnap.plugins.tasks.compose_service import Service
from tvsnap.plugins.tasks.compose_services import Member

CHECKOUT = Path(__file__).parents[2]
MIB = 1024 * 1024

TASK = """
instruction: Mend it.
difficulty: easy
parser_name: pytest
max_agent_timeout_sec: 900.0
max_test_timeout_sec: 180
run_tests_in_same_shell: false
"""

CLIENT = """
services:
  client:
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: [ "sh", "-c", "sleep infinity" ]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
"""


def make(folder: Path, **files: str) -> Path:
    """Writes files; `__` in a name stands for `/`, and a last `_x` for `.x`."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def terminal_bench(folder: Path, compose: str = CLIENT, task: str = TASK, **files: str) -> ImageSpec:
    make(folder, **{"task.yaml": task, "Dockerfile": "FROM base\n", "docker-compose.yaml": compose, **files})
    return load_source(folder)


def service(folder: Path, text: str, **files: str) -> ImageSpec:
    """A task with a service of which only these lines are special."""
    lines = "".join(f"    {line}\n" for line in text.strip().splitlines())
    return terminal_bench(folder, f"services:\n  client:\n    build: .\n{lines}", **files)


class TestTerminalBench:
    """task.yaml, Dockerfile, docker-compose.yaml."""

    def test_a_usual_task(self, tmp_path: Path) -> None:
        folder = tmp_path / "Fix_The Permissions!"
        spec = terminal_bench(folder)
        assert spec.name == "fix_the-permissions"
        assert spec.environment == "terminal"
        assert spec.base == DockerfileBase(folder / "Dockerfile", folder / ".")
        assert spec.env == {"TEST_DIR": "/tests"}
        assert spec.directories == ("/logs", "/agent-logs")
        assert spec.timeouts == Timeouts(agent=900.0, verifier=180.0)
        assert (spec.user, spec.workdir, spec.limits, spec.no_new_privileges) == (None, None, ImageLimits(), None)
        assert spec.notes == ()

    def test_without_a_compose_file(self, tmp_path: Path) -> None:
        make(tmp_path, **{"task.yaml": "instruction: x\n", "Dockerfile": "FROM base\n"})
        spec = load_source(tmp_path)
        assert spec.base == DockerfileBase(tmp_path / "Dockerfile", tmp_path)
        assert spec.timeouts == Timeouts()

    def test_what_a_service_says(self, tmp_path: Path) -> None:
        spec = terminal_bench(
            tmp_path,
            """
            services:
              main:
                build:
                  context: app
                  args: {VERSION: 3.11, FLAG: true}
                  target: run
                environment: {A: "1", N: 2, EMPTY: "", YES: yes}
                env_file: [app/more.env]
                user: agent
                working_dir: /app/src
                hostname: box
                mem_limit: 2g
                cpus: "1.5"
                pids_limit: 300
                storage_opt: {size: 20G}
                restart: "no"
                tty: true
                network_mode: none
                security_opt: ["no-new-privileges:true"]
            """,
            **{"app/Dockerfile": "FROM base", "app/more.env": "# more\nB='two words'\nexport C=3 # three\nA=other\n"},
        )
        assert spec.base == DockerfileBase(
            tmp_path / "app/Dockerfile", tmp_path / "app", {"VERSION": "3.11", "FLAG": "true"}, "run"
        )
        assert spec.env == {"A": "1", "N": "2", "EMPTY": "", "YES": "yes", "B": "two words", "C": "3"}
        assert (spec.user, spec.workdir, spec.hostname) == ("agent", "/app/src", "box")
        assert spec.limits == ImageLimits(memory=2048 * MIB, processes=300, cpus=1.5, disk=20480 * MIB)
        assert spec.no_new_privileges is True
        assert spec.network == NO_NETWORK
        assert spec.notes == ()

    @pytest.mark.parametrize(("option", "said"), [("", True), (":false", False), ("=true", True)])
    def test_no_new_privileges(self, tmp_path: Path, option: str, said: bool) -> None:
        assert service(tmp_path, f"security_opt: ['no-new-privileges{option}']").no_new_privileges is said

    def test_limits_by_quota(self, tmp_path: Path) -> None:
        assert service(tmp_path, "cpu_quota: 150000").limits.cpus == 1.5
        assert service(tmp_path, "cpu_quota: 5000\ncpu_period: '10000'").limits.cpus == 0.5

    def test_limits_of_deploy(self, tmp_path: Path) -> None:
        text = """
deploy:
  resources:
    limits: {cpus: '0.50', memory: 512M, pids: 64}
    reservations: {memory: 1G, devices: [{capabilities: [gpu]}]}
mem_limit: 512m
"""
        spec = service(tmp_path, text)
        assert spec.limits == ImageLimits(memory=512 * MIB, processes=64, cpus=0.5)
        assert [note.split(":")[0] for note in spec.notes] == ["deploy.resources.reservations.devices"]
        with pytest.raises(ImageSpecError, match=r"mem_limit: differs from deploy\.resources\.limits\.memory"):
            service(tmp_path, text.replace("512m", "1g"))

    def test_a_prebuilt_image(self, tmp_path: Path) -> None:
        spec = terminal_bench(tmp_path, "services: {client: {image: 'ghcr.io/some/task:1'}}")
        assert spec.base == DockerImageBase("ghcr.io/some/task:1")

    @pytest.mark.parametrize(
        ("text", "note"),
        [
            ("ports: ['80:80']", "ports: nothing outside a sandbox reaches its ports"),
            ("networks: [default]", "networks: a sandbox has a way out of its own, and no network but that"),
            ("network_mode: host", "network_mode host: a sandbox has a way out of its own, and no network but that"),
            ("privileged: true", "privileged: not granted: mounts, kernel settings and the like fail"),
            ("cap_add: [NET_ADMIN]", "cap_add: not granted: what needs these rights fails"),
            ("security_opt: ['seccomp:unconfined']",
             "security_opt seccomp:unconfined: not applied: a sandbox has its own confinement"),
            ("gpus: all", "gpus: no GPU in a sandbox: what needs one fails"),
            ("healthcheck: {test: 'true'}", "healthcheck: not run"),
            ("shm_size: 2g", "shm_size: not set: /dev/shm may fill the sandbox's memory limit"),
            ("frobnicate: 1", "frobnicate: not understood, and passed over"),
            ("environment: [API_KEY]", "environment API_KEY: not taken from this machine's environment"),
            ("environment: ['A=${NOPE}']", "$NOPE: not set, so it is empty"),
            ("tmpfs: /scratch:size=1g", "tmpfs /scratch:size=1g: an ordinary directory, part of every snapshot"),
            ("volumes: ['/var/run/docker.sock:/run/docker.sock']",
             "volume /var/run/docker.sock:/run/docker.sock: an empty directory, for nothing outside is mounted"),
            ("volumes: [{type: volume, target: /v}]", "volume /v: an ordinary directory, part of every snapshot"),
        ],
    )  # fmt: skip
    def test_what_a_sandbox_does_not_do_is_named(self, tmp_path: Path, text: str, note: str) -> None:
        assert service(tmp_path, text).notes == (note,)

    def test_a_volume_by_name(self, tmp_path: Path) -> None:
        text = "services: {client: {build: ., volumes: ['data:/data']}}\n"
        with pytest.raises(ImageSpecError, match=r"client\.volumes: data is not declared"):
            terminal_bench(tmp_path, text)
        spec = terminal_bench(tmp_path, text + "volumes: {data: }\n")
        assert spec.notes == ("volume data: an ordinary directory, part of every snapshot",)

    @pytest.mark.parametrize("text", ["privileged: false", "ports: []", "init: true", "x-note: hi", "labels: [a=b]"])
    def test_what_makes_no_difference_is_not(self, tmp_path: Path, text: str) -> None:
        assert service(tmp_path, text).notes == ()

    def test_mounts_of_the_tasks_own_files_are_copied(self, tmp_path: Path) -> None:
        spec = service(tmp_path, "volumes: ['./data:/app/data:ro']", **{"data/f": "x"})
        assert spec.files == (FileCopy(tmp_path / "data", None, "/app/data"),)
        assert spec.notes == ("volume ./data:/app/data: copied into the image; changes stay in the sandbox",)

    def test_variables_of_the_env_file_but_not_of_this_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET", "s3cret")
        text = "environment: ['A=${FROM_FILE}', 'B=${SECRET:-none}']"
        spec = service(tmp_path, text, **{".env": "FROM_FILE=here\n"})
        assert spec.env == {"A": "here", "B": "none"}

    def test_files_of_variables_may_refer_to_those_of_the_env_file(self, tmp_path: Path) -> None:
        files = {".env": "ROOT=/srv\n", "vars": 'CACHE=${ROOT}/cache\nWHO="file"\nSAID=1\n'}
        spec = service(tmp_path, "env_file: vars\nenvironment: {WHO: compose}", **files)
        assert spec.env == {"CACHE": "/srv/cache", "WHO": "compose", "SAID": "1"}

    def test_secrets_and_configs(self, tmp_path: Path) -> None:
        compose = """
            services:
              client:
                build: .
                secrets: [key, {source: word, target: /etc/word}, gone]
                configs: [{source: page, target: /srv/page}, page]
            secrets: {key: {file: key.txt}, word: {environment: WORD}, gone: {external: true}}
            configs: {page: {content: "hello $WHO"}}
            """
        spec = terminal_bench(tmp_path, compose, **{"key.txt": "k", ".env": "WORD=said\nWHO=you\n"})
        assert [(file.source, file.content, file.dest) for file in spec.files] == [
            (tmp_path / "key.txt", None, "/run/secrets/key"),
            (None, "said", "/etc/word"),
            (None, "hello you", "/srv/page"),
            (None, "hello you", "/page"),
        ]
        assert "secrets: not there" in spec.notes
        assert not any(note.startswith("configs") for note in spec.notes)

    def test_the_modes_of_secrets_and_configs(self, tmp_path: Path) -> None:
        compose = """
            services:
              client:
                build: .
                secrets:
                  - word
                  - {source: word, target: mine, mode: 0400, uid: "1000", gid: 1001}
                  - {source: word, target: quoted, mode: "0440"}
                  - {source: key, mode: 0400, uid: "1000"}
                configs: [{source: page, mode: 0o555}]
            secrets: {key: {file: key.txt}, word: {environment: WORD}}
            configs: {page: {content: hello}}
            """
        spec = terminal_bench(tmp_path, compose, **{"key.txt": "k", ".env": "WORD=said\n"})
        assert [(file.dest, file.mode, file.owner) for file in spec.files] == [
            ("/run/secrets/word", 0o444, "0:0"),
            ("/run/secrets/mine", 0o400, "1000:1001"),
            ("/run/secrets/quoted", 0o440, "0:0"),
            ("/run/secrets/key", None, "root"),
            ("/page", 0o555, "0:0"),
        ]
        assert "secrets: key: mode, uid: not used: its file keeps its own, as with Compose" in spec.notes
        with pytest.raises(
            ImageSpecError, match="secrets: word: mode must be octal digits as 0440, uid and gid numbers"
        ):
            terminal_bench(tmp_path, compose.replace("mode: 0400", "mode: u=r"), **{"key.txt": "k", ".env": "WORD=x\n"})

    def test_a_variable_that_must_be_there(self, tmp_path: Path) -> None:
        text = "environment: {A: '${WORD:?say it}', B: '${EMPTY?said}'}"
        assert service(tmp_path, text, **{".env": "WORD=x\nEMPTY=\n"}).env == {"A": "x", "B": ""}
        with pytest.raises(ImageSpecError, match=r"docker-compose.yaml: \$WORD: say it; set it in .*\.env"):
            service(tmp_path, text, **{".env": "EMPTY=\n"})

    def test_each_key_of_the_specification_is_in_the_documents(self, tmp_path: Path) -> None:
        """What they say of a key is what becomes of it: no note, or a note with a meaning."""
        page = (Path(__file__).parents[2] / "docs/guides/images.md").read_text()
        said = dict(re.findall(r"^\| (read|makes no difference|noted) \| (.*) \|$", page, re.MULTILINE))
        keys = {what: re.findall(r"`(\w+)`", text) for what, text in said.items()}
        assert sum(map(len, keys.values())) == len({key for each in keys.values() for key in each}) == 92
        for key in (*keys["makes no difference"], *keys["noted"]):
            found = list(Service.model_validate({key: "said"}, context=Place(tmp_path, tmp_path / "x")).not_done())
            assert bool(found) == (key in keys["noted"]), key
            assert not any("not understood" in note for note in found), key
        assert set(keys["read"]) - set(Member.model_fields) == {"extends"}  # which is replaced by what it stands for

    def test_files_of_variables_that_need_not_be_there_and_raw_ones(self, tmp_path: Path) -> None:
        text = "env_file: [{path: gone, required: false}, {path: vars, required: true}, {path: raw, format: raw}]"
        files = {"vars": 'A="a"\n', "raw": '# no\n\nB="b $A" # kept\nA=last\n'}
        assert service(tmp_path, text, **files).env == {"A": "last", "B": '"b $A" # kept'}
        with pytest.raises(ImageSpecError, match=r"env_file\[0\].path: .*gone does not exist"):
            service(tmp_path, "env_file: [{path: gone}]")
        with pytest.raises(ImageSpecError, match=r"env_file: needs a path"):
            service(tmp_path, "env_file: {required: false}")

    def test_a_dockerfile_may_stand_in_the_compose_file(self, tmp_path: Path) -> None:
        text = "FROM a\\nRUN echo $$X\\n"
        base = terminal_bench(
            tmp_path, f'services: {{client: {{build: {{dockerfile_inline: "{text}", args: [X=y]}}}}}}'
        ).base
        assert isinstance(base, DockerfileBase)
        assert (base.text, base.args, base.context) == ("FROM a\nRUN echo $X\n", {"X": "y"}, tmp_path)

    @pytest.mark.parametrize(
        ("compose", "complaint"),
        [
            ("services: {web: {build: .}, db: {image: postgres}}",
             "services: one of them must be called main or client, the one that the agent works in; have: web, db"),
            ("services: {client: {build: .}, db: {}}", "services.db: needs build or image"),
            ("services: {client: {build: .}, db: {image: a, depends_on: [dc]}}", "db depends on dc, which is no"),
            ("services: {client: {build: .}, db: {image: a, healthcheck: {interval: soon}}}", "be a time as 1m30s"),
            ("services: {}", "services: describes none"),
            ("services: {client: {build: {dockerfile: Dockerfile, dockerfile_inline: FROM a}}}",
             "dockerfile_inline: stands beside dockerfile"),
            ("services: {client: {build: nope}}", "nope does not exist; it must be a folder"),
            ("services: {client: {build: .., image: a}}", "lies outside the image's folder"),
            ("services: {client: {build: ., mem_limit: lots}}", "client.mem_limit: must be a size"),
            ("services: {client: {build: ., extends: {service: x}}}", "extends: .* has no service x; have: client"),
            ("services: {client: {extends: db}, db: {extends: client}}", "extends itself, by way of: client, db"),
            ("services: {client: {extends: {file: x.yaml}}}", "client.extends: needs service"),
            ("services: {client: {extends: {service: a, file: ../x.yaml}}}", "extends: .*lies outside the image's"),
            ("services: {client: !reset {build: .}}", "could not determine a constructor for the tag '!reset'"),
            ("services: {client: {build: ., env_file: /etc/hostname}}", "lies outside the image's folder"),
            ("services: {client: {build: ., working_dir: app}}", "working_dir: must be an absolute path"),
            ("services: [client]", "services: must be a mapping"),
            ("{include: [more.yaml], services: {client: {build: .}}}", "include: .*more.yaml does not exist"),
            ("{include: [docker-compose.yaml], services: {client: {build: .}}}", "includes itself, by way of"),
            ("{include: 'https://host/x.yaml'}", "include: must be a list of files"),
            ("{include: ['https://host/x.yaml']}", "nothing is fetched; copy it into the folder"),
            ("{include: [{}]}", "include: needs the path of a file"),
        ],
    )  # fmt: skip
    def test_what_would_make_the_task_meaningless_is_refused(
        self, tmp_path: Path, compose: str, complaint: str
    ) -> None:
        make(tmp_path, Dockerfile="FROM parent\n")
        with pytest.raises(ImageSpecError, match=complaint):
            terminal_bench(tmp_path / "task", compose)

    def test_a_wrong_timeout(self, tmp_path: Path) -> None:
        with pytest.raises(ImageSpecError, match=r"task.yaml: max_agent_timeout_sec: must be a number of seconds"):
            terminal_bench(tmp_path, task="max_agent_timeout_sec: never\n")


class TestHarbor:
    """task.toml, environment/Dockerfile."""

    def task(self, folder: Path, text: str, **files: str) -> ImageSpec:
        make(folder, **{"task.toml": text, "environment/Dockerfile": "FROM base\n", **files})
        return load_source(folder)

    def test_a_usual_task(self, tmp_path: Path) -> None:
        folder = tmp_path / "hello-world"
        spec = self.task(
            folder,
            """
            version = "1.0"
            [metadata]
            author_name = "someone"
            [verifier]
            timeout_sec = 120.0
            env = { KEY = "of the verifier" }
            [agent]
            timeout_sec = 600
            user = "agent"
            [environment]
            build_timeout_sec = 600.0
            cpus = 2
            memory_mb = 4096
            storage_mb = 10240
            gpus = 0
            allow_internet = false
            workdir = "/srv"
            env = { MODE = "test", LEVEL = "${LEVEL:-3}" }
            """,
        )
        assert spec.name == "hello-world"
        assert spec.base == DockerfileBase(folder / "environment/Dockerfile", folder / "environment")
        assert spec.limits == ImageLimits(memory=4096 * MIB, cpus=2.0, disk=10240 * MIB)
        assert spec.timeouts == Timeouts(agent=600.0, verifier=120.0)
        assert spec.env == {"MODE": "test", "LEVEL": "3"}
        assert (spec.user, spec.workdir) == ("agent", "/srv")
        assert spec.directories == ("/logs/verifier", "/logs/agent", "/logs/artifacts")
        assert spec.network == NO_NETWORK
        assert spec.task == Task(verifier=TaskPhase(env={"KEY": "of the verifier"}))
        assert spec.notes == ()
        assert spec.runs == ServiceSettings("main", command=("sh", "-c", "sleep infinity"))

    @pytest.mark.parametrize(
        ("text", "entrypoint", "command"),
        [
            ("entrypoint: /entry.sh --now", ("/entry.sh", "--now"), ("sh", "-c", "sleep infinity")),
            ("entrypoint: []", (), ("sh", "-c", "sleep infinity")),
            ("command: [serve, all]", None, ("serve", "all")),
            ("user: web", None, ("sh", "-c", "sleep infinity")),
        ],
    )
    def test_what_its_container_runs(
        self, tmp_path: Path, text: str, entrypoint: tuple[str, ...] | None, command: tuple[str, ...]
    ) -> None:
        folder = make(tmp_path / "task", **{"task.toml": "agent = {user = 'agent'}\n"})
        make(folder / "environment", Dockerfile="FROM base\n")
        make(folder / "environment", **{"docker-compose.yaml": f"services: {{main: {{{text}}}}}\n"})
        spec = load_source(folder)
        assert spec.runs == ServiceSettings("main", entrypoint=entrypoint, command=command)
        assert (spec.runs_as, spec.user) == ("web" if "web" in text else None, "agent")
        assert spec.notes == ()

    @pytest.mark.parametrize(
        ("text", "network"),
        [
            ("", "public"),
            ("allow_internet = true", "public"),
            ("allow_internet = false", "none"),
            ('network_mode = "public"\nallow_internet = false', "public"),
            ('network_mode = "no-network"', "none"),
            ('network_mode = "allowlist"\nallowed_hosts = ["pypi.example", "*.example.org", "10.1.2.3"]',
             ".example.org,10.1.2.3,pypi.example"),
        ],
    )  # fmt: skip
    def test_network(self, tmp_path: Path, text: str, network: str) -> None:
        assert str(self.task(tmp_path, f"[environment]\n{text}\n").network) == network

    def test_older_spellings_and_a_prebuilt_image(self, tmp_path: Path) -> None:
        text = '[environment]\ndocker_image = "org/task:1"\nmemory = "2G"\nstorage = "10G"\n'
        spec = self.task(tmp_path, text)
        assert spec.base == DockerImageBase("org/task:1")
        assert spec.limits == ImageLimits(memory=2048 * MIB, disk=10240 * MIB)
        assert spec.notes == ()

    def test_what_a_sandbox_does_not_do_is_named(self, tmp_path: Path) -> None:
        spec = self.task(
            tmp_path,
            """
            [environment]
            gpus = 1
            allow_internet = true
            env = { API_KEY = "${API_KEY}" }
            [[environment.mcp_servers]]
            name = "m"
            url = "http://m"
            [verifier.environment]
            cpus = 1
            """,
        )
        assert spec.notes == (
            "environment.gpus 1: no GPU in a sandbox: what needs one fails",
            "environment.mcp_servers: not started",
            "verifier.environment: the verifier's own container is not built; build its folder by itself",
            "environment.env.API_KEY: $API_KEY is not taken from this machine's environment",
        )
        assert spec.env == {}

    def test_a_compose_file_beside_the_dockerfile(self, tmp_path: Path) -> None:
        compose = "services: {main: {build: {context: .}, environment: {A: b}, mem_limit: 1g, cpus: 1}}"
        text = '[environment]\nmemory_mb = 64\nnetwork_mode = "no-network"\n'
        spec = self.task(tmp_path, text, **{"environment/docker-compose.yaml": compose})
        assert spec.base == DockerfileBase(tmp_path / "environment/Dockerfile", tmp_path / "environment/.")
        assert (spec.env, spec.limits) == ({"A": "b"}, ImageLimits(memory=1024 * MIB, cpus=1.0))

    def test_variables_are_replaced_only_as_wholes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("X", "of this machine")
        spec = self.task(
            tmp_path,
            """
            [environment.env]
            WORD = "a$word $$ ${"
            EMBEDDED = "see ${X}"
            TWO = "${X} ${X}"
            DEFAULT = "${T:-def $q}"
            BRACES = "${T:-${X}}"
            EMPTY = "${T:-}"
            OTHER = "${T-def}"
            TAKEN = "${X}"
            """,
        )
        assert spec.env == {
            "WORD": "a$word $$ ${",
            "EMBEDDED": "see ${X}",
            "TWO": "${X} ${X}",
            "DEFAULT": "def $q",
            "BRACES": "${X}",
            "EMPTY": "",
        }
        assert spec.notes == (
            "environment.env.OTHER: $T-def is not taken from this machine's environment",
            "environment.env.TAKEN: $X is not taken from this machine's environment",
        )

    def test_variables_that_harbor_sets_for_compose_files(self, tmp_path: Path) -> None:
        folder = tmp_path / "variables"
        compose = """
            services:
              main:
                build: {context: "${CONTEXT_DIR}"}
                image: ${MAIN_IMAGE_NAME}
                environment: ["C=${CPUS}", "M=${MEMORY}", "P=${PREBUILT_IMAGE_NAME:-none}", "T=${TASKS_OWN}"]
                volumes:
                  - ${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}
                  - ${HOST_AGENT_LOGS_PATH}:${ENV_AGENT_LOGS_PATH}
                  - ${HOST_ARTIFACTS_PATH}:${ENV_ARTIFACTS_PATH}
                  - ${CONTEXT_DIR}/data:/data
        """
        text = '[environment]\ncpus = 2\nmemory = "2G"\nenv = { TASKS_OWN = "yes" }\n'
        files = {"environment/docker-compose.yaml": compose, "environment/data/f": "x"}
        spec = self.task(folder, text, **files)
        assert spec.base == DockerfileBase(folder / "environment/Dockerfile", folder / "environment")
        assert spec.env == {"C": "2", "M": "2048M", "P": "none", "T": "yes", "TASKS_OWN": "yes"}
        assert spec.directories == ("/logs/verifier", "/logs/agent", "/logs/artifacts")
        assert spec.files == (FileCopy(folder / "environment/data", None, "/data"),)
        copied = "copied into the image; changes stay in the sandbox"
        assert spec.notes == (f"volume {folder}/environment/data:/data: {copied}",)

    def test_what_the_task_says_of_its_variables_counts(self, tmp_path: Path) -> None:
        files = {"environment/docker-compose.yaml": "services: {main: {environment: {A: compose, B: compose}}}"}
        spec = self.task(tmp_path, '[environment]\nenv = { A = "task" }\n', **files)
        assert spec.env == {"A": "task", "B": "compose"}

    @pytest.mark.parametrize("name", ["docker-compose.yml", "compose.yaml", "compose.yml"])
    def test_other_names_are_no_compose_files(self, tmp_path: Path, name: str) -> None:
        spec = self.task(tmp_path, "", **{f"environment/{name}": "services: {web: {image: a}, db: {image: b}}"})
        assert spec.base == DockerfileBase(tmp_path / "environment/Dockerfile", tmp_path / "environment")

    @pytest.mark.parametrize(
        ("toml", "main", "base"),
        [
            ("", "{image: 'x:1'}", "Dockerfile"),
            ("", "{build: .}", "Dockerfile"),
            ("", "", "Dockerfile"),
            ('docker_image = "org/task:1"', "{build: .}", "org/task:1"),
            ('docker_image = "org/task:1"', "{build: ., image: '${MAIN_IMAGE_NAME}'}", "org/task:1"),
            ('docker_image = "org/task:1"', "{image: '${MAIN_IMAGE_NAME}'}", "org/task:1"),
            ('docker_image = "org/task:1"', "{image: '${PREBUILT_IMAGE_NAME}'}", "org/task:1"),
            ('docker_image = "org/task:1"', "{image: 'other:2'}", "other:2"),
        ],
    )
    def test_what_a_task_with_a_compose_file_starts_from(self, tmp_path: Path, toml: str, main: str, base: str) -> None:
        files = {"environment/docker-compose.yaml": f"services: {{main: {main or '{}'}}}"}
        spec = self.task(tmp_path, f"[environment]\n{toml}\n", **files)
        dockerfile = tmp_path / "environment/Dockerfile"
        assert spec.own_dockerfile is not None
        assert spec.own_dockerfile.path == dockerfile
        if isinstance(spec.base, DockerfileBase):
            assert (base, spec.base.path) == ("Dockerfile", dockerfile)
        else:
            assert spec.base == DockerImageBase(base)

    def test_what_only_the_compose_file_names_to_start_from(self, tmp_path: Path) -> None:
        compose = "services: {main: {image: 'org/task:1'}}"
        make(tmp_path, **{"task.toml": "", "environment/docker-compose.yaml": compose})
        assert load_source(tmp_path).base == DockerImageBase("org/task:1")

    def test_files_beside_an_image_that_is_named(self, tmp_path: Path) -> None:
        """The harness puts them where commands start, as there is no Dockerfile to do so."""
        make(tmp_path, **{"task.toml": '[environment]\ndocker_image = "org/task:1"\n', "environment/data/f": "x"})
        assert load_source(tmp_path).files == (FileCopy(tmp_path / "environment", None, "."),)

    def test_steps_and_phases(self, tmp_path: Path) -> None:
        spec = self.task(
            tmp_path,
            """
            [agent]
            network_mode = "no-network"
            [verifier]
            timeout_sec = 90.0
            user = "root"
            network_mode = "allowlist"
            allowed_hosts = ["pypi.example"]
            env = { JUDGE_KEY = "${JUDGE_KEY}", LEVEL = "${LEVEL:-3}" }
            [solution.env]
            ANSWER = "42"
            [[steps]]
            name = "write it"
            [steps.agent]
            timeout_sec = 60
            [[steps]]
            name = "mend-it"
            [steps.verifier]
            timeout_sec = 30
            env = { STEP = "2" }
            """,
        )
        keys = {"JUDGE_KEY": "${JUDGE_KEY}", "LEVEL": "${LEVEL:-3}"}
        assert spec.task == Task(
            agent=TaskPhase(network="none"),
            verifier=TaskPhase(user="root", env=keys, network="pypi.example"),
            solution=TaskPhase(env={"ANSWER": "42"}),
            steps=(
                TaskStep("write it", agent=TaskPhase(timeout=60.0)),
                TaskStep("mend-it", verifier=TaskPhase(timeout=30.0, env={"STEP": "2"})),
            ),
        )
        assert (spec.timeouts, spec.user, spec.notes) == (Timeouts(verifier=90.0), None, ())
        assert Task.of(json.loads(json.dumps(spec.task.said()))) == spec.task
        assert Task().said() == {}

    @pytest.mark.parametrize(
        ("text", "files", "complaint"),
        [
            ('[environment]\nos = "windows"\n', {}, "environment.os: a sandbox is a Linux container"),
            ("[environment\n", {}, "task.toml: "),
            ('[environment]\nnetwork_mode = "host"\n', {}, "environment.network_mode: must be"),
            ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a b"]\n', {}, "cannot allow 'a b'"),
            ("[environment]\nmemory_mb = -1\n", {}, "environment.memory_mb: must be a number of megabytes"),
            ('[[steps]]\nname = "a/b"\n', {}, "steps.0..name: must be the name of a folder"),
            ('[[steps]]\nname = "a"\n[[steps]]\nname = "A"\n', {}, "two of them have the same name"),
            (
                '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a b"]\n',
                {},
                "verifier.allowed_hosts: network",
            ),
            ('[agent]\ntimeout_sec = "soon"\n', {}, "agent.timeout_sec: must be a number of seconds"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, text: str, files: dict[str, str], complaint: str) -> None:
        with pytest.raises(ImageSpecError, match=complaint):
            self.task(tmp_path, text, **files)

    def test_nothing_to_build_from(self, tmp_path: Path) -> None:
        make(tmp_path, **{"task.toml": ""})
        with pytest.raises(
            ImageSpecError, match=r"environment.docker_image: names no image, and .*Dockerfile is not there"
        ):
            load_source(tmp_path)

    def test_the_examples_of_this_project(self) -> None:
        specs = [load_source(folder) for folder in sorted((CHECKOUT / "examples/tasks").iterdir())]
        assert specs
        for spec in specs:
            assert isinstance(spec.base, DockerfileBase)
            assert spec.timeouts.agent
            assert spec.notes == ()


class TestFolders:
    """What kind a folder is."""

    def test_no_more_than_a_dockerfile(self, tmp_path: Path) -> None:
        make(tmp_path / "just.this", Dockerfile="FROM base\n")
        spec = load_source(tmp_path / "just.this")
        assert (spec.name, spec.base) == (
            "just.this",
            DockerfileBase(tmp_path / "just.this/Dockerfile", tmp_path / "just.this"),
        )

    def test_image_yaml_comes_first(self, tmp_path: Path) -> None:
        make(tmp_path, **{"image.yaml": "name: mine\ndebian:\n", "task.yaml": TASK, "Dockerfile": "FROM base\n"})
        assert load_source(tmp_path).name == load_source(tmp_path / "image.yaml").name == "mine"
        assert find_source(tmp_path) == tmp_path

    @pytest.mark.parametrize(("name", "image"), [("ÄÖ", "image"), ("--a--", "a"), ("A" * 80, "a" * 63)])
    def test_names(self, tmp_path: Path, name: str, image: str) -> None:
        make(tmp_path / name, Dockerfile="FROM base\n")
        assert load_source(tmp_path / name).name == image

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ImageSpecError, match=r"has none of image.yaml, task.toml, task.yaml, Dockerfile"):
            load_source(tmp_path)
        with pytest.raises(ImageNotFound, match=r"has none of image.yaml"):
            find_source(tmp_path)


class TestFromDockerfile:
    """A task that names an image, and has a Dockerfile as well."""

    def test_there_is_none(self, tmp_path: Path) -> None:
        make(tmp_path / "t", **{"task.toml": '[environment]\ndocker_image = "org/task:1"\n'})
        with pytest.raises(UsageError, match="has no Dockerfile beside the image that it starts from"):
            ImageStore(tmp_path / "home").build(tmp_path / "t", from_dockerfile=True)
