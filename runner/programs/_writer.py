"""Write a program as MSCCL XML for MSCCL's public interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from ...errors import ConfigError
from ._model import MESSAGE_OPS, Op, Program, RankProgram, Region, ThreadBlock
from .readers import COLLECTIVES

# Limits of MSCCL's public interpreter.
_MOST_CHANNELS = 32
_MOST_STEPS = 256
_MOST_BLOCKS_OF_CHANNEL = 32
_MOST_COUNT = 72


def write_msccl(program: Program) -> str:
    """Return *program* as MSCCL XML; raises `ConfigError` if no interpreter could run *program*."""
    if program.language != "msccl":
        raise ConfigError(
            f"{program.source}: it is an MSCCL++ plan, and MSCCL XML has no steps for its puts and signals."
        )
    names = {ours: theirs for theirs, ours in COLLECTIVES.items()}
    channels = 1 + max((b.channel for rank in program.ranks for b in rank.thread_blocks), default=0)
    _check_room(program, channels)
    head = {
        "name": program.name,
        "proto": program.protocol,
        "nchannels": channels,
        "nchunksperloop": program.chunks,
        "ngpus": program.num_ranks,
        "coll": names[program.collective],
        "inplace": int(program.in_place),
        "outofplace": int(not program.in_place),
        "minBytes": program.least_bytes,
        "maxBytes": program.most_bytes or 0,
    }
    lines = [f"<algo {_attributes(head)}>"]
    for rank in program.ranks:
        lines += _rank_lines(rank)
    return "\n".join([*lines, "</algo>", ""])


def _check_room(program: Program, channels: int) -> None:
    if channels > _MOST_CHANNELS:
        raise ConfigError(
            f"{program.source}: it has {channels} channels; there is room for {_MOST_CHANNELS}."
        )
    for rank in program.ranks:
        crowded = Counter(block.channel for block in rank.thread_blocks).most_common(1)
        if crowded and crowded[0][1] > _MOST_BLOCKS_OF_CHANNEL:
            raise ConfigError(
                f"{program.where(rank.rank)}: channel {crowded[0][0]} has {crowded[0][1]} thread blocks; "
                f"there is room for {_MOST_BLOCKS_OF_CHANNEL}."
            )
        for block in rank.thread_blocks:
            if len(block.ops) > _MOST_STEPS:
                raise ConfigError(
                    f"{program.where(rank.rank, block.id)}: it has {len(block.ops)} steps; there is room for "
                    f"{_MOST_STEPS}."
                )
            for op in block.ops:
                if any(region.count > _MOST_COUNT for region in (*op.sources, *op.destinations)):
                    raise ConfigError(
                        f"{program.where(rank.rank, block.id, op)}: it moves more than {_MOST_COUNT} chunks, "
                        "the maximum."
                    )


def _attributes(values: Mapping[str, object]) -> str:
    return " ".join(f"{key}={quoteattr(str(value))}" for key, value in values.items())


def _rank_lines(rank: RankProgram) -> list[str]:
    awaited = {op.after for block in rank.thread_blocks for op in block.ops if op.after is not None}
    head = {
        "id": rank.rank,
        "i_chunks": rank.input_chunks,
        "o_chunks": rank.output_chunks,
        "s_chunks": rank.scratch_chunks,
    }
    lines = [f"  <gpu {_attributes(head)}>"]
    for block in rank.thread_blocks:
        place = {"id": block.id, "send": block.send, "recv": block.receive, "chan": block.channel}
        lines.append(f"    <tb {_attributes(place)}>")
        lines += [f"      <step {_attributes(_step(block, op, awaited))}/>" for op in block.ops]
        lines.append("    </tb>")
    return [*lines, "  </gpu>"]


def _step(block: ThreadBlock, op: Op, awaited: set[tuple[int, int]]) -> dict[str, object]:
    number = op.path[0]
    source, target = _ends(op)
    after = op.after or (-1, -1)
    return {
        "s": number,
        "type": op.name,
        "srcbuf": source.buffer.value if source else "i",
        "srcoff": source.index if source else -1,
        "dstbuf": target.buffer.value if target else "o",
        "dstoff": target.index if target else -1,
        "cnt": source.count if source else 0,
        "depid": after[0],
        "deps": after[1],
        "hasdep": int((block.id, number) in awaited),
    }


def _ends(op: Op) -> tuple[Region | None, Region | None]:
    """Return the source and destination regions of a step; a message has the same region at both ends."""
    if op.name == "re":
        return op.sources[1], op.destinations[0]
    places = [*op.sources[:1], *op.destinations[:1]]
    if not places or (op.name not in MESSAGE_OPS and op.name != "cpy"):
        return None, None
    return places[0], places[-1]
