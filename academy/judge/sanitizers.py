"""What only a card can show: a call under Triton's sanitizers (used from 3.9 on) or NVIDIA's compute-sanitizer.

Each runs in a process of its own, `academy.judge.sanitized`, because an assertion ends a CUDA context. This module
starts it, ends it where it takes too long, and reads what it printed:

- Triton's sanitizers assert inside of the kernel (`__assertfail` in `triton/experimental/gsan/src/GSanLibrary.cu`), and
  CUDA prints `file:line: function: block: […], thread: […] Assertion …`, as its programming guide says of `assert`.
- compute-sanitizer prints reports whose lines begin with `=========`, as its own manual shows them.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton

from academy.runtime import device
from academy.command.parent import Lifeline
from academy.files import cache
from academy.judge.findings import Remark, Skipped, Wrong
from academy.judge.trials import ON_A_CARD

#: Of Triton, by the word of `TRITON_INSTRUMENTATION_MODE`; and compute-sanitizer's tools.
OF_TRITON, OF_NVIDIA = ON_A_CARD[:3], ON_A_CARD[3:]
#: How long one call may take, in seconds, its compilation included.
SECONDS = 240.0
_TOOL = "compute-sanitizer"
#: Launches wait for their end, and lines are known.
_ENVIRONMENT = {"CUDA_LAUNCH_BLOCKING": "1", "TRITON_DISABLE_LINE_INFO": "0"}
_OPTIONS = {"memcheck": ["--report-api-errors", "no"], "racecheck": ["--racecheck-report", "analysis"]}


# ---------------------------------------------------------------- what is there
def missing(names: list[str]) -> dict[str, str]:
    """Those of the sanitizers that can't run here -> why, in words."""
    asked = [name for name in ON_A_CARD if name in names]
    if asked and (device.INTERPRET or not torch.cuda.is_available() or torch.version.hip):
        return dict.fromkeys(asked, "no NVIDIA GPU runs the kernels here")
    found = {}
    version = tuple(int(part) for part in re.findall(r"\d+", triton.__version__)[:2])
    for name in asked:
        if name in OF_TRITON and version < (3, 9):
            found[name] = f"Triton's is used from 3.9 on, and this is {triton.__version__}"
        elif name in OF_NVIDIA and (why := _refused()):
            found[name] = why
    return found


def in_words(left_out: dict[str, str]) -> str:
    """`not tried: gsan, consan (why); memcheck (why)`; "" if nothing is missing."""
    reasons = [
        f"{', '.join(name for name, other in left_out.items() if other == why)} ({why})"
        for why in dict.fromkeys(left_out.values())
    ]
    return f"not tried: {'; '.join(reasons)}" if reasons else ""


def tool() -> str | None:
    """The path of compute-sanitizer: of PATH, of a CUDA toolkit, or of the wheel `nvidia-cuda-sanitizer-api`."""
    places = [os.environ.get("PATH", "")]
    for home in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        places += [f"{home}/bin", f"{home}/compute-sanitizer"] if home else []
    for folder in filter(None, sys.path):
        places += [str(path.parent) for path in Path(folder).glob(f"nvidia/*/bin/{_TOOL}")]
    return shutil.which(_TOOL, path=os.pathsep.join(places))


@functools.cache
def _refused() -> str:
    """Why compute-sanitizer doesn't work here; "" if it does. Some machines refuse it: a call of PyTorch is tried."""
    if not (path := tool()):
        return f"{_TOOL} is not installed"
    call = "import torch; torch.zeros(9, device='cuda').add_(1); torch.cuda.synchronize()"
    text, _, _ = _run([path, "--tool", "memcheck", *_OPTIONS["memcheck"], sys.executable, "-c", call], {}, 90.0)
    return "" if "ERROR SUMMARY: 0 errors" in text else f"{_TOOL} doesn't work here: {_last(text)}"


# ---------------------------------------------------------------- what was found
class Report(NamedTuple):
    """What a sanitizer has said of a kernel. file, line: where; program: its number. allocation: the address where the
    memory begins that was meant, 0 if none is named. address: what was touched. kernel: its name, or ""."""

    message: str
    file: str = ""
    line: int = 0
    program: str = ""
    address: int = 0
    allocation: int = 0
    kernel: str = ""

    def is_in(self, file: str) -> bool:
        """Whether the line is one of this file. Newer versions of compute-sanitizer give the name of a file alone, and
        files in two folders may have the same: then the file is the one that has the kernel."""
        if os.sep in self.file or Path(self.file).name != Path(file).name:
            return Path(self.file).resolve() == Path(file).resolve()
        try:
            return not self.kernel or f"def {self.kernel}(" in Path(file).read_text("utf-8")
        except OSError:
            return True

    def told(self, known: dict[int, tuple[str, int]]) -> str:
        """With the element, where the memory is that of an argument. known: address -> name, bytes an element."""
        name, size = known.get(self.allocation, ("", 1))
        where = f" (element {(self.address - self.allocation) // size} of the memory of {name})" if name else ""
        return f"{self.message}{where}{f', in program ({self.program})' if self.program else ''}"


_ASSERTION = re.compile(
    r"^(?P<file>\S.*?):(?P<line>\d+):.*?block: \[(?P<block>[\d,]+)\], thread: \[[\d,]+\] "
    r"Assertion [`'](?P<said>.*?)[`'] failed",
    re.M,
)
_PLACE = re.compile(r"\bin (?P<file>\S+\.py):(?P<line>\d+)")
#: How a report of compute-sanitizer begins; what else stands there is about the run, or of the host.
_HEAD = re.compile(
    r"(?:(?:Error|ERROR|Warning|WARNING): )?"
    r"(?P<said>(?:Invalid|Uninitialized|Potential|Race|Barrier|Misaligned|Illegal)\b.*)"
)


def reports(text: str) -> list[Report]:
    """All that Triton's or NVIDIA's tools say of kernels in what a process has printed."""
    found = [
        Report(match["said"].rstrip("."), match["file"], int(match["line"]), match["block"].replace(",", ", "))
        for match in _ASSERTION.finditer(text)
    ]
    lines = [line.removeprefix("=========") for line in text.splitlines() if line.startswith("=========")]
    parts: list[list[str]] = []
    for line in lines:
        # What belongs to a report is indented by more than one space.
        if line[:2].strip() or not parts:
            parts.append([])
        parts[-1].append(line.strip())
    for part in parts:
        if head := _HEAD.match(part[0]):
            found.append(_report(head["said"], " ".join(part)))
    return found


def _report(said: str, whole: str) -> Report:
    place = _PLACE.search(whole)
    program = re.search(r"in block \(([\d,]+)\)", whole)
    touched = re.search(r"(?:Address|Access to|access to) (0x[0-9a-f]+)", whole)
    memory = re.search(
        r"is (?P<how>inside|[\d,]+ bytes (?:before|after)) the nearest allocation at (?P<at>0x[0-9a-f]+) "
        r"of size (?P<size>[\d,]+)",
        whole,
    )
    said = re.sub(r" at \S+\(.*|\s+at$| at \S+\+0x.*", "", said)
    if memory:
        said += f", {memory['how']} an allocation of {memory['size']} bytes"
    return Report(
        said.rstrip("."),
        place["file"] if place else "",
        int(place["line"]) if place else 0,
        program[1].replace(",", ", ") if program else "",
        int(touched[1], 16) if touched else 0,
        int(memory["at"], 16) if memory else 0,
        kernel[1] if (kernel := re.search(r"\bat (\w+)\+0x", whole)) else "",
    )


# ---------------------------------------------------------------- a call
def check(
    name: str, origin: Callable | None, file: str, trials: list[Any], seconds: float = SECONDS, gpu: str = ""
) -> None:
    """Make the calls of these trials under a sanitizer.

    Args:
        origin: gives the subject, in another process.
        file: that of its kernels: a line of it is named as such.
        gpu: the one that this process sees, in the words of `CUDA_VISIBLE_DEVICES`; "" for all of them.

    Raises:
        Wrong: what the sanitizer has found.
        Skipped: the calls did not come to their end, and nothing was found; or nothing can be sent to a process.
    """
    if origin is None:
        raise Skipped("a function that only this process has can't be called in another; academy judge takes a file")
    with tempfile.TemporaryDirectory(prefix="academy-") as folder:
        job, result = Path(folder, "job"), Path(folder, "result")
        job.write_bytes(pickle.dumps((name, origin, trials)))
        command = [sys.executable, "-m", "academy.judge.sanitized", str(job), str(result)]
        special = {"TRITON_INSTRUMENTATION_MODE": name}
        if name in OF_NVIDIA:  # which knows of a tensor only if it is an allocation of its own
            command = [tool() or _TOOL, "--tool", name, *_OPTIONS.get(name, []), *command]
            special = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        if gpu:
            special["CUDA_VISIBLE_DEVICES"] = gpu
        ran = _run(command, _ENVIRONMENT | special, seconds)
        try:
            kept = pickle.loads(result.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):  # it was ended while it wrote, or before
            kept = "", "", {}
    _judge(name, *ran, seconds, file, *kept)


def _judge(
    name: str, text: str, status: int, ended: bool, seconds: float, file: str,
    state: str, message: str, known: dict[int, tuple[str, int]],
) -> None:  # fmt: skip
    """Raises what the trial ends with. state, message: what the process says of itself, "" if it came to no end."""
    found = reports(text)
    of_kernels = sorted((one for one in found if one.line), key=lambda one: not one.is_in(file))
    for one in of_kernels:
        own = one.is_in(file)
        more = f"; {len(of_kernels) - 1} more" if len(of_kernels) > 1 else ""
        place = "" if own else f" ({one.file}:{one.line})"
        raise Wrong(f"{name}: {one.told(known)}{place}{more}", one.line if own else None)
    if state == "wrong":
        raise Wrong(f"{name}: {message}")
    if not ended:
        raise Skipped(f"under {name} it did not end within {seconds:g} s")
    if state != "right":
        raise Skipped(f"under {name} it ended with {message or f'status {status}: {_last(text)}'}")
    if name in OF_NVIDIA and " SUMMARY: " not in text:
        raise Skipped(f"{name} gave no summary: {_last(text)}")
    if found:
        raise Remark(f"{name} names no line of a kernel: {found[0].message}; {len(found)} in all")


def _run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[str, int, bool]:
    """What it prints, its status, and whether it came to its end in time. It ends with this process."""
    path = os.pathsep.join([str(cache.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment}
    with tempfile.TemporaryFile() as said, Lifeline() as line:
        options: dict[str, Any] = dict(stdin=line.pipe, stdout=said, stderr=subprocess.STDOUT, env=given)
        process = subprocess.Popen(command, start_new_session=True, **options)
        ended = True
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            _end(process)
        said.seek(0)
        return said.read().decode("utf-8", "replace"), process.returncode, ended


def _end(process: subprocess.Popen) -> None:
    """And what it has started, such as the program that compute-sanitizer runs."""
    for _ in range(2):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    process.wait()


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip("= \t") for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")[:300]
