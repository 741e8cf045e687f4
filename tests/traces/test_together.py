"""Programs that run together compute what they compute one after the other, bit for bit and residue for residue; where
they can't, they run one after the other."""

import pytest
import torch
import triton
import triton.language as tl

from academy.runtime import device
from academy.exact import without_rounding

if not device.INTERPRET:
    pytest.skip("compiled kernels don't pass through the interpreter", allow_module_level=True)

from triton.runtime import interpreter

from academy.interpreter.quick import together

B = tl.constexpr(4)


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def half(x):
    return x * 0.5


@triton.jit
def numbers_kernel(x_ptr, y_ptr, n):
    """A number of each program's own beside blocks of each rank, a loop and a branch that differ, a load from a place
    that all programs have."""
    i, j = tl.program_id(0), tl.program_id(1)
    own = tl.load(x_ptr + i * 4 + j)
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    mask = (rows < n - i) & (columns < n)
    block = tl.load(x_ptr + rows * B + columns + i, mask=mask, other=own).to(tl.float32) * own + own
    for step in range(0, i // 2 + 1):
        block += tl.where(i == 1, own, block) * (step + 1)
    if j == 1:
        block = tl.where(block > own, own - block, block / 3)
    both = tl.maximum(rows, i) + tl.maximum(columns, 1)
    tl.store(y_ptr + (i * 3 + j) * 16 + rows * B + columns, half(block) + both, mask=both < 6)


@triton.jit
def axes_kernel(x_ptr, y_ptr, n):
    """Reductions and scans along each axis, products, and what moves elements."""
    i = tl.program_id(0)
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    x = tl.load(x_ptr + i * 16 + rows * B + columns).to(tl.float32)
    same = tl.load(x_ptr + rows * B + columns).to(tl.float32)
    x = tl.dot(x, same) + tl.dot(tl.trans(same), x) + tl.dot(same, same)
    x += tl.sum(x, axis=0)[None, :] + tl.sum(x, axis=1, keep_dims=True) + tl.sum(x) + tl.max(x)
    x += tl.max(x, axis=1)[:, None] + tl.argmax(x, axis=0)[None, :] + tl.reduce(x, 0, larger)[None, :]
    x = tl.cumsum(x, 0) + tl.cumsum(x, 1, reverse=True) + tl.associative_scan(x, 1, larger)
    left, right = tl.split(tl.reshape(x, (B, 2, 2)))
    x = tl.reshape(tl.join(right, tl.exp(left * 0.001)), (B, B))
    tl.store(y_ptr + i * 16 + tl.arange(0, 16), tl.reshape(x, (16,)).to(y_ptr.dtype.element_ty))


@triton.jit
def before_kernel(x_ptr, y_ptr, n):
    """Reads what the program before has written."""
    i = tl.program_id(0)
    tl.store(y_ptr + i + 1, tl.load(y_ptr + i) + tl.load(x_ptr + i))


@triton.jit
def own_kernel(x_ptr, y_ptr, n):
    """Reads what it has written itself."""
    i = tl.program_id(0)
    tl.store(y_ptr + i, tl.load(x_ptr + i))
    tl.store(y_ptr + 8 + i, tl.load(y_ptr + i) * 2)


@triton.jit
def last_kernel(x_ptr, y_ptr, n):
    """The last one to write wins."""
    tl.store(y_ptr + tl.program_id(0) // 2, tl.load(x_ptr + tl.program_id(0)))


@triton.jit
def atomic_kernel(x_ptr, y_ptr, n):
    tl.atomic_add(y_ptr, tl.load(x_ptr + tl.program_id(0)))


@triton.jit
def in_place_kernel(x_ptr, y_ptr, n):
    """Each program reads and writes places of its own."""
    lanes = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y_ptr + lanes, tl.load(y_ptr + lanes) + tl.load(x_ptr + lanes), mask=lanes < n)


KERNELS = {numbers_kernel: (4, 3), axes_kernel: (5,), in_place_kernel: (3,)}
APART = {before_kernel: (4,), own_kernel: (4,), last_kernel: (4,), atomic_kernel: (4,)}


def launched(kernel, grid, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """What it writes, and the residues."""
    x = torch.randn(192, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = torch.ones(192, dtype=dtype)
    with without_rounding() as session:
        kernel[grid](x, y, 7)
        return y, torch.from_numpy(session.of(y).view("int64"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [*KERNELS, *APART], ids=lambda kernel: kernel.__name__)
def test_as_one_after_the_other(kernel, dtype):
    grid = {**KERNELS, **APART}[kernel]
    expected, residues = launched(kernel, grid, dtype)
    bits = torch.ones(192, dtype=dtype)
    with together.together():
        found, theirs = launched(kernel, grid, dtype)
        kernel[grid](torch.randn(192, generator=torch.Generator().manual_seed(0)).to(dtype), bits, 7)
    assert torch.equal(found, expected) and torch.equal(bits, expected) and torch.equal(theirs, residues)
    is_apart = interpreter.InterpretedFunction.rewritten_fn[kernel.fn] in together._Switch.apart
    assert is_apart == (kernel in APART)


def test_an_error_names_its_program_as_ever():
    @triton.jit
    def failing_kernel(x_ptr):
        tl.store(x_ptr + tl.program_id(0), tl.arange(0, 4))

    with together.together(), pytest.raises(interpreter.InterpreterError, match="this tl.store has one address"):
        failing_kernel[(3,)](torch.zeros(8))
    assert type(interpreter.interpreter_builder) is interpreter.InterpreterBuilder
