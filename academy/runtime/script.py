"""What a kernel file does when it is run as a script: compare its public function with PyTorch, then time it.

Names: `main()`, `arguments()`.
"""

from __future__ import annotations

import argparse
import functools
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
        function: the public function. Its file's docstring is the help text, and operations/<file>.py says which inputs
            it takes, and what is timed on a GPU.
        reference: the same in plain PyTorch; in float64 it gives the right result.
        cases: for a part of which operations/ says nothing: the arguments by name. A tuple is the shape of a random
            tensor; anything else is passed on unchanged.
        pytorch: PyTorch's own operation, whose error determines how large that of `function` may be (default: the
            reference).
        eps: of the sums, where the hardware's precision is coarser than the dtype's.
        dtypes, differentiable: with `cases`: those of the random tensors, and whether their gradients are compared.

    Exit status: 0 if all results are right, 1 if not, 2 for a wrong command line. A copy under another name, of which
    operations/ says nothing, runs its example.
    """
    module = sys.modules[function.__module__]
    file = Path(module.__file__ or "").resolve()
    arguments(module.__doc__ or file.stem)
    report = plugged("report")()
    if cases:
        functions = (function, pytorch or reference, reference)
        for case in cases:
            others = {name: value for name, value in case.items() if not isinstance(value, tuple)}
            for dtype in dtypes:
                draw = functools.partial(_drawn, case, dtype)
                _compare(report, draw, others, functions, differentiable, eps)
    else:
        found = plugged("said")(file, function, reference)
        if not found:
            module.EXAMPLE()
            print(
                f"The example ran. Nothing is compared: operations/ says nothing of {function.__name__} in {file.name}."
            )
            sys.exit(0)
        said, subject, tried = found
        functions = (subject.function, pytorch or subject.reference, subject.reference)
        for sizes, options in tried:
            for dtype in subject.dtypes:
                draw = functools.partial(_made, subject, sizes, getattr(torch, dtype), said.float32)
                _compare(report, draw, options, functions, said.differentiable, eps)
    status = report.print()
    if not device.INTERPRET:
        plugged("speed")(file)
    sys.exit(status)


def _drawn(case: dict, dtype: torch.dtype, seed: int) -> dict:
    """From the program's generator, whose state the draws before have changed."""
    shapes = {name: shape for name, shape in case.items() if isinstance(shape, tuple)}
    return {name: torch.randn(shape).to(device.DEVICE, dtype) for name, shape in shapes.items()}


def _made(subject, sizes: dict, dtype: torch.dtype, float32: tuple[str, ...], seed: int) -> dict:
    inputs = subject.make(sizes, dtype, seed=seed)
    return inputs | {name: inputs[name].float() for name in float32}


def _compare(report, draw: Callable[[int], dict], options: dict, functions: tuple, differentiable: bool, eps: float):
    """One case in one dtype: every returned tensor, and the gradient of every floating input. draw: seed -> inputs."""
    called = [functools.partial(function, **options) for function in functions]
    upstream = lambda outs: [torch.randn(out.shape).to(device.DEVICE, out.dtype) for out in outs]  # noqa: E731

    def results(seed: int) -> dict[str, tuple]:
        found = plugged("three")(*called, draw(seed), upstream, None if differentiable else ())
        return {name: (ours, theirs.to(ours.dtype), exact) for name, ours, theirs, exact in found}

    described = _described(draw(0), options)
    for name, three in results(0).items():
        again = lambda name=name: (results(seed)[name] for seed in range(1, 16))  # noqa: E731
        report.compare(name, described, *three, eps, again)


def _described(inputs: dict, options: dict) -> str:
    """The first shape of a case and its options: `3 x 64, activation=relu`."""
    tensor = next(value for value in {**inputs, **options}.values() if isinstance(value, torch.Tensor))
    shape = " x ".join(map(str, tensor.shape))
    return ", ".join([shape, *(f"{k}={v}" for k, v in options.items() if isinstance(v, str | int | float))])


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
