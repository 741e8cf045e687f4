"""Processes that compile, from the side of those who ask: started when needed, kept, and ended with this process.

Results are kept by the source of the kernels (`academy.files.cache`), so the same question costs nothing again.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path

from academy.book.layout import ROOT
from academy.command import trouble
from academy.files import cache, dependencies

KIND = "compiled"
#: For one file or one set of launches.
SECONDS = 300
_MACHINERY = ["academy.compiler.worker", "package:triton", "package:torch"]


class Crashed(RuntimeError):
    """The compiler's process ended, or took too long."""


def available() -> bool:
    """Whether Triton's compiler and NVIDIA's assembler are installed. False in a browser; imports nothing large."""
    if sys.platform == "emscripten":
        return False
    found = importlib.util.find_spec("triton")
    places = (found.submodule_search_locations or []) if found else []
    return any((Path(place) / "backends/nvidia/bin/ptxas").exists() for place in places)


class Worker:
    """One process, which answers jobs one after another."""

    def __init__(self, folder: Path | None = None):
        """folder: of the process; the project's own if None."""
        python_path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": python_path,
            "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        self._said = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "academy.compiler.worker"]
        pipes: dict = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said)
        self.process = subprocess.Popen(command, env=environment, cwd=folder or ROOT, **pipes)
        assert self.process.stdout
        self._answers = selectors.DefaultSelector()  # `select.select` knows no descriptor above 1,023
        self._answers.register(self.process.stdout, selectors.EVENT_READ)

    def ask(self, job: dict, seconds: float = SECONDS) -> dict:
        """Raises Crashed, and Trouble."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
            if not self._answers.select(seconds):
                self.end()
                raise Crashed(f"compiling took longer than {seconds:g} s and was stopped")
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            status = self.process.wait()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()[-300:]
            if -status in trouble.OUTSIDE:
                raise trouble.Trouble.of_process("the compiler's process", -status)
            raise Crashed(f"the compiler's process ended with status {status}: {' '.join(said.split())}")
        answer = json.loads(line)
        if "trouble" in answer:
            raise trouble.Trouble(answer["error"])
        return answer

    def end(self) -> None:
        """Stops the process, and gives back what it held."""
        self.process.kill()
        self.process.wait()
        self._answers.close()
        for file in (self.process.stdin, self.process.stdout, self._said):
            with contextlib.suppress(BrokenPipeError):
                file.close()  # type: ignore[union-attr]


_kept: Worker | None = None


def ask(job: dict, key: list | None = None, seconds: float = SECONDS) -> dict:
    """The answer to a job, from the process that is kept, or from the cache if there is a key for it.

    Raises Crashed, and Trouble. An answer with an error is not kept.
    """
    if key is None:
        return _ask(job, seconds)
    default = os.environ.get("TRITON_DEFAULT_FP_FUSION")  # of kernels that don't say whether to fuse
    key = [dependencies.made_by(*_MACHINERY), sys.version_info[:2], default, *key]
    return cache.kept(KIND, key, lambda: _ask(job, seconds), keep=_is_whole)


def _is_whole(answer) -> bool:
    return "error" not in answer


def _ask(job: dict, seconds: float) -> dict:
    global _kept
    if _kept is None or _kept.process.poll() is not None:
        _kept = Worker()
        atexit.register(_kept.end)
    try:
        return _kept.ask(job, seconds)
    except BaseException:
        _kept.end()  # half an answer may be on its way
        _kept = None
        raise
