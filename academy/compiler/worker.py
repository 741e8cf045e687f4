"""Compile kernels in a process that neither interprets them nor needs a card: `python -m academy.compiler.worker`.

Reads jobs from standard input and answers each with one line; started by `academy.compiler.service`. A job is a file to
run, `{"run": path}`, lines to run, `{"code": text}`, or launches of a file's kernels that were seen elsewhere,
`{"launches": [...], "path": path}`.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import resource
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType

from academy.command import garbage, parent, trouble
from academy.runtime import device
from academy.book.syntax import import_file, import_path

import torch

from academy.compiler import catching, launches, messages
from academy.compiler.cards import card

ROOT = Path(__file__).resolve().parents[2]


def run(path: Path, arch: int, only: str | None, all_configs: bool, detail: bool = True) -> dict:
    """Run a file's EXAMPLE(), or the file as a script if it has none, and compile what it launches.

    Returns {"found": entries, "stopped": why the run ended early, with its line, or None, "example": bool}.
    """
    catcher, stopped = catching.Catcher(card(arch), only=only, all_configs=all_configs, detail=detail), None
    text = path.read_text("utf-8")
    example = "\ndef EXAMPLE(" in text
    with catcher.catching(), contextlib.redirect_stdout(io.StringIO()):
        torch.manual_seed(0)
        try:
            if example:
                import_file(path, ROOT).EXAMPLE()
            else:
                sys.argv = [str(path)]
                sys.path.insert(0, str(path.parent))
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit:
            pass
        except (Exception, KeyboardInterrupt) as error:
            trouble.let_through(error)
            message, line = messages.cause_of(error, str(path))
            stopped = dict(message=message, line=line)
    return dict(found=catcher.found, stopped=stopped, example=example)


def compile_launches(path: Path, seen: list[dict], arch: int, detail: bool = True, within: bool = False) -> dict:
    """Compile launches that were seen in the interpreter, of kernels of this file and of files that it uses.

    within: the file is where it belongs, beside what it imports.
    """
    catcher = catching.Catcher(card(arch), detail=detail)
    with catcher.catching(), contextlib.redirect_stdout(io.StringIO()):
        module = import_file(path, ROOT) if within else import_path(path, f"compiled_{path.stem}")
        for launch in seen:
            home: ModuleType = module
            if launch["file"] != str(path) and (within or not hasattr(module, launch["kernel"])):
                home = importlib.import_module(launch["module"])
            kernel = getattr(home, launch["kernel"])
            while hasattr(kernel, "configs") or not hasattr(kernel, "arg_names"):
                kernel = kernel.fn  # around a jitted function stands an autotuner, whose choice is in the launch
            kernel[(1,)](**launches.arguments(launch, vars(home)), **launch["options"])
    return dict(found=catcher.found, stopped=None)


def run_code(code: str, arch: int, detail: bool = True) -> dict:
    """Run some lines, and compile what they launch."""
    catcher = catching.Catcher(card(arch), detail=detail)
    with catcher.catching(), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "code", "exec"), {"__name__": "code"})  # of this project's own tests
    return dict(found=catcher.found, stopped=None)


def answer(job: dict) -> dict:
    """What one job gives, or what went wrong with it."""
    try:
        if "code" in job:
            return run_code(job["code"], job["arch"], job["detail"])
        if "launches" in job:
            how = job.get("detail", True), job.get("within", False)
            return compile_launches(Path(job["path"]), job["launches"], job["arch"], *how)
        return run(Path(job["run"]), job["arch"], job["only"], job["all_configs"], job.get("detail", True))
    except Exception as error:
        if found := trouble.of(error):
            return dict(error=str(found), trouble=True)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return dict(error=f"{type(error).__name__}: {error}", file=last.filename, line=last.lineno)


def main() -> None:
    if device.INTERPRET:
        raise RuntimeError("kernels are interpreted in this process: set TRITON_INTERPRET=0")
    torch.set_num_threads(1)
    garbage.rarely()
    resource.setrlimit(resource.RLIMIT_CPU, (resource.getrlimit(resource.RLIMIT_CPU)[1],) * 2)  # not that of who asks
    out = os.fdopen(os.dup(1), "w")  # answers alone: what anything else prints goes to stderr
    os.dup2(2, 1)
    for line in parent.asked():
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
