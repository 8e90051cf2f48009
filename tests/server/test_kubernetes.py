"""The manifests in deploy/kubernetes: what they say is what Kubernetes takes, and what tvsnap has and needs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

import tvsnap
from cli.main import verb_app
from tests.server.conftest import Server, start
from tests.server.test_limits import home as home
from tvsnap.upkeep.doctor import CAPABILITIES

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
OLDEST = "1.30"
"""The first version with `appArmorProfile`."""
FOLDERS = ("base", "autoscaling", "any-disk")
TOKEN = "k" * 32


def manifests(folder: str) -> list[dict[str, Any]]:
    """Returns the objects of a folder's own files, as they are before kustomize puts them together."""
    listed = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())["resources"]
    return [yaml.safe_load((MANIFESTS / folder / name).read_text()) for name in listed if name.endswith(".yaml")]


def stateful_set() -> dict[str, Any]:
    (found,) = (one for one in manifests("base") if one["kind"] == "StatefulSet")
    return found


def container() -> dict[str, Any]:
    (found,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    return dict(found)


def capabilities() -> list[str]:
    """Returns the capabilities that the manifest adds to none."""
    given = container()["securityContext"]["capabilities"]
    assert given["drop"] == ["ALL"]
    return list(given["add"])


def versions() -> list[str]:
    newest = kubernetes_validate.latest_version()
    return [OLDEST, ".".join(newest.split(".")[:2])]


@pytest.mark.parametrize("version", versions())
def test_kubernetes_takes_the_manifests(version: str) -> None:
    for folder in ("base", "autoscaling"):
        for one in manifests(folder):
            kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_kustomize_makes_of_them(folder: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing")
    run = subprocess.run(["kubectl", "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    made = list(yaml.safe_load_all(run.stdout))
    for one in made:
        kubernetes_validate.validate(one, versions()[-1], strict=True)
    (servers,) = (one for one in made if one["kind"] == "StatefulSet")
    names = {(one["kind"], one["metadata"]["name"]) for one in made}
    pod = servers["spec"]["template"]["spec"]
    maps = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert {("ConfigMap", name) for name in maps} < names
    assert ("Service", servers["spec"]["serviceName"]) in names
    privileged = pod["containers"][0]["securityContext"].get("privileged", False)
    assert privileged == (folder == "any-disk")


def test_labels_ports_and_volumes_fit_together() -> None:
    found = {one["kind"]: one for one in manifests("base")}
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["StatefulSet"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    (service,) = found["Service"]["spec"]["ports"]
    assert ports[service["targetPort"]] == service["port"]
    pod, claims = found["StatefulSet"]["spec"]["template"]["spec"], found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    volumes = {one["name"] for one in pod["volumes"]} | {one["metadata"]["name"] for one in claims}
    assert {one["name"] for one in container()["volumeMounts"]} == volumes
    assert claims[0]["spec"]["storageClassName"] == found["StorageClass"]["metadata"]["name"]


def test_options_are_those_of_serve() -> None:
    verb, *options = container()["args"]
    command = typer.main.get_command(verb_app(verb))
    known = {name: parameter for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = dict(option.partition("=")[::2] for option in options)
    assert given.keys() <= known.keys()
    pod = stateful_set()["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > float(given["--grace"])
    assert int(given["--port"]) == container()["ports"][0]["containerPort"]
    places = {one["mountPath"] for one in container()["volumeMounts"]}
    assert str(Path(given["--token-file"]).parent) in places
    (home,) = (one["value"] for one in container()["env"] if one["name"] == "TVSNAP_HOME")
    assert home in places
    (docker,) = re.findall(r"^ENV TVSNAP_HOME=(\S+)$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    assert home == docker
    (target,) = manifests("autoscaling")[0]["spec"]["metrics"]
    assert int(target["pods"]["target"]["averageValue"]) < int(given["--max-sandboxes"])


def test_capabilities_are_those_that_doctor_names_and_criu_keeps() -> None:
    given = capabilities()
    assert len(set(given)) == len(given)
    assert set(given) == {*CAPABILITIES, "SYS_RESOURCE"}, "the last only raises limits where the node's are lower"
    launch = (ROOT / "native/launch/launch.c").read_text()
    kept = re.findall(r"CAP_([A-Z_]+)", launch.partition("CRIU_CAPABILITIES[] = {")[2].partition("}")[0])
    assert set(kept) <= set(given)


@pytest.fixture(scope="module")
def numbers() -> dict[str, int]:
    """The capabilities' numbers, as the kernel's header has them."""
    header = Path("/usr/include/linux/capability.h").read_text()
    return {name: int(number) for name, number in re.findall(r"^#define CAP_([A-Z_]+)\s+(\d+)$", header, re.MULTILINE)}


def test_doctor_has_the_kernel_s_numbers(numbers: dict[str, int]) -> None:
    assert {name: numbers[name] for name in CAPABILITIES} == CAPABILITIES


@pytest.fixture
def confined(home: Path, tmp_path: Path, numbers: dict[str, int]) -> Iterator[Server]:
    """A server with the manifest's options and with its capabilities, as far as this machine has them."""
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o400)
    (tmp_path / "linked").symlink_to(tokens)  # as files of a Secret are
    here = ("--host", "--port", "--token-file", "--max-disk", "--max-memory")
    options = [one for one in container()["args"][1:] if one.partition("=")[0] not in here]
    options += [f"--token-file={tmp_path / 'linked'}"]
    bounding = next(
        int(line.split()[1], 16)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapBnd")
    )
    held = [name.lower() for name in capabilities() if bounding >> numbers[name] & 1]
    within = ["setpriv", "--bounding-set", ",".join(["-all", *(f"+{name}" for name in held)])]
    server = start(home, *options, within=within)
    yield server
    assert server.stop() == 0


def get(server: Server, path: str, token: str | None = None) -> str:
    request = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_its_capabilities_do_and_its_probes_and_metrics_are_there(confined: Server) -> None:
    with tvsnap.connect(confined.url, TOKEN, patience=30) as client:
        for source in ("executed", "hit"):
            with client.rollout("terminal", task="confined") as rollout:
                command = (
                    "(sleep 1000 &); export A=1; sleep 1; echo hello > f; chown 1000 f; su nobody -s /bin/sh -c id"
                )
                assert rollout.call("bash", {"command": command}).source == source
                result = rollout.call("bash", {"command": "cat f; echo $A; pgrep -c sleep"})
                assert (result.source, result.output) == (source, "hello\n1\n1\n")
                state = rollout.state
        with client.materialise(state) as sandbox:
            assert sandbox.run("pgrep -c sleep", timeout=60).output == b"1\n"
        assert client.stats().forks >= 1
        assert client.stats().trouble is None
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container()[probe]["httpGet"]
        assert asked["port"] == "http"
        assert get(confined, asked["path"])  # 200, without a token
    (job,) = yaml.safe_load((MANIFESTS / "autoscaling/scrape.yaml").read_text())["scrape_configs"]
    told = set(re.findall(r"^(\w+)[{ ]", get(confined, job["metrics_path"], TOKEN), re.MULTILINE))
    (rule,) = yaml.safe_load((MANIFESTS / "autoscaling/prometheus-adapter.yaml").read_text())["rules"]["custom"]
    asked_for = set(re.findall(r"tvsnap_\w+", rule["seriesQuery"] + rule["metricsQuery"]))
    assert asked_for == {"tvsnap_sandboxes", "tvsnap_parked", "tvsnap_ready"}
    assert asked_for <= told
    (target,) = manifests("autoscaling")[0]["spec"]["metrics"]
    assert target["pods"]["metric"]["name"] == rule["name"]["as"]


def test_the_container_starts_by_what_the_image_has() -> None:
    script = MANIFESTS / "base/start.sh"
    assert container()["command"] == ["sh", f"/etc/tvsnap/{script.name}"]
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    last = shlex.split(script.read_text().splitlines()[-1])
    assert last == ["exec", "tvsnap", "$@"]
