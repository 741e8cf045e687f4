"""The browser's torch, under a name of its own beside PyTorch."""

import importlib.util
import sys
from functools import cache

from academy.playground.bundle import RUNTIME


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
