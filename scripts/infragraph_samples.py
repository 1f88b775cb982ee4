"""Write the InfraGraph files that the tests read, from the blueprints of the package ``infragraph`` (MIT).

They are written once; the tests need the package no more. Usage: python scripts/infragraph_samples.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from chakrascope.runner.config.blueprints import make_blueprint

SAMPLES: dict[str, dict[str, Any]] = {
    "clos": {},
    "clos-fat-tree-2": {
        "blueprint": "clos-fat-tree",
        "ports": 4,
        "host": "server",
        "levels": 2,
        "bandwidth": [100, 200],
    },
    "clos-fat-tree-3": {
        "blueprint": "clos-fat-tree",
        "ports": 4,
        "host": "server",
        "levels": 3,
        "bandwidth": [100, 200, 400],
    },
    "dgx-a100": {},
    "dgx-gb200": {},
    "dgx-h100": {},
    "dgx1": {},
    "dgx2": {},
    "dragonfly": {"ports": 7, "host": "server", "a": 4, "p": 2, "h": 2, "bandwidth": [100, 200, 400]},
    "ironwood": {},
    "mi300x": {},
    "single-tier": {"host": "server", "hosts": 4, "bandwidth": 100},
}


def main(folder: Path) -> None:
    """Write every sample below *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, settings in SAMPLES.items():
        data, _ = make_blueprint({"blueprint": name} | settings, name)
        (folder / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests" / "data" / "runner" / "infragraph")
