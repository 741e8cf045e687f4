r"""
# Vector addition: the first kernel

Add two vectors, element by element. Every Triton kernel is built like this one: find out which program this is, work
out which elements are its own, mask off what lies past the end, load, compute, store.

[[eq: VA]]

The gradients, [[tag: VA-x]] and [[tag: VA-y]], need no kernel at all: a sum passes its upstream gradient on unchanged.
(Tags like these two stand for formulas of the derivation, which comes next on the path.)

**What it costs.** Two numbers are read and one is written for a single addition. In float32 that is 12 bytes for one
operation. Where a page names no other card, its times were measured on NVIDIA's H200. It can do more than eighty
additions in the time it takes to move 12 bytes, so only the memory traffic counts: no version can be faster than
`bytes / bandwidth`. The *cache*, a small fast memory that holds what was used last, doesn't help: nothing is read
twice. For 2²⁸ float32 elements this one takes [[bench: vector_add/268435456@float32/forward/ms]] and PyTorch's own
[[bench: vector_add/268435456@float32/forward/eager.ms]]: both wait for the memory. There is nothing to gain, so this
lesson has no fast version.

**Contract.** `x` and `y` have the same shape, any number of dimensions, and the same dtype: float32, float16 or
bfloat16. Any strides are allowed; what is not contiguous is copied first. Neither is ever written to. NaNs and
infinities come out where they do in PyTorch.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl


# ## Reference
#
# The same in PyTorch. It runs in any dtype; in float64 it is what the kernel is measured against.
def vector_add_reference(x, y):
    return x + y


# ## The kernel
#
# A kernel is written for **one program**. A launch starts many programs, the *grid*, and each has its own piece of the
# work: here a *block* of `BLOCK` neighbouring elements. One position in a block is a *lane*; what you write once
# happens in all lanes. The GPU runs a program with many threads, 128 unless the launch says otherwise. In CUDA you
# write what each thread does. In Triton you write what happens to the block, and the compiler divides its lanes among
# the threads, which keep them in *registers*, their own storage and the fastest there is.
#
# [[figure: hardware/launch]]


# `@triton.jit` compiles the function for the GPU at its first launch. A tensor passed to it arrives as a *pointer*, the
# address of its first element. An argument marked `tl.constexpr` is compiled in as a constant: every new value means
# compiling again. So the length `n` is an ordinary argument. `BLOCK` has to be a constant, because the compiler can't
# divide a block whose size it doesn't know. It must also be a power of two, because `tl.arange` accepts no other size.
#
# The notes quote a recorded run of the example at the end: ten elements in blocks of four. `vector_add_kernel, pid=2:
# mask = [1, 1, 0, 0]` says that in program 2 the variable `mask` held these values. Inside a kernel its name is left
# out. A `pid` also applies to the quotes after it, until the notes of the kernel name another one; quotes before the
# first `pid` are from program 0. In a kernel with a loop, a value of the loop variable in front says which round is
# quoted.
@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # three vectors of n elements
    # Which program is this? `0` asks for its number along the first dimension of the grid, the only one here. With
    # `pid=0: n = 10` and `BLOCK = 4` three programs run. The number becomes int64 before it is multiplied: past 2³¹
    # elements a 32-bit offset would wrap around.
    pid = tl.program_id(0).to(tl.int64)

    # Which elements are mine? `tl.arange` makes a block of the integers from zero up to, but not including, `BLOCK`.
    # `pid * BLOCK` is added in every lane. The programs own `pid=0: offsets = [0, 1, 2, 3]`,
    # `pid=1: offsets = [4, 5, 6, 7]` and `pid=2: offsets = [8, 9, 10, 11]`.
    offsets = pid * BLOCK + tl.arange(0, BLOCK)

    # Elements 10 and 11 don't exist. The mask switches those lanes off: `pid=2: mask = [1, 1, 0, 0]`. Without it the
    # program would read, and worse, overwrite, whatever lies past the end of the vectors.
    mask = offsets < n

    # Load, compute, store. `x_ptr + offsets` is a block of pointers, so one `tl.load` fetches a whole block: `pid=2:
    # x[:2] = [8, 9]`. Lanes that are switched off read nothing and get `other` instead. Which value they get doesn't
    # matter here, because the store is masked too. `.to(tl.float32)` converts, so the sum is formed in float32 and
    # rounded once, by the store: it converts to the dtype of `out_ptr`. For one addition that changes nothing. Longer
    # kernels need it, because rounding to 16 bits after each step would add up.
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    # In the last program `pid=2: out[:2] = [88, 99]`.
    out = x + y
    tl.store(out_ptr + offsets, out, mask=mask)


# ## The launcher
#
# It allocates the output and starts enough programs to cover it. The square brackets after the kernel's name hold the
# grid: how many programs in each dimension. `triton.cdiv` rounds **up**. A grid of `n // BLOCK` programs would leave
# the tail of the vector unwritten, and no error would say so. A grid of zero programs has nothing to do, hence `if n`.
#
# Why `contiguous`? The kernel only adds offsets to the address of the first element, so the elements must be next to
# each other in memory. A tensor for which that is true isn't copied.
#
# Why 1024? Divided among 128 threads, that is eight elements for each: in float32 two loads of 16 bytes, the most that
# one load instruction of a thread fetches on an H200. (Blackwell has one of 32 bytes, too.) That needs a length that
# is a multiple of 16. With another one the mask might cut a load in two, and each element is a load of its own.
#
# `@replayed` doesn't change the result. On a GPU this function takes longer than its kernel, if the vectors are short.
# So `@replayed` notes what it launches, and launches the same for the next vectors of this kind, without running it:
# [What a call costs](../../docs/guides/what-a-call-costs.md).
@replayed
def vector_add_forward(x, y, *, BLOCK=1024):
    """The sum. BLOCK: elements per program, a power of two."""
    checks.power_of_two(BLOCK=BLOCK)
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    n = out.numel()
    if n:
        vector_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out


# ## Checking the arguments
#
# A kernel gets bare pointers. It can't detect a wrong shape or dtype; it would just compute the wrong thing. So wrong
# arguments raise here, before anything is launched.
def contract(x, y):
    checks.tensors(x=x, y=y)
    checks.dtypes(x=x)
    checks.same_dtype(x=x, y=y)
    checks.same_shape(x=x, y=y)


# ## Joining autograd
#
# PyTorch can't look into a kernel, so we tell it what the derivative is. The backward pass returns the upstream
# gradient for both inputs, as [[tag: VA-x]] and [[tag: VA-y]] say.
#
# `apply` costs a few microseconds. `needs_frame` in the public function below says whether this call needs it: whether
# an input needs a gradient, or is being differentiated in another way. If not, the launcher is called directly.
#
# `once_differentiable` makes a second derivative raise an error. Why? Most backward passes launch a kernel, into which
# autograd can't look either. A loss that contains a gradient, such as a gradient penalty, would then silently lose a
# term. This backward pass launches no kernel and would be right without the decorator; it has one because every lesson
# does.
class VectorAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return vector_add_forward(x, y)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dout):
        return dout, dout


@replayed
def vector_add(x, y):
    """`x + y`, differentiable.

    Args:
        x: tensor of any shape, float32, float16 or bfloat16, any strides.
        y: tensor of the same shape and dtype.

    Returns:
        A new tensor of the same shape and dtype.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: the shapes differ, or a tensor is on the wrong device.

    Source: the first of Triton's own tutorials teaches the same operation.
    """
    contract(x, y)
    if not autograd.needs_frame(x, y):  # no gradient needed: skip autograd's overhead
        return vector_add_forward(x, y)
    return VectorAdd.apply(x, y)


# ## Where it falls behind
#
# For 2²⁴ numbers in bfloat16 `torch.compile` takes [[bench: vector_add/16777216@bfloat16/forward/torch.compile.ms]] and
# this kernel [[bench: vector_add/16777216@bfloat16/forward/ms]]. Two runs of the same kernel differ by more than that.


# ## A run small enough to watch
#
# Ten elements, in blocks of four. Triton's interpreter runs a kernel on the CPU, without a GPU, one program after the
# other. The academy's recorder runs this function in it and records every variable after every statement. The numbers
# quoted above come from there.
#
# The last lines run when the file is a script. `script.main` compares the public function with the reference, with the
# inputs that `operations/vector_add.py` says it takes. Lessons whose reference spells the steps out also pass
# `pytorch=`, PyTorch's own operation. The kernel's error may then be twice as large as that operation's.
def EXAMPLE():
    x = torch.arange(10, dtype=torch.float32, device=device.DEVICE)
    vector_add_forward(x, 10 * x, BLOCK=4)


if __name__ == "__main__":
    script.main(vector_add, vector_add_reference)
