#!/usr/bin/env python3
"""Take the screenshots in docs/images: ``python scripts/screenshots.py [STUDY] [--only NAME]``.

Without STUDY, simulates the capture that ships with the package first. Needs the packages of the extra "dev"
and Debian's chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from chakrascope.runner import Study, describe_study
from chakrascope.viewer import write_report

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
CLI = [sys.executable, "-m", "chakrascope.cli"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-headless-shell")
DEADLINE_MS = 300_000
VIEWPORT = {"width": 1440, "height": 900}
# name of the image -> path, required element of the page, dark scheme, height
SHOTS: dict[str, tuple[str, str, bool, int]] = {
    "summary": ("/", "#rank-bars .main-svg", False, 1000),
    "critical-path": ("/critical-path", "#segments-table .ag-row", False, 1240),
    "timeline": ("/timeline", "#timeline[data-slices]", True, 900),
    "graph": ("/graph", "#graph canvas", True, 900),
    "network": ("/network", "#collectives-table .ag-row", False, 1560),
    "compare": ("/compare", "#node-differences-table .ag-row", False, 1260),
    "diff": ("/diff", "#diff-go", False, 1180),
    "query": ("/query", "#query-go", True, 900),
    "sweep": ("/sweep", "#sweep-table .ag-row, #page code", False, 1000),
    "runs": ("/runs", "#runs-table .ag-row, #page code", False, 620),
    "new-run": ("/new-run", "#new-start:not([disabled])", False, 1240),
}
# Elements that appear when a page with a request has its answer.
ASKED = {"diff": "#diff-operators-table .ag-row", "query": "#query-table .ag-row"}
# Screenshots of several studies on one server, with a folder to import from.
OF_SEVERAL: dict[str, tuple[str, str, bool, int]] = {
    "studies": ("/", "#studies-table .ag-row", False, 420),
    "import": ("/study/ddp-transformer/import", "#imports-table .ag-row", False, 900),
}


def make_study(folder: Path) -> Path:
    """Simulate the capture that ships with the package as measured and on 16 hosts; returns the study."""
    study = folder / "study"
    backends = ["--backend", "replay", "--backend", "analytical-unaware", "--backend", "analytical-aware"]
    axes = ["network.bandwidth=0.125,0.5,1,4", "network.npus_count=2,8,32", "network.latency=1000,20000"]
    over = [part for axis in axes for part in ("--over", axis)]
    network = ["--network", "cpu-cluster-16"]
    commands = (
        ["demo", "-o", str(study), "--no-view"],
        ["run", str(study), *network, *backends],
        ["sweep", str(study), *network, "--keep", "0", *over],
    )
    for command in commands:
        subprocess.run([*CLI, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return study


@contextmanager
def serving(study: Path, *options: str) -> Iterator[str]:
    """Serve *study* while the block runs, and yield the address."""
    command = [*CLI, "view", str(study), "--no-token", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline() if server.stdout else ""
        found = re.search(r"http://\S+?(?=/?\s)", line)
        if found is None:
            raise SystemExit(f"The viewer printed no address but: {line!r}")
        yield found.group(0)
    finally:
        server.terminate()
        server.wait()


def show_longest_collective(page: Page, address: str) -> str:
    """Select the collective with the largest share of the path, and return the query of the address."""
    page.goto(f"{address}/network")
    page.wait_for_selector("#collectives-table .ag-row")
    page.locator("#collectives-table .ag-row").last.click()
    page.wait_for_url("**node=*")
    return "?" + page.url.partition("?")[2]


def several_studies(study: Path, folder: Path) -> Path:
    """Copy *study* into *folder* under typical names of studies; return *folder*."""
    for name, note, tags in (
        ("ddp-transformer", "The example job on two ranks", ["example", "cpu"]),
        ("ddp-transformer-tuned", "Larger buckets, asked for on Monday", ["example", "tuned"]),
    ):
        shutil.copytree(study, folder / name)
        describe_study(Study.open(folder / name), note=note, tags=tags)
    Study.create(folder / "customer-a100")
    return folder


def take(page: Page, address: str, query: str, name: str) -> None:
    """Take the screenshot called *name*."""
    path, ready, dark, height = (SHOTS | OF_SEVERAL)[name]
    page.set_viewport_size({**VIEWPORT, "height": height})
    page.goto(address + path + query)
    page.locator("#dark").set_checked(dark, force=True)
    page.wait_for_selector(ready, state="attached")
    if name == "import":
        page.locator("#imports-table .ag-row").first.click()
    if name == "timeline":
        page.wait_for_function("() => document.getElementById('timeline').timeline.showsCalls")
    if name in ASKED:
        page.locator(ready).click()
        page.wait_for_selector(ASKED[name], state="attached")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1000)
    page.screenshot(path=IMAGES / f"{name}.png")


def take_report(page: Page, study: Path, folder: Path) -> None:
    """Take the screenshot of the report of the newest run."""
    page.set_viewport_size({**VIEWPORT, "height": 1100})
    page.goto(write_report(Study.open(study), None, folder / "report.html").as_uri())
    page.screenshot(path=IMAGES / "report.png")


def main() -> None:
    """Take every screenshot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", nargs="?", type=Path)
    parser.add_argument("--only", action="append", choices=[*SHOTS, *OF_SEVERAL, "report"], metavar="NAME")
    arguments = parser.parse_args()
    given, wanted = arguments.study, arguments.only or [*SHOTS, *OF_SEVERAL, "report"]
    IMAGES.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-gpu"]}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        study = given or make_study(Path(name))
        with serving(study) as address:
            browser = play.chromium.launch(**options)
            page = browser.new_page(viewport=VIEWPORT)
            page.set_default_timeout(DEADLINE_MS)
            query = show_longest_collective(page, address)
            for shot in [shot for shot in SHOTS if shot in wanted]:
                take(page, address, query, shot)
            if "report" in wanted:
                take_report(page, study, Path(name))
        studies = several_studies(study, Path(name) / "studies")
        with serving(studies, "--import-from", str(study)) as address:
            for shot in [shot for shot in OF_SEVERAL if shot in wanted]:
                take(page, address, "", shot)
            browser.close()
    for file in sorted(IMAGES.glob("*.png")):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
