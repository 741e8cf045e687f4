"""How wide softmax and AdamW load and store, and where: seen in the code that a GPU would get."""

import pytest

from academy import compiler

PASSES = "forward", "backward"
CODE = """
import torch
from annotated_examples.{module} import softmax
rows = torch.empty(2, {stride}, dtype=torch.{dtype}, device="cuda")[:, :{N}]
y = torch.empty(2, {N}, dtype=torch.{dtype}, device="cuda")
softmax.softmax_{which}({arguments})
"""


def moved(module, which, dtype, N, stride):
    """How many bytes are loaded and stored at a time: width -> how often, for loads and for stores."""
    arguments = "rows" if which == "forward" else "rows, y"
    return widths(CODE.format(module=module, which=which, dtype=dtype, N=N, stride=stride, arguments=arguments))


def widths(code):
    (kernel,) = compiler.compile_code(code).kernels
    width = lambda kind: int(kind.split()[2])  # noqa: E731
    of = lambda what: {width(kind): n for kind, n in kernel.ptx.items() if kind.startswith(f"global {what}")}  # noqa: E731
    return of("load"), of("store")


@pytest.mark.parametrize("N", [50257, 128256])
@pytest.mark.parametrize("which", PASSES)
def test_long_rows_that_begin_anywhere(which, N):
    """16 bytes at a time; narrow loads only for the edges, one a thread and tensor."""
    loads, stores = moved("fast", which, "bfloat16", N, N)
    assert loads[16] and stores[16], (loads, stores)
    assert (loads[2], stores[2]) == (2 if which == "backward" else 1, 1), (loads, stores)


def test_rows_that_begin_differently():
    assert 16 not in moved("fast", "forward", "bfloat16", 50257, 50304)[1], "then the note at `alignment` is wrong"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("which", PASSES)
def test_the_lesson(which, dtype):
    """Rows of a multiple of 16 elements: all loads and stores are wide, although the width is an argument."""
    loads, stores = moved("tutorials", which, dtype, 32000, 32000)
    assert loads[16] and stores[16] and 2 not in loads and 2 not in stores, (loads, stores)


ADAMW = """
import torch, triton.language as tl
from annotated_examples.fast import adamw
table, grads, chunks = (torch.empty(n, dtype=torch.int64, device="cuda") for n in (5, 1, 2))
CHUNK, BLOCK, num_warps = adamw.tiles(torch.{dtype})
numbers = 1, 1e-3, 0.1, 0.999, 0.001, 1e-8, 0.01
constants = dict(DTYPE=tl.{dtype}, LR_IN_MEMORY=False, ALIGNED={aligned}, CHUNK=CHUNK, BLOCK=BLOCK)
adamw.adamw_kernel[(1,)](table, grads, chunks, *numbers, **constants, num_warps=num_warps)
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_addresses_of_a_table(dtype):
    """What is promised of an address counts only if it is promised of the pointer, after the conversion."""
    loads, stores = widths(ADAMW.format(dtype=dtype, aligned=True))
    assert loads[16] >= 4 and stores[16] >= 3, (loads, stores)
    loads, stores = widths(ADAMW.format(dtype=dtype, aligned=False))
    assert 16 not in loads and 16 not in stores, (loads, stores)
