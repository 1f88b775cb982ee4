"""Operators of inference engines have work where their annotations and allocations tell it."""

import pytest
from kineto_trace import KinetoTrace

from chakrascope.converter import convert_files

HALF = "c10::BFloat16"
VLLM = "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)"
DECODING = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
QUERIES = ("vllm::unified_attention_with_output", [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]])
LAYER = ("vllm::moe_forward", [[32, 3072], [32, 32]])


def converted(tmp_path, *calls, kernel="kernel"):
    """Return the rows of the table of *calls*: annotation, operator, shapes, types, allocated shapes."""
    trace = KinetoTrace()
    for number, (annotation, name, shapes, types, allocated) in enumerate(calls, 1):
        time = 1_000.0 * number
        if annotation:
            trace.add("user_annotation", annotation, time, 90.0)
        called = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": [""] * len(shapes)}
        trace.op(name, time + 5, 50.0, 2 * number, **called)
        for place, shape in enumerate(allocated):
            asked = {"Input Dims": [[]], "Input type": ["ScalarList"], "Concrete Inputs": [shape]}
            trace.op("aten::empty", time + 6 + place, 0.5, **asked)
        trace.launch((time + 40, 1.0), [(time + 60, 10.0)], work=kernel)
    path = trace.write(tmp_path / "trace.json")
    table = convert_files(None, str(path), None, step="all").metadata["operators"]
    fields = ("operator", "kind", "precision", "arguments", "flops", "read", "written", "calls")
    return [
        dict(zip(fields, [*table["kinds"][number], calls], strict=True))
        for number, calls, *_ in table["ranks"]["0"]
    ]


def attended(tmp_path, annotation, name=QUERIES[0], shapes=QUERIES[1]):
    (row,) = converted(tmp_path, (annotation, name, shapes, [HALF] * len(shapes), []))
    return row["kind"], row["flops"], row["read"] + row["written"]


def test_decoding_attends_all_keys_of_the_batch(tmp_path):
    # As TraceLens has it for this call in its trace vllm_decode_full.
    assert attended(tmp_path, DECODING) == ("attention", 902_529_024, 113_340_416)


def test_a_prefill_attends_half_of_its_own_square(tmp_path):
    shapes = [[8192, 64, 64], [8192, 8, 64], [8192, 8, 64], [8192, 64, 64]]
    assert attended(tmp_path, VLLM, shapes=shapes) == ("attention", 65_010_180_096, 222_115_840)


def test_the_cache_may_have_pages_and_the_range_the_number_of_a_layer(tmp_path):
    name = "sglang_profiler::attention_paged_attention_ragged_100"
    pages = [[32, 32, 128], [9000], [32, 32, 128], [835874, 1, 8, 128], [835874, 1, 8, 128]]
    sums = "step[DECODE bs=32 g_sq=32 g_sqsq=32 g_sqsk=32785 g_sk=32785]"
    assert attended(tmp_path, sums, name, pages) == ("attention", 537_149_440, 134_811_648)


@pytest.mark.parametrize("annotation", ["", "step[DECODE bs=32]", "execute_context_2(64)_generation_0(0)"])
def test_without_sums_of_the_batch_attention_has_no_model(tmp_path, annotation):
    assert attended(tmp_path, annotation)[0] == ""


def test_each_batch_counts_for_itself(tmp_path):
    call = (*QUERIES, [HALF] * 4, [])
    longer = DECODING.replace("55086", "110172")
    rows = converted(tmp_path, (DECODING, *call), (longer, *call), (DECODING, *call))
    assert sorted((row["flops"], row["calls"]) for row in rows) == [(902_529_024, 2), (1_805_058_048, 1)]


def experts(tmp_path, allocated, kernel, layer=LAYER):
    (row,) = converted(tmp_path, ("", *layer, [HALF, HALF], allocated), kernel=kernel)
    return row


def test_a_layer_of_experts_has_the_width_that_it_allocates(tmp_path):
    row = experts(
        tmp_path, ["[32, 3072]", "[1, 128, 2944]", "[1, 1, 128, 3072]"], "_matmul_ogs_bf16xmxfp4_swiglu"
    )
    active = 32 * (1 - (28 / 32) ** 32)
    moved = 2 * 2 * (128 * 2944 + 32 * 3072)
    assert (row["kind"], row["flops"]) == ("experts", 2 * 128 * 3072 * 3 * 2944)
    assert row["read"] + row["written"] == moved + round(active * 3072 * 3 * 2944 * 4.25 / 8)


def test_without_a_gate_the_first_product_is_as_wide_as_its_result(tmp_path):
    assert experts(tmp_path, ["[128, 2944]"], "_matmul_ogs_bf16xbf16")["flops"] == 2 * 128 * 3072 * 2 * 2944


@pytest.mark.parametrize("allocated", [[], ["[32, 3072]"], ["[33, 2944]"], ["no shape"], ["[true]"], ["7"]])
def test_a_layer_that_allocates_no_routed_rows_has_no_model(tmp_path, allocated):
    assert experts(tmp_path, allocated, "_matmul_ogs_swiglu")["kind"] == ""


def test_experts_cost_the_same_by_their_weights_and_by_their_layer(tmp_path):
    layer = experts(tmp_path, ["[128, 2944]"], "_matmul_ogs_bf16_swiglu")
    shapes = [[32, 3072], [32, 5888, 3072], [32, 3072, 2944], [32, 4], [32, 4]]
    types = [HALF, HALF, HALF, "float", "int"]
    (row,) = converted(tmp_path, ("", "vllm::outplace_fused_experts", shapes, types, []))
    costs = ("kind", "flops", "read", "written")
    assert [row[key] for key in costs] == [layer[key] for key in costs]


def test_packed_weights_have_the_work_of_their_elements_and_the_bytes_of_their_packs(tmp_path):
    shapes = [[32, 3072], [32, 5888, 1536], [32, 3072, 1472], [32, 4], [32, 4]]
    types = [HALF, "unsigned char", "unsigned char", "float", "int"]
    (row,) = converted(tmp_path, ("", "sglang::inplace_fused_experts", shapes, types, []))
    active = 32 * (1 - (28 / 32) ** 32)
    assert row["flops"] == 2 * 128 * 3072 * 3 * 2944
    assert row["read"] - row["written"] == round(active * 3072 * 3 * 2944 / 2)


@pytest.mark.parametrize("shapes", [[[32, 3072]], [[32], [1], [2], [3], [4]], [[], [], [], [], []]])
def test_experts_of_odd_shapes_have_no_model(tmp_path, shapes):
    (row,) = converted(tmp_path, ("", "aiter::fused_moe_", shapes, [HALF] * len(shapes), []))
    assert row["kind"] == ""
