"""What releases of Triton bring or take away, tried with the installed one, without a GPU: printed as a dict."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1" if "interpreted" in sys.argv else "0"

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def compiles(kernel) -> bool:
    try:
        triton.compile(ASTSource(kernel, {"x_ptr": "*i32"}), target=GPUTarget("cuda", 90, 32))
    except Exception as error:
        print(kernel.__name__, error, error.__cause__, file=sys.stderr)
        return False
    return True


@triton.jit
def flags_kernel(x_ptr):
    tl.atomic_store(x_ptr + 1, 7, sem="release")
    if tl.atomic_poll(x_ptr, 1, sem="acquire"):
        tl.atomic_store(x_ptr + 2, tl.atomic_load(x_ptr + 3, sem="acquire"))


@triton.jit
def clamped(x, *, low, high):
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit
def keyword_only_kernel(x_ptr):
    tl.store(x_ptr, clamped(tl.load(x_ptr), high=5, low=2))


@triton.jit
def assigning_kernel(x_ptr):
    if (x := tl.load(x_ptr)) > 3:
        tl.store(x_ptr, x + 1)


@triton.jit
def chained_kernel(x_ptr):
    lanes = tl.arange(0, 32)
    tl.store(x_ptr + lanes, tl.where(3 <= lanes < 7, 1, 0))


@triton.jit
def approximate_kernel(x_ptr):
    x = tl.load(x_ptr).to(tl.float32)
    tl.store(x_ptr, tl.fdiv(1.0, x, approx=True).to(tl.int32))


@triton.jit
def block_pointer_kernel(x_ptr):
    block = tl.make_block_ptr(x_ptr, (64,), (1,), (0,), (32,), (0,))
    tl.store(block, tl.load(block) + 1)


if hasattr(triton, "aggregate"):

    @triton.aggregate
    class Range:
        low: tl.tensor
        high: tl.tensor

        @triton.jit
        def width(self):
            return self.high - self.low

    @triton.jit
    def aggregate_kernel(x_ptr):
        both = Range(tl.load(x_ptr), tl.load(x_ptr + 1))
        tl.store(x_ptr, both.width())


@triton.jit
def scaled_kernel(x_ptr, scale_ptr, out_ptr):
    rows, lanes = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(x_ptr + 32 * rows + lanes)
    scale = tl.load(scale_ptr + rows)
    tl.store(out_ptr + 32 * rows + lanes, tl.dot_scaled(x, scale, "e5m2", x, scale, "e5m2"))


def multiplies_scaled() -> bool:
    """Ones with a scale of 2 on the left and on the right, 32 products each."""
    x, out = torch.ones(32, 32).to(torch.float8_e5m2), torch.zeros(32, 32)
    scale = torch.full((32,), 128, dtype=torch.uint8)
    try:
        scaled_kernel[(1,)](x, scale, out)
    except Exception as error:
        print(error, error.__cause__, file=sys.stderr)
        return False
    return bool((out == 128).all())


if __name__ == "__main__":
    if "interpreted" in sys.argv:
        print({"tl.dot_scaled": multiplies_scaled()})
    else:
        flags = compiles(flags_kernel)
        found = dict.fromkeys(("tl.atomic_load", "tl.atomic_store", "tl.atomic_poll"), flags)
        found["triton.aggregate"] = hasattr(triton, "aggregate") and compiles(aggregate_kernel)
        found["keyword-only parameters"] = compiles(keyword_only_kernel)
        found[":="] = compiles(assigning_kernel)
        found["chained comparisons"] = compiles(chained_kernel)
        found["tl.fdiv(…, approx=True)"] = compiles(approximate_kernel)
        found["tl.make_block_ptr"] = compiles(block_pointer_kernel)
        print(found)
