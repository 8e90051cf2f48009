"""Fixtures that all tests share: a data directory and the terminal image, made once a session."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.fakes.backend import FakeBackend, fake_image
from tests.sql_images import sql_image, sql_images, sql_system
from tests.suites import is_left_whole, is_short
from tvsnap.graph import edges
from tvsnap.host.load import Processors
from tvsnap.images import Image
from tvsnap.model.errors import InfrastructureError, MachineLacks

__all__ = ["sql_image", "sql_images", "sql_system"]

TESTS = Path(__file__).parent
ORDER = (
    *(
        "property",
        "fakes",
        "unit",
        "native",
        "counts",
        "fuzz",
        "zoo",
        "e2e",
        "server",
        "page",
        "proxy",
        "registry",
        "shared_graph",
        "fleet",
        "integrations",
        "priors",
        "training",
        "video",
        "docs",
        "faults",
    ),
    "conformance",
)
"""What property tests wait for, images, is built while others run unit tests, which need none."""

WITHOUT_ROOT = ("fakes", "priors", "unit")
"""Folders whose tests need neither root nor an engine nor images: those of `make unit`."""

WITH_IMAGES = ("tests/conformance/test_fixed_chance.py",)
"""Files of the conformance suite with images of their own, which come into an engine slowly."""

MOST_WORKERS = 12
"""However many processors there are: each worker makes fixtures of its own."""

# Workers and the hundreds of programs that tests start read what was compiled once, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

MARKERS = ("needs_processes: needs snapshots that capture live processes; skipped where the machine has no such",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="only the tests of `make test`, see tests/suites.py")


def _are_without_root(config: pytest.Config) -> bool:
    """Whether nothing else is to be executed than tests that need neither root nor an engine nor images."""
    given = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    return all(any(path.is_relative_to(TESTS / folder) for folder in WITHOUT_ROOT) for path in given)


def pytest_configure(config: pytest.Config) -> None:
    alone = _are_without_root(config)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput") and not alone:
        if not config.getoption("short"):
            _share_engine(config)
        _share_images(config)
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    # A machine under load is late; and what is found is found each time.
    hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("suite")
    # Where the suite was started in the background, interrupts are ignored, and would be in all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def _share_engine(config: pytest.Config) -> None:
    """Starts a Docker Engine for all workers, so that images come into it once; where none can be had, tests say so."""
    from tests import engine  # imports Docker's client, which takes a third of a second

    if os.environ.get(engine.GIVEN):
        return
    try:
        own = engine.TestEngine()
        config.add_cleanup(own.stop)
        own.start()
    except (MachineLacks, InfrastructureError):
        return
    os.environ[engine.GIVEN] = own.address


def _share_images(config: pytest.Config) -> None:
    """Has all workers build each image once, where it is not said that a directory of images is kept."""
    if os.environ.get("TVSNAP_TEST_IMAGES") or os.environ.get("TVSNAP_TEST_HOME"):
        return
    directory = tempfile.mkdtemp(prefix="tvsnap-test-images-", dir="/var/tmp")
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    os.environ["TVSNAP_TEST_IMAGES"] = directory


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names bytes by their argument: what gzip made holds the time of day, and all workers must find the same tests."""
    return argname if isinstance(val, bytes) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("short") and is_left_whole(collection_path) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("short"):
        short = [item for item in items if is_short(item)]
        config.hook.pytest_deselected(items=[item for item in items if not is_short(item)])
        items[:] = short
    items.sort(key=lambda item: ORDER.index(item.path.relative_to(TESTS).parts[0]))


def pytest_collection_finish() -> None:
    """Spares the garbage collector looking again and again at all tests and modules that were collected."""
    gc.collect()
    gc.freeze()


class FilesWhole(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Where tests run side by side (`-n 3`), a file is one worker's, for which it makes things once.

    Tests of the conformance suite go one by one to whoever is free, and come last: all workers end at the same time.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        one_by_one = file.startswith("tests/conformance/") and file not in WITH_IMAGES
        return nodeid if one_by_one else file


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three workers a processor: most tests wait for programs and disks a good part of their time.

    Those without sandboxes hardly wait, and each worker imports all that is tested: of these, one more than processors.
    """
    processors = len(os.sched_getaffinity(0))
    return min(processors + 1 if _are_without_root(config) else 3 * processors, MOST_WORKERS)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesWhole:
    config.option.loadscopereorder = False
    return FilesWhole(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    home = getattr(item, "funcargs", {}).get("tvsnap_home")
    if report.failed and home:
        report.sections.append(("the data directory, which is kept", str(home)))
    return report


@pytest.fixture(scope="session")
def tvsnap_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory for the session; `TVSNAP_TEST_HOME` names one to keep, which spares building images."""
    kept = os.environ.get("TVSNAP_TEST_HOME")
    if kept:
        path = Path(kept).absolute()
        path.mkdir(parents=True, exist_ok=True)
        yield path
        return
    path = tmp_path_factory.mktemp("tvsnap-home")
    yield path
    if not request.session.testsfailed:
        shutil.rmtree(path, ignore_errors=True)  # pytest would keep three, with an image each


@pytest.fixture(scope="session")
def terminal_image(tvsnap_home: Path) -> Image:
    """The image `terminal`, in the session's data directory.

    `TVSNAP_TEST_IMAGES` names a directory in which several sessions, one after another or side by side, build it once.
    """
    from tvsnap.images import ImageStore

    source = Path(__file__).parents[1] / "images" / "terminal"
    shared = os.environ.get("TVSNAP_TEST_IMAGES")
    try:
        if shared and not (tvsnap_home / "images").exists():
            for name in ("images", "cache"):
                directory = Path(shared).absolute() / name
                directory.mkdir(parents=True, exist_ok=True)
                (tvsnap_home / name).symlink_to(directory)
        return ImageStore(tvsnap_home).build(source)
    except MachineLacks as lack:
        pytest.skip(str(lack))


@pytest.fixture(scope="session")
def packages_kept(tvsnap_home: Path) -> Path:
    """A data directory's `cache`, with what builds of Debian systems keep for later ones; to be linked to."""
    path = Path(os.environ.get("TVSNAP_TEST_IMAGES") or tvsnap_home).absolute() / "cache"
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[str]:
    """The address of a Docker Engine, to which DOCKER_HOST points for the rest of the session."""
    from tests import engine

    with engine.docker_engine() as address:
        yield address


@pytest.fixture
def proofs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two executions of a call prove that it is reproducible however soon one follows the other."""
    monkeypatch.setattr(edges, "PROOF_APART", 0.0)


@pytest.fixture(autouse=True, scope="module")
def idle_processors() -> Iterator[None]:
    """Lets caches of this process find processors idle, so that no test depends on what else the machine does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Processors, "short", False)
        yield


@pytest.fixture
def short_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets caches of this process find processors short."""
    monkeypatch.setattr(Processors, "short", True)


@pytest.fixture
def fake_backend() -> Iterator[FakeBackend]:
    """A fresh fake backend."""
    backend = FakeBackend()
    yield backend
    backend.close()


@pytest.fixture
def fake_terminal() -> Image:
    """An image that the fake backend can start."""
    return fake_image()
