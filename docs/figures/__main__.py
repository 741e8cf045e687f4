"""Draws the pictures of scripts in this folder: `python docs/figures hardware rows` prints them as JSON.

The site's build runs it, in a process of its own where Triton's kernels are interpreted. A picture that needs Triton is
left out where that is not installed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton

from draw import PICTURES


def drawn(name: str) -> dict | None:
    try:
        found = PICTURES[name]()
    except ModuleNotFoundError as missing:
        if missing.name in ("torch", "triton"):
            return None
        raise
    return asdict(found) | {"panels": [panel if isinstance(panel, str) else panel.svg() for panel in found.panels]}


for script in sys.argv[1:]:
    importlib.import_module(script)
json.dump({name: made for name in PICTURES if (made := drawn(name))}, sys.stdout, ensure_ascii=False)
