"""A stand-in for the GPU, so that all but the clock can be tested without one; and a small operation to measure."""

from __future__ import annotations

from pathlib import Path

import torch

from academy.bench.operation import Operation, read
from academy.runtime.timing import Timing


class FakeGpu:
    """Runs each call as often as a real one would at least, and reports times from a list instead of a clock."""

    name = "NVIDIA Fake 1"
    device = torch.device("cpu")

    def __init__(self, ms: float = 2.0):
        self.ms = ms
        self.calls = 0

    def milliseconds(self, run, prepare=lambda: None):
        for _ in range(3):
            run(prepare())
            self.calls += 1
        return Timing(self.ms, 0.9 * self.ms, 1.1 * self.ms, 3)

    def graph_milliseconds(self, run):
        return self.milliseconds(lambda _: run())

    def peak_bytes(self, run, prepare=lambda: None):
        run(prepare())
        return 4096

    def wall_milliseconds(self, run):
        run()
        return 2 * self.ms

    def host_microseconds(self, run):
        run()
        return 12.5

    def copy_milliseconds(self, total_bytes):
        return total_bytes / 1e9

    def copy_rate(self):
        return 4.0

    def matrix_rate(self, dtype):
        return 700.0


def double(x):
    """The operation under test: `2 x`."""
    return x * 2


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def cost(shape, dtype):
    size = torch.Size(shape).numel() * dtype.itemsize
    one = dict(bytes_read=size, bytes_written=size, operations=torch.Size(shape).numel())
    return {"forward": one, "backward": one}


def bench(**changes) -> dict:
    """A `BENCH` of `double`; `changes` replace or add keys."""
    standard = dict(
        shapes=[(4, 8), (3, 5)],
        dtypes=[torch.float32],
        inputs=inputs,
        eager=lambda x: x + x,
        compile=False,
        passes=["forward", "backward"],
        differentiable=["x"],
    )
    return {**standard, **changes}


def operation(ours=double, cost=cost, **changes) -> Operation:
    """ours: the public function of the lesson, or provider -> function."""
    functions = ours if isinstance(ours, dict) else {"lesson": ours}
    files = {provider: f"annotated_examples/{provider}/double.py" for provider in functions}
    return Operation("double", files, read(bench(**changes), cost, functions), dict.fromkeys(functions, "abc"))


def repository(folder: Path) -> Path:
    """A root with the operation's lesson and benchmark, for pages and hashes."""
    kernel = folder / "annotated_examples" / "classics" / "double.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text('"""\n# Double: twice x\n"""\n\n\ndef double(x):\n    return x * 2\n', "utf-8")
    (folder / "operations").mkdir()
    (folder / "operations" / "double.py").write_text('LESSON = "classics.double"\nFAST = None\nBENCH = {}\n', "utf-8")
    return folder
