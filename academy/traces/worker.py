"""Record kernel files: `python -m academy.traces.worker`, started by `academy.traces.store` with its jobs on stdin."""

# ruff: noqa: I001  academy.device must come before triton

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import sys
import traceback
from pathlib import Path

from academy import device
from academy.traces import proof, store
from academy.traces.memory import FreshMemory, OutOfBounds
from academy.traces.recorder import Recorder
from academy.traces.recording import encode

import torch
import triton


def record(path: Path, files: list[Path]) -> dict:
    """The data of one file's recording. What goes wrong in it is an entry of the data, not an exception.

    Raises:
        RuntimeError: kernels are compiled here, not interpreted; or triton's internals are not the known ones.
    """
    if not device.INTERPRET:
        raise RuntimeError("recording needs Triton's interpreter: set TRITON_INTERPRET=1")
    facts = {
        "triton": triton.__version__,
        "files": {store.shorten(file): store.statement_lines(file) for file in files},
        "error": None,
    }
    printed = io.StringIO()
    with FreshMemory() as fresh, contextlib.redirect_stdout(printed):
        recorder = Recorder(map(str, files), fresh)
        try:
            module = import_file(path)
            torch.manual_seed(0)
            with recorder.running():
                module.EXAMPLE()
        except RuntimeError as error:
            if "checked versions" in str(error):
                raise
            facts["error"] = _where(error, path, files)
        except Exception as error:
            facts["error"] = _where(error, path, files)
    launches = recorder.launches
    if facts["error"] and recorder.stopped:
        facts["error"].update(zip(("launch", "program"), recorder.stopped))
    whole = [] if facts["error"] else launches  # what part of a run leaves out proves nothing
    findings = [finding for launch in whole for finding in proof.findings(launch)]
    findings += proof.unwritten_outputs(whole)
    facts.update(traffic=proof.pass_traffic(whole), printed=printed.getvalue())
    return encode([(launch, proof.traffic(launch)) for launch in launches], findings, store.shorten, **facts)


def import_file(path: Path):
    """Import a kernel file: as part of the project where it is one, else by itself."""
    if path.is_relative_to(store.ROOT):
        return importlib.import_module(store.shorten(path).removesuffix(".py").replace("/", "."))
    root = path.parent
    while (root / "__init__.py").exists():
        root = root.parent
    sys.path.insert(0, str(root))
    if root != path.parent:  # a file of a package: its relative imports have to work
        return importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def _where(error: BaseException, path: Path, files: list[Path]) -> dict:
    """The place and the message of what went wrong, without the interpreter's wrapping."""
    names, line, file = {str(file) for file in files}, 1, str(path)
    cause = error
    while cause is not None:
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.filename in names:
                file, line = frame.filename, frame.lineno
        error, cause = cause, cause.__cause__
    if isinstance(error, OutOfBounds):
        file, line, message = error.file, error.line, str(error)
    else:
        message = f"EXAMPLE fails: {type(error).__name__}: {error}"
    return {"file": store.shorten(file), "line": line, "message": " ".join(message.split())}


def main() -> None:
    torch.set_num_threads(1)
    for job in json.load(sys.stdin):
        data = record(Path(job["path"]), [Path(file) for file in job["files"]])
        store.write(Path(job["out"]), data)


if __name__ == "__main__":
    main()
