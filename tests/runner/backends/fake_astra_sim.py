"""Stands in for ASTRA-sim's program: takes its options, runs nothing, and speaks its log format.

FAKE_MODE says how to behave, FAKE_NODES (JSON) is a list of [rank, node, start, end]. FAKE_FILES (JSON) are
texts by the settings of config.txt that name where ns-3 writes them, FAKE_LINES (JSON) lines for its output.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

STAMP = "[2026-03-01 12:00:00.123]"
mode = os.environ.get("FAKE_MODE", "ok")
nodes = json.loads(os.environ.get("FAKE_NODES", "[]"))
options = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
prefix = options["--workload-configuration"]
system = json.loads(Path(options["--system-configuration"]).read_text())
Path(options["--remote-memory-configuration"]).read_text()
Path(options["--network-configuration"]).read_text()
ranks = len(list(Path(prefix).parent.glob(Path(prefix).name + ".*.et")))

if os.environ.get("FAKE_PID_FILE"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    written = Path(os.environ["FAKE_PID_FILE"]).with_suffix(".tmp")
    written.write_text(f"{os.getpid()} {child.pid}")
    written.rename(os.environ["FAKE_PID_FILE"])
if os.environ.get("FAKE_COPY"):
    seen = {"options": sys.argv[1:], "system": system}
    Path(os.environ["FAKE_COPY"]).write_text(json.dumps(seen))


for line in json.loads(os.environ.get("FAKE_LINES", "[]")):
    print(line, flush=True)
for key, text in json.loads(os.environ.get("FAKE_FILES", "{}")).items():
    words = Path(options["--network-configuration"]).read_text().split()
    Path(words[words.index(key) + 1]).write_text(text)


def say(logger, text, level="info"):
    print(f"{STAMP} [{logger}] [{level}] {text}", flush=True)


def finish(rank):
    mine = [node for node in nodes if node[0] == rank]
    end = max((node[3] for node in mine), default=1)
    say("workload", f"sys[{rank}] finished, {end} cycles, exposed communication {end} cycles.")
    say("statistics", f"sys[{rank}]. Post statistics processing start.")
    say("statistics", f"sys[{rank}], Wall time: {end}")
    say("statistics", f"sys[{rank}], GPU time: 7")
    say("statistics", f"sys[{rank}], Comm time: 5")


def trace():
    Path("log").mkdir(exist_ok=True)
    with open("log/log.log", "w", encoding="utf-8") as file:
        if system.get("trace-enabled"):
            events = [(start, 0, "issue", rank, node) for rank, node, start, end in nodes]
            events += [(end, 1, "callback", rank, node) for rank, node, start, end in nodes if end >= 0]
            for tick, _, what, rank, node in sorted(events):
                text = f"{what},sys->id={rank}, tick={tick}, node->id={node}, node->name=n, node->type=4"
                file.write(f"{STAMP} [workload] [debug] {text}\n")


if mode == "hang":
    say("workload", "sys[0] finished, 5 cycles, exposed communication 0 cycles.")
    time.sleep(600)
elif mode == "flood":
    block = ("x" * 1000 + "\n") * 1000
    while True:
        sys.stdout.write(block)
elif mode == "flood-without-lines":
    while True:
        sys.stdout.write("y" * 1_000_000)
elif mode == "abort":
    print("terminate called after throwing an instance of 'std::runtime_error'", file=sys.stderr)
    print("  what():  Node 7 in data_dep graph, but not found in index", file=sys.stderr, flush=True)
    os.abort()
elif mode == "exit":
    say("system", "unknown value for scheduling policy in sys input file", "critical")
    sys.exit(1)
elif mode == "killed":
    os.kill(os.getpid(), 9)
elif mode == "silent":
    sys.exit(0)
elif mode == "strange":
    say("workload", f"sys[{ranks + 3}] finished, 1 cycles, exposed communication 0 cycles.")
elif mode == "overflow":
    say("workload", f"sys[0] finished, {1 << 63} cycles, exposed communication 0 cycles.")
elif mode == "stall":
    trace()
    finish(0)
elif mode == "no-trace":
    for rank in range(ranks):
        finish(rank)
elif mode == "wrap":
    trace()
    for rank in range(ranks):
        say("workload", f"sys[{rank}] finished, 7 cycles, exposed communication {(1 << 64) - 3} cycles.")
elif mode == "leaves-child":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    trace()
    for rank in range(ranks):
        finish(rank)
else:
    trace()
    for rank in range(ranks):
        finish(rank)
