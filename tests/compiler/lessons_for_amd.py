"""Compile every lesson's kernels for an AMD MI300, and print what can't be.

Run by test_every_kernel.py, in a process of its own. What the examples ask of the card is answered as an H200 would;
only the compiler is another.

Prints in JSON how many there were, and what is wrong with them.
"""

# ruff: noqa: I001  academy.runtime.device must come before triton

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"] = "0", ""
sys.path.insert(0, str(ROOT))

from academy.runtime import device  # noqa: F401  before triton
from academy.book import layout
from academy.compiler import stand_in, worker

from triton.backends.compiler import GPUTarget

stand_in.Driver.get_current_target = lambda self: GPUTarget("hip", "gfx942", 64)


def main() -> None:
    kernels, problems = 0, []
    for path in layout.lessons(ROOT):
        answer = worker.run(path, 90, only=None, all_configs=False, detail=False)
        kernels += len(answer["found"])
        problems += [answer["stopped"]] * bool(answer["stopped"])
        problems += [f"{each['kernel']}: {p['message']}" for each in answer["found"] for p in each["problems"]]
    print(json.dumps(dict(kernels=kernels, problems=problems)))


main()
