"""Programs with one mistake, judged by the proof and by an independent interpreter."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msccl_interpreter
import mscclpp_interpreter
from random_schedule import Key, Wrong

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import parse_program, prove

LONGER = 100  # factor of the orders for a program that the proof refuses, until one shows a fault
MOST_EVENTS = 4_000_000  # of one search
MOST_SUSPECTS = 2


def text_of(path: Path) -> str:
    """Return the text of a program's file."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def mutant(text: str, seed: int, draw: int = 0) -> tuple[str, str]:
    """Return a program with one mistake, determined by *seed* and *draw*, and the mistake's name."""
    random_ = random.Random(f"{seed}-{draw}")
    if text.lstrip().startswith("<"):
        return mutated_xml(text, random_)
    plan, mistake = mutated_plan(json.loads(text), random_)
    return json.dumps(plan), mistake


def fault(text: str, seed: int, schedules: int, suspects: Collection[Key] = ()) -> str:
    """Return the fault that an interpreter finds in a number of random orders, or "".

    The *seed* determines the orders, and inputs that are the same in every order. A collective without a
    specified result must have the same result in every order. Every other order delays or prefers the
    *suspects*. The search ends after `MOST_EVENTS` events.
    """
    is_xml, events = text.lstrip().startswith("<"), 0
    program = ElementTree.fromstring(text) if is_xml else json.loads(text)
    interpreter = msccl_interpreter if is_xml else mscclpp_interpreter
    results: dict[tuple[int, ...], list[int | None]] = {}
    for number in range(schedules):
        try:
            machine = interpreter.Machine(program, random.Random(f"{seed}-{number}"), seed)
            events += machine.run(suspects if number % 2 else ())
        except Wrong as wrong:
            return str(wrong)
        except IndexError:
            return "it reaches past a table of the executor"
        for place, words in machine.results.items():
            if results.setdefault(place, words) != words:
                return "its result depends on the order"
        if events > MOST_EVENTS:
            break
    return ""


def judged(text: str, seed: int, schedules: int, longer: int = LONGER) -> tuple[str, str]:
    """Return whether proof and interpreter agree on a program, and why it is refused or wrong.

    If they agree, the result is unread, proved or refuted; if not, unsound or refused; or strict if only the
    reader refuses the program. A program that only the proof refuses is tried *longer* times as often, with
    the places that the proof names as suspects.
    """
    try:
        proof = prove(parse_program(text.encode(), "mutant"))
    except ConfigError as error:
        wrong = fault(text, seed, schedules)
        return ("unread", wrong) if wrong else ("strict", error.message)
    if proof.holds:
        wrong = fault(text, seed, schedules)
        return ("unsound", wrong) if wrong else ("proved", "")
    suspects = {(problem.rank, problem.block) for problem in proof.problems[:MOST_SUSPECTS]}
    wrong = fault(text, seed, schedules * max(1, longer), suspects)
    return ("refuted", wrong) if wrong else ("refused", proof.problems[0].message)


Element = ElementTree.Element
TYPES = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")


def mutated_xml(text: str, random_: random.Random) -> tuple[str, str]:
    """Return an XML with one mistake in it, and the name of the mistake."""
    root = ElementTree.fromstring(text)
    blocks = [tb for gpu in root for tb in gpu if len(tb)]
    name = random_.choice(sorted(XML_MISTAKES))
    XML_MISTAKES[name](root, random_.choice(blocks), random_)
    return ElementTree.tostring(root, encoding="unicode"), name


def mutated_plan(plan: dict[str, Any], random_: random.Random) -> tuple[dict[str, Any], str]:
    """Return a plan with one mistake in it, and the name of the mistake."""
    plan = copy.deepcopy(plan)
    blocks = [block["ops"] for gpu in plan["gpus"] for block in gpu["threadblocks"]]
    bodies = [op["ops"] for ops in blocks for op in ops if op["name"] == "pipeline"]
    names = sorted([*PLAN_MISTAKES, "setting"])
    while True:
        name = random_.choice(names)
        if name == "setting":
            _change_setting(plan, random_)
            return plan, name
        # The reader refuses an op with more chunks than its pipeline, even where it does no harm.
        lists = blocks if name == "count" else blocks + bodies
        ops = random_.choice([each for each in lists if each])
        if PLAN_MISTAKES[name](ops, random_):
            return plan, name


# MSCCL XML.


def _renumber(block: Element, root: Element, random_: random.Random, places: list[int | None]) -> None:
    """Number the steps of a block; dependent steps follow their dependency directly in half of the cases."""
    follow = random_.random() < 0.5
    gpu = next(gpu for gpu in root if block in list(gpu))
    moved = {old: new for new, old in enumerate(places) if old is not None}
    for number, step in enumerate(block):
        step.set("s", str(number))
    for step in (step for tb in gpu for step in tb) if follow else ():
        if step.get("depid") == block.get("id") and int(step.get("deps", "-1")) in moved:
            step.set("deps", str(moved[int(step.get("deps", "-1"))]))


def _swap_steps(root: Element, block: Element, random_: random.Random) -> None:
    places: list[int | None] = list(range(len(block)))
    first = random_.randrange(len(block))
    second = min(first + random_.choice((1, 1, 2)), len(block) - 1)
    steps = list(block)
    for each in (steps, places):
        each[first], each[second] = each[second], each[first]
    block[:] = steps
    _renumber(block, root, random_, places)


def _drop_step(root: Element, block: Element, random_: random.Random) -> None:
    place = random_.randrange(len(block))
    block.remove(block[place])
    _renumber(block, root, random_, [old for old in range(len(block) + 1) if old != place])


def _duplicate_step(root: Element, block: Element, random_: random.Random) -> None:
    place = random_.randrange(len(block))
    block.insert(place, copy.deepcopy(block[place]))
    _renumber(block, root, random_, [*range(place), None, *range(place, len(block) - 1)])


def _add(element: Element, key: str, change: int) -> None:
    element.set(key, str(int(element.get(key, "0")) + change))


def _shift_step(_root: Element, block: Element, random_: random.Random) -> None:
    _add(random_.choice(block), random_.choice(("srcoff", "dstoff")), random_.choice((-1, 1)))


def _count_step(_root: Element, block: Element, random_: random.Random) -> None:
    step = random_.choice(block)
    _add(step, "cnt", random_.choice((-1, 1)) if int(step.get("cnt", "1")) > 1 else 1)


def _buffer_step(_root: Element, block: Element, random_: random.Random) -> None:
    random_.choice(block).set(random_.choice(("srcbuf", "dstbuf")), random_.choice("ios"))


def _peer_of_block(root: Element, block: Element, random_: random.Random) -> None:
    block.set(random_.choice(("send", "recv")), str(random_.randrange(-1, len(root))))


def _channel_of_block(root: Element, block: Element, random_: random.Random) -> None:
    block.set("chan", str(random_.randrange(int(root.get("nchannels", "1")) + 1)))
    root.set("nchannels", str(int(root.get("nchannels", "1")) + 1))


def _type_of_step(_root: Element, block: Element, random_: random.Random) -> None:
    random_.choice(block).set("type", random_.choice(TYPES))


def _dependency(root: Element, block: Element, random_: random.Random) -> None:
    gpu = next(gpu for gpu in root if block in list(gpu))
    waiting = [step for tb in gpu for step in tb if int(step.get("depid", "-1")) >= 0]
    step = random_.choice(waiting if waiting and random_.random() < 0.7 else list(block))
    kind = random_.choice(("drop", "other", "step", "flag"))
    if kind == "drop":
        step.set("depid", "-1")
        step.set("deps", "-1")
    elif kind == "other":
        step.set("depid", str(random_.randrange(len(gpu))))
        step.set("deps", str(random_.randrange(max(1, len(block)))))
    elif kind == "step" and int(step.get("depid", "-1")) >= 0:
        _add(step, "deps", random_.choice((-1, 1)) if step.get("deps") != "0" else 1)
    else:
        step.set("hasdep", random_.choice("01"))


def _setting_of_file(root: Element, _block: Element, random_: random.Random) -> None:
    kind = random_.choice(("proto", "inplace", "outofplace", "nchunksperloop", "chunks"))
    if kind == "proto":
        root.set(kind, random_.choice(("Simple", "LL", "LL128")))
    elif kind == "nchunksperloop":
        root.set(kind, str(int(root.get(kind, "1")) * 2))
    elif kind == "chunks":
        _add(random_.choice(list(root)), f"{random_.choice('ios')}_chunks", random_.choice((-1, 1)))
    else:
        root.set(kind, "0" if root.get(kind, "0") == "1" else "1")


XML_MISTAKES: dict[str, Callable[[Element, Element, random.Random], None]] = {
    "buffer": _buffer_step,
    "channel": _channel_of_block,
    "count": _count_step,
    "dependency": _dependency,
    "drop": _drop_step,
    "duplicate": _duplicate_step,
    "peer": _peer_of_block,
    "setting": _setting_of_file,
    "shift": _shift_step,
    "swap": _swap_steps,
    "type": _type_of_step,
}


# MSCCL++ plans.


def _swap_ops(ops: list[Any], random_: random.Random) -> bool:
    first = random_.randrange(len(ops))
    second = min(first + random_.choice((1, 1, 2)), len(ops) - 1)
    ops[first], ops[second] = ops[second], ops[first]
    return first != second and ops[first] != ops[second]


def _drop_op(ops: list[Any], random_: random.Random) -> bool:
    del ops[random_.randrange(len(ops))]
    return True


def _duplicate_op(ops: list[Any], random_: random.Random) -> bool:
    place = random_.randrange(len(ops))
    ops.insert(place, copy.deepcopy(ops[place]))
    return True


def _regions(ops: list[Any]) -> list[Any]:
    return [item for op in ops for side in ("src_buff", "dst_buff") for item in op.get(side, ())]


def _shift_op(ops: list[Any], random_: random.Random) -> bool:
    regions = _regions(ops)
    if regions:
        item = random_.choice(regions)
        item["index"] = max(0, item["index"] + random_.choice((-1, 1)))
    return bool(regions)


def _count_op(ops: list[Any], random_: random.Random) -> bool:
    moving = [op for op in ops if op.get("src_buff")]
    if moving:
        op = random_.choice(moving)
        items = (*op["src_buff"], *op["dst_buff"])
        change = random_.choice((-1, 1)) if all(item["size"] > 1 for item in items) else 1
        for item in items:
            item["size"] += change
    return bool(moving)


def _peer_of_op(ops: list[Any], random_: random.Random) -> bool:
    regions = [item for item in _regions(ops) if "buffer_id" in item]
    if regions:
        item = random_.choice(regions)
        item["buffer_id"] = max(0, item["buffer_id"] + random_.choice((-1, 1)))
    return bool(regions)


def _channel_of_op(ops: list[Any], random_: random.Random) -> bool:
    # The kernel takes the channel of a switch from the buffers.
    using = [op for op in ops if op.get("channel_ids") and op.get("channel_type") != "switch"]
    if using:
        ids = random_.choice(using)["channel_ids"]
        kind = random_.choice(("shuffle", "other", "drop"))
        if kind == "shuffle" and len(ids) > 1:
            random_.shuffle(ids)
        elif kind == "drop" and len(ids) > 1:
            ids.pop(random_.randrange(len(ids)))
        else:
            place = random_.randrange(len(ids))
            ids[place] = max(0, ids[place] + random_.choice((-1, 1)))
    return bool(using)


def _barrier_op(ops: list[Any], random_: random.Random) -> bool:
    barriers = [op for op in ops if op["name"] == "barrier"]
    if barriers:
        barrier, change = random_.choice(barriers), random_.choice((-1, 1))
        key = random_.choice(("barrier_id", "num_threadblocks"))
        barrier[key] = max(0 if key == "barrier_id" else 1, barrier[key] + change)
    return bool(barriers)


def _semaphore_op(ops: list[Any], random_: random.Random) -> bool:
    using = [op for op in ops if op.get("semaphore_ids")]
    if using:
        ids = random_.choice(using)["semaphore_ids"]
        place = random_.randrange(len(ids))
        ids[place] = max(0, ids[place] + random_.choice((-1, 1)))
    return bool(using)


def _group_op(ops: list[Any], random_: random.Random) -> bool:
    sharing = [op["tbg_info"] for op in ops if "tbg_info" in op]
    if sharing:
        group = random_.choice(sharing)
        group["tb_id"] = random_.randrange(group["tbg_size"])
    return bool(sharing)


def _buffer_op(ops: list[Any], random_: random.Random) -> bool:
    regions = [item for item in _regions(ops) if "type" in item]
    if regions:
        random_.choice(regions)["type"] = random_.choice("ios")
    return bool(regions)


# Names of ops with the same kinds of buffers or channels.
ALIKE = (
    {"put", "pws", "pwsf", "ppkt"},
    {"copy", "cpkt", "upkt"},
    {"re", "repkt"},
    {"res", "respkt"},
    {"rre", "rres"},
    {"signal", "rlxsignal", "wait", "rlxwait"},
    {"sem_acquire", "sem_release"},
)


def _name_of_op(ops: list[Any], random_: random.Random) -> bool:
    known = [(op, names) for op in ops for names in ALIKE if op["name"] in names]
    if known:
        op, names = random_.choice(known)
        op["name"] = random_.choice(sorted(names - {op["name"]}))
    return bool(known)


def _change_setting(plan: dict[str, Any], random_: random.Random) -> None:
    gpu = random_.choice(plan["gpus"])
    kind = random_.choice(
        ("inplace", "use_double_scratch_buffer", "protocol", "chunks", "table", "semaphore")
    )
    if kind == "protocol":
        plan[kind] = {"LL": "Simple", "Simple": "LL"}[plan[kind]]
    elif kind == "table" and gpu.get("remote_buffers"):
        table = random_.choice(gpu["remote_buffers"])
        key = random_.choice(("rank", "type"))
        table[key] = random_.randrange(len(plan["gpus"])) if key == "rank" else random_.choice("ios")
    elif kind == "semaphore" and gpu.get("semaphores"):
        random_.choice(gpu["semaphores"])["init_value"] += 1
    elif kind in {"inplace", "use_double_scratch_buffer"}:
        plan[kind] = not plan[kind]
    else:
        gpu["scratch_chunks"] = max(0, gpu["scratch_chunks"] - 1)


PLAN_MISTAKES: dict[str, Callable[[list[Any], random.Random], bool]] = {
    "barrier": _barrier_op,
    "buffer": _buffer_op,
    "channel": _channel_of_op,
    "count": _count_op,
    "drop": _drop_op,
    "duplicate": _duplicate_op,
    "group": _group_op,
    "name": _name_of_op,
    "peer": _peer_of_op,
    "semaphore": _semaphore_op,
    "shift": _shift_op,
    "swap": _swap_ops,
}
