"""Fixtures shared by every test package."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Every run uses the same few examples, so that a failure is caused by a change and not by chance; `make fuzz`
# tries new examples. The duration of an example depends on the load of the machine.
UNHURRIED = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("steady", derandomize=True, max_examples=30, **UNHURRIED)
hypothesis.settings.register_profile("fuzz", derandomize=False, print_blob=True, **UNHURRIED)
hypothesis.settings.load_profile("steady")

# If a shell runs the tests in the background, the tests and their child processes ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files of tests need not survive a crash of the machine, and a sync waits for all pending writes.
os.fsync = lambda _descriptor: None

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude modules and tests from garbage collection, because they live until the end of the session."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Repeat a failed test of real processes or a browser once: the machine decides on their schedule.

    The summary lists every repeated test. Files with such tests run first, so that no worker starts a long
    file when the other workers are done.
    """
    long_files = set()
    for item in items:
        if any(item.get_closest_marker(name) for name in ("browser", "dask", "torch")):
            item.add_marker(pytest.mark.flaky(reruns=1))
            long_files.add(item.path)
    items.sort(key=lambda item: item.path not in long_files)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """End processes that tests leave running, such as the jobs of an aborted test."""
    from processes import ended_with_us

    with ended_with_us():
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of test data kept in the project."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of large reference data next to the checkout, or skip the test without it."""
    folder = ROOT.parent / "shared"
    if not (folder / "reference").is_dir():
        pytest.skip("the reference data beside the checkout (../shared) is absent")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return one Chromium for all tests, or skip the test without it."""
    api = pytest.importorskip("playwright.sync_api")
    # The headless shell draws no user interface: the tests need a fifth less CPU time.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium: install Debian's chromium-headless-shell or chromium")
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Return a Dask cluster of two worker processes on loopback."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed (the extra [dask])")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    ) as cluster:
        yield cluster


@pytest.fixture
def made(monkeypatch):
    """The ranks that this process converted, in order."""
    from chakrascope.converter.building import _workers

    ranks, convert_rank = [], _workers.rank_graph

    def counted(opened, *others):
        ranks.append(opened.traces.rank)
        return convert_rank(opened, *others)

    monkeypatch.setattr(_workers, "rank_graph", counted)
    return ranks
