"""Generate the hostile calls of `commands.py`, and the folder of small files for them."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import os
import pkgutil
import random
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

__all__ = ["ROOM_BYTES", "Call", "commands_of", "import_packages", "make_call", "make_template"]

ROOM_BYTES = 600  # of a file on the full disk
_DATA = Path(__file__).parents[1] / "data"
# Values that a user or a buggy script may pass as a word, a number or a file.
_WORDS = (
    *("", "x", "-", "--", "-1", "0", "1", "2.5", "1e30", "-1e30", "nan", "inf", "1e-320", "0x10", "1_000"),
    *("9" * 19, "9" * 30, "9" * 5000, str(2**31), str(2**63), str(2**64), "100000000", "1000000000000"),
    *(
        "²",
        "a=²",
        "²=1",
        "None",
        "true",
        "[",
        "]",
        "{}",
        "[bold]",
        "=",
        "a=",
        "=1",
        "a=b=c",
        ":",
        "a:b",
        ":::",
        ",",
        ",,",
        "1,2",
    ),
    *("@", "study@", "@all", "*", "%", "%s", "{0}", "$HOME", "~", "~x", "#", "\n", "\t", " ", "\x1b[31m"),
    *("\u202e", "é" * 300, "x" * 300, "x" * 5000, "\udcff", "../victim", "a/b", ".", "..", "1GB", "1e9GB"),
    *("-5ms", "1e300s", "10Gbit", "'", '"', ";", "select", "0-1", "5-1", "0/0-99", "operator:x=2", "x=1e400"),
)
_NUMBERS = ("-1", "0", "1", "3", "1000", "100000000", str(2**31), str(2**63), "9" * 30)
_PATHS = (
    *("missing", "missing/below", "empty", "binary", "folder", "cut.yml", "cut.json", "cut", "cut-study"),
    *("deep.json", "bomb.yml", "n\udcff.yml", "loop", "dangling", "locked", "locked-folder", "/dev/null"),
    *("/dev/full", "", ".", "..", "x" * 300, "study/study.json", "study/runs", "empty/below"),
    *("../victim", "~", "job.0.et", "net.yml", "study", "job", "-"),
)
_MODES = (*["plain"] * 12, *["full"] * 3, *["read-only"] * 3, *["pipe"] * 2)
# Valid values of options, so that calls get past the parsing of other options.
_GOOD = {
    "activation": ("1MiB",),
    "against": ("ranks", "network.bandwidth"),
    "algorithm": ("all-reduce=ring", "all-reduce=program.xml"),
    "at_most": ("ranks=4",),
    "backend": ("analytical-unaware", "analytical-aware", "flow", "packet", "auto", "replay", "gpu", "fake"),
    "bandwidth": ("10Gb/s",),
    "between_starts": ("3",),
    "capture_trace": ("captured",),
    "chip": ("h100",),
    "collective": ("all-reduce", "all-gather"),
    "comm_group_configuration": ("groups.json",),
    "compute_ns": ("5us", "0"),
    "drop": ("0/1-2",),
    "each": ("1.5",),
    "error": ("1%",),
    "fail": ("0-1@1us", "0"),
    "fail_if": ("step > +3%",),
    "faster": ("operator:aten::mm=2", "bandwidth:0=2", "kind:compute=inf"),
    "file": ("w.txt",),
    "find": ("mm",),
    "gpus": ("8", "8,16"),
    "label": ("a label",),
    "latency": ("5us",),
    "limit": ("10s", "memory=80GiB"),
    "link_default": ("*:bandwidth=100Gb/s",),
    "listed": ("points.jsonl",),
    "logical_topology": ("logical.json",),
    "machine": ("h100",),
    "memory": ("memory.json",),
    "model": ("config.json", "gpt3-175b"),
    "name": ("again",),
    "network": ("", "ring-2 --print", "net.yml", "ring-2", "cpu-cluster-2"),
    "node": ("3",),
    "over": ("network=ring-2,cpu-cluster-2", "network.bandwidth=1,2", "network.bandwidth=1..9"),
    "precision": ("bf16", "fp8"),
    "price": ("2.5",),
    "ranks": ("2", "4"),
    "run": ("RUN", "measured"),
    "size": ("1MiB", "4096"),
    "steps": ("2",),
    "step": ("all", "0"),
    "system": ("system.json", "default"),
    "tag": ("tag",),
    "timeout": ("5",),
    "workers": ("0", "1", "2"),
    "workload": ("job", "hand-made"),
}
# Valid arguments per command, with options that let the command end at once.
_BASES: dict[str, tuple[str, ...]] = {
    "algorithm export": ("ring --collective all-reduce --ranks 4 -o set", "program.xml -o set"),
    "algorithm inspect": ("ring --collective all-reduce --ranks 4", "program.xml"),
    "algorithm prove": ("ring --collective all-reduce --ranks 4", "program.xml"),
    "calibrate": ("captured", "nccl_trace_rank_0.json", "study"),
    "compare": ("study",),
    "convert": (
        "captured",
        "captured -o out",
        "--host-trace traces/rank0.host.json.gz --device-trace traces/rank0.device.json.gz -o out",
    ),
    "critical-path": ("study",),
    "diagnose": ("study", "nccl_trace_rank_0.json", "operations.csv"),
    "diff": ("study@hand-made study@RUN", "captured captured"),
    "doctor": ("study", "job", "captured", "nccl_trace_rank_0.json"),
    "emulate": ("study --limit 5s", "--workload job --limit 5s"),
    "generate": ("all-reduce --ranks 2 -o made", "text --file w.txt --ranks 2 -o made"),
    "graph": ("study", "job", "study mm", "study --node 3", "job -o out.json"),
    "import": ("new traces", "study traces", "new job", "new nccl"),
    "network": ("", "ring-2 --print", "net.yml", "ring-2 -o out.yml", "config.txt"),
    "predict": ("--model config.json --network cpu-cluster-2 --chip h100",),
    "predict search": ("--model config.json --network cpu-cluster-2 --gpus 2 --simulate 1",),
    "profile": ("-o new -- true", "-o study -- false", "-o new -- missing"),
    "query": ("study --timeout 5", "study --timeout 5 'select 1'", "study --tables"),
    "report": ("study -o out.html",),
    "rescale": ("captured --dp 4", "study --dp 4"),
    "run": ("study", "--workload job --network ring-2", "study --network ring-2 --backend packet"),
    "runs": ("study", "study --jobs", ".", ". --find x", "study --run RUN --label x"),
    "summary": ("study",),
    "sweep": ("study --workers 0 --over network.bandwidth=1,2 --network ring-2", "study --show x"),
    "timeline": ("study", "study -o out.json"),
    "trace": ("-o new -- true", "-o study -- false", "-o new --collect captured"),
    "what-if": ("study", "study --faster operator:aten::mm=2"),
}
# These commands run until they are stopped, or run a script first, so they get invalid arguments only.
_ENDLESS = {"demo": "--port x", "view": "missing"}


@dataclass(frozen=True)
class Call:
    """A call of the command line, and its environment: "plain", "full", "read-only" or "pipe".

    RUN in an argument is the id of the first run of the study.
    """

    arguments: tuple[str, ...]
    mode: str


def import_packages() -> None:
    """Import the packages that most calls need, because the calls are forked from this process."""
    for name in (
        "cli",
        "converter",
        "runner",
        "runner.analysis",
        "runner.analysis.diagnosis",
        "runner.config",
    ):
        package = importlib.import_module(f"chakrascope.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in ("pandas", "pyarrow.parquet", "yaml", "rich.progress"):
        importlib.import_module(name)


def commands_of(only: list[str]) -> dict[str, click.Command]:
    """Return every command that ends on its own, or the commands *only*, by name."""
    from chakrascope.cli import cli

    commands = dict(_walk(cli, ()))
    return {name: command for name, command in commands.items() if not only or name in only}


def _walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if words and (not isinstance(command, click.Group) or command.params):
        yield " ".join(words), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _walk(below, (*words, name))


def make_call(commands: dict[str, click.Command], random_: random.Random) -> Call:
    """Return a call of one of *commands* with one to three hostile arguments."""
    name = random_.choice(list(commands))
    if name in _ENDLESS:
        words = [*_odd_option(commands[name], random_), *_ENDLESS[name].split()]
        return Call((*name.split(), *words), random_.choice(_MODES))
    words = shlex.split(random_.choice(_BASES.get(name, ("study",))))
    if words and random_.random() < 0.4:
        places = [place for place, word in enumerate(words) if word != "--"]
        words[random_.choice(places)] = _hostile(random_)
    options: list[str] = []
    for _ in range(random_.choice((0, 1, 1, 2, 3))):
        options += _odd_option(commands[name], random_)
    before = name in {"trace", "profile"}  # arguments after "--" belong to the script
    return Call((*name.split(), *(options + words if before else words + options)), random_.choice(_MODES))


def _odd_option(command: click.Command, random_: random.Random) -> list[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    option = random_.choice(options)
    flag = random_.choice([each for each in option.opts if each.startswith("--")] or option.opts)
    if option.is_flag:
        return [flag]
    if random_.random() < 0.45:
        choices = option.type.choices if isinstance(option.type, click.Choice) else ()
        good = _GOOD.get(option.name or "", tuple(map(str, choices)))
        if good:
            return [flag, random_.choice(good)]
    if isinstance(option.type, click.types.IntParamType) and random_.random() < 0.7:
        return [flag, random_.choice(_NUMBERS)]
    return [flag, _hostile(random_)]


def _hostile(random_: random.Random) -> str:
    return random_.choice(random_.choice((_WORDS, _PATHS)))


def make_template(folder: Path) -> bool:
    """Make the files of every call in *folder*, in a separate process because this starts threads."""
    pid = os.fork()
    if not pid:
        try:
            folder.mkdir()
            _write_good(folder)
            _write_hostile(folder)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _write_good(folder: Path) -> None:
    import targets
    from studies import make_study, make_workload

    from chakrascope.cli import main
    from chakrascope.runner.config import preset_text

    make_study(folder / "study")
    make_workload().save(folder / "job")
    shutil.copytree(_DATA / "converter" / "ring_2", folder / "traces")
    for name in ("model", "text", "groups", "packet", "flight", "operations", "points", "hosts"):
        for file, content in targets.TARGETS[name].seeds()[0].items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content)
    (folder / "net.yml").write_text(preset_text("network", "ring-2"), "utf-8")
    (folder / "system.json").write_text(preset_text("system", "default"), "utf-8")
    (folder / "memory.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}), "utf-8")
    program = _DATA / "runner" / "programs" / "allgather_ring.xml.gz"
    (folder / "program.xml").write_bytes(gzip.decompress(program.read_bytes()))
    with contextlib.suppress(SystemExit):
        main(["import", str(folder / "captured"), str(folder / "traces"), "."])


def _write_hostile(folder: Path) -> None:
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 20)
    (folder / "folder").mkdir()
    (folder / "cut.yml").write_bytes((folder / "net.yml").read_bytes()[:-9])
    (folder / "cut.json").write_bytes((folder / "system.json").read_bytes()[:40])
    for rank, end in ((0, -7), (1, None)):
        (folder / f"cut.{rank}.et").write_bytes((folder / f"job.{rank}.et").read_bytes()[:end])
    shutil.copytree(folder / "study", folder / "cut-study")
    for file in (folder / "cut-study").rglob("*"):
        if file.suffix in {".parquet", ".json"} and file.name != "study.json":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (folder / "deep.json").write_text("[" * 100_000, "utf-8")
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (folder / "bomb.yml").write_text("\n".join(lines), "utf-8")
    shutil.copy(folder / "net.yml", folder / "n\udcff.yml")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("missing")
    (folder / "locked").write_text("{}", "utf-8")
    (folder / "locked").chmod(0)
    (folder / "locked-folder").mkdir(mode=0)
