"""Read corrupt files for a while, and store each file that causes a crash instead of an error.

    python tests/fuzz --seconds 3600                 every reader
    python tests/fuzz --seconds 60 --only et,study   these
    python tests/fuzz --again build/fuzz/et-1a2b3c   a stored file, with its traceback

A worker reads the files, so that crashes of the process, timeouts and excessive memory are reported like
other crashes. The same ``--seed`` gives the same inputs.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import os
import random
import resource
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

LIMIT_S = 20.0
MEMORY = 2 << 30
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Replace the content of *folder* by *files*."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def outcome(use, folder: Path) -> tuple[str, str]:
    """Return the outcome of *use* on *folder*, with the traceback of a crash."""
    from chakrascope.errors import ChakrascopeError

    try:
        use(folder)
    except ChakrascopeError as error:
        if len(error.message) > 20_000:
            return "crash", f"a message of {len(error.message)} characters\n{error.message[:500]}"
        return type(error).__name__, ""
    except Exception:
        return "crash", traceback.format_exc()
    return "read", ""


def limit_memory() -> None:
    """Limit the additional memory of this process to `MEMORY`, except under sanitizers."""
    if not SANITIZED:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def work(work_dir: Path, names: list[str], seed: int, until: float, most: int) -> None:
    """Read at most *most* damaged files until *until*; a line on stdout says how each input ended."""
    from mutate import damaged
    from targets import TARGETS, saved_cases

    faulthandler.enable()
    limit_memory()
    random_ = random.Random(seed)
    seeds = {}
    for name in names:
        seeds[name] = TARGETS[name].seeds() + list(saved_cases(name).values())
    weights = [TARGETS[name].weight for name in names]
    for _ in range(most):
        if time.time() >= until:
            break
        name = random_.choices(names, weights)[0]
        target, files = TARGETS[name], dict(random_.choice(seeds[name]))
        changed = random_.choice([each for each in files if not target.changed or each in target.changed])
        files[changed] = damaged(changed, files[changed], random_)
        inputs = work_dir / "input"
        write(inputs, files)
        write(work_dir / "kept", files)
        (work_dir / "target").write_text(name, encoding="utf-8")
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        ended, text = outcome(target.use, inputs)
        faulthandler.cancel_dump_traceback_later()
        if text:
            keep(work_dir, text)
        print(name, ended, flush=True)


def keep(work_dir: Path, text: str) -> None:
    """Store the input and its outcome, unless an input with the same place of failure is stored."""
    lines = [line for line in text.splitlines() if line.strip().startswith("File ")]
    name = (work_dir / "target").read_text(encoding="utf-8")
    last = [line for line in lines if "/fuzz/" not in line][-3:] or text.splitlines()[-1:]
    place = f"{name}-{hashlib.sha256(''.join(last).encode()).hexdigest()[:8]}"
    folder = work_dir.parent / place
    if folder.exists():
        return
    shutil.copytree(work_dir / "kept", folder / "input")
    (folder / "target").write_text(name, encoding="utf-8")
    (folder / "traceback.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
    print(
        f"{place}: {text.strip().splitlines()[-1][:200]}\n  Again: python tests/fuzz --again {folder}",
        file=sys.stderr,
    )


def again(folder: Path) -> int:
    """Read a stored input again; return 1 if it still crashes."""
    from targets import TARGETS

    faulthandler.enable()
    limit_memory()
    copy = folder / "again"
    write(copy, {str(f.relative_to(folder / "input")): f.read_bytes()
                 for f in (folder / "input").rglob("*") if f.is_file()})  # fmt: skip
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    ended, text = outcome(TARGETS[(folder / "target").read_text(encoding="utf-8")].use, copy)
    shutil.rmtree(copy)
    print(text or f"Ends in: {ended}")
    return bool(text)


def fuzz(seconds: float, out: Path, names: list[str], seed: int, most: int) -> int:
    """Run workers in turn for *seconds* or *most* inputs, print counts, and return 1 if anything crashed."""
    until, counts, work_dir = time.time() + seconds, Counter(), out / "worker"
    work_dir.mkdir(parents=True, exist_ok=True)
    number = 0
    while time.time() < until and counts.total() < most:
        with open(work_dir / "stderr", "w", encoding="utf-8") as errors:
            command = [sys.executable, __file__, "--worker", str(seed + number), "--until", str(until)]
            command += ["--out", str(out), "--only", ",".join(names), "--inputs", str(most - counts.total())]
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert worker.stdout is not None
            for line in worker.stdout:
                name, ended = line.split()
                counts[name, ended] += 1
            worker.wait()
        text = (work_dir / "stderr").read_text(encoding="utf-8", errors="replace")
        print(text[-4000:], end="", file=sys.stderr)
        number += 1
        if worker.returncode:
            if not (work_dir / "kept").exists():
                return 2
            name = (work_dir / "target").read_text(encoding="utf-8")
            counts[name, "crash"] += 1
            keep(work_dir, f"{text}\nThe worker ended with {worker.returncode}, or ran {LIMIT_S} s.")
    shutil.rmtree(work_dir)
    report(counts, names)
    return bool(sum(count for (_, ended), count in counts.items() if ended == "crash"))


def report(counts: Counter, names: list[str]) -> None:
    """Print the number of inputs by reader and outcome."""
    print(f"{'reader':12}{'inputs':>9}{'read':>9}{'refused':>9}{'crashes':>9}  errors")
    for name in [*names, "all"]:
        own = Counter()
        for (target, ended), count in counts.items():
            own[ended] += count * (name in {target, "all"})
        refused = {ended: count for ended, count in own.items() if ended not in {"read", "crash"} and count}
        told = ", ".join(f"{ended} {count}" for ended, count in sorted(refused.items()))
        totals = (own.total(), own["read"], sum(refused.values()), own["crash"])
        print(f"{name:12}" + "".join(f"{each:>9}" for each in totals) + f"  {told}")


def main() -> int:
    """Read the command line, and fuzz or repeat a stored input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="end after so many, too")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--only", default="", help="readers, with commas between")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--again", type=Path, metavar="FOLDER")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.again:
        return again(asked.again)
    from targets import TARGETS

    names = asked.only.split(",") if asked.only else list(TARGETS)
    if asked.worker is not None:
        work(asked.out / "worker", names, asked.worker, asked.until, asked.inputs)
        return 0
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    print(
        f"Seed {seed}, {asked.seconds:g} s, {len(names)} readers; crashes are kept in {asked.out}", flush=True
    )
    return fuzz(asked.seconds, asked.out, names, seed, asked.inputs)


if __name__ == "__main__":
    sys.exit(main())
