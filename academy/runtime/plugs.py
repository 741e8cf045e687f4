"""What stands above the runtime and is called from it, such as the simulator that runs a Gluon kernel without a GPU.

The runtime imports none of it. `academy/__init__.py` says which function is plugged in where.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

#: What it does -> the function, as "module:name", imported when it is first called.
PLUGS: dict[str, str] = {}


def plug(**functions: str) -> None:
    """Say what is called, as in `plug(simulate="academy.gluon.simulator:launched")`."""
    PLUGS.update(functions)


def plugged(name: str) -> Callable:
    """The function that is plugged in under this name."""
    module, _, function = PLUGS[name].partition(":")
    return getattr(import_module(module), function)
