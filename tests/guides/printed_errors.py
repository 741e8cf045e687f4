"""Run by test_error_messages.py, in a process of its own: what each example of `academy.compiler.errors` prints.

Kernels are compiled by Triton itself, for a card that the stand-in of `academy.compiler` pretends; the launch, which
would come next, ends the example. Prints JSON: the entry's text -> what `before` and `after` print, "" for nothing.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import triton
from triton.runtime._allocation import NullAllocator, _allocator

from academy.compiler.cards import card
from academy.compiler.catching import _standard_error
from academy.compiler.errors import HEAD, entries  # of "academy/compiler/errors.toml"
from academy.compiler.stand_in import on_card


class LaunchedError(Exception):
    """The kernel is compiled and fits: a card would run it now."""


def load_binary(name, cubin, shared, device):
    raise LaunchedError


def launcher(source, metadata):
    """Asks for the memory that the kernel needs, as the launcher of a card does before it launches."""
    if metadata.global_scratch_size:
        _allocator.get()(metadata.global_scratch_size, metadata.global_scratch_align, 0)


def said(code: str, on: str, folder: Path) -> str:
    path = folder / "example.py"
    path.write_text(HEAD.replace('"cuda"', '"cpu"') + code if on == "host" else HEAD + code, "utf-8")
    shown, arch = io.StringIO(), int(on.removeprefix("card ")) if on.startswith("card ") else 90
    triton.set_allocator(NullAllocator())
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(_standard_error())
        stack.enter_context(contextlib.redirect_stderr(shown))
        if on != "host":
            stack.enter_context(on_card(card(arch)))
            triton.runtime.driver.active.launcher_cls = launcher
            triton.runtime.driver.active.utils.load_binary = load_binary
        environment = dict(os.environ)
        try:
            runpy.run_path(str(path))
        except LaunchedError:
            return ""
        except BaseException:
            return traceback.format_exc() + shown.getvalue() + errors()
        finally:
            os.environ.clear()
            os.environ.update(environment)
    return ""


def main():
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        for entry in entries():
            if entry.on != "real card":
                before = said(entry.before, entry.on, Path(folder))
                found[entry.says] = before, said(entry.after, entry.on, Path(folder)) if entry.after else ""
    print(json.dumps(found))


if __name__ == "__main__":
    main()
