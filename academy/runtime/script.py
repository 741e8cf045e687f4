"""What a kernel file does when it is run as a script: compare its public function with PyTorch, then time it.

Names: `main()`, `arguments()`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from academy.runtime import checks, device
from academy.runtime.plugs import plugged

ROOT = Path(__file__).resolve().parents[2]


def main(
    function: Callable,
    reference: Callable,
    *cases: dict,
    pytorch: Callable | None = None,
    dtypes: tuple[torch.dtype, ...] = checks.FLOATS,
    differentiable: bool = True,
    eps: float = 0.0,
) -> None:
    """Compare a public function and its gradients with float64 in a few cases, print the table, and exit.

    Args:
        function: the public function. Its file's docstring is the help text, and in the repository operations/<file>.py
            says what is timed on a GPU.
        reference: the same in plain PyTorch; in float64 it gives the right result.
        cases: the arguments by name. A tuple is the shape of a random tensor; anything else is passed on unchanged.
        pytorch: PyTorch's own operation, whose error determines how large that of `function` may be (default:
            `reference`).
        dtypes: of the random tensors; each case is run in each of them.
        differentiable: whether the gradients of the random tensors are compared as well.
        eps: of the sums, where the hardware's precision is coarser than the dtype's.

    Exit status: 0 if all results are right, 1 if not, 2 for a wrong command line.
    """
    file = Path(sys.modules[function.__module__].__file__ or "").resolve()
    arguments(sys.modules[function.__module__].__doc__ or file.stem)
    report = plugged("report")()
    for case in cases:
        for dtype in dtypes:
            _compare(report, case, dtype, (function, pytorch or reference, reference), differentiable, eps)
    status = report.print()
    if not device.INTERPRET:
        plugged("speed")(file)
    sys.exit(status)


def _compare(
    report, case: dict, dtype: torch.dtype, functions: tuple[Callable, ...], differentiable: bool, eps: float
) -> None:
    """One case in one dtype: every returned tensor, and the gradient of every random input."""
    drawn = {name: torch.randn(shape) for name, shape in case.items() if isinstance(shape, tuple)}
    inputs = {name: values.to(device.DEVICE, dtype) for name, values in drawn.items()}
    results, upstream = [], None
    for function, precision in zip(functions, (dtype, dtype, torch.float64)):
        leaves = {name: values.to(precision).requires_grad_(differentiable) for name, values in inputs.items()}
        out = function(**{**case, **leaves})
        values: dict = dict(enumerate(out)) if isinstance(out, tuple) else {"out": out}
        if differentiable:
            if upstream is None:
                upstream = [torch.randn(value.shape).to(device.DEVICE, value.dtype) for value in values.values()]
            upstreams = [up.to(value.dtype) for up, value in zip(upstream, values.values())]
            gradients = torch.autograd.grad(list(values.values()), list(leaves.values()), upstreams)
            values |= {f"d{name}": gradient for name, gradient in zip(leaves, gradients)}
        results.append(values)
    for name in results[0]:
        ours, theirs, exact = (values[name] for values in results)
        report.compare(str(name), _described(case), ours, theirs.to(ours.dtype), exact, eps)


def _described(case: dict) -> str:
    """The first shape of a case and its options: `3 x 64, activation=relu`."""
    shapes = [" x ".join(map(str, value)) for value in case.values() if isinstance(value, tuple)]
    options = [f"{name}={value}" for name, value in case.items() if isinstance(value, str | int | float)]
    return ", ".join([*shapes[:1], *options])


def arguments(description: str, **options: dict) -> argparse.Namespace:
    """Parse the command line of a kernel script. `--device` is always there; `options` adds more.

    Args:
        description: the module's docstring; its first heading or sentence becomes the help text.
        options: flag name (underscores become dashes) -> keyword arguments of `ArgumentParser.add_argument`.

    `--device cpu` on a machine with a GPU restarts the script with `TRITON_INTERPRET=1`, because the choice is made
    while Triton is imported. `--device cuda` on a machine that can't compile kernels ends the script with status 2.
    PyTorch's generator is seeded, so that two runs compare the same numbers.
    """
    title = next(line.lstrip("# ") for line in description.splitlines() if line.strip())
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cpu: Triton's interpreter (default: cuda if any)")
    for name, settings in options.items():
        parser.add_argument("--" + name.replace("_", "-"), **settings)
    parsed = parser.parse_args()
    if parsed.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device here")
    if parsed.device is not None and (parsed.device == "cpu") != device.INTERPRET:
        environment = {**os.environ, "TRITON_INTERPRET": "1" if parsed.device == "cpu" else "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    torch.manual_seed(0)
    print(device.describe())
    return parsed
