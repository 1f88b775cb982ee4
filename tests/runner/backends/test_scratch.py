"""What processes that were killed leave behind is removed, and what others still use is not."""

from __future__ import annotations

import subprocess
import sys

from chakrascope.runner.backends._process import scratch_folder

HOLD = (
    "import sys\n"
    "from pathlib import Path\n"
    "from chakrascope.runner.backends._process import scratch_folder\n"
    "with scratch_folder(Path(sys.argv[1])) as folder:\n"
    "    (folder / 'input').write_text('much')\n"
    "    print(folder, flush=True)\n"
    "    sys.stdin.read()\n"
)


def holder(base):
    """Start a process that holds a scratch folder; return it and the folder's name."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def test_the_folders_of_killed_processes_are_removed_and_no_others(tmp_path):
    killed, left = holder(tmp_path)
    alive, used = holder(tmp_path)
    with killed, alive:
        killed.kill()
        killed.wait()
        assert {str(path) for path in tmp_path.iterdir()} == {left, used}
        with scratch_folder(tmp_path) as folder:
            assert {str(path) for path in tmp_path.iterdir()} == {used, str(folder)}
        alive.stdin.close()
    assert list(tmp_path.iterdir()) == []
