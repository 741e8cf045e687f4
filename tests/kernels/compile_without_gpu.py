"""Run by test_wide_loads.py, in a process of its own: compile softmax's kernels for an H100, without a GPU.

The launchers are called as ever, and in place of the launch stands what Triton would compile for its arguments. Prints
in JSON, for each `MODULE,PASS,DTYPE,N,stride` (stride: the distance of the rows of `x`, or of the upstream gradient),
how often some instructions occur in the kernel.
"""

import importlib
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

MODULES = dict(lesson="annotated_examples.tutorials.softmax", fast="annotated_examples.fast.softmax")
DTYPES = dict(fp32=torch.float32, fp16=torch.float16, bf16=torch.bfloat16)
INSTRUCTIONS = ["ld.global.v4", "st.global.v4", "ld.global.b16", "st.global.b16"]


def launches(call):
    """(kernel, positional arguments, keyword arguments) of each launch that `call()` makes."""
    caught, run = [], triton.JITFunction.run
    triton.JITFunction.run = lambda self, *arguments, grid, warmup, **named: caught.append((self, arguments, named))
    try:
        call()
    finally:
        triton.JITFunction.run = run
    return caught


def compiled(kernel, arguments, named):
    """As a launch on tensors that begin at multiples of 16 bytes would compile it."""
    values = dict(zip(kernel.arg_names, arguments))
    values |= {name: named.pop(name) for name in list(named) if name in kernel.arg_names}
    types, constants, hints = {}, {}, {}
    for index, parameter in enumerate(kernel.params):
        value = values[parameter.name]
        if isinstance(value, torch.Tensor):
            types[parameter.name] = "*" + next(name for name, dtype in DTYPES.items() if dtype == value.dtype)
        elif parameter.is_constexpr or value == 1:
            types[parameter.name], constants[(index,)] = "constexpr", value
        else:
            types[parameter.name] = "i32"
        if isinstance(value, torch.Tensor) or types[parameter.name] == "i32" and value % 16 == 0:
            hints[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, types, constants, hints)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=named).asm["ptx"]


def ptx(module, which, dtype, N, stride):
    module, dtype = importlib.import_module(MODULES[module]), DTYPES[dtype]
    rows, y = torch.empty(2, int(stride), dtype=dtype)[:, : int(N)], torch.empty(2, int(N), dtype=dtype)
    if which == "forward":
        (launch,) = launches(lambda: module.softmax_forward(rows))
    else:
        (launch,) = launches(lambda: module.softmax_backward(rows, y))
    return compiled(*launch)


def count(text, instruction):
    """`ld.global.v4` is found in `ld.global.L1::evict_last.v4.b32`, too."""
    kind, _, end = instruction.rpartition(".")
    return sum(
        line.strip().lstrip("@%p0123456789! ").startswith(kind) and f".{end}" in line for line in text.splitlines()
    )


def main():
    results = {}
    for argument in sys.argv[1:]:
        text = ptx(*argument.split(","))
        results[argument] = {name: count(text, name) for name in INSTRUCTIONS}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
