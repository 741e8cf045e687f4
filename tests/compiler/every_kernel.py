"""Run by test_every_kernel.py, in a process of its own: compile what every public function launches, for one card.

Prints in JSON what came of each kind of launch. Arguments: the card's architecture, and "all" for every configuration
of autotuned kernels and more dtypes and sizes, or what the names of the functions begin with that are looked at alone.
"""

import json
import os
import sys
import warnings
from pathlib import Path
from unittest import mock

os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"] = "0", ""
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from academy.runtime import device  # before triton
from academy.compiler import catching, messages
from academy.compiler.cards import card
from academy.judge.public import Call, calls
from tests.kernels.harness import randn


def run(case: Call, dtype: torch.dtype | None) -> None:
    """Forward and backward, as a caller would; where the kernels would have written are zeros."""
    inputs = case.inputs()
    if dtype is not None:
        inputs = {n: v.to(dtype) if v.dtype == torch.bfloat16 else v for n, v in inputs.items()}
    floating = [v.requires_grad_() for v in inputs.values() if case.differentiable and v.is_floating_point()]
    out = case.load()(**inputs)
    if floating:
        out.backward(randn(*out.shape, dtype=out.dtype))


def main() -> None:
    on, every = card(int(sys.argv[1])), "all" in sys.argv
    chosen = tuple(word for word in sys.argv[2:] if word != "all")
    catcher = catching.Catcher(on, all_configs=every, once=not every, detail=False)
    failed, refused = [], []
    zeros = mock.patch.multiple(torch, empty=torch.zeros, empty_like=torch.zeros_like)  # some are indices of PyTorch's
    with catcher.catching(), warnings.catch_warnings(), zeros:
        warnings.simplefilter("ignore")
        for case in (case for case in calls() if str(case).startswith(chosen or "")):
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
