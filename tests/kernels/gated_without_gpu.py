"""Run by test_swiglu.py, in a process of its own: compile SwiGLU's kernels for a GPU, without one.

The launchers are asked for their arguments, with tensors that have no memory, and the kernels compiled for an H100 with
them. Prints, for each layout given as `LAYOUT,rows,columns`, how many loads and stores of the largest launch of either
pass are 16 bytes wide, and how many there are, in JSON.
"""

import json
import os
import re
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from annotated_examples.classics import swiglu


class Catcher:
    """In a kernel's place: keeps what it is launched with."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launches.append((grid[0] * grid[1], arguments, options))


def launches(layout, rows, columns):
    """The largest launch of the forward pass and that of the backward pass: kernel, arguments, options."""
    kernels = swiglu.swiglu_forward_kernel, swiglu.swiglu_backward_kernel
    catchers = swiglu.swiglu_forward_kernel, swiglu.swiglu_backward_kernel = Catcher(), Catcher()
    dout = torch.empty(rows, columns, dtype=torch.bfloat16, device="meta")
    if layout == "packed":
        x = torch.empty(rows, 2 * columns, dtype=torch.bfloat16, device="meta")
        swiglu.swiglu_forward(*x.chunk(2, dim=-1))
        swiglu.swiglu_packed_backward(dout, x)
    else:
        gate = torch.empty(rows, columns + 8 * (layout == "sliced"), dtype=torch.bfloat16, device="meta")[:, :columns]
        swiglu.swiglu_forward(gate, dout)
        swiglu.swiglu_backward(dout, gate, dout)
    swiglu.swiglu_forward_kernel, swiglu.swiglu_backward_kernel = kernels
    largest = [max(catcher.launches, key=lambda launch: launch[0]) for catcher in catchers]
    return [(kernel, *launch[1:]) for kernel, launch in zip(kernels, largest)]


def compiled(kernel, arguments, options):
    """The PTX, with the arguments specialized as Triton does at a launch."""
    num_warps = options.pop("num_warps")
    signature, constants, hints = {}, {}, {}
    for place, (name, value) in enumerate((dict(zip(kernel.arg_names, arguments)) | options).items()):
        if name in options or isinstance(value, int) and value == 1:
            signature[name], constants[(place,)] = "constexpr", value
            continue
        is_tensor = isinstance(value, torch.Tensor)
        signature[name] = "*bf16" if is_tensor else "i32"
        if (value.storage_offset() * value.element_size() if is_tensor else value) % 16 == 0:
            hints[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, hints)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=num_warps)).asm["ptx"]


def counts(ptx):
    wide = r"\b{}\.global(\.L\w+::\w+)*\.v4\.b32"
    return dict(
        wide_loads=len(re.findall(wide.format("ld"), ptx)),
        loads=len(re.findall(r"\bld\.global", ptx)),
        wide_stores=len(re.findall(wide.format("st"), ptx)),
        stores=len(re.findall(r"\bst\.global", ptx)),
    )


def main():
    results = {}
    for argument in sys.argv[1:]:
        layout, *shape = argument.split(",")
        results[argument] = [counts(compiled(*launch)) for launch in launches(layout, *map(int, shape))]
    print(json.dumps(results))


main()
