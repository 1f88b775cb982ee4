"""Record what each rank of a training script computes and sends, without devices, peers or data."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import CaptureError, NothingCaptured, UsageError
from ..support import Lifeline
from ._launcher import environment_with_agent
from ._recordings import Failure, Recording
from ._trace_set import MAX_RANKS

_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 300
_LAST_LINES = 4  # number of shown lines of a failed script's output
_RANKS_OF_A_NODE = 8
# The number of ranks to run if one rank cannot represent other ranks.
_MAX_RUN = 64
_DATA = frozenset({"FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "PermissionError"})
_FIRST_FSDP = "fully_sharded_data_parallel.py"  # the file name in torch
_SHAPES = frozenset(
    {"DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode"}
)
_OFFLINE = ("HTTPError", "ConnectionError", "LocalEntryNotFoundError", "URLError", "OfflineModeIsEnabled")


def record_script(
    command: Sequence[str],
    out: str | Path,
    *,
    world: int,
    every_rank: bool = False,
) -> list[Recording]:
    """Run the script and arguments *command* as ranks of a job of *world* ranks; record a step of each.

    Tensors are fake, so no memory is allocated. Rank 0 runs first, followed by all ranks with which a
    recorded rank exchanges messages (stages of a pipeline). The last rank also runs, to check whether all
    ranks do the same work. If *every_rank* is true, all ranks run. Files are written to *out*.

    Raises:
        UsageError: a number of ranks out of range.
        CaptureError: the script failed; the message names the necessary change in the script.
        NothingCaptured: the script ended before it had trained for two steps.

    """
    if not 1 <= world <= MAX_RANKS:
        raise UsageError(f"A job has 1 to {MAX_RANKS} ranks, not {world}. Change --world.")
    if every_rank and world > _MAX_RUN:
        raise UsageError(
            f"At most {_MAX_RUN} ranks are run one by one, not {world}: larger jobs repeat the graphs of "
            f"identical ranks. Predict a smaller job."
        )
    run = _Run([*command], Path(out).absolute(), world)
    try:
        found = run.ranks(range(world) if every_rank else {0, world - 1})
    finally:
        run.stop()
    return [found[rank] for rank in sorted(found)]


class _Run:
    """The processes that run the ranks of one script."""

    def __init__(self, command: list[str], out: Path, world: int) -> None:
        self._command = command
        self._out = out
        self._world = world
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._lifeline = Lifeline()
        self._found: dict[int, Recording] = {}
        (out / "exchange").mkdir(parents=True, exist_ok=True)
        for stale in (*(out / "exchange").iterdir(), *out.glob("rank*.json.gz"), *out.glob("rank*.log")):
            stale.unlink()

    def ranks(self, wanted: Iterable[int]) -> dict[int, Recording]:
        """Run the ranks *wanted*, and all ranks with which these exchange messages; return all recordings."""
        waiting = [*wanted]
        while waiting or self._running:
            for rank in waiting:
                if rank not in self._running and rank not in self._found:
                    self._start(rank)
            time.sleep(_POLL_SECONDS)
            waiting = [*self._requested_ranks(), *self._ended()]
        return dict(self._found)

    def stop(self) -> None:
        """End the running processes and their children."""
        self._lifeline.close()
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def _requested_ranks(self) -> list[int]:
        names = (path.name for path in (self._out / "exchange").glob("wanted-*"))
        asked = {int(name.partition("-")[2]) for name in names}
        return sorted(asked - set(self._found) - set(self._running))

    def _ended(self) -> list[int]:
        """Read the recordings of ended processes; return the ranks with which these ranks communicate."""
        peers: set[int] = set()
        for rank, process in [*self._running.items()]:
            if process.poll() is None:
                continue
            del self._running[rank]
            path = self._out / f"rank{rank}.json.gz"
            if not path.exists():
                raise CaptureError(self._died(rank, process.returncode))
            recording = Recording.load(path)
            if recording.failure is not None:
                raise _refusal(self._command[0], rank, recording.failure)
            self._found[rank] = recording
            peers |= recording.peers
        return sorted(peers - set(self._found) - set(self._running))

    def _start(self, rank: int) -> None:
        log = (self._out / f"rank{rank}.log").open("wb")
        try:
            self._running[rank] = self._lifeline.start(
                [sys.executable, *self._command],
                env=_environment(self._out, rank, self._world),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        finally:
            log.close()

    def _died(self, rank: int, code: int) -> str:
        log = self._out / f"rank{rank}.log"
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        telling = [line[:200] for line in lines if line.strip("^~ ")]  # Python's markers below a source line
        tail = f" It printed last: {' | '.join(telling[-_LAST_LINES:])}." if telling else ""
        return (
            f"{self._command[0]} as rank {rank} ended with status {code} before its step was recorded.{tail} "
            f"Next: correct the script, or let it train for two steps. With a study (-o STUDY) its output is "
            f"stored in {log.name}."
        )


def _environment(out: Path, rank: int, world: int) -> dict[str, str]:
    options = {
        "rank": rank,
        "world": world,
        "out": str(out),
        "exchange": str(out / "exchange"),
        "patience_s": _PATIENCE_SECONDS,
    }
    node = min(world, _RANKS_OF_A_NODE)
    places: Mapping[str, int | str] = {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": rank % node,
        "LOCAL_WORLD_SIZE": node,
        "GROUP_RANK": rank // node,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
        "OMP_NUM_THREADS": 1,
        "PYTORCH_JIT": 0,  # compiled functions would ignore fake tensors and the emulated devices
    }
    environment = environment_with_agent(out=str(out), fake_run=options)
    return environment | {name: str(value) for name, value in places.items()}


def _refusal(script: str, rank: int, failure: Failure) -> CaptureError:
    """Return an error with the necessary change in the script."""
    where = f"{failure.place or script}, as rank {rank}"
    why = f"{failure.kind}: {failure.message}".rstrip(": .")
    if not failure.kind:
        return NothingCaptured(
            f"{script} ended before a step could be recorded: as rank {rank} no optimizer made two "
            "steps. Let it train for at least two steps, with an optimizer of torch.optim."
        )
    if failure.kind in _DATA or failure.kind.endswith(_OFFLINE):
        return CaptureError(
            f"{where} reads data that does not exist here ({why}). A prediction has no data: let the "
            "script generate its batches, such as torch.randint(vocabulary, (batch, length)), and create "
            "models from their configuration, if a flag or variable is set."
        )
    if failure.kind in ("ModuleNotFoundError", "ImportError"):
        return CaptureError(
            f"{where} imports a module that is not installed here ({why}). Install it if it runs without a "
            "GPU; if it is an extension with custom kernels, let the script use torch's operator instead, "
            "such as torch.nn.functional.scaled_dot_product_attention for flash attention."
        )
    if any(_FIRST_FSDP in line for line in failure.stack):
        return CaptureError(
            f"{where} shards with FullyShardedDataParallel, which changes the storage of its tensors, and "
            f"fake tensors have no storage ({why}). Shard with torch.distributed.fsdp.fully_shard instead, "
            "which communicates the same, or capture the job with `chakrascope trace`."
        )
    if failure.kind in _SHAPES:
        return CaptureError(
            f"{where}: a shape depends on values ({why}), which fake tensors do not have. Give that "
            "operator a fixed size in a prediction, such as an equal share of the tokens for every expert."
        )
    return CaptureError(
        f"{where} does not run with fake tensors ({why}). Custom kernels, control flow that depends on "
        "values, and direct memory access need a real device: use operators of torch there, or capture "
        "the job with `chakrascope trace`."
    )
