r"""
# Products of scaled codes

The tensor cores multiply codes of eight bits. They know nothing of scales, so a kernel has to put these in. With one
scale for each row of `a` and each column of `b`, that is two factors for each element of the result, at the end:

[[eq: SM-row]]

One scale for all of `a` and one for all of `b`, [[tag: SM-tensor]], is the same with less to read. Scales of *blocks*
change along the sum. They can't wait until its end, so each block of K is summed by itself and scaled before it is
added to the rest:

[[eq: SM-block]]

[[figure: fp8/scales_of_a_product]]

**What it costs.** `2 · M · N · K` operations, for `M · K + K · N` bytes of codes. At M = N = K = 4096 with a bfloat16
result there are 2048 operations for each byte. According to its data sheet an H200 does 412 with codes in the time it
takes to move one, twice as many as in bfloat16. So the limit is arithmetic. A row of scales is read once for a tile and
costs next to nothing. Scaling each block takes two multiplications and an addition for each element of the tile and
each 128 of K, and the ordinary cores have to do those between two products.

**The sum.** "float32" isn't the whole truth about what a tensor core adds up in. On Hopper the accumulator of a product
of eight-bit codes keeps about 14 bits and cuts off the rest, says the report that the public function names. So a sum
over a long K stops growing, as one in 16 bits [does](../../docs/guides/numerics.md#a-sum-that-stops-growing). The way
out is called **promotion**: after each 128 of K the tensor cores' sum is added to another one, in ordinary float32, and
starts again from zero. Nothing of this shows in the interpreter, which rounds the sum of a tile once, to float32. A
calculation with such an accumulator shows it:

[[figure: fp8/promotion]]

**Where it falls behind.** At 8192 in each direction, one scale a row, with fast sums it takes
[[bench: scaled_matmul:row, fast sums/8192x8192x8192/forward/lesson.ms]], and `torch._scaled_mm`
[[bench: scaled_matmul:row, fast sums/8192x8192x8192/forward/eager.ms]]. With promotion and one scale a tensor it is
[[bench: scaled_matmul:tensor/8192x8192x8192/forward/lesson.ms]] against
[[bench: scaled_matmul:tensor/8192x8192x8192/forward/eager.ms]]: while the ordinary cores add, the tensor cores wait.
With 16 rows, [[bench: scaled_matmul:tensor/16x8192x8192/forward/lesson.ms]] against
[[bench: scaled_matmul:tensor/16x8192x8192/forward/eager.ms]]: 64 programs, one for each tile of columns, can't keep the
memory busy. [The fast version](../fast/scaled_matmul.py) has a kernel for each of these.

**Contract.** `a` (M, K) and `b` (K, N) are e4m3 or e5m2, in any combination, with any strides. Hopper multiplies codes
only if both operands lie along K in memory, so `b` should be the `.t()` of a contiguous (N, K). Others are rearranged
tile by tile, which is slow. Scales are what the codes are *multiplied* by to decode them, as `quantize_fp8` returns
them; libraries that ask for the reciprocal exist. The result is rounded once, at the end. A NaN in `a` or in its scales
reaches its own rows only, one in `b` its own columns. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import LARGEST, eps_of_sums, format_contract
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.tile_order import grouped_order

RECIPES = ("tensor", "row", "block")


# ## Reference
#
# In PyTorch, formula by formula: the codes of each part of K are multiplied, then scaled. In float64, the default, the
# sums are exact enough to be the truth. With `precision=torch.float32` it is what PyTorch gets. On a GPU that is its
# own product of codes, on the same tensor cores as ours. It takes multiples of 16 only, so zeros are put behind the
# ends, which add nothing. And it doesn't take two matrices of e5m2.
def product_of_codes(a, b, precision, use_fast_accum):
    (M, K), N = a.shape, b.shape[1]
    both_e5m2 = a.dtype == b.dtype == torch.float8_e5m2
    if precision == torch.float64 or not a.is_cuda or both_e5m2 or 0 in (M, K, N):
        return a.to(precision) @ b.to(precision)
    left, right = (
        torch.nn.functional.pad(x.contiguous().view(torch.uint8), (0, -K % 16, 0, -len(x) % 16)).view(x.dtype)
        for x in (a, b.t())
    )
    one = torch.ones((), device=a.device)
    options = dict(out_dtype=torch.float32, use_fast_accum=use_fast_accum)
    return torch._scaled_mm(left, right.t(), one, one, **options)[:M, :N]


def scaled_matmul_reference(
    a, b, scale_a, scale_b, *, recipe="row", bias=None, out_dtype=torch.bfloat16, use_fast_accum=False,
    precision=torch.float64, GROUP=128,
):  # fmt: skip
    (M, K), N = a.shape, b.shape[1]
    scale_a, scale_b = scale_a.to(precision), scale_b.to(precision)
    if recipe == "block" and scale_b.shape[1] != N:
        scale_b = scale_b.repeat_interleave(GROUP, 1)[:, :N]
    c = torch.zeros((M, N), dtype=precision, device=a.device)
    step = GROUP if recipe == "block" else max(K, 1)
    for part, k in enumerate(range(0, K, step)):
        product = product_of_codes(a[:, k : k + step], b[k : k + step], precision, use_fast_accum)
        blocks = (scale_a[:, part, None], scale_b[part]) if recipe == "block" else (scale_a, scale_b)
        c += product * (blocks[0] * blocks[1])
    return (c if bias is None else c + bias.to(precision)).to(out_dtype)


# ## A tile of codes
#
# Each tensor arrives as a tuple, the pointer and its two strides. Rows and columns outside of the matrix read as 0,
# which adds nothing. The mask is made here, in each step of the loop over K, because the columns move on. That of the
# first step would be wrong in the last one, where K ends inside of a tile.
@triton.jit
def load_codes(tensor, offs_r, offs_c, rows, columns):
    ptr, stride_r, stride_c = tensor
    mask = (offs_r < rows)[:, None] & (offs_c < columns)[None, :]
    return tl.load(ptr + offs_r[:, None] * stride_r + offs_c[None, :] * stride_c, mask=mask, other=0.0)


# ## One scale for each row
#
# The loop is that of [matmul_blocked](../tutorials/matmul_blocked.py); the order of tiles that of
# [matmul_grouped](../tutorials/matmul_grouped.py).
#
# In the recorded run `a` is 6 x 96 and `b` is 96 x 10, in tiles of 4 x 8, with 32 of K at a time: two rows and two
# columns of tiles. An instruction multiplies 32 codes along K, so no tile has fewer.
@triton.jit
def scaled_matmul_kernel(
    a_tensor, b_tensor,  # (pointer, two strides) of (M, K) and (K, N)
    scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b,  # (M,) and (N,)
    bias_ptr, c_ptr,  # (N,) or None, and (M, N), contiguous
    M, N, K,
    IMPRECISE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = grouped_order(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_mask, n_mask = offs_m < M, offs_n < N

    # The sum of products of codes. `max_num_imprecise_acc` says how many products a sum inside of the tensor cores may
    # have before it is promoted. `None` leaves that to the compiler, which on Hopper never promotes.
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        offs_k = k * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        a = load_codes(a_tensor, offs_m, offs_k, M, K)
        b = load_codes(b_tensor, offs_k, offs_n, K, N)
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=IMPRECISE)

    # [[tag: SM-row]]: the codes of the first row and column sum up to `pid=0, k=2: acc[0][0] = 7`. Their scales are
    # `pid=0: scale_a[0] = 0.5` and `pid=0: scale_b[0] = 0.25`, which makes `pid=0: c[0][0] = 0.875`. The bias is added
    # in float32, so that only the store rounds. A stride of zero makes one scale do for all rows, [[tag: SM-tensor]].
    scale_a = tl.load(scale_a_ptr + offs_m * stride_scale_a, mask=m_mask, other=0.0)
    scale_b = tl.load(scale_b_ptr + offs_n * stride_scale_b, mask=n_mask, other=0.0)
    c = acc * (scale_a[:, None] * scale_b[None, :])
    if bias_ptr is not None:
        c += tl.load(bias_ptr + offs_n, mask=n_mask, other=0.0).to(tl.float32)[None, :]
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], c, mask=m_mask[:, None] & n_mask[None, :])


# ## Scales of blocks
#
# `scale_a` has a scale for each row and each `GROUP` of K. `scale_b` has one for each `GROUP` of K and each `GROUP_N`
# columns: 128, or 1.
@triton.jit
def block_scaled_matmul_kernel(
    a_tensor, b_tensor,  # (pointer, two strides) of (M, K) and (K, N)
    scale_a_tensor, scale_b_tensor,  # (pointer, two strides), a column or a row for each group of K
    bias_ptr, c_ptr,  # (N,) or None, and (M, N), contiguous
    M, N, K, GROUP, GROUP_N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = grouped_order(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_mask, n_mask = offs_m < M, offs_n < N
    scale_a_ptr, stride_am, stride_ak = scale_a_tensor
    scale_b_ptr, stride_bk, stride_bn = scale_b_tensor

    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        offs_k = k * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        a = load_codes(a_tensor, offs_m, offs_k, M, K)
        b = load_codes(b_tensor, offs_k, offs_n, K, N)
        # Which scales? Those of this part of K, not those of this step of the loop: with `BLOCK_K` of half a group, two
        # steps share them. A tile may also be wider than a block of `b`, so each column asks for its own.
        group = (k * BLOCK_K // GROUP).to(tl.int64)
        scale_a = tl.load(scale_a_ptr + offs_m * stride_am + group * stride_ak, mask=m_mask, other=0.0)
        scale_b = tl.load(scale_b_ptr + group * stride_bk + offs_n // GROUP_N * stride_bn, mask=n_mask, other=0.0)
        # [[tag: SM-block]]. The product of the tile starts from zero each time, so the accumulator of a tensor core
        # adds up `BLOCK_K` products and no more. This *is* promotion, with a factor. In the second group the codes sum
        # up to `pid=0, k=1: product[0][0] = 3`. The scale of `a` is 0.5 there and that of `b` 1, so the total goes from
        # `pid=0, k=0: acc[0][0] = -1` to `pid=0, k=1: acc[0][0] = 0.5`.
        product = tl.dot(a, b)
        acc += product * (scale_a[:, None] * scale_b[None, :])
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_n, mask=n_mask, other=0.0).to(tl.float32)[None, :]
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=m_mask[:, None] & n_mask[None, :])


# ## Launchers
def tile_contract(BLOCK_K, **sizes):
    """Raises on tiles that can't be compiled."""
    checks.power_of_two(BLOCK_K=BLOCK_K, **sizes)
    if BLOCK_K < 32:
        raise ValueError(f"BLOCK_K must be at least 32, what an instruction takes of codes, got {BLOCK_K}")


def empty_product(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum=False):
    return torch.empty((a.shape[0], b.shape[1]), dtype=out_dtype, device=a.device)


OPERANDS = "Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias, ScalarType out_dtype"


# A tile of 128 x 128 sums takes 64 registers of each thread of 8 warps, and its promoted copy as many again. Along K a
# tile reaches 128 bytes, a cache line, and after each such step the sum is promoted.
@opaque(f"({OPERANDS}, bool use_fast_accum) -> Tensor", empty_product)
def scaled_matmul_forward(
    a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum=False,
    *, BLOCK_M=128, BLOCK_N=128, BLOCK_K=128, GROUP_M=8, num_warps=8,
):  # fmt: skip
    """The product for the recipes "tensor" and "row": scales of shape (), or (M, 1) and (1, N)."""
    tile_contract(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    (M, K), N, c = a.shape, b.shape[1], empty_product(a, b, scale_a, scale_b, bias, out_dtype)
    if c.numel():
        strides = (scale_a.stride(0), scale_b.stride(1)) if scale_a.dim() else (0, 0)
        bias = None if bias is None else bias.contiguous()
        scaled_matmul_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            (a, *a.stride()), (b, *b.stride()), scale_a, scale_b, *strides, bias, c, M, N, K,
            IMPRECISE=None if use_fast_accum else BLOCK_K,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M, num_warps=num_warps,
        )  # fmt: skip
    return c


# A group is a whole number of tiles along K. Has `b` a scale for each column, or one for 128 of them? Its shape says.
# With a single column it is the same.
@opaque(f"({OPERANDS}) -> Tensor", empty_product)
def block_scaled_matmul_forward(
    a, b, scale_a, scale_b, bias, out_dtype,
    *, BLOCK_M=128, BLOCK_N=128, BLOCK_K=128, GROUP=128, GROUP_M=8, num_warps=8,
):  # fmt: skip
    """The product for the recipe "block": scales of shape (M, ⌈K/GROUP⌉), and (⌈K/GROUP⌉, ⌈N/GROUP⌉ or N)."""
    tile_contract(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP=GROUP)
    if GROUP % BLOCK_K:
        raise ValueError(f"BLOCK_K must divide GROUP = {GROUP}, got {BLOCK_K}")
    (M, K), N, c = a.shape, b.shape[1], empty_product(a, b, scale_a, scale_b, bias, out_dtype)
    if c.numel():
        bias = None if bias is None else bias.contiguous()
        group_n = 1 if scale_b.shape[1] == N else GROUP
        block_scaled_matmul_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            (a, *a.stride()), (b, *b.stride()), (scale_a, *scale_a.stride()), (scale_b, *scale_b.stride()),
            bias, c, M, N, K, GROUP, group_n,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M, num_warps=num_warps,
        )  # fmt: skip
    return c


# ## The public function
#
# The recipe is an argument. It can't be guessed: with K of at most 128, the scales of `"row"` and `"block"` have the
# same shapes.
def contract(a, b, scale_a, scale_b, recipe, bias, out_dtype, use_fast_accum):
    """Raises on bad arguments."""
    checks.tensors(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    checks.optional_tensors(bias=bias)
    checks.dtypes(tuple(LARGEST), a=a, b=b)
    checks.dtypes((torch.float32,), scale_a=scale_a, scale_b=scale_b)
    checks.dimensions("a", a, 2, "M, K")
    checks.dimensions("b", b, 2, "K, N")
    (M, K), N = a.shape, b.shape[1]
    if b.shape[0] != K:
        raise ValueError(f"b must have as many rows as a has columns, {K}, got shapes {(M, K)} and {tuple(b.shape)}")
    for codes in (a, b):
        format_contract(codes.dtype, "scaled_matmul", codes.device)
    checks.choice("recipe", recipe, RECIPES)
    blocks = triton.cdiv(K, 128)
    checks.shape("scale_a", scale_a, {"tensor": (), "row": (M, 1), "block": (M, blocks)}[recipe], f"recipe={recipe!r}")
    if recipe != "block":
        checks.shape("scale_b", scale_b, {"tensor": (), "row": (1, N)}[recipe], f"recipe={recipe!r}")
    elif scale_b.shape not in ((blocks, triton.cdiv(N, 128)), (blocks, N)):
        wanted = f"{(blocks, triton.cdiv(N, 128))} or {(blocks, N)}"
        raise ValueError(f"scale_b must have shape {wanted} (recipe='block'), got {tuple(scale_b.shape)}")
    checks.choice("out_dtype", out_dtype, checks.FLOATS)
    checks.shape("bias", bias, (N,), "N")
    checks.dtypes((torch.float32, out_dtype), bias=bias)
    checks.choice("use_fast_accum", use_fast_accum, (False, True))
    if use_fast_accum and recipe == "block":
        raise ValueError("use_fast_accum must be False with recipe='block', where each block is scaled by itself")
    checks.no_gradient("scaled_matmul", a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)


@replayed
def scaled_matmul(
    a, b, scale_a, scale_b, *, recipe="row", bias=None, out_dtype=torch.bfloat16, use_fast_accum=False
):  # fmt: skip
    """The product of two matrices of scaled codes, `(a · scale_a) @ (b · scale_b) + bias`. Forward only.

    Args:
        a: codes of shape (M, K), float8_e4m3fn or float8_e5m2, any strides.
        b: codes of shape (K, N), either format, any strides. On Hopper the `.t()` of a contiguous tensor is fastest.
        scale_a, scale_b: float32, any strides, by which codes are multiplied to decode them. Their shapes depend on the
            recipe.
        recipe: "tensor": () and (). "row": (M, 1) and (1, N). "block": (M, ⌈K/128⌉), and (⌈K/128⌉, ⌈N/128⌉) or
            (⌈K/128⌉, N).
        bias: None, or a tensor of shape (N,), float32 or `out_dtype`, any strides.
        out_dtype: of the result, float32, float16 or bfloat16.
        use_fast_accum: whether the tensor cores may keep a sum over all of K to themselves. On Hopper that is faster
            and has about 14 bits; on other cards this changes nothing here. Not with "block".

    Returns:
        A new contiguous tensor of shape (M, N): a float32 sum, rounded once. K = 0 gives the bias, or zeros.

    Raises:
        TypeError: an argument isn't a tensor, or has a dtype that isn't allowed.
        ValueError: shapes that don't fit each other or the recipe, another recipe, out_dtype or use_fast_accum, a
            tensor on the wrong device, or one that requires a gradient.
        RuntimeError: a matrix is e4m3, and the card is older than compute capability 8.9.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022). Blocks and promotion: DeepSeek-AI, "DeepSeek-V3
    Technical Report" (2024), section 3.3.2.
    """
    contract(a, b, scale_a, scale_b, recipe, bias, out_dtype, use_fast_accum)
    if recipe == "block":
        return block_scaled_matmul_forward(a, b, scale_a, scale_b, bias, out_dtype)
    return scaled_matmul_forward(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum)


# ## A run small enough to watch
#
# Whole numbers, so that every sum can be checked by hand. First with groups of 32 along K, then with a scale for each
# row and column and a bias.
def EXAMPLE():
    a = ((torch.arange(6 * 96, device=device.DEVICE) % 5 - 1).view(6, 96).float()).to(torch.float8_e4m3fn)
    b = ((torch.arange(96 * 10, device=device.DEVICE) % 7 - 3).view(96, 10).float()).to(torch.float8_e4m3fn)
    tiles = dict(BLOCK_M=4, BLOCK_N=8, BLOCK_K=32, GROUP_M=2)
    scale_a = torch.tensor([1, 0.5, 10], device=device.DEVICE).expand(6, 3)
    scale_b = torch.tensor([[1], [1], [0.25]], device=device.DEVICE)
    block_scaled_matmul_forward(a, b, scale_a, scale_b, None, torch.float32, GROUP=32, **tiles)
    rows = torch.tensor([[0.5], [1], [2], [4], [8], [16]], device=device.DEVICE)
    columns = torch.full((1, 10), 0.25, device=device.DEVICE)
    bias = torch.ones(10, device=device.DEVICE)
    scaled_matmul_forward(a, b, rows, columns, bias, torch.float32, **tiles)


def in_float32(*tensors, **options):
    return scaled_matmul_reference(*tensors, **options, precision=torch.float32)


def exactly(*tensors, out_dtype, **options):
    return scaled_matmul_reference(*tensors, **options, out_dtype=torch.float64)


if __name__ == "__main__":
    a = torch.randn(130, 200).to(device.DEVICE, torch.float8_e4m3fn)
    b = torch.randn(140, 200).to(device.DEVICE, torch.float8_e4m3fn).t()
    scales = {"tensor": ((), ()), "row": ((130, 1), (1, 140)), "block": ((130, 2), (2, 2))}
    cases = [
        dict(zip(("a", "b", "scale_a", "scale_b"), (a, b, *(torch.rand(s).to(device.DEVICE) + 0.5 for s in shapes))))
        | dict(recipe=recipe, out_dtype=torch.float32) for recipe, shapes in scales.items()
    ]  # fmt: skip
    options = dict(pytorch=in_float32, dtypes=(torch.float32,), differentiable=False, eps=eps_of_sums())
    script.main(scaled_matmul, exactly, *cases, **options)
