"""``timeline --host`` prints the call stacks of a window that the viewer draws."""

import io

import pandas as pd
import pytest
from command_line import run_and_read
from studies import make_captured_study, make_study

from chakrascope.viewer import create_app


@pytest.fixture(scope="module")
def captured(tmp_path_factory, data_dir):
    return make_captured_study(tmp_path_factory.mktemp("captured"), data_dir)


def test_the_stacks_of_a_window_are_those_of_the_page(captured, capfd):
    study, run = captured
    window = "--from", "1ms", "--to", "4ms", "--ranks", "1"
    code, out, _ = run_and_read(capfd, "timeline", study.path, "--host", *window, "--format", "csv")
    assert code == 0
    asked = f"/export/host.csv?run={run}&ranks=1&t0=1000000&t1=4000000"
    exported = create_app(study).server.test_client().get(asked).text
    stacks, page = pd.read_csv(io.StringIO(out)), pd.read_csv(io.StringIO(exported))
    pd.testing.assert_frame_equal(stacks, page)
    assert set(stacks["rank"]) == {1}
    assert stacks.loc[stacks["depth"] == 0, "total_ns"].max() == 3_000_000
    code, out, _ = run_and_read(capfd, "timeline", study.path, "--host", *window)
    assert (code, "__next__" in out) == (0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nested"], "leave out --nested and --measured"),
        (["--from", "100s", "--to", "101s"], "widen --from, --to or --ranks"),
        (["--ranks", "2"], "the run has 0 to 1"),
    ],
)
def test_what_has_no_host_calls_is_refused(captured, capfd, options, message):
    study, _ = captured
    code, _, err = run_and_read(capfd, "timeline", study.path, "--host", *options)
    assert code == 2
    assert message in " ".join(err.split())


def test_a_run_without_traces_has_none(tmp_path, capfd):
    made = make_study(tmp_path / "study")
    code, _, err = run_and_read(capfd, "timeline", made.study.path, "--host")
    assert code not in {0, 2}
    assert "its host calls are unknown" in " ".join(err.split())
