"""Strict, repeatable surroundings for every test: one thread, fixed seeds, no display; devices and data, or a skip.

A machine with a GPU may have no more than torch, numpy and pytest: nothing else is needed to collect the tests marked
`cuda`. Test files that do need more are skipped where it is missing.
"""

import contextlib
import gc
import importlib.util
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("DENIZEN_DEVICE", "cpu")  # also where there is a GPU: tests of it say device="cuda"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images set it: a hundred processes would compile the same files anew

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

torch.set_num_threads(1)

if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    # Compilation and a loaded machine make single examples slow without being wrong, hence no deadline.
    settings.register_profile("dev", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
    settings.load_profile("ci" if os.environ.get("CI") else "dev")

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))  # for what several folders share, such as `trainings`

from browser import chromium as chromium  # noqa: E402
from browser import page as page  # noqa: E402
from inside import Inside as Inside  # noqa: E402
from inside import inside as inside  # noqa: E402

if os.environ.get("TRITON_INTERPRET") == "1":
    from quick_interpreter import hasten

    hasten()

DATA_VARIABLE = "DENIZEN_DATA_ROOT"
# What the extras of pyproject.toml bring, `dev` among them; the core without the command line needs none of it.
OPTIONAL = {
    "gymnasium",
    "hypothesis",
    "matplotlib",
    "httpx2",
    "networkx",
    "numba",
    "pandas",
    "pettingzoo",
    "polars",
    "pyarrow",
    "scipy",
    "stable_baselines3",
    "starlette",
    "sybil",
    "tyro",
    "uvicorn",
    "yaml",
    "zarr",
}


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Know the option `timeout` of pyproject.toml where pytest-timeout is missing: an unknown one is an error."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds for a test; needs pytest-timeout")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Test files of one name in several folders need this mode, also where `addopts` is overridden."""
    config.option.importmode = "importlib"
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): a longer limit; needs pytest-timeout")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Skip a test file that imports what only an extra brings, where that extra is not installed."""
    report = yield
    if report.failed:
        missing = re.search(r"No module named '(\w+)", str(report.longrepr))
        if missing and missing[1] in OPTIONAL:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"Skipped: {missing[1]} is not installed")
    return report


@contextlib.contextmanager
def _skipped_with_cuda() -> Iterator[None]:
    """Skip the test that takes the simulated device where there is CUDA, which rules it out."""
    from denizen.errors import DenizenError

    try:
        yield
    except DenizenError as error:
        if "the simulated device is for machines without a GPU" not in str(error):
            raise
        pytest.skip("needs the simulated device, which CUDA rules out")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Iterator[object]:
    """A fixture may take the simulated device."""
    with _skipped_with_cuda():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """So may a test."""
    with _skipped_with_cuda():
        return (yield)


def find_data_root() -> tuple[Path | None, str]:
    """The folder of public data files, or None and the reason to skip."""
    named = os.environ.get(DATA_VARIABLE)
    root = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if root.is_dir():
        return root, ""
    return None, f"no real data: {root} is absent (set {DATA_VARIABLE} to a folder with astoria/, sample/, nyc/)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and say why; `-m cuda` leaves slow tests to `-m "cuda and slow"`."""
    root, reason = find_data_root()
    wanted = config.option.markexpr
    only_quick = re.search(r"(?<!not )\bcuda\b", wanted) and "slow" not in wanted  # "not cuda" asks for none of them
    for item in items:
        if only_quick and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason='slow: run with -m "cuda and slow"'))
        if root is None and item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device: torch.cuda.is_available() is False"))


# What is frozen below does not count as old, so the collector looked through all that is young again and again: that
# took an eighth of all time. A test that asks what is left behind collects by itself.
gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _settled() -> None:
    """The collector passes over what was there before a test file: torch's modules took it a sixth of all time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Whatever was passed over is freed at the end, as libraries expect that count what they leak."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same global seeds before each test, for tests that draw their inputs without naming a generator."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - it is the global generator that has to be fixed
    torch.manual_seed(0)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the parent had it ignored, as the shell does for `nohup … &`.

    Processes that are started within take the same: what is ignored is inherited, a handler is not.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Every test may send an interrupt to itself and to what it starts."""
    with _interruptible():
        yield _interruptible


@contextlib.contextmanager
def _no_waits(mode: str = "error") -> Iterator[None]:
    try:
        with warnings.catch_warnings():  # an error here would leave the mode set for all later tests
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode(mode)
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def no_waits() -> Callable[..., contextlib.AbstractContextManager[None]]:
    """`with no_waits():` torch refuses there what waits for the GPU."""
    return _no_waits


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Runs a test on the CPU and, marked `cuda`, on a GPU."""
    return torch.device(request.param)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the public data files (astoria/, sample/, nyc/); skips the test where it is absent."""
    root, reason = find_data_root()
    if root is None:
        pytest.skip(reason)
    return root


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`command_line("train", …)`: the command `denizen` with these words; its exit code, output and errors."""
    from denizen import app

    def call(*words: Any) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["denizen", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            app.main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.fixture
def saves_always(inside: Inside) -> None:
    """Runs save whenever they could."""
    inside.saves_always()


@pytest.fixture(scope="session")
def prepared() -> Callable[..., None]:
    """`prepared("train", …)`: run a command that ends well, for fixtures that serve a whole file."""
    from denizen import app

    def call(*words: Any) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "argv", ["denizen", *map(str, words)])
            with pytest.raises(SystemExit) as stop:
                app.main()
        signal.signal(signal.SIGTERM, handler)
        assert not stop.value.code

    return call
