"""The browser's torch, under a name of its own beside PyTorch. And what the browser should record."""

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

from academy.playground.bundle import RUNTIME

#: Orders in which the playground simulates a Gluon kernel; a recording has more.
ORDERS = 2


@cache
def shim():
    folder = RUNTIME / "torch"
    spec = importlib.util.spec_from_file_location(
        "browser_torch", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["browser_torch"] = module
    spec.loader.exec_module(module)
    return module


def native(path: Path, recording) -> str:
    """A kernel file's native recording, as the playground writes the one that it makes of it."""
    from academy.traces import page

    data = page.viewer_data(path, recording)
    for launch in data["launches"]:
        if "orders" in launch:
            launch["orders"] = launch["orders"][:ORDERS]
    return json.dumps(data, separators=(",", ":"))
