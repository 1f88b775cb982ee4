"""The distribution of step times: recurring long steps, and their causes."""

import random
import time
import types
from math import comb

import pytest
from evidence_file import EvidenceFile
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import convert, doctor
from chakrascope.converter.building import FreeCores, free_cores, lacks_bfloat16, run_delays, step_times
from chakrascope.converter.building._measured_steps import _chance, cores_of_ranks, measured_steps
from chakrascope.tracer import RankEntry, StepRange, read_evidence

START = 1_000  # microseconds
TRAIN, TRAIN_PLACE = ("train", "train.py", 40, "script"), "train (train.py:40)"
SCORE = ("score", "train.py", 70, "script")
SAVE = ("save", "torch/serialization.py", 9, "library")
VALIDATE = (("Net.forward", "net.py", 4, "script"), ("validate", "train.py", 80, "script"), TRAIN)


def run(
    folder, durations, frames_of=lambda _: (TRAIN,), *,
    collected=lambda _: 0, delayed=lambda _: 0, samples=(),
    loaded=lambda _: 0, workers=0, page_fault_ns=0, **each,
):  # fmt: skip
    """Convert a run with unprofiled steps of *durations*, sampled every 10 ms in *frames_of*."""
    evidence, time, gc, delay, loader = EvidenceFile(), START, 0, 0, 0
    evidence.loader("Images.__getitem__", "data.py", 7, workers)
    evidence.step(0, time)
    for sampled, frames in samples:
        evidence.sample(sampled, *frames, cpu=sampled)
    for number, duration in enumerate(durations):
        for sampled in () if samples else range(time + 10_000, time + duration + 1, 10_000):
            evidence.sample(sampled, *frames_of(number), cpu=sampled)
        time += duration
        gc += collected(number)
        delay += delayed(number)
        loader += loaded(number)
        so_far = {name: (number + 1) * value for name, value in each.items()}
        evidence.step(number + 1, time, gc=gc, delay=delay, loader=loader, **so_far)
    thread = Thread(0)
    thread.op("aten::mm", START, START + 9_000, 1)
    entry = thread.write(folder, [(START, START + 10_000)]) | {"process_groups": []}
    evidence.write(folder / "rank0.evidence.json.gz", page_fault_ns=page_fault_ns)
    write_trace_set(folder, [entry | {"evidence": "rank0.evidence.json.gz"}])
    return step_times(convert(folder).metadata)


def test_a_checkpoint_at_every_third_step_is_found(tmp_path):
    def saves(number):
        return number % 3 == 2

    times = run(
        tmp_path,
        [250_000 if saves(number) else 50_000 for number in range(24)],
        lambda number: (SAVE, TRAIN) if saves(number) else (TRAIN,),
    )
    assert (times.every, times.cause, times.place) == (3, "checkpoint", "train (train.py:40)")
    assert times.gain_ns == pytest.approx(200e6 / 3, rel=0.05)
    text = "Every third step takes 250 ms instead of 50.0 ms: checkpoint in train (train.py:40)."
    assert times.text == text
    assert text in [finding.cause for finding in doctor(tmp_path)]


def test_the_cause_is_that_of_the_rank_that_does_not_wait(tmp_path):
    """Rank 0 saves at every third step, and rank 1, whose steps take a little longer, waits for it."""
    for rank in (0, 1):
        evidence, time, waited = EvidenceFile(), START, 0
        evidence.step(0, time)
        for number in range(24):
            is_long = number % 3 == 2
            duration = (250_000 if is_long else 50_000) + rank
            for sampled in range(time + 10_000, time + duration + 1, 10_000):
                evidence.sample(sampled, *((SAVE, TRAIN) if is_long and not rank else (TRAIN,)), cpu=sampled)
            time, waited = time + duration, waited + 200_000 * (is_long and rank)
            evidence.step(number + 1, time, collective=waited)
        evidence.write(tmp_path / f"{rank}.gz", rank)
    entries = [types.SimpleNamespace(rank=rank, hostname="", evidence=f"{rank}.gz") for rank in (0, 1)]
    times = step_times(measured_steps(entries, tmp_path))
    assert (times.every, times.cause, times.place) == (3, "checkpoint", "train (train.py:40)")


def test_checkpoint_is_found_by_sparse_samples(tmp_path):
    """Saving begins in every third step; the end of this step, sampled too, is like other steps."""
    times = run(
        tmp_path,
        [30_000 if number % 3 == 0 else 10_000 for number in range(150)],
        samples=[
            (time, (SAVE, TRAIN) if (time - START) % 50_000 < 20_000 else (TRAIN,))
            for time in range(START, START + 2_500_000, 37_000)
        ],
    )
    assert (times.every, times.cause, times.place) == (3, "checkpoint", "train (train.py:40)")


def test_a_checkpoint_is_found_though_all_steps_wait_for_a_processor(tmp_path):
    delays = [1_000 * (150 + 97 * number % 200) for number in range(24)]
    times = run(
        tmp_path,
        [delay + (120_000 if number % 3 == 2 else 20_000) for number, delay in enumerate(delays)],
        lambda number: (SAVE, TRAIN) if number % 3 == 2 else (TRAIN,),
        delayed=delays.__getitem__,
    )
    assert (times.every, times.cause, times.place) == (3, "checkpoint", "train (train.py:40)")
    assert times.gain_ns == pytest.approx(100e6 / 3, rel=0.2)


def test_long_steps_are_placed_in_the_function_that_only_they_call(tmp_path):
    """Both kinds of steps run the forward pass; only every third step generates a sample."""
    forward, generate = ("Net.forward", "net.py", 4, "script"), ("generate", "train.py", 90, "script")
    times = run(
        tmp_path,
        [250_000 if number % 3 == 2 else 50_000 for number in range(24)],
        lambda number: (forward, generate, TRAIN) if number % 3 == 2 else (forward, TRAIN),
    )
    assert (times.every, times.cause, times.place) == (3, "python", "generate (train.py:90)")


@pytest.mark.parametrize(("frames", "is_enough"), [((SAVE, TRAIN), True), ((SCORE, TRAIN), False)])
def test_two_checkpoints_in_a_short_run_are_the_scripts(tmp_path, frames, is_enough):
    long = {7, 11}
    times = run(
        tmp_path,
        [250_000 if number in long else 50_000 for number in range(13)],
        lambda number: frames if number in long else (TRAIN,),
    )
    assert (times.long_count, times.place) == (2, TRAIN_PLACE if is_enough else "")
    assert times.is_the_scripts == is_enough


def test_the_first_steps_are_left_out_if_just_enough_steps_remain(tmp_path):
    times = run(tmp_path, [400_000, 80_000, 60_000, *(30_000 for _ in range(6))])
    assert (times.steps, times.most_ns) == (6, 30_000_000)


def test_steps_that_wait_for_a_processor_longer_than_others_are_the_machines(tmp_path):
    delays = [400_000 if number % 4 == 3 else 10_000 for number in range(24)]
    times = run(tmp_path, [30_000 + delay for delay in delays], delayed=delays.__getitem__)
    assert times.text == ""


@pytest.mark.parametrize(
    ("long", "phases", "long_count"),
    [
        (range(9, 14), (1, 1, 1), 0),
        (range(9, 14), (0, 1, 0), 5),  # the script may do more in one phase
        ((5, 9, 16, 22, 23), (1, 1, 1), 5),  # batches may be larger
    ],
)
def test_steps_in_a_row_that_are_longer_in_all_phases_are_the_machines(tmp_path, long, phases, long_count):
    evidence, time, spent = EvidenceFile(), START, [0, 0, 0]
    evidence.step(0, time)
    for number in range(30):
        for place, is_longer in enumerate(phases):
            own = 30_000 if number in long and is_longer else 10_000
            spent[place] += own
            time += own
        named = dict(zip(("forward", "backward", "loader"), spent, strict=True))
        evidence.step(number + 1, time, **named)
    thread = Thread(0)
    thread.op("aten::mm", START, START + 9_000, 1)
    entry = thread.write(tmp_path, [(START, START + 10_000)]) | {"process_groups": []}
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    assert step_times(convert(tmp_path).metadata).long_count == long_count


def test_validation_is_placed_at_the_function_that_validates(tmp_path):
    durations = [300_000 if number % 4 == 3 else 30_000 for number in range(24)]
    times = run(tmp_path, durations, lambda number: VALIDATE if number % 4 == 3 else (TRAIN,))
    assert (times.every, times.cause, times.place) == (4, "validation", "validate (train.py:80)")


@pytest.mark.parametrize(("workers", "cause"), [(2, "worker_wait"), (0, "input_pipeline")])
def test_a_loader_that_is_not_sampled_is_counted(tmp_path, workers, cause):
    """No sample is taken while workers start: the next sample includes this time."""

    def starts(number):
        return number % 3 == 2

    times = run(
        tmp_path,
        [60_000 if starts(number) else 10_000 for number in range(24)],
        lambda number: (("step", "torch/optim/adam.py", 1, "library"), TRAIN) if starts(number) else (TRAIN,),
        loaded=lambda number: 45_000 if starts(number) else 100,
        workers=workers,
    )
    assert (times.every, times.cause) == (3, cause)


STARTS = ("Popen._launch", "multiprocessing/popen_fork.py", 1, "standard")
LOADS = ("_try_get_data", "torch/utils/data/dataloader.py", 1, "library")


def test_the_first_batch_of_new_workers_is_a_part_of_their_start(tmp_path):
    times = run(
        tmp_path,
        [100_000 if number % 3 == 2 else 10_000 for number in range(24)],
        lambda number: (STARTS if number == 5 else LOADS, TRAIN) if number % 3 == 2 else (TRAIN,),
        loaded=lambda number: 90_000 if number % 3 == 2 else 100,
        workers=2,
    )
    assert (times.every, times.cause, times.place) == (3, "process_start", "train (train.py:40)")


def test_collections_at_no_period_are_counted(tmp_path):
    long = {5, 6, 13, 21}
    durations = [90_000 if number in long else 30_000 for number in range(30)]
    times = run(tmp_path, durations, collected=lambda number: 60_000 if number in long else 0)
    assert (times.every, times.long_count, times.cause) == (0, 4, "garbage_collection")
    assert times.text.startswith(
        "4 of 27 steps take 90.0 ms on average instead of 30.0 ms: garbage collection"
    )


@pytest.mark.parametrize("others", [(TRAIN,), (("backward", "torch/autograd/graph.py", 9, "library"),)])
def test_counted_causes_have_no_place(tmp_path, others):
    long = {5, 6, 13, 21}
    times = run(
        tmp_path,
        [90_000 if number in long else 30_000 for number in range(30)],
        lambda number: (SCORE, TRAIN) if number in long else others,
        collected=lambda number: 60_000 if number in long else 0,
    )
    assert (times.cause, times.place) == ("garbage_collection", "")


@pytest.mark.parametrize(
    ("others", "place", "distinct"), [((TRAIN,), "score (train.py:70)", 1), ((SCORE, TRAIN), "", 0)]
)
def test_a_function_that_only_long_steps_run_distinguishes_them(tmp_path, others, place, distinct):
    long = {5, 6, 13, 21}
    durations = [85_000 if number in long else 25_000 for number in range(30)]
    times = run(tmp_path, durations, lambda number: (SCORE, TRAIN) if number in long else others)
    assert (times.every, times.place, times.is_distinct) == (0, place, distinct)


def test_steps_in_which_all_lines_take_longer_have_no_cause(tmp_path):
    """On a busy machine, any part of a step may become longer. Samples of short steps are few."""
    numbers = random.Random(4)
    long = {number for number in range(600) if numbers.random() < 0.1}
    durations = [2_000 if number in long else 1_000 for number in range(600)]
    samples = [
        (time, (("train", "train.py", numbers.randrange(40, 56), "script"),))
        for time in range(START, START + sum(durations), 27_000)
    ]
    times = run(tmp_path, durations, samples=samples)
    assert (times.long_count, times.cause, times.place) == (len(long - {0, 1, 2}), "", "")
    assert times.text.endswith(" steps take 2.00 ms on average instead of 1.00 ms.")


def test_loading_that_takes_longer_like_all_work_is_not_the_cause(tmp_path):
    """Every step loads data for 60 % of its time, and a few steps take three times as long."""
    long = {5, 9, 16, 22, 23}
    times = run(
        tmp_path,
        [60_000 if number in long else 20_000 for number in range(30)],
        loaded=lambda number: 36_000 if number in long else 12_000,
    )
    assert (times.long_count, times.cause, times.is_the_scripts) == (5, "", False)


def test_waits_for_a_processor_are_estimated_if_steps_are_too_short_to_read_them(tmp_path):
    """The reading at the end of each step of at least 1 ms includes the waits of shorter steps."""
    evidence, time, cpu, delay = EvidenceFile(), START, 0, 0
    evidence.step(0, time)
    for number in range(60):
        waited = 2_000 if number % 5 == 4 else 0
        cpu, time, delay = cpu + 500, time + 500 + waited, delay + waited
        evidence.step(number + 1, time, cpu=cpu, delay=delay if waited else (-1,))
    evidence.write(tmp_path / "0.gz")
    entries = [types.SimpleNamespace(rank=0, hostname="", evidence="0.gz")]
    times = step_times(measured_steps(entries, tmp_path))
    assert (times.most_ns, times.long_count, times.text) == (2_500_000, 0, "")


def captured(folder, durations, frames_of=lambda _: (TRAIN,), delays=None, first=2):
    """Return metadata of a run in which all steps from *first* but the last were profiled.

    The first profiled step is recorded for its structure, and the others are captured. Steps waited for a CPU
    for *delays*.
    """
    evidence, time, delay, last = EvidenceFile(), START, 0, len(durations) - 1
    evidence.step(0, time)
    for number, duration in enumerate(durations):
        for sampled in range(time + 10_000, time + duration + 1, 10_000):
            evidence.sample(sampled, *frames_of(number), cpu=sampled)
        time += duration
        delay += delays[number] if delays else 0
        evidence.step(number + 1, time, recorded=int(first <= number < last), delay=delay)
    evidence.write(folder / "0.gz")
    steps = [StepRange(number, 0, 1) for number in range(first + 1, last)]
    entry = RankEntry(0, evidence="0.gz", steps=steps)
    return measured_steps([entry], folder)


@pytest.mark.parametrize("delays", [0, 14], ids=["quiet", "busy"])
def test_checkpoints_are_found_among_captured_steps_if_few_others_ran(tmp_path, delays):
    """On the busy machine, all steps wait for a CPU for most of their time."""
    work = [200_000 if number % 3 == 0 else 20_000 for number in range(12)]
    metadata = captured(
        tmp_path,
        [own * (1 + delays) for own in work],
        lambda number: (SAVE, TRAIN) if number % 3 == 0 else (TRAIN,),
        [own * delays for own in work],
    )
    times = step_times(metadata, or_captured=True)
    assert times.is_the_scripts
    assert (times.steps, times.long_count, times.cause, times.place) == (8, 3, "checkpoint", TRAIN_PLACE)
    assert times.gain_ns == 3 / 8 * 180_000_000 * (1 + delays)
    assert times.text.startswith("3 of 8 captured steps take ")
    assert step_times(metadata) is None
    assert run_delays(metadata | {"steps": [4]}) is None


def test_many_captured_steps_have_a_period(tmp_path):
    durations = [200_000 if number % 3 == 0 else 20_000 for number in range(22)]
    times = step_times(
        captured(tmp_path, durations, lambda number: (SCORE, TRAIN) if number % 3 == 0 else (TRAIN,)),
        or_captured=True,
    )
    assert times.text == (
        "Every third captured step takes 200 ms instead of 20.0 ms: python between operators in "
        "score (train.py:70)."
    )


@pytest.mark.parametrize(
    ("durations", "frames"),
    [
        ([400_000, 80_000, 900_000, *(30_000 + 500 * (number % 5) for number in range(9))], (TRAIN,)),
        ([200_000 if number in (4, 6, 9) else 20_000 for number in range(12)], (SCORE, TRAIN)),
        ([200_000 if number % 3 == 0 else 20_000 for number in range(9)], (SAVE, TRAIN)),  # 5 are captured
    ],
    ids=["even", "by chance", "few"],
)
def test_captured_steps_are_not_reported_unless_the_script_makes_some_long(tmp_path, durations, frames):
    usual = sorted(durations)[len(durations) // 2]
    found = captured(
        tmp_path, durations, lambda number: frames if durations[number] > 2 * usual else (TRAIN,)
    )
    assert step_times(found, or_captured=True) is None


def test_first_captured_steps_are_left_out(tmp_path):
    """The functions compile and allocate."""
    durations = [200_000 if number < 3 else 20_000 for number in range(13)]
    found = captured(tmp_path, durations, lambda number: (SAVE, TRAIN) if number < 3 else (TRAIN,), first=0)
    assert step_times(found, or_captured=True) is None


def test_several_converted_steps_contain_the_long_ones(tmp_path):
    durations = [200_000 if number % 3 == 0 else 20_000 for number in range(12)]
    found = captured(tmp_path, durations, lambda number: (SAVE, TRAIN) if number % 3 == 0 else (TRAIN,))
    assert step_times({**found, "steps": [4]}, or_captured=True) is not None
    assert step_times({**found, "steps": [3, 4, 5]}, or_captured=True) is None


def test_even_steps_with_a_slow_start_are_not_reported(tmp_path):
    times = run(tmp_path, [400_000, 80_000, *(30_000 + 500 * (number % 5) for number in range(20))])
    assert not times.matters
    assert times.text == ""
    assert (times.steps, times.median_ns) == (19, 31_000_000)


@pytest.mark.parametrize(("steps", "period", "every"), [(15, 5, 0), (24, 7, 0), (45, 15, 15)])
def test_three_long_steps_are_at_a_period_by_chance_in_short_runs(tmp_path, steps, period, every):
    long = {3 + number * period for number in range(3)}
    times = run(tmp_path, [90_000 if number in long else 30_000 for number in range(steps)])
    assert (times.every, times.long_count) == (every, 3)


def test_one_long_step_is_not_the_job(tmp_path):
    times = run(tmp_path, [300_000 if number == 12 else 30_000 for number in range(20)])
    assert (times.text, times.most_ns) == ("", 300_000_000)


def test_few_steps_are_no_distribution(tmp_path):
    assert run(tmp_path, [30_000, 90_000, 30_000, 90_000]) is None


@pytest.mark.parametrize("metadata", [{}, {"step_times": 3}, {"step_times": {"steps": 3}}])
def test_metadata_of_something_else_has_no_step_times(metadata):
    assert step_times(metadata) is None


def test_run_delays_cover_median_and_shown_steps(tmp_path):
    run(tmp_path, [50_000] * 24, delayed=lambda number: 30_000 if number == 9 else 1_000 * (number % 5))
    metadata = convert(tmp_path).metadata
    assert metadata["run_delay_ns"] == {"median": 2_000_000}  # no profiler recorded a step
    stated = {"median": 2_000_000, "4": 7_000_000, "5": 9_000_000}
    assert run_delays({"steps": [4, 5], "run_delay_ns": stated}) == (4_000_000, 16_000_000)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"run_delay_ns": {"median": 1}},
        {"run_delay_ns": 5, "steps": [1]},
        {"run_delay_ns": {"median": 1, "2": 1}, "steps": [1]},
    ],
)
def test_run_delays_are_unknown_unless_stated(metadata):
    assert run_delays(metadata) is None


@pytest.mark.parametrize(("system", "fault_ns"), [(9_000, 8_000_000), (6_000, 6_000_000)])
def test_the_mean_step_compiles_and_gets_pages(tmp_path, system, fault_ns):
    """A page fault costs the measured time of a page, at most the time in the kernel."""
    counted = {"compiling": 30_000, "faults": 8_000, "system": system}
    times = run(tmp_path, [50_000] * 24, page_fault_ns=1_000, **counted)
    assert times.mean_ns("compilation") == 30_000_000
    assert (times.faults, times.fault_ns) == (8_000, fault_ns)


def test_the_mean_step_collects_garbage(tmp_path):
    times = run(tmp_path, [50_000] * 24, collected=lambda number: 40_000 * (number % 2))
    assert times.collection_ns == pytest.approx(20_000_000, rel=0.05)
    assert (times.mean_ns("garbage_collection"), times.mean_ns("worker_wait")) == (times.collection_ns, 0)


@pytest.mark.parametrize(
    "collected",
    [lambda number: 300_000 * (number == 9), lambda number: -400_000 if number == 12 else 40_000],
    ids=["once", "reset"],
)
def test_what_one_step_collects_is_not_said_of_the_mean_step(tmp_path, collected):
    times = run(tmp_path, [50_000 + 300_000 * (number == 9) for number in range(24)], collected=collected)
    assert times.collection_ns == 0


def test_waits_in_long_steps_of_another_cause_are_not_in_the_mean_step(tmp_path):
    start = ("Process.start", "multiprocessing/process.py", 120, "library")
    long = {6, 9, 14, 20}
    times = run(
        tmp_path,
        [250_000 if number in long else 50_000 for number in range(24)],
        lambda number: (start, TRAIN) if number in long else (TRAIN,),
        loaded=lambda number: 60_000 if number in long else 2_000,
        workers=2,
    )
    assert (times.cause, times.worker_wait_ns) == ("process_start", 2_000_000)


STEP = 20_000  # microseconds


def cores_of(folder, *ranks, hosts=("a",)):
    """Return the free cores of a job with these busy and idle cores on its ranks."""
    entries = []
    for rank, (busy, idle, facts) in enumerate(ranks):
        evidence, workers = EvidenceFile(), facts.pop("workers", 0)
        evidence.loader("Images.__getitem__", "data.py", 7, workers)
        for number in range(30):
            # The profiled steps keep all cores busy, and the idle time is read at every third step.
            profiled, spent = 10 <= number < 14, STEP * number
            idle_us = round((idle or 0) * (spent - STEP * min(4, max(0, number - 9))))
            is_read = idle is not None and number % 3 == 0
            evidence.step(
                number, spent, recorded=int(profiled), process_cpu=round(busy * spent),
                idle=idle_us if is_read else (-1,),
            )  # fmt: skip
        evidence.write(folder / f"rank{rank}.evidence.json.gz", rank, **facts)
        thread = Thread(rank)
        thread.op("aten::mm", 1_000, 10_000 - rank, 1)
        entry = thread.write(folder, [(1_000, 11_000)]) | {"process_groups": []}
        entry |= {"evidence": f"rank{rank}.evidence.json.gz", "hostname": hosts[rank % len(hosts)]}
        entries.append(entry)
    write_trace_set(folder, entries)
    return free_cores(convert(folder).metadata)


@pytest.mark.parametrize(
    ("busy", "idle", "facts", "expected"),
    [
        (1, 3, {"cores": 4}, (4, 1, 3)),
        (1, 1, {"cores": 4}, (4, 1, 1)),  # the others belong to other jobs
        (1, 60, {"cores": 64, "quota": 2.0}, (2, 1, 1)),
        (1, 60, {"cores": 64, "quota": 1.0}, (1, 1, 0)),
        (0.5, 1, {"cores": 4, "workers": 2}, (4, 2.5, 1)),
        (0.5, 3.5, {"cores": 4, "workers": 2}, (4, 0.5, 3.5)),  # its workers are idle
    ],
)
def test_free_cores_are_idle_and_within_the_quota(tmp_path, busy, idle, facts, expected):
    assert cores_of(tmp_path, (busy, idle, facts)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("hosts", "busy"), [(("a",), 2), (("a", "b"), 1)])
def test_ranks_of_one_host_share_its_cores(tmp_path, hosts, busy):
    ranks = [(1, 2, {"cores": 4}), (1, 2, {"cores": 4})]
    assert cores_of(tmp_path, *ranks, hosts=hosts) == pytest.approx((4, busy, 2), abs=0.01)


def test_ranks_without_evidence_are_as_busy_as_the_others(tmp_path):
    assert cores_of(tmp_path, (1, 2, {"cores": 8})) == pytest.approx((8, 1, 2), abs=0.01)
    evidence = {0: read_evidence(tmp_path / "rank0.evidence.json.gz")}
    entries = [RankEntry(rank, hostname=host) for rank, host in enumerate("aaab")]
    assert cores_of_ranks(entries, evidence)["cores"]["0"] == pytest.approx([8, 3, 2], abs=0.01)


@pytest.mark.parametrize(
    ("units", "expected"), [((False, False), True), ((True, True), False), ((False, None), False)]
)
def test_workload_lacks_bfloat16_if_no_processor_has_units_for_it(tmp_path, units, expected):
    """Even if too few steps were timed for other advice."""
    entries = []
    for rank, has_units in enumerate(units):
        evidence = EvidenceFile()
        evidence.step(0, START)
        evidence.write(tmp_path / f"{rank}.gz", rank, bfloat16=has_units)
        entries.append(RankEntry(rank, evidence=f"{rank}.gz"))
    metadata = measured_steps(entries, tmp_path)
    assert lacks_bfloat16(metadata) is expected


def test_captures_without_readings_have_no_free_cores(tmp_path):
    assert cores_of(tmp_path, (1, None, {})) is None
    assert free_cores({"cores": {"0": ["two", 1, 1]}}) is None
    assert free_cores({"cores": [1]}) is None


def test_as_much_work_remains_when_it_is_moved():
    assert FreeCores(2, 1, 1).movable_share == 0.5
    assert FreeCores(2, 2, 0).movable_share == 0
    assert FreeCores(64, 1, 63).movable_share == pytest.approx(63 / 64)


def test_the_chance_of_long_steps_is_that_of_drawing_without_replacement():
    """The probability for many steps is computed quickly."""
    for count, due, long, steps in ((3, 5, 6, 20), (0, 4, 4, 9), (7, 8, 19, 20), (5, 4, 6, 20)):
        ways = [comb(due, one) * comb(steps - due, long - one) for one in range(count, min(due, long) + 1)]
        assert _chance(count, due, long, steps) == pytest.approx(sum(ways) / comb(steps, long))
    begin = time.process_time()
    assert _chance(200, 1600, 1600, 16_384) == pytest.approx(0.0, abs=1e-3)
    assert time.process_time() - begin < 0.2
