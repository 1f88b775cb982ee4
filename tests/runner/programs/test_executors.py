"""Behaviour of the executors of MSCCL XML and MSCCL++ plans, each case once: proved or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from differential import fault
from program_samples import changed_plan, changed_xml, ops_of, plan

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import Program, parse_program, prove, write_msccl

Op = dict[str, Any]


def xml(blocks: dict[int, list[str]], **attributes: object) -> str:
    """Return an all-gather of two ranks in place: rank 0's *blocks* of steps; rank 1 mirrors them."""
    head = {
        "coll": "allgather",
        "proto": "Simple",
        "nchannels": 2,
        "nchunksperloop": 4,
        "ngpus": 2,
        "inplace": 1,
    }
    lines = ["<algo " + " ".join(f'{key}="{value}"' for key, value in (head | attributes).items()) + ">"]
    for rank in range(2):
        lines.append(f'<gpu id="{rank}" i_chunks="2" o_chunks="4" s_chunks="4">')
        for number, steps in blocks.items():
            lines.append(f'<tb id="{number}" send="{1 - rank}" recv="{1 - rank}" chan="{number}">')
            for place, step in enumerate(steps):
                kind, offset, count, *more = (
                    step.replace("own", str(2 * rank)).replace("peer", str(2 - 2 * rank)).split()
                )
                values = dict(part.split("=") for part in more)
                values = {"depid": "-1", "deps": "-1", "hasdep": "0", "buf": "o", "to": offset} | values
                lines.append(
                    f'<step s="{place}" type="{kind}" srcbuf="o" srcoff="{offset}" dstbuf="{values["buf"]}" '
                    f'dstoff="{values["to"]}" cnt="{count}" depid="{values["depid"]}" '
                    f'deps="{values["deps"]}" hasdep="{values["hasdep"]}"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def program(text: str) -> Program:
    return parse_program(text.encode(), "file")


def both_say(text: str, kind: str) -> str:
    """Require that the proof finds *kind* and that an order shows it, and return the first message."""
    problem = next(each for each in prove(program(text)).problems if each.kind == kind)
    assert fault(text, seed=1, schedules=60)
    return problem.message


def test_a_message_of_each_count():
    text = xml({0: ["s own 2", "r peer 2"]})
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=60)


def test_an_offset_that_a_step_does_not_use():
    text = xml({0: ["s own 2", "r peer 2"]}).replace('dstbuf="o" dstoff="0"', 'dstbuf="o" dstoff="-1"', 1)
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=20)
    with pytest.raises(ConfigError, match="'srcoff' of <step> must be a whole number"):
        program(text.replace('srcoff="0"', 'srcoff="-1"', 1))


def test_unreceived_message_is_an_error():
    message = both_say(xml({0: ["s own 2", "s own 2", "r peer 2"]}), "leftover")
    assert "op 1 (s) sends message 1 to rank 1 on channel 0, which that rank does not receive" in message


def test_counts_that_differ():
    text = xml({0: ["s own 2", "r peer 1", "cpy peer 1 to=peer"]}).replace("to=peer", "")
    message = both_say(text, "leftover")
    assert "sends 1 of the 2 chunks of message 0 to rank 1" in message


def test_more_messages_than_a_connection_takes():
    text = xml({0: ["s own 2", "s own 1", "r peer 2", "r peer 1"]})
    assert "waits for room for a message" in both_say(text, "deadlock")


def test_messages_that_one_slot_takes():
    # Three messages of two chunks need six slots for large buffers, and three for those of maxBytes.
    text = xml({0: ["s own 2", "s own 2", "s own 2", "r peer 2", "r peer 2", "r peer 2"]}, proto="LL")
    assert prove(program(text)).holds
    many = ["s own 2"] * 5
    text = xml(
        {0: [*many, *(each.replace("s own", "r peer") for each in many)]}, proto="LL", maxBytes=1 << 16
    )
    assert program(text).message_chunks == 2
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=20)
    large = text.replace(f'maxBytes="{1 << 16}"', f'maxBytes="{1 << 20}"')
    assert "waits for room for a message" in both_say(large, "deadlock")


def test_waiting_for_a_nop():
    # The kernel drops it, so that no flag is raised for it, or only that of a later step.
    steps = ["s own 2", "nop 0 0 hasdep=1"]
    with pytest.raises(ConfigError, match="nops do not count"):
        program(xml({0: steps, 1: ["nop 0 0 depid=0 deps=1", "cpy own 1 buf=s depid=0 deps=1"]}))
    text = xml({0: [*steps, "r peer 2 hasdep=1"], 1: ["cpy peer 1 buf=s depid=0 deps=1"]})
    assert program(text).ranks[0].thread_blocks[1].ops[0].after == (0, 2)
    assert prove(program(text)).holds


def test_a_nop_whose_dependency_no_step_takes_on():
    with pytest.raises(ConfigError, match="MSCCL's executor refuses that"):
        program(xml({0: ["s own 2 hasdep=1", "r peer 2"], 1: ["nop 0 0 depid=0 deps=0", "cpy own 1 buf=s"]}))


def test_waiting_for_a_later_step_of_the_own_thread_block():
    with pytest.raises(ConfigError, match="step 1 of its own thread block, which comes after it"):
        program(xml({0: ["s own 2 depid=0 deps=1", "r peer 2 hasdep=1"]}))


def test_reductions_that_the_executor_joins():
    with pytest.raises(ConfigError, match="with the reduction before it, so that both steps move"):
        program(xml({0: ["re 0 1 to=3 buf=s", "re 1 2 to=3 buf=s"]}))


def not_read(text: str, words: str) -> None:
    """Require that the reader refuses a program with *words*, and that an order shows its fault."""
    with pytest.raises(ConfigError, match=words):
        program(text)
    assert fault(text, seed=1, schedules=20)


def test_a_connection_with_one_end():
    text = xml({0: ["s own 2", "r peer 2"], 1: ["cpy own 1 buf=s to=0"]})
    assert prove(program(text)).holds
    first, second = 'send="1" recv="1" chan="1"', 'send="0" recv="0" chan="1"'
    not_read(
        text.replace(first, 'send="-1" recv="1" chan="1"'),
        "thread block 1: no thread block of rank 0 sends to rank 1 on channel 1",
    )
    text = text.replace(first, first.replace("1", "-1", 2)).replace(second, second.replace("0", "-1", 2))
    assert prove(program(text)).holds


def test_a_buffer_of_which_the_file_has_no_chunk():
    # In place, the chunk exists; the executor's parser looks at i_chunks and o_chunks only.
    text = xml({0: ["s own 2", "r peer 2"]}).replace('i_chunks="2"', 'i_chunks="0"')
    assert prove(program(text)).holds
    changed = text.replace('type="s" srcbuf="o" srcoff="2"', 'type="s" srcbuf="i" srcoff="0"')
    not_read(changed, r"op 0 \(s\): it accesses chunk 0 of the input buffer, of which its <gpu> has 0")


def test_a_program_for_half_of_its_buffer():
    text = xml({0: ["s own 2", "r peer 2"]})
    not_read(text.replace('nchunksperloop="4"', 'nchunksperloop="8"'), "'all-gather' needs 4 and 8")


def test_chunks_that_the_ranks_cannot_share():
    words = r"1 chunk cannot be divided among 2 ranks, as the collective 'all-gather' requires"
    text = xml({0: ["s own 2", "r peer 2"]}, nchunksperloop=1)
    not_read(text.replace('i_chunks="2" o_chunks="4"', 'i_chunks="0" o_chunks="1"'), words)
    data = json.loads(gather(NOP))
    for gpu in data["gpus"]:
        gpu |= {"input_chunks": 0, "output_chunks": 1}
    not_read(json.dumps(data), words)


def test_a_program_in_place_and_out_of_place():
    # Out of place, the own chunks are not in the output.
    text = xml({0: ["s own 2", "r peer 2"]}, outofplace=1)
    proof = prove(program(text))
    assert {each.kind for each in proof.problems} == {"unwritten", "result"}
    assert "correct in place" in proof.cautions[-1]
    assert fault(text, seed=1, schedules=20)
    assert prove(program(text.replace('outofplace="1"', 'outofplace="0"'))).holds


def test_a_custom_collective_whose_result_depends_on_the_order():
    blocks = {0: ["s own 2", "r peer 2"], 1: ["cpy own 1 to=peer"]}
    assert "their order is undefined" in both_say(xml(blocks, coll="custom"), "race")
    ordered = xml(
        {0: ["s own 2", "r peer 2 hasdep=1"], 1: ["cpy own 1 to=peer depid=0 deps=1"]}, coll="custom"
    )
    assert prove(program(ordered)).holds
    assert not fault(ordered, seed=1, schedules=20)


def test_more_steps_than_the_executors_take():
    proof = prove(program(xml({0: ["s own 2", "r peer 2", *["cpy own 1 buf=s to=0"] * 63]})))
    assert proof.holds
    assert "takes at most 64 steps in a thread block; the program has 65" in proof.cautions[0]


def test_more_chunks_than_a_step_takes():
    text = xml({0: ["s own 2", "r peer 2"]}, maxBytes=1 << 16).replace('cnt="2"', 'cnt="72"')
    for key, size in (("nchunksperloop", 4), ("o_chunks", 4), ("i_chunks", 2)):
        text = text.replace(f'{key}="{size}"', f'{key}="{36 * size}"')
    text = text.replace('off="2"', 'off="72"')
    proof = prove(program(text))
    assert proof.holds
    assert "takes at most 71 chunks in a step; the program has 72" in proof.cautions[0]
    with pytest.raises(ConfigError, match="it moves more than 71 chunks"):
        write_msccl(program(text))


def test_another_type_of_step():
    def change(root):
        root[0][0][-1].set("type", "rcs")

    assert not prove(changed_xml("allgather_ring", change)).holds


# MSCCL++ plans.


def memory_plan(ops: list[list[Op]], chunks: int = 2, **top: object) -> str:
    """Return a plan of two ranks in place, each with these thread blocks of *ops*."""
    gpus = []
    for rank in range(2):
        remote = [
            {"rank": 1 - rank, "type": kind, "access_channel_types": ["memory", "port"]} for kind in "os"
        ]
        blocks = []
        for number, own in enumerate(ops):
            text = json.dumps(own).replace('"own"', str(rank)).replace('"peer"', str(1 - rank))
            blocks.append({
                "id": number,
                "ops": json.loads(text),
                "channels": [
                    {"channel_type": kind, "channel_ids": [2 * number, 2 * number + 1]}
                    for kind in ("memory", "port")
                ],
                "remote_buffer_refs": [
                    {"access_channel_type": kind, "remote_buffer_ids": [0, 1]} for kind in ("memory", "port")
                ],
            })  # fmt: skip
        gpus.append({
            "id": rank, "input_chunks": chunks // 2, "output_chunks": chunks, "scratch_chunks": 8,
            "channels": [
                {"channel_type": kind, "connected_to": [1 - rank] * 2 * len(ops)}
                for kind in ("memory", "port")
            ],
            "remote_buffers": remote, "semaphores": [{"init_value": 0}], "threadblocks": blocks,
        })  # fmt: skip
    head = {"name": "n", "collective": "allgather", "protocol": "LL", "inplace": True}
    return json.dumps(head | {"use_double_scratch_buffer": True, "gpus": gpus} | top)


def here(buffer: str, index: object, size: int = 1) -> Op:
    return {"type": buffer, "index": index, "size": size}


def there(buffer: str, index: object, size: int = 1) -> Op:
    return {"buffer_id": "os".index(buffer), "index": index, "size": size}


def op(name: str, source: Op | None = None, target: Op | None = None, **more: Any) -> Op:
    ends = {} if source is None else {"src_buff": [source], "dst_buff": [target]}
    return {"name": name, **ends, **more}


NOP = op("nop")
MEMORY: dict[str, Any] = {"channel_type": "memory"}
PORT: dict[str, Any] = {"channel_type": "port", "channel_ids": [0]}


def signals(name: str, ids: tuple[int, ...] = (0,)) -> Op:
    return op(name, channel_type="memory", channel_ids=list(ids))


ARRIVE = [signals("rlxsignal"), signals("rlxwait"), NOP]
LEAVE = [NOP, signals("signal"), signals("wait"), NOP]


def test_blocks_that_disagree_on_a_barrier():
    def change(ranks):
        barrier = next(each for each in ops_of(ranks, 0, 2) if each["name"] == "barrier")
        barrier["num_threadblocks"] = 3

    found = prove(changed_plan("single_node_allgather_tbg", change)).problems
    assert any("but" in each.message and "may wait for ever" in each.message for each in found)


def test_two_pairs_of_blocks_at_one_barrier():
    pair = [op("barrier", barrier_id=0, num_threadblocks=2)]
    text = memory_plan([[op("cpkt", here("o", "own"), here("s", 0)), *pair], pair, pair, pair])
    assert "which of them meet is undefined" in both_say(text, "order")


def gather(*packets: Op) -> str:
    return memory_plan([[*packets]])


def test_packets_that_a_proxy_puts():
    # It copies packets, which must be there; it does not wait for their flags.
    local, put = op("cpkt", here("o", "own"), here("s", "own")), there("s", "own")
    last = op("upkt", here("s", "peer"), here("o", "peer"))
    text = gather(local, NOP, op("ppkt", here("s", "own"), put, **PORT), last)
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=40)
    assert "nothing makes it wait" in both_say(
        gather(local, op("ppkt", here("s", "own"), put, **PORT), last), "race"
    )


def test_packets_that_are_passed_on_to_several():
    op_ = op("rppkt", here("s", "own"), there("s", "own"), channel_type="memory")
    op_["dst_buff"].append(there("s", 4))
    text = gather(
        op("cpkt", here("o", "own"), here("s", "own")), op_, op("upkt", here("s", "peer"), here("o", "peer")),
        op("upkt", here("s", 4), here("s", 6)),
    )  # fmt: skip
    assert len(program(text).ranks[0].thread_blocks[0].ops[1].sources) == 2
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=40)


def test_a_copy_of_what_packets_brought():
    # Thread i takes packets of 8 bytes, but vectors of 16.
    start = [
        op("ppkt", here("o", "own"), there("s", "own"), channel_type="memory"),
        op("upkt", here("s", "peer"), here("o", "peer")),
    ]
    copy = op("copy", here("o", "peer"), here("s", 6))
    back = [NOP, op("copy", here("s", 6), here("o", "peer"))]
    assert prove(program(gather(*start, NOP, copy, *back))).holds
    assert "nothing makes it wait" in both_say(gather(*start, copy, *back), "race")


def test_a_race_on_which_no_result_depends():
    start = [
        op("ppkt", here("o", "own"), there("s", "own"), channel_type="memory"),
        op("upkt", here("s", "peer"), here("o", "peer")),
    ]
    text = gather(*start, op("copy", here("o", "peer"), here("s", 6)))
    proof = prove(program(text))
    assert proof.holds
    assert "overwritten before any rank's result depends on it" in proof.cautions[0]
    assert not fault(text, seed=1, schedules=60)


def test_a_packet_sent_again_after_its_source_may_be_overwritten():
    # A thread that reads the second packet reads it before it is overwritten.
    def change(ranks):
        ops = ops_of(ranks, 2, 3)
        place = next(number for number, each in enumerate(ops) if each["name"] == "ppkt")
        ops.insert(place, ops[place])

    assert prove(changed_plan("single_node_allreduce_pkt", change)).holds


def test_two_packets_of_one_place():
    # A thread that waits for the second packet may find the first.
    text = gather(
        op("ppkt", here("o", "own"), there("s", 4), channel_type="memory"),
        op("upkt", here("s", 4), here("o", "peer")),
        op("ppkt", here("o", "peer"), there("s", 1), channel_type="memory"),
        op("ppkt", here("o", "own"), there("s", 1), channel_type="memory"),
        op("upkt", here("s", 1), here("o", "peer")),
    )
    assert "nothing makes it wait" in both_say(text, "race")


def test_a_copy_into_the_memory_of_packets():
    # The packets of chunk 1 take the memory of the raw chunks 2 and 3.
    send = op("ppkt", here("o", "own"), there("s", 1), channel_type="memory")
    take = op("upkt", here("s", 1), here("o", "peer"))
    text = memory_plan([[send, take], [op("copy", here("o", "own"), here("s", 3))]])
    assert "op 0 (ppkt): their order is undefined" in both_say(text, "race")
    assert prove(program(text.replace('"index": 3', '"index": 5'))).holds


def test_a_thread_that_overwrites_the_packets_of_another():
    send = op("ppkt", here("o", "own"), there("s", 1), channel_type="memory")
    take = op("upkt", here("s", 1), here("o", "peer"))
    raw = op("upkt", here("s", 1), here("s", 3))
    assert "order is undefined" in both_say(gather(send, take, raw), "race")
    assert prove(program(gather(send, take, NOP, op("copy", here("o", "own"), here("s", 3))))).holds


def test_a_chunk_overwritten_with_its_own_input_while_it_is_read():
    send = [
        op("cpkt", here("o", "own"), here("s", "own")),
        op("ppkt", here("o", "own"), there("s", "own"), channel_type="memory"),
        op("upkt", here("s", "peer"), here("o", "peer")),
    ]
    same = memory_plan([send, [op("upkt", here("s", "own"), here("o", "own"))]])
    assert prove(program(same)).holds
    assert not fault(same, seed=1, schedules=40)
    other = memory_plan([send, [op("upkt", here("s", "peer"), here("o", "own"))]])
    assert "race" in {each.kind for each in prove(program(other)).problems}


def test_a_copy_of_a_chunk_to_itself_while_it_arrives():
    # The copy may read before the put, and write data read after the put.
    data = json.loads(gather(*ARRIVE, op("put", here("o", "own"), there("o", "own"), **MEMORY), *LEAVE))
    assert prove(program(json.dumps(data))).holds
    data["gpus"][0]["threadblocks"][0]["ops"].insert(4, op("copy", here("o", 1), here("o", 1)))
    assert "nothing makes it wait" in prove(program(json.dumps(data))).problems[0].message


def test_an_op_that_a_group_shares_as_a_whole():
    parts = [
        [
            signals("rlxsignal"), signals("rlxwait"), NOP,
            op("put", here("o", first, 2), there("o", first, 2), channel_type="memory",
               tbg_info={"tb_id": part, "tbg_size": 2}),
            NOP, signals("signal"), signals("wait"),
        ]
        for part in range(2)
        for first in ("own",)
    ]  # fmt: skip
    text = memory_plan(parts, chunks=4).replace('"index": 1', '"index": 2')
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=40)
    # Each half has one chunk of two: without the second block's part, one chunk stays empty.
    data = json.loads(text)
    for gpu in data["gpus"]:
        gpu["threadblocks"][1]["ops"][3]["tbg_info"]["tb_id"] = 0
    assert any(each.kind in {"result", "race"} for each in prove(program(json.dumps(data))).problems)
    assert fault(json.dumps(data), seed=1, schedules=40)


def test_leading_threads_are_threads():
    # Thread 1 signals on its channel before thread 0 has waited on its own.
    wait, tell = signals("wait", (0, 1)), signals("signal", (1, 0))
    begin = [signals("rlxsignal", (0, 1)), signals("rlxwait", (0, 1)), NOP]
    put = op("put", here("o", "own"), there("o", "own"), channel_type="memory")
    over = [signals("wait", (0, 1))]
    good = memory_plan([[*begin, put, NOP, signals("signal", (0, 1)), *over]])
    assert prove(program(good)).holds
    swapped = memory_plan([[signals("rlxsignal", (0, 1)), wait, tell, put, NOP, *over]])
    assert not prove(program(swapped)).holds


def test_packets_of_the_next_call():
    # With one scratch buffer, a rank's next packets may overwrite those that its peer has not read.
    send = op("ppkt", here("o", "own"), there("s", "own"), channel_type="memory")
    take = op("upkt", here("s", "peer"), here("o", "peer"))
    assert prove(program(gather(send, take))).holds
    single = memory_plan([[send, take]], use_double_scratch_buffer=False)
    assert "in the next call" in both_say(single, "race")


@pytest.mark.parametrize(("block", "place"), [(1, 1), (0, 0)], ids=["memory", "proxy"])
def test_packets_that_a_rank_passes_on_as_well(block, place):
    # Rank 4 passes on a chunk that its peer has from another rank, too: the same packets, maybe late. Their
    # half of a double scratch buffer is used again in the call after the next.
    data = plan("multi_node_allgather_pkt")
    twice = ops_of(data["gpus"], 4, block)[place]
    for item in (*twice["src_buff"], *twice["dst_buff"]):
        item["size"] = 2
    assert prove(program(json.dumps(data))).holds
    assert not fault(json.dumps(data), seed=1, schedules=5)
    single = prove(program(json.dumps(data | {"use_double_scratch_buffer": False})))
    assert {problem.kind for problem in single.problems} == {"race"}


def test_packets_that_arrive_again_while_they_are_read():
    send = op("ppkt", here("o", "own"), there("s", "own"), **MEMORY)
    take = op("upkt", here("s", "peer"), here("o", "peer"))
    text = memory_plan([[send, take], [op("upkt", here("s", "peer"), here("s", 6)), send]])
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=60)
    other = memory_plan([
        [send, take],
        [op("upkt", here("s", "peer"), here("s", 6)), op("ppkt", here("s", 6), there("s", "own"), **MEMORY)],
    ])  # fmt: skip
    both_say(other, "race")


AGAIN = [NOP, signals("signal"), signals("wait")]


def test_a_put_to_scratch_before_a_rank_has_begun():
    # In its last call, the rank has signalled that it no longer needs the chunk, or has not.
    early = [
        signals("rlxsignal"),
        signals("rlxwait"),
        op("put", here("o", "own"), there("s", "own"), **MEMORY),
    ]
    copy = op("copy", here("s", "peer"), here("o", "peer"))
    text = memory_plan([[*early, *LEAVE, copy, *AGAIN]], use_double_scratch_buffer=False)
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=60)
    text = memory_plan([[*early, *LEAVE, copy]], use_double_scratch_buffer=False)
    assert "before that rank has begun" in both_say(text, "race")


def test_a_proxy_that_reads_scratch_in_the_next_call():
    copy = op("copy", here("o", "own"), here("s", 0))
    put = [op("put", here("s", 0), there("o", "own"), **PORT), op("signal", **PORT), op("wait", **PORT)]
    text = memory_plan([[*ARRIVE, copy, NOP, *put]], use_double_scratch_buffer=False)
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=60)
    text = memory_plan([[copy, *ARRIVE, *put]], use_double_scratch_buffer=False)
    assert "reads chunk 0 of the scratch buffer of rank 0 when that rank may have ended" in both_say(
        text, "race"
    )


def test_the_memory_of_packets_used_otherwise_in_the_last_call():
    # The packets of chunk 1 take the memory of the raw chunk 3, too.
    packets = [
        op("ppkt", here("o", "own"), there("s", 1), **MEMORY),
        op("upkt", here("s", 1), here("o", "peer")),
    ]
    raw = [op("copy", here("o", "peer"), here("s", 3)), NOP, op("copy", here("s", 3), here("o", "peer"))]
    text = memory_plan([[*packets, NOP, *raw, *AGAIN]], use_double_scratch_buffer=False)
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=60)
    text = memory_plan([[*packets, *AGAIN, NOP, *raw]], use_double_scratch_buffer=False)
    assert "in the next call" in both_say(text, "race")


def test_a_relaxed_wait_for_data():
    put = op("put", here("o", "own"), there("o", "own"), **MEMORY)
    text = gather(*ARRIVE, put, NOP, signals("signal"), signals("rlxwait"), NOP)
    (caution,) = prove(program(text)).cautions
    assert caution.startswith("Relaxed signals or waits (rlxsignal, rlxwait) follow writes")
    assert not prove(program(gather(*ARRIVE, put, *LEAVE))).cautions


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (op("copy", here("i", 0), here("s", 0)) | {"src_buff": [here("i", 0)] * 2}, "uses the first only"),
        (
            op("put", here("o", 0), there("o", 0), **MEMORY) | {"src_buff": [here("o", 0), here("s", 0)],
               "dst_buff": [there("o", 0)] * 2},
            "takes all from the first one's",
        ),
        (op("put", here("o", 0), there("o", 0)), "'channel_type' cannot be ''"),
        (
            op("pws", here("o", 0), there("o", 0), channel_ids=[0], **MEMORY),
            r"op 0 \(pws\): MSCCL\+\+'s executor sends no signal with this op over memory channels",
        ),
    ],
)  # fmt: skip
def test_what_the_executor_would_ignore(change, words):
    with pytest.raises(ConfigError, match=words):
        program(memory_plan([[change]]))


def test_an_op_that_the_executor_does_not_have():
    with pytest.raises(ConfigError, match="there is no op 'glre' - did you mean 'glres'"):
        program(gather(op("glre", here("o", 0), here("o", 0))))


def test_a_get_exchanges_its_offsets():
    same = op("get", there("o", "peer"), here("o", "peer"), channel_type="memory")
    text = gather(*ARRIVE, same, *LEAVE)
    assert prove(program(text)).holds
    assert not fault(text, seed=1, schedules=20)
    other = op("get", there("o", "peer"), here("s", "own"), channel_type="memory")
    copy = op("copy", here("s", "own"), here("o", "peer"))
    assert "nothing has been written" in both_say(gather(*ARRIVE, other, NOP, copy, *LEAVE), "unwritten")


@pytest.mark.parametrize("name", ["get", "rre", "res", "respkt"])
def test_an_op_that_only_memory_channels_have(name):
    ends = {
        "get": ([there("o", "peer")], [here("o", "peer")]),
        "rre": ([here("o", "own"), there("o", "peer")], [here("o", "peer")]),
        "res": ([here("o", "own")], [here("o", "own"), there("o", "own")]),
        "respkt": ([here("o", "own")], [here("o", "own"), there("s", "own")]),
    }
    sources, targets = ends[name]
    text = gather({"name": name, "src_buff": sources, "dst_buff": targets, **PORT})
    with pytest.raises(ConfigError, match="has no such op over port channels"):
        program(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (op("put", here("o", 0), here("o", 1)), "its destinations must be buffers of other ranks"),
        (op("copy", there("o", 0), here("o", 0), **MEMORY), "its sources must be one buffer of its own rank"),
        (
            op("re") | {"src_buff": [here("o", 0)] * 2, "dst_buff": [here("s", 0), here("s", 1)]},
            "its destinations must be one buffer of its own rank",
        ),
        (
            op("rre") | {"src_buff": [here("o", 0), here("o", 1)], "dst_buff": [here("s", 0)]},
            "its sources must be a buffer of its own rank, then buffers of other ranks",
        ),
    ],
    ids=lambda each: each["name"] if isinstance(each, dict) else "",
)  # fmt: skip
def test_buffers_where_the_executor_assumes_others(change, words):
    with pytest.raises(ConfigError, match=words):
        program(gather(change))


def test_another_ranks_double_scratch_buffer():
    # A put writes to the first half, and a copy reads from the half of this call.
    put = op("put", here("o", "own"), there("s", "own"), channel_type="memory")
    copy = op("copy", here("s", "peer"), here("o", "peer"))
    text = gather(*ARRIVE, put, *LEAVE, copy)
    not_read(text, "reaches the scratch buffer of another rank only with packets")
    single = json.dumps(json.loads(text) | {"use_double_scratch_buffer": False})
    assert not fault(single, seed=1, schedules=20)
    program(single)


def test_packets_without_room_for_their_flags():
    send = op("ppkt", here("o", "own"), there("s", 6), channel_type="memory")
    text = gather(send, op("upkt", here("s", 6), here("o", "peer")))
    assert prove(program(text)).holds
    simple = json.dumps(json.loads(text) | {"protocol": "Simple"})
    not_read(simple, "the scratch buffer of rank 1 has no room for the flags of packets up to chunk 6")


def test_a_remote_buffer_that_the_channel_does_not_reach():
    put = op("put", here("o", "own"), there("o", "own"), **PORT)
    data = json.loads(gather(*ARRIVE, put, NOP, op("signal", **PORT), op("wait", **PORT)))
    for gpu in data["gpus"]:
        gpu["remote_buffers"][0]["access_channel_types"] = ["memory"]
    not_read(json.dumps(data), "remote buffer 0 over port channels, but that buffer's 'access_channel_types'")


def test_a_channel_to_another_rank_than_its_buffer():
    data = plan("multi_node_allgather")
    data["gpus"][0]["remote_buffers"] = [
        each | {"rank": 2} if "port" in each["access_channel_types"] else each
        for each in data["gpus"][0]["remote_buffers"]
    ]
    not_read(json.dumps(data), r"its port channels lead to ranks \[4\], but its destinations are at .* \[2\]")


def test_a_switch_channel_that_not_all_ranks_have():
    data = plan("single_node_allreduce_nvls_zero_copy")
    channel = next(each for each in data["gpus"][3]["channels"] if each["channel_type"] == "switch")
    channel["rank_groups"][0]["ranks"].reverse()
    not_read(json.dumps(data), "ranks 0 and 3 do not have the same switch channels")


def test_halves_of_a_double_scratch_buffer():
    data = plan("allreduce_packet")
    data["gpus"][1]["scratch_chunks"] += 1
    not_read(json.dumps(data), "all ranks need the same number of scratch chunks")


def test_ranks_with_other_numbers_of_chunks():
    data = plan("allreduce_packet")
    data["gpus"][1]["input_chunks"] = 2
    not_read(json.dumps(data), "rank 1 has 2 input chunks and 4 output chunks")


def test_fewer_threads_than_channels():
    text = gather(signals("signal", (0, 1)), signals("wait", (0, 1)))
    program(text)
    with pytest.raises(
        ConfigError, match=r"op 0 \(signal\): it has 2 channels or semaphores, .* have 1 threads"
    ):
        program(json.dumps(json.loads(text) | {"num_threads_per_block": 1}))


def test_units_that_the_executor_does_not_move():
    text = json.loads(gather(NOP))
    program(json.dumps(text | {"buffer_alignment": 32}))
    with pytest.raises(ConfigError, match="'buffer_alignment' is 8, but MSCCL"):
        program(json.dumps(text | {"buffer_alignment": 8}))


def test_groups_and_packets_in_a_pipeline():
    body = op("cpkt", here("o", "own"), here("s", 0))
    pipeline = {"name": "pipeline", "ops": [body], "iter_context": {"unit_size": 64, "num_chunks": 1}}
    with pytest.raises(ConfigError, match="past their ends in a pipeline"):
        program(memory_plan([[pipeline]]))


def test_a_rank_without_thread_blocks():
    data = json.loads(gather(op("put", here("o", 0), there("o", 0), **MEMORY)))
    data["gpus"][1]["threadblocks"] = []
    assert "before that rank has begun" in prove(program(json.dumps(data))).problems[0].message
