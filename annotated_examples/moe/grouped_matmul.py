r"""
# A grouped product: one launch for all experts

[Sorted by expert](router.py), the rows of a matrix belong to one expert after the other, and each expert multiplies its
rows by a matrix of its own:

[[eq: GM-C]]

Here $u_{ri}$ is 1 if row $r$ belongs to expert $i$, and 0 otherwise. Each product alone would be easy. But their
heights differ, some are zero, and only the GPU knows them: a loop in Python would have to wait until they are known,
and then launch 64 products. So one kernel does them all, and each of its programs finds out whose rows it has.

[[figure: experts/ragged_tiles]]

The gradient of the rows is such a product again, [[tag: GM-da]]. That of the matrices is another kind: for each expert
a sum over its rows, [[tag: GM-db]].

**What it costs.** `2 · R · K · N` operations, as for one product of `R` rows. But all `E` matrices have to be
read, so with few rows an expert memory is the limit. And each expert ends in the middle of a tile: half a tile is
wasted on average, `E · BLOCK_M / 2` rows of products.

**Where it falls behind.** On an H200, 49152 rows of 64 experts, 2048 x 1408, take
[[bench: grouped_matmul/49152x64x2048x1408/forward/lesson.ms]], and `torch._grouped_mm` takes
[[bench: grouped_matmul/49152x64x2048x1408/forward/grouped_mm.ms]]. With 3072 rows the limit is memory, and it reaches
[[bench: grouped_matmul/3072x64x2048x1408/forward/lesson.share]] of that:
[[bench: grouped_matmul/3072x64x2048x1408/forward/lesson.ms]] against
[[bench: grouped_matmul/3072x64x2048x1408/forward/grouped_mm.ms]]. A tile of 64 x 64 asks for its factors twice as often
as one of 128 x 128, and threads compute addresses and masks. [The fast version](../fast/grouped_matmul.py) has
larger tiles, fetched by the TMA, which stops where an expert ends.

**Contract.** `a` is (R, K) and `b` (E, K, N), for a result of (R, N); or `a` is (M, R) and `b` (R, N), for one of
(E, M, N). Both have one dtype, float32, float16 or bfloat16, and any strides. Sums are formed in float32 and rounded
once, in a fixed order: the same call gives the same bits. `offsets` says where each expert's rows end, and stays on the
device. Rows from the last offset on belong to nobody. Whatever is in them, their results and gradients are zero; an
expert without rows gets a gradient of zeros.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.experts import end_of_expert, offsets_contract, tile_of_expert
from annotated_examples.common.products import input_precision, tile_of_product


# ## Reference
#
# A loop over experts. `offsets.tolist()` waits for the GPU.
def grouped_matmul_reference(a, b, offsets, *, bias=None, out_dtype=None):
    ends = offsets.tolist()
    spans = list(zip([0, *ends], ends))
    out_dtype = out_dtype if out_dtype and a.dtype != torch.float64 else a.dtype
    if b.dim() == 2:
        return torch.stack([a[:, start:end] @ b[start:end] for start, end in spans]).to(out_dtype)
    parts = [a[start:end] @ b[e] for e, (start, end) in enumerate(spans)]
    if bias is not None:
        parts = [part + bias[e].to(part.dtype) for e, part in enumerate(parts)]
    behind = torch.zeros(len(a) - ends[-1], b.shape[2], dtype=a.dtype, device=a.device)
    return torch.cat([*parts, behind]).to(out_dtype)


# ## Rows times the matrix of their expert
#
# Programs along axis 0 take tiles of rows, those along axis 1 columns. Once a program knows its expert, the rest is the
# product of [matmul_blocked](../tutorials/matmul_blocked.py): the loop stands in `tile_of_product`, with the end of the
# expert's rows in place of the matrix's.
#
# In the example three of four experts have rows, 5, 0, 5 and 1, and after these 11 rows comes one with NaN. The
# tiles are 4 x 4.
@triton.jit
def grouped_rows_kernel(
    a_ptr, b_ptr, bias_ptr,  # (R, K), (E, K, N), (E, N) or None
    c_ptr, offsets_ptr,  # (R, N), contiguous; (E,)
    R, K, N, E, stride_ar, stride_ak, stride_be, stride_bk, stride_bn, stride_bias_e, stride_bias_n,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Expert 0 has two tiles, the second with a single row. Expert 1 has none, so the third program gets the first tile
    # of expert 2: `pid=(2, 0): expert = 2`, `pid=(2, 0): first = 5`, `pid=(2, 0): end = 10`.
    expert, first, end = tile_of_expert(offsets_ptr, tl.program_id(0), R, E, BLOCK_M)
    if first >= end:
        return
    offs_m = first + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)

    # The row after the last expert's gets an empty sum, and its NaN is never read: `pid=(5, 0): expert = 4`. An
    # expert's number times the size of a matrix may pass 2³¹, so it is counted in 64 bits.
    length = tl.where(expert < E, K, 0)
    b_ptr += tl.cast(expert, tl.int64) * stride_be
    acc = tile_of_product(
        a_ptr, b_ptr, offs_m, offs_n, end, N, length, stride_ar, stride_ak, stride_bk, stride_bn,
        INPUT_PRECISION, BLOCK_K,
    )  # fmt: skip
    if bias_ptr is not None:
        bias_ptrs = bias_ptr + tl.cast(expert, tl.int64) * stride_bias_e + offs_n * stride_bias_n
        acc += tl.load(bias_ptrs, mask=(expert < E) & (offs_n < N), other=0.0).to(tl.float32)[None, :]

    # The mask of the store is what keeps experts apart. Of the second tile's rows three belong to somebody else:
    # `pid=(1, 0): offs_m = [4, 5, 6, 7]`, `pid=(1, 0): mask_m = [1, 0, 0, 0]`.
    mask_m = offs_m < end
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=mask_m[:, None] & (offs_n < N)[None, :])


# ## A matrix for each expert: a sum over its rows
#
# Here the rows are what is summed over, and it is the *length* of the sum that differs. A program takes one tile of one
# expert's matrix. Its sum begins at the expert's first row and ends with its last; the mask of `tile_of_product` covers
# both factors. One isn't enough: zero times a NaN of the next expert's rows is NaN.
#
# An expert without rows has an empty sum. Its zeros have to be written, too: nobody else writes them.
@triton.jit
def grouped_sums_kernel(
    a_ptr, b_ptr, c_ptr, offsets_ptr,  # (M, R); (R, N); (E, M, N), contiguous; (E,)
    R, M, N, E, stride_am, stride_ar, stride_br, stride_bn,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    # Expert 2's rows: `pid=(4, 0): start = 5`, `pid=(4, 0): end = 10`.
    tiles = tl.cdiv(M, BLOCK_M)
    expert = tl.program_id(0) // tiles
    before = tl.load(offsets_ptr + expert - 1, mask=expert > 0, other=0).to(tl.int64)
    start = tl.minimum(tl.maximum(before, 0), R)
    end = end_of_expert(offsets_ptr, expert, start, R, E)

    offs_m = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tile_of_product(
        a_ptr + start * stride_ar, b_ptr + start * stride_br, offs_m, offs_n, M, N, end - start,
        stride_am, stride_ar, stride_br, stride_bn, INPUT_PRECISION, BLOCK_R,
    )  # fmt: skip
    c_ptrs = c_ptr + (expert.to(tl.int64) * M + offs_m[:, None]) * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


# ## Launchers
#
# `E` more tiles than the rows alone would need: one for each expert, and one for the rows after them, less one.
@replayed
def grouped_rows_forward(a, b, offsets, bias=None, out_dtype=None, *, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32):
    """(R, K) and (E, K, N) -> (R, N)."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    (R, K), (E, _, N) = a.shape, b.shape
    c = torch.empty((R, N), dtype=out_dtype or a.dtype, device=a.device)
    if c.numel():
        grid = (triton.cdiv(R, BLOCK_M) + E, triton.cdiv(N, BLOCK_N))
        grouped_rows_kernel[grid](
            a, b, bias, c, offsets.contiguous(), R, K, N, E, *a.stride(), *b.stride(),
            *((0, 0) if bias is None else bias.stride()),
            INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        )  # fmt: skip
    return c


@replayed
def grouped_sums_forward(a, b, offsets, out_dtype=None, *, BLOCK_M=64, BLOCK_N=64, BLOCK_R=32):
    """(M, R) and (R, N) -> (E, M, N)."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_R=BLOCK_R)
    (M, R), N, E = a.shape, b.shape[1], len(offsets)
    c = torch.empty((E, M, N), dtype=out_dtype or a.dtype, device=a.device)
    if c.numel():
        grid = (E * triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
        grouped_sums_kernel[grid](
            a, b, c, offsets.contiguous(), R, M, N, E, *a.stride(), *b.stride(),
            INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_R=BLOCK_R,
        )  # fmt: skip
    return c


# ## Joining autograd
#
# Each kind of product is the other one's gradient: [[tag: GM-da]] and [[tag: GM-db]] for rows. Transposed matrices are
# the same memory with swapped strides. The gradient of the bias, [[tag: GM-dbias]], is a sum over rows as well: a
# matrix of one row of ones, times the upstream gradient.
#
# The upstream gradient has the dtype of the result. Where that differs from the factors', it is rounded to theirs.
#
# `rows` and `sums` are the two launchers: [the fast version](../fast/grouped_matmul.py) brings its own.
class GroupedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, offsets, bias, out_dtype, rows, sums):
        ctx.save_for_backward(a, b, offsets, bias)
        ctx.launchers = rows, sums
        return rows(a, b, offsets, bias, out_dtype) if b.dim() == 3 else sums(a, b, offsets, out_dtype)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dc):
        (a, b, offsets, bias), (rows, sums) = ctx.saved_tensors, ctx.launchers
        of_a, of_b, _, of_bias, *_ = ctx.needs_input_grad
        dc, da, db, dbias = dc.to(a.dtype), None, None, None
        if b.dim() == 3:
            da = rows(dc, b.transpose(1, 2), offsets) if of_a else None
            db = sums(a.t(), dc, offsets) if of_b else None
            if of_bias:
                ones = torch.ones((), dtype=dc.dtype, device=dc.device).expand(1, len(dc))
                dbias = sums(ones, dc, offsets, bias.dtype)[:, 0]
        else:
            da = rows(b, dc.transpose(1, 2), offsets).t() if of_a else None
            db = rows(a.t(), dc, offsets) if of_b else None
        return da, db, None, dbias, None, None, None


# ## The public function
def contract(a, b, offsets, bias, out_dtype):
    """Raises on bad arguments."""
    checks.tensors(a=a, b=b, offsets=offsets)
    checks.optional_tensors(bias=bias)
    checks.dtypes(a=a, bias=bias)
    checks.same_dtype(a=a, b=b)
    checks.dimensions("a", a, 2, "rows and columns")
    if b.dim() not in (2, 3):
        raise ValueError(f"b must have 2 or 3 dimensions, got shape {tuple(b.shape)}")
    if a.shape[1] != b.shape[-2]:
        raise ValueError(f"b must have {a.shape[1]} rows, as many as a has columns, got shape {tuple(b.shape)}")
    of_rows = b.dim() == 3
    checks.programs("a", "columns" if of_rows else "rows", a.shape[of_rows], 64)
    checks.programs("b", "columns", b.shape[-1], 64)
    offsets_contract(offsets, b.shape[0] if of_rows else None, len(a) if of_rows else len(b))
    if bias is not None and not of_rows:
        raise ValueError("bias must be None where b has 2 dimensions")
    checks.shape("bias", bias, (len(offsets), b.shape[-1]), "one row for each expert")
    checks.choice("out_dtype", out_dtype, (None, *checks.FLOATS))


@replayed
def grouped_matmul(a, b, offsets, *, bias=None, out_dtype=None):
    """Products of rows with the matrix of their expert, or sums over each expert's rows; differentiable.

    Args:
        a: tensor of shape (R, K), or (M, R) where `b` has 2 dimensions; float32, float16 or bfloat16, any strides.
        b: (E, K, N), or (R, N), same dtype, any strides.
        offsets: int32 or int64 of shape (E,), E from 1 to 4096: where each expert's rows end, in order.
        bias: None, or (E, N), any of these dtypes: added to an expert's rows before they are rounded. Not with 2
            dimensions of `b`.
        out_dtype: of the result, one of these dtypes; None: that of `a`.

    Returns:
        A new tensor of shape (R, N): row r is `a[r] @ b[e]` for its expert e, and zero from `offsets[-1]` on. Or
        (E, M, N): matrix e is the product over that expert's rows alone.

    Raises:
        TypeError: an argument isn't a tensor, or the dtypes differ or are not allowed.
        ValueError: shapes that don't fit, another out_dtype, a tensor on the wrong device, a bias where there can be
            none. On the CPU and with `ACADEMY_DEBUG=1` also offsets that decrease or pass the number of rows.

    Source: the arguments of `torch.nn.functional.grouped_mm`; Gale et al., "MegaBlocks" (2022).
    """
    contract(a, b, offsets, bias, out_dtype)
    if autograd.needs_frame(a, b, bias):
        return GroupedMatmul.apply(a, b, offsets, bias, out_dtype, grouped_rows_forward, grouped_sums_forward)
    if b.dim() == 3:
        return grouped_rows_forward(a, b, offsets, bias, out_dtype)
    return grouped_sums_forward(a, b, offsets, out_dtype)


# ## A run small enough to watch
#
# Experts with 5, 0, 5 and 1 rows, and a row of NaN after them. Then the sums over the rows.
def EXAMPLE():
    a = (torch.arange(72, device=device.DEVICE, dtype=torch.float32) % 7).view(12, 6) - 3
    a[11] = float("nan")
    b = (torch.arange(168, device=device.DEVICE, dtype=torch.float32) % 5).view(4, 6, 7) - 2
    offsets = torch.tensor([5, 5, 10, 11], device=device.DEVICE, dtype=torch.int32)
    c = grouped_rows_forward(a, b, offsets, BLOCK_M=4, BLOCK_N=4, BLOCK_K=4)
    grouped_sums_forward(a.t(), c, offsets, BLOCK_M=4, BLOCK_N=4, BLOCK_R=4)


if __name__ == "__main__":
    script.main(grouped_matmul, grouped_matmul_reference)
