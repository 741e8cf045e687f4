"""Run by test_every_kernel.py, in a process of its own: compile what every public function launches, for one card.

Prints in JSON what came of each kind of launch. Arguments: the card's architecture, and "all" for every configuration
of autotuned kernels and more dtypes and sizes, "hostile" for numbers of unusual types, or what the
names of the functions begin with that are looked at alone.
"""

import importlib
import json
import os
import sys
import warnings
from pathlib import Path
from unittest import mock

os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"] = "0", ""
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from triton.compiler import ASTSource

from academy.runtime import device  # before triton
from academy.compiler import catching, messages
from academy.compiler.cards import card
from academy.judge.public import Call, calls
from annotated_examples.common import custom_operator, opaque_attention
from tests.kernels.harness import randn

OPERATORS = custom_operator.__file__, opaque_attention.__file__


def run(case: Call, dtype: torch.dtype | None) -> None:
    """Forward and backward, as a caller would; where the kernels would have written are zeros."""
    inputs = case.inputs()
    if dtype is not None:
        inputs = {n: v.to(dtype) if v.dtype == torch.bfloat16 else v for n, v in inputs.items()}
    floating = [v.requires_grad_() for v in inputs.values() if case.differentiable and v.is_floating_point()]
    out = case.load()(**inputs)
    if floating:
        out.backward(randn(*out.shape, dtype=out.dtype))


def changed(values, kind: type, to):
    """Each number of this type in arguments of a launch as another one."""
    if isinstance(values, tuple):
        return tuple(changed(value, kind, to) for value in values)
    return to(values) if type(values) is kind else values


def in_an_operator() -> bool:
    """What `torch.compile` doesn't look into is launched by Triton itself."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename not in OPERATORS:
        frame = frame.f_back
    return frame is not None


def with_hostile_numbers(catcher: catching.Catcher) -> None:
    """Each launch a second time, with its integers 1, of which Triton makes constants without methods; and floats as
    PyTorch's Inductor types them, where it launches: as fp64."""
    created, compiled, looked_at = ASTSource.__init__, catcher._compile, catcher._looked_at
    wide: list[str] = []

    def create(self, fn, signature, *rest, **named):
        typed = {name: changed(kind, str, lambda k: "fp64" if k == "fp32" else k) for name, kind in signature.items()}
        created(self, fn, typed if wide else signature, *rest, **named)

    def compile_twice(kernel, run, args, kwargs, grid):
        constant = {each.name for each in kernel.params if each.is_constexpr} | kwargs.keys() - set(kernel.arg_names)
        given = dict(zip(kernel.arg_names, args)) | kwargs
        for kind, to in ((int, lambda number: 1), (float, float)):
            wide[:] = ["fp64"] if kind is float else []
            other = {n: v if n in constant else changed(v, kind, to) for n, v in given.items()}
            met: list = []
            changed(tuple(v for n, v in given.items() if n not in constant), kind, met.append)
            if met and not (wide and in_an_operator()):
                compiled(kernel, run, (), other, grid)

    def look_for_blocks(one):
        return looked_at(one) | dict(float64=bool(wide) and "xf64" in one.asm["ttgir"])

    ASTSource.__init__ = create
    catcher._compile, catcher._looked_at = compile_twice, look_for_blocks


def main() -> None:
    on, every = card(int(sys.argv[1])), "all" in sys.argv
    chosen = tuple(word for word in sys.argv[2:] if word not in ("all", "hostile"))
    catcher = catching.Catcher(on, all_configs=every, once=not every, detail=False)
    failed, refused = [], []
    if "hostile" in sys.argv:
        with_hostile_numbers(catcher)
    zeros = mock.patch.multiple(torch, empty=torch.zeros, empty_like=torch.zeros_like)  # some are indices of PyTorch's
    with catcher.catching(), warnings.catch_warnings(), zeros:
        warnings.simplefilter("ignore")
        cases = [case for case in calls() if str(case).startswith(chosen or "")]
        if "hostile" in sys.argv:  # of a file's kernels these launch all
            for module in dict.fromkeys(case.module for case in cases):
                getattr(importlib.import_module(f"annotated_examples.{module}"), "EXAMPLE", lambda: None)()
        for case in cases:
            for dtype in (None, torch.float16, torch.float32) if every else (None,):
                torch.manual_seed(0)
                try:
                    run(case, dtype)
                except Exception as error:
                    if any(text in str(error) for _, _, text in device.FEATURES.values()):
                        refused.append(str(case))
                    elif dtype is None:
                        failed.append([str(case), *messages.cause_of(error, __file__)])
    print(json.dumps(dict(found=catcher.found, failed=failed, refused=refused)))


main()
