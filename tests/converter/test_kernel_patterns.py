"""The table of kernels that communicate: real names, what users add, and files that are wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from chakrascope.converter import kernels as patterns
from chakrascope.converter.kernels import VARIABLE, function_name, kernel_pattern, read_patterns
from chakrascope.errors import ConfigError

# Names as profilers write them, from public traces and from the libraries' sources; those that compute have
# no library.
with (Path(__file__).parents[1] / "data/kernel_names.tsv").open(encoding="utf-8") as _lines:
    NAMES = [
        (row["library"], row["operation"], row["kernel"]) for row in csv.DictReader(_lines, delimiter="\t")
    ]
COMMUNICATING = [row for row in NAMES if row[0]]


@pytest.mark.parametrize(("library", "operation", "name"), COMMUNICATING)
def test_kernels_that_communicate_are_known_by_their_names(library, operation, name):
    found = kernel_pattern(name)
    assert found is not None
    assert (found.library, found.operation, found.kind) == (library, operation, "communication")


@pytest.mark.parametrize("name", ["", "<<<", *(name for library, _, name in NAMES if not library)])
def test_kernels_that_compute_are_none_of_them(name):
    assert kernel_pattern(name) is None


def test_every_library_that_ships_names_its_source_and_version_and_has_a_real_name():
    shipped = read_patterns(patterns._SHIPPED)
    assert all(pattern.source.startswith("https://") and pattern.version for pattern in shipped)
    assert {pattern.library for pattern in shipped} == {library for library, _, _ in COMMUNICATING}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void a::b<int, c<d>>::run<e>(f<g>, h)", ("a::b", "run")),
        ("triton_poi_fused_add_0.kd", ("", "triton_poi_fused_add_0")),
        ("void (anonymous namespace)::k<1>(int)", ("anonymous", "k")),
        ("void a::cut<b<c", ("a", "cut")),
        ("x" * 10_000, ("", "x" * 2_000)),
    ],
)
def test_the_function_of_a_kernel_is_read_from_its_whole_name(name, function):
    assert function_name(name) == function


OWN = """
- library: ours
  kernels:
    - {name: 'ring_exchange_.*', operation: send_recv}
    - {name: 'ncclDevKernel_Generic', operation: collective, kind: compute}
"""


def test_patterns_of_a_user_go_first(tmp_path, monkeypatch):
    assert kernel_pattern("ring_exchange_v2<4>(int)") is None
    (tmp_path / "own.yml").write_text(OWN)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.yml"))
    own = kernel_pattern("ring_exchange_v2<4>(int)")
    assert own is not None
    assert (own.library, own.operation) == ("ours", "send_recv")
    generic = kernel_pattern("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")
    assert generic is not None
    assert generic.kind == "compute"
    assert kernel_pattern("kernel_dispatch_token") is not None


WRONG = [
    ("library: x", "Expected `array`"),
    ("- {library: x, kernels: [{name: '(', operation: a}]}", "is not a regular expression"),
    ("- {library: x, kernels: [{name: 'a{99999999999}', operation: a}]}", "is not a regular expression"),
    ("- {library: x, kernels: [{name: 3, operation: a}]}", r"`\$\[0\].kernels\[0\].name`"),
    ("- {library: x, kernels: [{operation: a}]}", "missing required field `name`"),
    ("- {library: x, kernels: [{name: a, operation: All Reduce}]}", "the operation 'All Reduce' must be"),
    ("- {library: x, kernels: [{name: a, operation: a, kind: idle}]}", "Invalid enum value 'idle'"),
    ("- {library: x, kernels: [{name: a, operation: a, colour: b}]}", "unknown field `colour`"),
    ("- {library: x, kernels: [{name: '', operation: a}]}", "0 characters"),
    (f"- {{library: x, kernels: [{{name: {'a' * 2000}, operation: a}}]}}", "2,000 characters"),
    ("- library: x\n  kernels:\n" + "  - {name: a, operation: a}\n" * 10_001, "more than 10,000"),
    ("#" * (1 << 20) + "#\n", "larger than 1 MiB"),
    ("[" * 5_000, "are wrong"),
    ("- {library: x, kernels: [", "are wrong"),
    ("\x00", "are wrong"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, monkeypatch, text, message):
    path = tmp_path / "own.yml"
    path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(ConfigError, match=message) as refused:
        kernel_pattern("gemm")
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "absent.yml"))
    with pytest.raises(ConfigError, match=VARIABLE):
        kernel_pattern("gemm")
