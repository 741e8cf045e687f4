"""Run by test_wide_loads.py, in a process of its own: compile softmax's kernels for long rows, without a GPU.

The launcher is asked for its arguments, and the kernel compiled for an H100 with them. Prints, for each pass, width and
distance of rows given as `PASS,N,stride`, how often some instructions occur, in JSON.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from annotated_examples.tutorials import softmax

KERNELS = dict(forward=softmax.softmax_forward_chunked_kernel, backward=softmax.softmax_backward_chunked_kernel)
INSTRUCTIONS = ["ld.global.v4", "st.global.v4", "ld.global.b16", "st.global.b16"]


class Catcher:
    """In the kernel's place: keeps what it is launched with."""

    def __getitem__(self, grid):
        return lambda *arguments, **options: setattr(self, "launched", (arguments, options))


def compiled(which, N, stride):
    kernel, catcher = KERNELS[which], Catcher()
    setattr(softmax, f"softmax_{which}_chunked_kernel", catcher)
    rows = torch.empty(2, stride, dtype=torch.bfloat16)[:, :N]
    if which == "forward":
        softmax.softmax_forward(rows)
    else:
        softmax.softmax_backward(rows, torch.empty(2, N, dtype=torch.bfloat16))
    arguments, options = catcher.launched
    num_warps = options.pop("num_warps")
    pointers = [name for name in kernel.arg_names if name.endswith("_ptr")]
    constants = dict(zip(kernel.arg_names[len(pointers) :], arguments[len(pointers) :])) | options
    place = kernel.arg_names.index
    source = ASTSource(
        kernel,
        dict.fromkeys(pointers, "*bf16") | dict.fromkeys(constants, "constexpr"),
        {(place(name),): value for name, value in constants.items()},
        {(place(name),): [["tt.divisibility", 16]] for name in pointers},
    )
    target = GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options=dict(num_warps=num_warps)).asm["ptx"]


def count(ptx, instruction):
    """`ld.global.v4` is found in `ld.global.L1::evict_last.v4.b32`, too."""
    kind, _, end = instruction.rpartition(".")
    return sum(
        line.strip().lstrip("@%p0123456789! ").startswith(kind) and f".{end}" in line for line in ptx.splitlines()
    )


def main():
    results = {}
    for argument in sys.argv[1:]:
        which, *numbers = argument.split(",")
        ptx = compiled(which, *map(int, numbers))
        results[argument] = {name: count(ptx, name) for name in INSTRUCTIONS}
    print(json.dumps(results))


main()
