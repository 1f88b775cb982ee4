"""The launcher and every command import this package first: it must cost next to nothing."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = """
import sys
before = set(sys.modules)
import chakrascope.support
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_only_the_standard_library_is_imported():
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    imported = set(found.stdout.split())
    assert imported - set(sys.stdlib_module_names) == {"chakrascope"}
