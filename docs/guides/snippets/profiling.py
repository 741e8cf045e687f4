"""Machine code for an H100 or H200, read without one: for the guide "Profiling". Run it as a script of its own."""

# --8<-- [start:imports]
import os

os.environ["TRITON_INTERPRET"] = "0"  # compile, also without a GPU

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler
from triton.compiler import ASTSource
# --8<-- [end:imports]


# --8<-- [start:kernel]
@triton.jit
def centre_rows_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N)
    mask = offs_n < N
    x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    tl.store(y_ptr + row * stride_ym + offs_n, x - mean, mask=mask)


# --8<-- [end:kernel]


# --8<-- [start:compile]
def compiled(BLOCK_N, num_warps, sixteens):
    """centre_rows_kernel in bfloat16, for compute capability 9.0.

    sixteens: the arguments that are multiples of 16. A launch finds this out itself, for pointers and integers.
    """
    types = dict(x_ptr="*bf16", y_ptr="*bf16", stride_xm="i32", stride_ym="i32", N="i32", BLOCK_N="constexpr")
    hints = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(types) if name in sixteens}
    source = ASTSource(centre_rows_kernel, types, {"BLOCK_N": BLOCK_N}, hints)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})


def instructions(kernel, *names):
    """How often each of these instructions occurs in the machine code, with its suffixes."""
    found = re.findall(r"\b(?:" + "|".join(names) + r")[.\w]*", kernel.asm["sass"])
    return dict(Counter(found))


# --8<-- [end:compile]

# --8<-- [start:wide]
POINTERS = ["x_ptr", "y_ptr"]
even = compiled(BLOCK_N=4096, num_warps=4, sixteens=[*POINTERS, "stride_xm", "stride_ym", "N"])
odd = compiled(BLOCK_N=4096, num_warps=4, sixteens=POINTERS)
print(instructions(even, "LDG", "STG"))  # → {'LDG.E.128': 4, 'STG.E.128': 4}
print(instructions(odd, "LDG", "STG"))  # → {'LDG.E.U16': 32, 'STG.E.U16': 32}
# --8<-- [end:wide]


# --8<-- [start:spills]
def resources(kernel):
    """Registers a thread, and bytes of its stack, where spilled values go."""
    tools = Path(compiler.__file__).parent / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        shown = subprocess.run([tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True).stdout
    return {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", shown)}


wide = compiled(BLOCK_N=65536, num_warps=4, sixteens=[*POINTERS, "stride_xm", "stride_ym", "N"])
more_warps = compiled(BLOCK_N=65536, num_warps=16, sixteens=[*POINTERS, "stride_xm", "stride_ym", "N"])
for kernel in (even, wide, more_warps):
    print(resources(kernel), instructions(kernel, "STL", "LDL"))
# → {'REG': 45, 'STACK': 0} {}
# → {'REG': 56, 'STACK': 1976} {'STL': 495, 'LDL.LU': 495}
# → {'REG': 128, 'STACK': 48} {'STL': 12, 'LDL.LU': 12}
# --8<-- [end:spills]
