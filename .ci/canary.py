"""Installs the newest pre-releases over a pinned set, and says what that changes: `.venv/bin/python .ci/canary.py`.

Printed as Markdown: versions, then what came and went of Triton's language, options, settings and interpreter, which
the kernels and `academy/interpreter` build on.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from academy.command.setup_environment import CPU_INDEX

NEWEST = CPU_INDEX.replace("/whl/", "/whl/nightly/")


def surface() -> dict[str, list[str]]:
    """What is installed, and the names that this project knows of Triton."""
    import triton
    import triton.language as tl
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.runtime import interpreter

    owners = {
        "triton": triton,
        "tl": tl,
        "tl.tensor": tl.tensor,
        "knobs.language": triton.knobs.language_knobs,
        "knobs.compilation": triton.knobs.compilation_knobs,
        "interpreter": interpreter,
        "interpreter.InterpreterBuilder": interpreter.InterpreterBuilder,
    }
    names = [f"{owner}.{name}" for owner, value in owners.items() for name in dir(value) if name[0] != "_"]
    packages = {each.metadata["Name"].lower(): each.version for each in importlib.metadata.distributions()}
    return {
        "packages": sorted(f"{name} {version}" for name, version in packages.items()),
        "names": sorted([*names, *(f"launch option {name}" for name in CUDAOptions.__dataclass_fields__)]),
    }


def changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """In Markdown. One line, if there are none."""
    found = []
    for kind in before:
        for verb, these, others in (("gone", before, after), ("new", after, before)):
            if names := sorted(set(these[kind]) - set(others[kind])):
                found.append(f"- {kind}, {verb}: {', '.join(f'`{name}`' for name in names)}")
    return ["## What the newest pre-releases change", "", *(found or ["Nothing: they are the pinned ones."])]


def main(packages: list[str]) -> None:
    ask = [sys.executable, __file__, "--surface"]  # a process of its own: a module is imported once
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--pre", "--extra-index-url", NEWEST]
    before = json.loads(subprocess.check_output(ask))
    subprocess.run([*install, *packages], check=True)
    print("\n".join(changes(before, json.loads(subprocess.check_output(ask)))))


if __name__ == "__main__":
    if sys.argv[1:] == ["--surface"]:
        print(json.dumps(surface()))
    else:
        main(sys.argv[1:] or ["torch", "triton"])
