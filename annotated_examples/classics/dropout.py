r"""
# Dropout: random numbers that need no memory

Dropout sets each element to zero with probability $p$, and divides the others by $1 - p$, so that the expected value
stays what it was. With a mask of ones and zeros,

[[eq: DO-y]]

The gradient, [[tag: DO-x]], needs the same mask. Does it have to be stored, then? It does not. Here a random number is
a function of the seed and of the element's index. Whoever needs it again computes it again.

**What it costs.** An element is read and written, and nothing else moves. In bfloat16 that is 4 bytes each, for 22
instructions, half of which make the random number. At 8192 x 8192 forward runs at
[[bench: dropout/8192x8192/forward/share]] of the speed of a copy. PyTorch stores the mask, a byte an element, and reads
it in the backward pass: [[bench: dropout/8192x8192/backward/eager.ms]] against
[[bench: dropout/8192x8192/backward/ms]].

**Contract.** `x` has any shape and any strides, and is float32, float16 or bfloat16. The mask depends on `seed`, `p`
and the element's row-major index: not on dtype, layout, block size or device. Two calls with one seed drop the same
elements, so each layer and each step needs a seed of its own. A tensor that isn't contiguous is copied first. A
dropped NaN becomes 0, which PyTorch's multiplication leaves NaN.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.seeds import LOW, random_words_reference, seed_contract, seed_tensor, seeded


# ## Reference
#
# The same in PyTorch, with random words as signed numbers.
def dropout_mask_reference(shape, p, seed, device=None):
    n = torch.Size(shape).numel()
    words = random_words_reference(torch.as_tensor(seed, device=device), torch.arange(-(-n // 4), device=device))
    # In two's complement the words are numbers from -2³¹ on.
    signed = (words.flatten()[:n] ^ 2**31) - 2**31
    return (signed >= threshold(p)).view(shape) & (p < 1)


def dropout_reference(x, p, seed):
    return torch.where(dropout_mask_reference(x.shape, p, seed, x.device), x, 0) / (1 - p if p < 1 else 1)


# ## A random number is a function
#
# The usual generator keeps a state, and each number changes it. A thousand threads can't share one. Philox has no
# state: it is a function from a *counter* and a *key* to four random words, of 32 bits each. Counter 0 gives four
# words, counter 1 the next four, in any order, on any thread, as often as one likes.
#
# It scrambles the counter in ten rounds. A round multiplies two of the words by constants. The upper half of a product
# depends on all bits of its factor; it is mixed with another word and with the key by exclusive or, and words change
# places. After seven such rounds the usual batteries of statistical tests find no pattern. cuRAND and PyTorch use
# ten, to be safe, and so do we. The key is the seed.
#
# All arithmetic is modulo 2³²: unsigned numbers just wrap. One product of 64 bits gives both halves at once.
#
# `tl.zeros_like` makes a block of zeros in the shape and dtype of another block. `tl.static_range` makes a loop that
# the compiler writes out, round after round, since it knows how many there are.
@triton.jit
def philox(seed, counter, high, ROUNDS: tl.constexpr):
    # The counter has 64 bits as well, in two words. With one, the numbers would repeat after 2³⁴ elements.
    c0 = counter
    c1 = tl.zeros_like(counter) + high
    c2 = tl.zeros_like(counter)
    c3 = tl.zeros_like(counter)
    key_low = seed.to(tl.uint32)
    key_high = (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        first = c0.to(tl.uint64) * 0xD2511F53
        second = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (second >> 32).to(tl.uint32) ^ c1 ^ key_low
        c1 = second.to(tl.uint32)
        c2 = (first >> 32).to(tl.uint32) ^ c3 ^ key_high
        c3 = first.to(tl.uint32)
        key_low += 0x9E3779B9
        key_high += 0xBB67AE85
    return c0, c1, c2, c3


# ## One kernel for both passes
#
# Forward masks and scales `x`, backward masks and scales the upstream gradient. It is the same kernel. Without an `x`
# it stores the mask itself, for whoever wants to look at it.
#
# [[figure: attention/dropout]]
#
# All four words are used: counter $i$ serves the elements $4 i$ to $4 i + 3$. That saves three quarters of the work,
# but the words come as four blocks, and the elements lie side by side. `tl.join` puts two blocks side by side in a new
# last dimension; twice, and flattened, that makes the order of the elements:
#
# ```text
# join(w0, w2)                          [w0 w2]
# join(join(w0, w2), join(w1, w3))      [[w0 w1] [w2 w3]]
# reshape                               w0 w1 w2 w3, w0 w1 w2 w3, …
# ```
#
# So the loads and stores are of neighbours, four a thread. Four loads for `4 i`, `4 i + 1` and so on would fetch
# every fourth element each.
@triton.jit
def dropout_kernel(
    x_ptr,  # (n,)
    y_ptr,  # (n,)
    seed_ptr,  # one number
    n,
    threshold,
    scale,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # In 64 bits, because tensors may have more than 2³¹ elements. There are 20 in the example, in blocks of 8: the last
    # program begins at `pid=2: start = 16`.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    # A thread computes words four at a time, so it should load four elements at a time. `tl.max_contiguous` says how
    # many neighbours the compiler may count on. Without it a thread would load eight of bfloat16, and the words would
    # have to move to other threads.
    offs = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)
    mask = offs < n

    # `x` is asked for first. It needs most of a microsecond from memory, and the random words are computed meanwhile.
    if x_ptr is not None:
        x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)

    # The seed is a number in GPU memory, and `seed_ptr` is where. It is loaded here: Python would have to wait for it.
    # Taking the pointer for the seed is a mistake that still looks random.
    seed = tl.load(seed_ptr)
    # Eight elements need two counters: `pid=2: counter = [4, 5]`. A block begins at a multiple of its size, a power of
    # two, so the upper word is the same in all of it: `pid=2: high = 0`.
    first = start // 4
    counter = first.to(tl.uint32) + tl.arange(0, BLOCK // 4).to(tl.uint32)
    high = (first >> 32).to(tl.uint32)
    w0, w1, w2, w3 = philox(seed, counter, high, ROUNDS)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (BLOCK,))

    # Is the element kept, [[tag: DO-mask]]? A word, read as a signed number, lies anywhere from −2³¹ to 2³¹ − 1, and
    # below `threshold` with probability `p`. For a half the threshold is 0, `pid=0: threshold = 0`, and the sign
    # decides: `pid=0: keep = [1, 1, 0, 1, 1, 1, 0, 1]`. Whole numbers are compared. In bfloat16 there are so few
    # numbers between 0 and 1 that `p` would be rounded, and the mask would depend on the dtype.
    keep = words.to(tl.int32, bitcast=True) >= threshold
    if x_ptr is None:
        tl.store(y_ptr + offs, keep, mask=mask)
    else:
        # [[tag: DO-y]] forward, [[tag: DO-x]] backward. Where half is dropped, the rest is doubled,
        # `pid=0: y = [2, 4, 0, 8, 10, 12, 0, 16]`. Select; don't multiply by zero: zero times infinity is NaN.
        # Inside `torch.compile` a Python float arrives as float64.
        y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
        tl.store(y_ptr + offs, y, mask=mask)


# ## Launchers
#
# The threshold is `p` of the way from −2³¹ to 2³¹, as a whole number that fits into 32 bits.
def threshold(p):
    return min(round(p * 2**32), LOW) - 2**31


# Where `p` is 1 nothing is kept, and there is nothing to compute. (The largest threshold would still keep one element
# of 2³².)
@replayed
def launch(x, out, p, seed, BLOCK, ROUNDS):
    checks.power_of_two(BLOCK=BLOCK)
    if p == 1:
        return out.zero_()
    if n := out.numel():
        num_warps = max(1, min(BLOCK, 2048) // 512)
        dropout_kernel[(triton.cdiv(n, BLOCK),)](
            x, out, seed, n, threshold(p), 1 / (1 - p), ROUNDS=ROUNDS, BLOCK=BLOCK, num_warps=num_warps
        )
    return out


# A thread has 16 elements, four times four. Fewer, and what a thread does once, such as the ten keys, weighs more.
@seeded
@replayed
def dropout_forward(x, p, seed, *, BLOCK=2048, ROUNDS=10):
    """`x` with the elements masked and scaled, in a new contiguous tensor."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return launch(x.contiguous(), y, p, seed, BLOCK, ROUNDS)


# The mask is made again, from the same seed.
def dropout_backward(dy, p, seed, *, BLOCK=2048, ROUNDS=10):
    return dropout_forward(dy, p, seed, BLOCK=BLOCK, ROUNDS=ROUNDS)


def dropout_mask_forward(shape, p, seed, device, *, BLOCK=2048, ROUNDS=10):
    mask = torch.empty(shape, dtype=torch.bool, device=device)
    return launch(None, mask, p, seed_tensor(seed, mask.device), BLOCK, ROUNDS)


# ## Arguments
def contract(p, seed, on):
    checks.number("p", p, at_least=0)
    if p > 1:
        raise ValueError(f"p must be at most 1, got {p}")
    seed_contract(seed, on)


# ## Joining autograd
#
# What is saved is the seed. If it is a tensor and somebody writes another number into it before the backward pass,
# autograd notices and raises.
class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.save_for_backward(seed)
        return dropout_forward(x, p, seed)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return dropout_backward(dy, ctx.p, *ctx.saved_tensors), None, None


@seeded
@replayed
def dropout(x, p, seed):
    r"""`x` with each element set to zero with probability `p`, the others divided by `1 - p`; differentiable.

    Args:
        x: tensor of any shape, float32, float16 or bfloat16, any strides.
        p: the probability, from 0 to 1. With 1 the result and the gradient are zeros.
        seed: an int from 0 to 2⁶³ − 1, or a 0-d int64 tensor on the device of `x`, which nobody waits for.

    Returns:
        A new contiguous tensor of the same shape and dtype.

    Raises:
        TypeError: `x` is no tensor or has another dtype; `p` or `seed` has a wrong type.
        ValueError: `p` or `seed` is out of range, or a tensor is on the wrong device.

    Source: N. Srivastava et al., "Dropout" (JMLR 2014); J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
    (SC 2011), for Philox.
    """
    checks.tensors(x=x)
    checks.dtypes(x=x)
    contract(p, seed, x.device)
    if not autograd.needs_frame(x):
        return dropout_forward(x, p, seed)
    return Dropout.apply(x, p, seed)


def dropout_mask(shape, p, seed, device=None):
    """The mask that `dropout` uses for a tensor of this shape.

    Args:
        shape: of the tensor.
        p, seed: as for `dropout`.
        device: of the mask; default: of a seed that is a tensor, else where kernels run.

    Returns:
        A bool tensor, True where an element is kept.

    Raises:
        TypeError, ValueError: as `dropout`.

    Source: as `dropout`.
    """
    on = torch.empty(0, device=device or home_of(seed))
    checks.tensors(device=on)
    contract(p, seed, on.device)
    return dropout_mask_forward(torch.Size(shape), p, seed, on.device)


def home_of(seed):
    return seed.device if isinstance(seed, torch.Tensor) else device.DEVICE


# ## Where it falls behind
#
# Compiled for an H200, the kernel takes about 350 instructions for the 16 elements of a thread in bfloat16. 74 of them
# are the multiplications of Philox, and a 64-bit product takes two turns. All together this is about three quarters of
# the time in which the bytes pass. Copying and computing would have to overlap perfectly, and they don't quite. In
# float32 twice as many bytes pass, and the share of a copy is [[bench: dropout/8192x8192@float32/forward/share]].
#
# Where everything fits in the L2 cache, bytes cost little, and a stored mask is read faster than it is made again:
# backward at 4096 x 1024 this kernel takes [[bench: dropout/4096x1024/backward/ms]], PyTorch
# [[bench: dropout/4096x1024/backward/eager.ms]].


# ## A run small enough to watch
#
# 20 numbers in blocks of 8.
def EXAMPLE():
    x = torch.arange(1.0, 21.0, device=device.DEVICE)
    seed = torch.tensor(2, device=device.DEVICE)
    dropout_forward(x, 0.5, seed, BLOCK=8)
    dropout_backward(torch.ones_like(x), 0.5, seed, BLOCK=8)


if __name__ == "__main__":
    script.main(dropout, dropout_reference)
