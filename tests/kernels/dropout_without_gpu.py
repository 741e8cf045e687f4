"""Run by test_dropout.py, in a process of its own: compile dropout's kernel for an H100, without a GPU.

Prints in JSON, for each dtype named on the command line, how many loads and stores of four elements the kernel has, how
many barriers, and how many elements a thread.
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

from annotated_examples.classics import dropout
from tests.kernels.compile_without_gpu import count, launches


def ptx(dtype):
    """As a launch on 2²⁰ elements from a multiple of 16 bytes on would compile it."""
    x = torch.empty(2**20, dtype=getattr(torch, dtype))
    ((kernel, arguments, named),) = launches(lambda: dropout.dropout_forward(x, 0.1, torch.tensor(7)))
    pointer = "*" + dict(float32="fp32", float16="fp16", bfloat16="bf16")[dtype]
    types = dict(zip(kernel.arg_names, [pointer, pointer, "*i64", "i32", "i32", "fp32", "constexpr", "constexpr"]))
    constants = {(kernel.arg_names.index(name),): named.pop(name) for name in ("ROUNDS", "BLOCK")}
    hints = {(index,): [["tt.divisibility", 16]] for index in range(4)}
    source = ASTSource(kernel, types, constants, hints)
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=named).asm["ptx"]
    return text, constants[(7,)] // (32 * named["num_warps"])


def main():
    found = {}
    for dtype in sys.argv[1:]:
        text, each = ptx(dtype)
        vector = "v4" if dtype == "float32" else "v2"  # of 32 bits each
        kinds = [f"ld.global.{vector}", f"st.global.{vector}", "bar.sync"]
        found[dtype] = [*(count(text, kind) for kind in kinds), each]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
