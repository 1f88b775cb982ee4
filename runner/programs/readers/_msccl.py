"""Read MSCCL XML: one file with the steps of every thread block of every rank.

The expat parser refuses document types, so no entity is expanded and no other file is opened.

Dependencies are resolved as in MSCCL's executor. The executor's parser (msccl-executor-nccl,
msccl_parser.cc) drops every nop, moves the nop's dependencies to the next step, and joins reductions into
the same target. The executor's kernel waits until the other thread block's flag has reached the number of
the awaited step. Only steps with hasdep=1 raise a flag, and a nop without a dependency has no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from ....errors import ConfigError, did_you_mean, misspelling
from .._model import (
    MAX_COUNT,
    MESSAGE_OPS,
    PROTOCOLS,
    Buffer,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
)
from ._checks import MAX_CHUNKS, MAX_OPS, MAX_RANKS, buffer_chunks, collective_named, require

_MAX_JOINED = 16


@dataclass(frozen=True)
class _Flag:
    """The value of a thread block's flag once the step at *place* is done."""

    number: int
    place: int


def resolve_dependencies(
    blocks: Sequence[Sequence[Op]], raising: Sequence[Sequence[bool]], where: str
) -> list[tuple[Op, ...]]:
    """Return the ops of a rank's *blocks*, each with the op that the executor waits for before it.

    *raising* marks the steps with hasdep=1. Raises `ConfigError` for programs that the executor
    rejects, and for a flag that is never raised.
    """
    flags = [
        _flags(ops, raises, f"{where}, thread block {number}")
        for number, (ops, raises) in enumerate(zip(blocks, raising, strict=True))
    ]
    return [
        tuple(_resolved(op, number, blocks, flags, f"{where}, thread block {number}") for op in ops)
        for number, ops in enumerate(blocks)
    ]


def _flags(ops: Sequence[Op], raises: Sequence[bool], where: str) -> list[_Flag]:
    flags: list[_Flag] = []
    following, waits, reductions = 0, 0, 0
    chain: Op | None = None
    for op, raised in zip(ops, raises, strict=True):
        waits += op.after is not None
        if op.name == "nop":
            continue
        if chain is not None and _joins(chain, op):
            _check_joined(chain, op, waits, f"{where}, op {op.place} ({op.name})")
            number = following
        else:
            require(
                waits == 0 or op.after is not None,
                f"{where}, op {op.place} ({op.name}): the nop before it waits, but the step itself does not; "
                "MSCCL's executor refuses that. Give the step its own 'depid'.",
            )
            number = following + max(0, waits - 1)
            waits = 0
        following = number + 1
        if raised:
            flags.append(_Flag(number, op.path[0]))
        chain = None
        if op.name == "re":
            reductions += 1
            chain = op if not raised and reductions != _MAX_JOINED else None
    return flags


def _joins(first: Op, second: Op) -> bool:
    """Return whether the executor joins two reductions: they need the same target and source buffer."""
    if second.name != "re" or second.after is not None:
        return False
    (target, source), (goal, other) = first.sources, second.sources
    return (target.buffer, target.index, source.buffer) == (goal.buffer, goal.index, other.buffer)


def _check_joined(first: Op, second: Op, waits: int, where: str) -> None:
    target, source = second.sources
    overlap = (
        {target.buffer, source.buffer} in ({Buffer.INPUT, Buffer.OUTPUT}, {source.buffer})
        and source.index < target.index + target.count
        and target.index < source.index + source.count
    )
    if waits or overlap or first.sources[0].count != target.count:
        reason = (
            "the nop between the two steps is lost"
            if waits
            else "the joined step reads data that the reduction has not written"
            if overlap
            else "both steps move as many chunks as the second"
        )
        raise ConfigError(
            f"{where}: MSCCL's executor joins this step with the reduction before it, so that {reason}. "
            "Give this step its own 'depid'."
        )


def _resolved(
    op: Op, number: int, blocks: Sequence[Sequence[Op]], flags: Sequence[Sequence[_Flag]], where: str
) -> Op:
    if op.after is None:
        return op
    where = f"{where}, op {op.place} ({op.name})"
    other, step = op.after
    require(
        other < len(blocks) and step < len(blocks[other]),
        f"{where}: it waits for step {step} of thread block {other}, which the rank does not have; correct "
        "'depid' and 'deps'.",
    )
    place = next((flag.place for flag in flags[other] if flag.number >= step), None)
    require(
        place is not None,
        f"{where}: it waits for step {step} of thread block {other}, but neither that step nor a later "
        "one has 'hasdep' 1 (nops do not count); set the step's 'hasdep' to 1.",
    )
    assert place is not None
    if other != number:
        return replace(op, after=(other, place))
    require(
        place < op.path[0],
        f"{where}: it waits for step {step} of its own thread block, which comes after it; correct 'depid' "
        "and 'deps'.",
    )
    return replace(op, after=None)


_STEPS = (*MESSAGE_OPS, "cpy", "re", "nop")
# Bytes of data that a slot of MSCCL's executor holds (mscclSetupCount in msccl_setup.cc).
_SLOT_BYTES = {"Simple": 1 << 21, "LL": 1 << 15, "LL128": 576_000}
_TEXT_AFTER = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]
# TACCL writes elements <copy> into a <gpu>, which MSCCL's executor ignores.
_PARENTS = {"algo": "", "gpu": "algo", "tb": "gpu", "step": "tb", "copy": "gpu"}
_ATTRIBUTES = {
    "algo": {
        *("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace"),
        *("minBytes", "maxBytes"),
    },
    "gpu": {"id", "i_chunks", "o_chunks", "s_chunks"},
    "tb": {"id", "send", "recv", "chan"},
    "step": {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"},
    "copy": set(),
}


@dataclass
class _Element:
    """An XML element with its attributes and its line in the file."""

    tag: str
    attributes: dict[str, str]
    line: int
    where: str
    children: list[_Element] = field(default_factory=list)

    def number(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """Return the integer attribute *key*; raises `ConfigError` outside *least* to *most*."""
        text = self.attributes.get(key)
        if text is None and default is not None:
            return default
        try:
            value = int(text or "")
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            given = "missing" if text is None else repr(text)
            raise ConfigError(
                f"{self.where}, line {self.line}: '{key}' of <{self.tag}> must be a whole number from "
                f"{least} to {most}, but is {given}; correct the program."
            )
        return value


def read_msccl(content: bytes, source: str) -> Program:
    """Parse *content*, an MSCCL XML read from *source*.

    Raises `ConfigError` with rank, thread block and step if no interpreter could run it.
    """
    algo = _parse(content, source)
    count = algo.number("ngpus", 1, MAX_RANKS)
    chunks = algo.number("nchunksperloop", 1, MAX_CHUNKS)
    channels = algo.number("nchannels", 1, 1 << 10, 1)
    protocol = algo.attributes.get("proto", "Simple")
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"{source}: 'proto' of <algo> cannot be {protocol!r}{did_you_mean(protocol, PROTOCOLS)}"
        )
    ids = [gpu.number("id", 0, count - 1) for gpu in algo.children]
    require(
        sorted(ids) == list(range(count)),
        f"{source}: ngpus is {count}, but the ranks are {sorted(ids)[:20]}; each rank needs one <gpu>.",
    )
    ranks = [_rank(gpu, count, channels, source) for gpu in algo.children]
    most = algo.number("maxBytes", 0, 1 << 63, 0)
    in_place = algo.number("inplace", 0, 1, 1) == 1
    program = Program(
        name=algo.attributes.get("name", "unnamed"),
        source=source,
        language="msccl",
        collective=collective_named("'coll' of <algo>", algo.attributes.get("coll", ""), source),
        protocol=protocol,
        in_place=in_place,
        either_place=in_place and algo.number("outofplace", 0, 1, 0) == 1,
        chunks=chunks,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        least_bytes=algo.number("minBytes", 0, 1 << 63, 0),
        most_bytes=most or None,
        message_chunks=_message_chunks(protocol, chunks, most),
    )
    _check_chunks(program)
    _check_peers(program)
    return program


def _message_chunks(protocol: str, chunks: int, most_bytes: int) -> int:
    """Return how many chunks of a buffer of *most_bytes* (0: of any size) a slot holds."""
    if not most_bytes:
        return 1
    return min(MAX_COUNT, max(1, _SLOT_BYTES[protocol] * chunks // most_bytes))


def _check_chunks(program: Program) -> None:
    """Raise `ConfigError` for a rank whose buffers are not those of the collective."""
    if program.collective == "custom":
        return
    wanted = buffer_chunks(program.collective, program.chunks, program.num_ranks, program.source)
    for rank in program.ranks:
        have = rank.input_chunks, rank.output_chunks
        runs_out_of_place = program.either_place or not program.in_place
        require(
            have == wanted if runs_out_of_place else max(have) == max(wanted),
            f"{program.where(rank.rank)}: it has {have[0]} input chunks (i_chunks) and {have[1]} output "
            f"chunks (o_chunks), but with nchunksperloop {program.chunks}, the collective "
            f"'{program.collective}' needs {wanted[0]} and {wanted[1]}.",
        )
        for block in rank.thread_blocks:
            for op in block.ops:
                _check_declared(program, rank, block, op)


def _check_declared(program: Program, rank: RankProgram, block: ThreadBlock, op: Op) -> None:
    """Raise `ConfigError` for a chunk that exists only because input and output are in one place.

    The executor's parser checks the chunks of all steps but rrc against those of the <gpu>.
    """
    for region in (*op.sources, *op.destinations) if op.name != "rrc" else ():
        sizes = {Buffer.INPUT: rank.input_chunks, Buffer.OUTPUT: rank.output_chunks}
        declared = sizes.get(region.buffer, rank.scratch_chunks)
        require(
            not declared <= region.index < program.chunks_of(rank.rank, region.buffer),
            f"{program.where(rank.rank, block.id, op)}: it accesses chunk {region.index} of the "
            f"{region.buffer.words} buffer, of which its <gpu> has {declared} chunks; MSCCL's executor "
            "refuses that even in place.",
        )


def _check_peers(program: Program) -> None:
    """Raise `ConfigError` for a connection with one end, for which MSCCL's executor would wait forever."""
    sends, receives = {}, {}
    for rank in program.ranks:
        for block in rank.thread_blocks:
            where = program.where(rank.rank, block.id)
            if block.send >= 0:
                sends[rank.rank, block.send, block.channel] = where
            if block.receive >= 0:
                receives[block.receive, rank.rank, block.channel] = where
    for (sender, receiver, channel), where in (sends | receives).items():
        key = sender, receiver, channel
        verb = "receives from" if key in sends else "sends to"
        peers = (receiver, sender) if key in sends else (sender, receiver)
        require(
            key in sends and key in receives,
            f"{where}: no thread block of rank {peers[0]} {verb} rank {peers[1]} on channel {channel}; "
            "connect both ends, or neither.",
        )


def _parse(content: bytes, source: str) -> _Element:
    """Return the <algo> element of an MSCCL XML with all its descendants."""
    root: list[_Element] = []
    stack: list[_Element] = []
    steps = 0
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal steps
        steps += tag == "step"
        line = parser.CurrentLineNumber
        parent = stack[-1].tag if stack else ""
        if tag not in _PARENTS or _PARENTS[tag] != parent:
            place = f"inside <{parent}>" if parent else "outermost"
            raise ConfigError(
                f"{source}, line {line}: <{tag}> {place} is not part of an MSCCL program; it has <algo> with "
                "<gpu>, <tb> and <step> in it."
            )
        require(
            steps <= MAX_OPS,
            f"{source}: there are more than {MAX_OPS} steps; larger programs are not supported.",
        )
        wrong = misspelling(attributes, _ATTRIBUTES[tag])
        require(not wrong, f"{source}, line {line}: in <{tag}>, {wrong}")
        element = _Element(tag, attributes, line, source)
        if tag != "copy":
            (stack[-1].children if stack else root).append(element)
        stack.append(element)

    def refuse(*_: object) -> None:
        raise ConfigError(f"{source}: a program has no document type (<!DOCTYPE>); remove it.")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        if error.code == _TEXT_AFTER:
            text = content[parser.ErrorByteIndex :].decode(errors="replace").strip()
            raise ConfigError(
                f"{source}, line {error.lineno}: text follows </algo>, often an error of the program that "
                f"wrote the file: {text[:200]!r}. Remove it, or write the file again."
            ) from error
        raise ConfigError(f"{source}: this is not XML ({error}); check the file.") from error
    except (LookupError, ValueError) as error:  # of the encoding that the file names
        raise ConfigError(f"{source}: this encoding is not supported ({error}); save it as UTF-8.") from error
    return root[0]


def _rank(gpu: _Element, count: int, channels: int, source: str) -> RankProgram:
    rank = gpu.number("id", 0, count - 1)
    gpu.where = f"{source}: rank {rank}"
    blocks = []
    for place, tb in enumerate(gpu.children):
        tb.where = f"{gpu.where}, thread block {tb.attributes.get('id', place)}"
        require(
            tb.number("id", 0, len(gpu.children) - 1) == place,
            f"{tb.where}: thread blocks must be numbered 0, 1, 2 ... in order.",
        )
        blocks.append(_thread_block(tb, place, rank, count, channels))
    raising = [[step.attributes.get("hasdep") == "1" for step in tb.children] for tb in gpu.children]
    resolved = resolve_dependencies([block.ops for block in blocks], raising, gpu.where)
    blocks = [replace(block, ops=ops) for block, ops in zip(blocks, resolved, strict=True)]
    _check_connections(blocks, gpu.where)
    return RankProgram(
        rank=rank,
        input_chunks=gpu.number("i_chunks", 0, MAX_CHUNKS),
        output_chunks=gpu.number("o_chunks", 0, MAX_CHUNKS),
        scratch_chunks=gpu.number("s_chunks", 0, MAX_CHUNKS),
        thread_blocks=tuple(blocks),
    )


def _thread_block(tb: _Element, block: int, rank: int, count: int, channels: int) -> ThreadBlock:
    send, receive = (tb.number(key, -1, count - 1) for key in ("send", "recv"))
    channel = tb.number("chan", 0, channels - 1)
    ops = []
    for place, step in enumerate(tb.children):
        step.where = f"{tb.where}, op {place}"
        require(
            step.number("s", 0, len(tb.children) - 1) == place,
            f"{step.where}: steps must be numbered 0, 1, 2 ... in order.",
        )
        ops.append(_step(step, place, rank, send, receive))
    require(rank not in {send, receive}, f"{tb.where}: it exchanges with its own rank; use 'cpy'.")
    return ThreadBlock(block, tuple(ops), send, receive, channel)


def _step(step: _Element, place: int, rank: int, send: int, receive: int) -> Op:
    name = step.attributes.get("type", "")
    if name not in _STEPS:
        raise ConfigError(f"{step.where}: 'type' of <step> cannot be {name!r}{did_you_mean(name, _STEPS)}")
    parts = MESSAGE_OPS.get(name, ())
    require(
        "send" not in parts or send >= 0,
        f"{step.where} ({name}): it sends, but its thread block has no peer to send to (send=-1).",
    )
    require(
        "receive" not in parts or receive >= 0,
        f"{step.where} ({name}): it receives, but its thread block has no peer to receive from (recv=-1).",
    )
    depends = step.number("depid", -1, 1 << 20, -1)
    after = (depends, step.number("deps", 0, MAX_OPS)) if depends >= 0 else None
    if name == "nop":
        return Op(name, (place,), after=after)
    sources = () if name in {"r", "rcs"} else (_region(step, "src", rank),)
    destinations = () if name in {"s", "rrs"} else (_region(step, "dst", rank),)
    if name == "re":
        sources = (*destinations, *sources)
    return Op(name, (place,), sources, destinations, after=after)


def _region(step: _Element, side: str, rank: int) -> Region:
    buffer = step.attributes.get(f"{side}buf", "")
    if buffer not in {"i", "o", "s"}:
        raise ConfigError(f"{step.where}: '{side}buf' must be i, o or s, but is {buffer!r}.")
    index = step.number(f"{side}off", 0, MAX_CHUNKS)
    return Region((rank,), Buffer(buffer), index, step.number("cnt", 1, MAX_CHUNKS))


def _check_connections(blocks: list[ThreadBlock], where: str) -> None:
    """Raise `ConfigError` if two thread blocks share an end of a connection, which would mix up messages."""
    seen: dict[tuple[str, int, int], int] = {}
    for block in blocks:
        for side, peer in (("send to", block.send), ("receive from", block.receive)):
            other = seen.setdefault((side, peer, block.channel), block.id)
            require(
                peer < 0 or other == block.id,
                f"{where}, thread block {block.id}: it and thread block {other} {side} rank {peer} on "
                f"channel {block.channel}; give one of them another channel.",
            )
