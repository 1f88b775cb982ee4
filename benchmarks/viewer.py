#!/usr/bin/env python3
"""Measure the viewer in a real browser: ``python benchmarks/viewer.py STUDY [--json FILE]``.

For the default run of STUDY, the benchmark prints the time until the first page shows that the run is being
read, its headline and its charts; the time until each page shows its content, in a new browser and in a
browser that has cached the scripts; the transferred bytes of the first load; the time to load a window of the
timeline; the frames per second while the timeline moves, and its response time to keys, with nested rows of
all ranks and all host calls of a capture; and the memory of the server. Needs Debian's chromium.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

PAGES = {
    "/": "#rank-bars .main-svg",
    "/critical-path": "#segments-table .ag-row",
    "/timeline": "#timeline[data-slices]",
    "/graph": "#graph canvas",
    "/network": "#collectives-table .ag-row",
    "/compare": "#page h2",
    "/sweep": "#sweep-plan *, #sweep-table .ag-row",
    "/runs": "#runs-table .ag-row",
    "/new-run": "#findings .finding",
}
PEEK = 5
LONG_S, LONGEST_MS = 5.0, 300_000
# Separate rows for every rank: phases, modules, operators, and the host calls of a capture.
NESTED = "/timeline?rows=nested&same=apart&measured=1&calls=1&fit=off"
# Moves the window by a few pixels per frame for a given time, and counts the frames.
FRAMES = """([zoom, seconds]) => new Promise((resolve) => {
  const view = document.getElementById("timeline").timeline.view, middle = view.makespan / 2;
  view.window(middle - view.makespan / zoom / 2, middle + view.makespan / zoom / 2);
  setTimeout(() => {
    const begin = performance.now();
    let count = 0;
    const frame = () => {
      view.pan(count % 2 ? -7 : 7);
      count += 1;
      const passed = performance.now() - begin;
      if (passed < 1000 * seconds) { requestAnimationFrame(frame); } else { resolve(1000 * count / passed); }
    };
    requestAnimationFrame(frame);
  }, 1500);
})"""
# The time from a key press to the frame that shows its effect.
ANSWER = """(key) => new Promise((resolve) => {
  const begin = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - begin), 0));
})"""
KEYS = ("w", "s", "a", "d", "ArrowDown", "ArrowUp", "p", "f")


def first_load(browser: Browser, address: str) -> tuple[float, float, float, int]:
    """Return three times (s) and the transferred bytes of the summary in a new browser.

    The times are until the frame shows that the run is being read (or shows the page), until the headline,
    and until the charts.
    """
    context = browser.new_context()
    page = context.new_page()
    client = context.new_cdp_session(page)
    client.send("Network.enable")
    received = [0]
    client.on(
        "Network.loadingFinished",
        lambda event: received.__setitem__(0, received[0] + event["encodedDataLength"]),
    )
    start = time.perf_counter()
    page.goto(f"{address}/", wait_until="commit")
    page.wait_for_selector("#loading, #headline")
    frame = time.perf_counter() - start
    page.wait_for_selector("#headline", timeout=LONGEST_MS)
    headline = time.perf_counter() - start
    page.wait_for_selector(PAGES["/"], state="attached")
    seconds = time.perf_counter() - start
    page.wait_for_load_state("networkidle", timeout=LONGEST_MS)
    context.close()
    return frame, headline, seconds, int(received[0])


def first_timeline(browser: Browser, address: str) -> float:
    """Return the seconds until a new browser shows the first picture of the timeline."""
    page = browser.new_context().new_page()
    seconds = timed(page, address, "/timeline")
    page.context.close()
    return seconds


def timed(page: Any, address: str, path: str) -> float:
    """Return the seconds until the page *path* shows its content."""
    start = time.perf_counter()
    page.goto(address + path)
    page.wait_for_selector(PAGES[path], state="attached", timeout=LONGEST_MS)
    return time.perf_counter() - start


def shortest(page: Any, address: str, path: str) -> float:
    """Return the shortest time of a few visits to *path*; slow pages are visited once."""
    times = [timed(page, address, path)]
    while len(times) < PEEK and times[0] < LONG_S:
        times.append(timed(page, address, path))
    return min(times)


def timeline_figures(page: Any, address: str) -> dict[str, Any]:
    """Return frames per second at several zooms, and the ms until keys and jumps to hits are answered."""
    page.goto(address + NESTED)
    page.wait_for_selector("#timeline[data-slices]")
    page.wait_for_function("() => !document.body.textContent.includes('being read')", timeout=LONGEST_MS)
    page.wait_for_timeout(1000)
    frames = {f"x{zoom}": round(page.evaluate(FRAMES, [zoom, 2]), 1) for zoom in (1, 10, 100, 1000)}
    keys = {key: round(max(page.evaluate(ANSWER, key) for _ in range(PEEK)), 1) for key in KEYS}
    moves = walk(page)
    page.keyboard.press("/")
    page.keyboard.type("aten::mm", delay=40)
    page.wait_for_selector("#timeline[data-found]", timeout=LONGEST_MS)
    steps = []
    for _ in range(PEEK):
        before = page.get_attribute("#timeline", "data-selected")
        start = time.perf_counter()
        page.keyboard.press("Enter")
        page.wait_for_selector(f"#timeline[data-selected]:not([data-selected='{before}'])")
        steps.append(1000 * (time.perf_counter() - start))
    rows = int(page.get_attribute("#timeline", "data-rows") or 0)
    every = "document.getElementById('timeline').timeline.rows.all"
    calls = page.evaluate(f"{every}.filter((row) => row.thread).length")
    return {"rows": rows, "call_rows": calls, "frames_per_s": frames, "keys_ms": keys, "moves_ms": moves,
            "next_hit_ms": [round(step, 1) for step in steps]}  # fmt: skip


def walk(page: Any) -> dict[str, float]:
    """Return the ms until another node is selected, and until other ranks and windows are drawn."""
    page.wait_for_timeout(1000)
    page.keyboard.press(".")
    page.wait_for_selector("#timeline[data-selected*=':']")
    moves: dict[str, list[float]] = {}
    for key in (".", ".", ".", ".", ",", "[", "[", "]"):
        page.wait_for_timeout(600)
        before = page.get_attribute("#timeline", "data-selected")
        start = time.perf_counter()
        page.keyboard.press(key)
        page.wait_for_selector(f"#timeline[data-selected]:not([data-selected='{before}'])")
        moves.setdefault(key, []).append(1000 * (time.perf_counter() - start))
    # The timeline waits 90 ms for further keys before it requests missing data.
    for key in ("ArrowDown", "w", "d"):
        for _ in range(PEEK):
            page.evaluate("document.getElementById('timeline').removeAttribute('data-slices')")
            start = time.perf_counter()
            page.keyboard.press(key)
            page.wait_for_selector("#timeline[data-slices]")
            moves.setdefault(f"{key} drawn", []).append(1000 * (time.perf_counter() - start))
    return {key: round(max(times), 1) for key, times in moves.items()}


def window_times(address: str) -> list[float]:
    """Return the server's seconds for windows of the timeline, from the whole run to 1/4096 of it."""
    with urllib.request.urlopen(f"{address}/api/lanes") as reply:
        known = json.load(reply)
    makespan, first = (
        known["makespan_ns"],
        [lane.get("lane", at) for at, lane in enumerate(known["lanes"])][:40],
    )
    lanes, times = ",".join(map(str, first)), []
    for zoom in (1, 8, 64, 512, 4096):
        query = f"t0={makespan // 3}&t1={makespan // 3 + makespan // zoom}&px=3600&lanes={lanes}&nested=1"
        start = time.perf_counter()
        with urllib.request.urlopen(f"{address}/api/slices?{query}") as reply:
            reply.read()
        times.append(time.perf_counter() - start)
    return times


def memory(pid: int) -> dict[str, int]:
    """Return the current and the peak memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {
        name: int(found.group(1)) // 1000
        for name, key in (("now_mb", "VmRSS"), ("highest_mb", "VmHWM"))
        if (found := re.search(rf"{key}:\s+(\d+) kB", status))
    }


def measure(address: str, pid: int) -> dict[str, Any]:
    """Return all figures of the viewer at *address*."""
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        frame, headline, seconds, received = first_load(browser, address)
        first = first_timeline(browser, address)
        page = browser.new_context().new_page()
        timed(page, address, "/")
        pages = {path: shortest(page, address, path) for path in PAGES}
        timeline = timeline_figures(page, address)
        browser.close()
    return {
        "first_frame_s": round(frame, 2),
        "first_headline_s": round(headline, 2),
        "first_load_s": round(seconds, 2),
        "first_load_wire_bytes": received,
        "first_timeline_s": round(first, 2),
        "pages_s": {path: round(value, 2) for path, value in pages.items()},
        "timeline": timeline,
        "timeline_window_ms": [round(1000 * value, 1) for value in window_times(address)],
        "server_memory": memory(pid),
    }


def main() -> None:
    """Serve the study, measure the viewer, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "chakrascope.cli",
        "view",
        str(options.study),
        "--no-token",
        "--port",
        "0",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline() if server.stdout else ""
        address = re.search(r"http://[^\s/]+", line)
        if address is None:
            raise SystemExit(f"The viewer printed no address but: {line!r}")
        figures = measure(address.group(0), server.pid)
    finally:
        server.terminate()
        server.wait()
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
