r"""
# Products of scaled codes, fast

[The lesson](../fp8/scaled_matmul.py) multiplies codes about as fast as a plain kernel can, and stays behind
`torch._scaled_mm` at every size. Three things hold it up, and each gets a kernel:

1. Its threads compute addresses and masks, and each program waits for its first loads. With **fast sums** nothing else
   is to be done, so the TMA unit fetches, and programs stay for many tiles. At 4096 in each direction, one scale a
   row, that takes [[bench: scaled_matmul/ladder/fast sums/4096_ms]]. The library took
   [[bench: scaled_matmul/ladder/torch, one scale a row, fast sums/4096_ms]] before and
   [[bench: scaled_matmul/ladder/torch, one scale a row, fast sums/4096_again_ms]] after.
2. While the ordinary cores **promote** a sum, or scale a block, the tensor cores wait. On Hopper that goes to
   [a kernel below Triton](../gluon/scaled_matmul.py), in which groups of warps take over from each other.
3. With **a few rows** all that matters is to read the weights. Sixteen rows of 8192, and as many columns, take
   [[bench: scaled_matmul/ladder/few rows/16_rows_ms]], with scales of blocks
   [[bench: scaled_matmul/ladder/few rows, scales of blocks/16_rows_ms]]. The library takes
   [[bench: scaled_matmul/ladder/torch, one scale a tensor/16_rows_ms]] with one scale a tensor,
   [[bench: scaled_matmul/ladder/torch, one scale a row/16_rows_ms]] with one a row, and
   [[bench: scaled_matmul/ladder/torch, scales of blocks/16_rows_ms]] with blocks.

All of these are times of a CUDA graph.

**Where it falls behind.** With 128 rows and one scale a tensor: [the page below Triton](../gluon/scaled_matmul.py) says
by how much, and what was tried. At 8192, with one scale a tensor or a row, the library is ahead in one run and this
file in the next, as the card's power is the limit. With scales of blocks it is ahead there:
[[bench: scaled_matmul:block/8192x8192x8192/forward/eager.ms]] against
[[bench: scaled_matmul:block/8192x8192x8192/forward/ms]]. So it is with fast sums at 1000 x 3008 x 5008,
[[bench: scaled_matmul:row, fast sums/1000x3008x5008/forward/torch.compile.ms]] against
[[bench: scaled_matmul:row, fast sums/1000x3008x5008/forward/ms]], and with 16 rows and one scale a tensor in the
benchmark's run, [[bench: scaled_matmul:tensor/16x8192x8192/forward/eager.ms]] against
[[bench: scaled_matmul:tensor/16x8192x8192/forward/ms]]. By up to 3 % it is ahead at 4096 with fast sums or scales of
blocks, and at 1000 x 3008 x 5008 with one scale a tensor. More than 32 rows leave room for fewer steps in flight: 33
take [[bench: scaled_matmul/ladder/few rows/33_rows_ms]] and 64 [[bench: scaled_matmul/ladder/few rows/64_rows_ms]], and
with one scale a tensor the library takes [[bench: scaled_matmul/ladder/torch, one scale a tensor/33_rows_ms]] and
[[bench: scaled_matmul/ladder/torch, one scale a tensor/64_rows_ms]].

[[eq: SM-row]]

[[figure: fp8/scales_of_a_product]]

**What it costs.** As in the lesson. Codes that don't lie along K, or whose rows don't begin at multiples of 16 bytes,
are copied first: one byte read and one written for each.

**Contract.** As the lesson's, with every combination of arguments: what none of these kernels can do is left to the
lesson's.
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, cdiv, launch
from academy.runtime.replay import replayed

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.common.fp8 import eps_of_sums
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.common.transposed import transposed
from annotated_examples.fp8 import scaled_matmul as lesson
from annotated_examples.fp8.scaled_matmul import (
    OPERANDS, contract, empty_product, exactly, in_float32, scaled_matmul_reference, tile_contract,  # noqa: F401
)  # fmt: skip


# ## Fast sums: nothing but products
#
# [The fast product](matmul.py) of sixteen bits, with codes: tensor descriptors, one program for each SM,
# and tiles of 128 x 256, with 171 operations for each byte that is loaded. `b` is given as the weight that it is the
# transpose of, so both tiles lie along K, as Hopper's instruction for codes wants them.
#
# In the example `a` is 70 x 96 and `b` is 96 x 24, in tiles of 32 x 16: six of them, for two programs.
@triton.jit
def fast_sums_kernel(
    a_desc, b_desc, c_desc,  # of (M, K); of b's transpose, (N, K); of (M, N)
    scale_a_ptr, scale_b_ptr, stride_am, stride_bn,  # (M,) and (N,)
    bias_ptr,  # (N,), contiguous, or None
    M, N, K,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), num_pid_m * num_pid_n, PROGRAMS, flatten=True):
        # There are `pid=0: num_pid_m = 3` rows and `num_pid_n = 2` columns of tiles. Program 1 begins below the first
        # tile, at `pid=1: start_m = 32`.
        pid_m, pid_n = grouped_order(tile, num_pid_m, num_pid_n, GROUP_M)
        start_m, start_n = pid_m * BLOCK_M, pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([start_m, k * BLOCK_K])
            b = b_desc.load([start_n, k * BLOCK_K]).T
            acc = tl.dot(a, b, acc)

        # [[tag: SM-row]], or [[tag: SM-tensor]] with strides of 0: as in the lesson.
        offs_m = start_m.to(tl.int64) + tl.arange(0, BLOCK_M)
        offs_n = start_n.to(tl.int64) + tl.arange(0, BLOCK_N)
        scale_a = tl.load(scale_a_ptr + offs_m * stride_am, mask=offs_m < M, other=0.0)
        scale_b = tl.load(scale_b_ptr + offs_n * stride_bn, mask=offs_n < N, other=0.0)
        c = acc * (scale_a[:, None] * scale_b[None, :])
        if bias_ptr is not None:
            c += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
        # The tile leaves in two halves, through half as much shared memory. What that saves is a stage of loads.
        half: tl.constexpr = BLOCK_N // 2
        left, right = tl.split(tl.permute(tl.reshape(c.to(c_desc.dtype), (BLOCK_M, 2, half)), (0, 2, 1)))
        c_desc.store([start_m, start_n], left)
        c_desc.store([start_m, start_n + half], right)


# ## A few rows: the weights decide
#
# With 16 rows and 8192 x 8192 weights, 67 MB of codes have to be read, and everything else is small. Two things count.
#
# **The weights are the left factor.** Hopper's fast instruction, `wgmma`, takes 64 rows on the left, and as few as 8
# columns on the right. So the product is transposed, as for [packed weights](low_bit/planes.py): a tile has 64 rows of
# weights, and as many columns as `a` has rows.
#
# **Enough on the way.** A program has 64 rows of the weight to itself, over all of K, and 128 programs fill the card.
# Each has buffers for five steps of 512 codes, 160 KB of weights and 40 KB of `a`, and four of them are in flight. So
# nothing has to be divided along K, and no parts have to be added up: divided in two, with shorter steps, it was
# slower.
#
# But a sum over all of K would be long, and the library divides K where there are few columns. So fast sums are
# promoted, too, if only once in a step. Never promoted, errors of 200 columns were nearly three times the library's.
@triton.jit
def few_rows_kernel(
    a_desc, b_desc,  # of (M, K); of b's transpose, (N, K)
    scale_a, scale_b,  # (pointer, two strides): (M, 1) or (M, K // GROUP); (1, N) or (K // GROUP, N // GROUP_N)
    bias_ptr, c_ptr,  # (N,), contiguous, or None; (M, N), contiguous
    M, N, K, GROUP_N,
    GROUP: tl.constexpr, IMPRECISE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr,
):  # fmt: skip
    scale_a_ptr, stride_am, stride_ak = scale_a
    scale_b_ptr, stride_bk, stride_bn = scale_b
    start_n, start_m = tl.program_id(0) * BLOCK_N, tl.program_id(1) * BLOCK_M
    offs_n = start_n.to(tl.int64) + tl.arange(0, BLOCK_N)
    offs_m = start_m.to(tl.int64) + tl.arange(0, BLOCK_M)
    m_mask, n_mask = offs_m < M, offs_n < N
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=NUM_STAGES):
        weights = b_desc.load([start_n, k * BLOCK_K])
        a = a_desc.load([start_m, k * BLOCK_K]).T
        if GROUP:
            # [[tag: SM-block]]. In the second run of the example a step is a group. The second group's first product is
            # `pid=0, k=1: product[0, 0] = 5`, and its scales are `pid=0, k=1: s_a[0] = 0.5` and 1.
            group = tl.cast(k * BLOCK_K // GROUP, tl.int64)
            s_a = tl.load(scale_a_ptr + offs_m * stride_am + group * stride_ak, mask=m_mask, other=0.0)
            s_b = tl.load(scale_b_ptr + group * stride_bk + offs_n // GROUP_N * stride_bn, mask=n_mask, other=0.0)
            product = tl.dot(weights, a)
            acc += product * (s_b[:, None] * s_a[None, :])
        else:
            acc = tl.dot(weights, a, acc, max_num_imprecise_acc=IMPRECISE)
    if not GROUP:
        s_a = tl.load(scale_a_ptr + offs_m * stride_am, mask=m_mask, other=0.0)
        s_b = tl.load(scale_b_ptr + offs_n * stride_bn, mask=n_mask, other=0.0)
        acc *= s_b[:, None] * s_a[None, :]
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_n, mask=n_mask, other=0.0).to(tl.float32)[:, None]
    # The tile has a row for each column of the result: here it is turned round.
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], tl.trans(acc), mask=m_mask[:, None] & n_mask[None, :])


# ## What a descriptor can describe
#
# Rows along K that begin at multiples of 16 bytes. Others are copied, into rows that do. A matrix that lies column by
# column is [turned](../common/transposed.py): PyTorch's copy would take ten times as long.
def along_k(x):
    row = x.stride(0)
    if x.stride(1) == 1 and row % 16 == 0 and row >= x.shape[1] and x.data_ptr() % 16 == 0:
        return x
    rows, columns = x.shape
    copy = torch.empty(rows, cdiv(columns, 16) * 16, dtype=x.dtype, device=x.device)[:, :columns]
    return transposed(x.t(), copy) if row == 1 else copy.copy_(x)


@functools.cache
def multiprocessors(device_index):
    return 2 if device.INTERPRET else torch.cuda.get_device_properties(device_index).multi_processor_count


# The TMA unit isn't all: these tiles fill the shared memory of Hopper and the B200, and a consumer card that has the
# unit has less than half of that.
@functools.cache
def has_room(device_index):
    return device.INTERPRET or torch.cuda.get_device_capability(device_index)[0] in (9, 10)


# Of the cards that have room for these tiles, only Hopper has a short accumulator. (Ada has one, too, but no TMA unit:
# its products are the lesson's.) In the interpreter sums are float32.
@functools.cache
def is_hopper(device_index):
    return not device.INTERPRET and torch.cuda.get_device_capability(device_index)[0] == 9


def tiles_of(x, rows, columns):
    return Tiles(x, x.shape, x.stride(), (rows, columns))


# ## Launchers
#
# For each number of rows, a power of two: as many stages as 227 KB of shared memory hold.
FEW_STAGES = {16: 5, 32: 4, 64: 3}


def few_rows(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum, group, *, BLOCK_M=None, BLOCK_N=64, BLOCK_K=None):
    """For up to 64 rows. group: of K that share a scale, 0 where all of K does."""
    (M, K), N, c = a.shape, b.shape[1], empty_product(a, b, scale_a, scale_b, bias, out_dtype)
    BLOCK_M = BLOCK_M or max(16, triton.next_power_of_2(M))
    stages = 3 if BLOCK_K else 8 if group else FEW_STAGES[BLOCK_M]
    BLOCK_K = BLOCK_K or group or 512
    strides = (scale_a.stride(), scale_b.stride()) if scale_a.dim() else ((0, 0), (0, 0))
    launch(
        few_rows_kernel, (cdiv(N, BLOCK_N), cdiv(M, BLOCK_M)),
        (
            tiles_of(along_k(a), BLOCK_M, BLOCK_K), tiles_of(along_k(b.t()), BLOCK_N, BLOCK_K),
            (scale_a, *strides[0]), (scale_b, *strides[1]), None if bias is None else bias.contiguous(), c,
        ),
        (M, N, K, 1 if scale_b.dim() and scale_b.shape[1] == N else group),
        GROUP=group, IMPRECISE=BLOCK_K if use_fast_accum else min(BLOCK_K, 128),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, NUM_STAGES=stages,
    )  # fmt: skip
    return c


# A tile of 128 x 256, unless that leaves half of the SMs idle.
def fast_sums(
    a, b, scale_a, scale_b, bias, out_dtype, *, BLOCK_M=128, BLOCK_N=None, BLOCK_K=128, GROUP_M=8, NUM_PROGRAMS=None
):
    """For many rows, where sums needn't be promoted."""
    (M, K), N, c = a.shape, b.shape[1], empty_product(a, b, scale_a, scale_b, bias, out_dtype)
    programs = NUM_PROGRAMS or multiprocessors(a.device.index)
    BLOCK_N = BLOCK_N or (256 if 2 * cdiv(M, BLOCK_M) * cdiv(N, 256) >= programs else 128)
    launch(
        fast_sums_kernel, (min(programs, cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)),),
        (
            tiles_of(along_k(a), BLOCK_M, BLOCK_K), tiles_of(along_k(b.t()), BLOCK_N, BLOCK_K),
            tiles_of(c, BLOCK_M, BLOCK_N // 2), scale_a, scale_b,
        ),
        (*((scale_a.stride(0), scale_b.stride(1)) if scale_a.dim() else (0, 0)),
         None if bias is None else bias.contiguous(), M, N, K),
        PROGRAMS=programs, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M,
        num_warps=8, num_stages=4 if out_dtype != torch.float32 else 3,
    )  # fmt: skip
    return c


def below_triton(a, b, scale_a, scale_b, bias, out_dtype, blocks):
    from annotated_examples.gluon.scaled_matmul import promoted_forward  # only a Hopper card needs it

    return promoted_forward(along_k(a), along_k(b.t()).t(), scale_a, scale_b, bias, out_dtype, blocks)


# ## Which kernel?
#
# Without a TMA unit, and with nothing to multiply, it is the lesson's. A tile of sums leaves through a descriptor, so
# a row of the result has to be a multiple of 16 bytes; if it isn't, the promoted product does it as well.
@opaque(f"({OPERANDS}, bool use_fast_accum) -> Tensor", empty_product)
def scaled_matmul_forward(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum=False, **tiles):
    """The product for the recipes "tensor" and "row": scales of shape (), or (M, 1) and (1, N)."""
    if tiles:
        tile_contract(tiles["BLOCK_K"], **{name: size for name, size in tiles.items() if name != "BLOCK_K"})
    (M, K), N, index = a.shape, b.shape[1], a.device.index
    arguments = a, b, scale_a, scale_b, bias, out_dtype
    if not (M and N and K and has_room(index)):
        return lesson.scaled_matmul_forward(*arguments, use_fast_accum, **tiles)
    if M <= 64:
        tiles.pop("GROUP_M", None)
        return few_rows(*arguments, use_fast_accum, 0, **tiles)
    if (use_fast_accum or not is_hopper(index)) and N * out_dtype.itemsize % 16 == 0:
        return fast_sums(*arguments, **tiles)
    if is_hopper(index):
        return below_triton(*arguments, False)
    return lesson.scaled_matmul_forward(*arguments, use_fast_accum, **tiles)


@opaque(f"({OPERANDS}) -> Tensor", empty_product)
def block_scaled_matmul_forward(a, b, scale_a, scale_b, bias, out_dtype, *, GROUP=128, **tiles):
    """The product for the recipe "block": scales of shape (M, ⌈K/GROUP⌉), and (⌈K/GROUP⌉, ⌈N/GROUP⌉ or N)."""
    if tiles:
        tile_contract(tiles["BLOCK_K"], GROUP=GROUP, **{n: size for n, size in tiles.items() if n != "BLOCK_K"})
        if GROUP % tiles["BLOCK_K"]:
            raise ValueError(f"BLOCK_K must divide GROUP = {GROUP}, got {tiles['BLOCK_K']}")
    (M, K), N, index = a.shape, b.shape[1], a.device.index
    arguments = a, b, scale_a, scale_b, bias, out_dtype
    if M <= 64 and M and N and K and has_room(index):
        tiles.pop("GROUP_M", None)
        return few_rows(*arguments, False, GROUP, **tiles)
    if M and N and K and is_hopper(index) and GROUP == 128:
        return below_triton(*arguments, True)
    return lesson.block_scaled_matmul_forward(*arguments, GROUP=GROUP, **tiles)


@replayed
def scaled_matmul(
    a, b, scale_a, scale_b, *, recipe="row", bias=None, out_dtype=torch.bfloat16, use_fast_accum=False
):  # fmt: skip
    """The product of two matrices of scaled codes, `(a · scale_a) @ (b · scale_b) + bias`. Forward only.

    Args:
        a: codes of shape (M, K), float8_e4m3fn or float8_e5m2, any strides.
        b: codes of shape (K, N), either format, any strides. The `.t()` of a contiguous tensor is fastest; most
            others are copied.
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

    Source: as the lesson. Two groups of warps, of which one promotes while the other multiplies, as in DeepSeek's
    DeepGEMM (2025).
    """
    contract(a, b, scale_a, scale_b, recipe, bias, out_dtype, use_fast_accum)
    if recipe == "block":
        return block_scaled_matmul_forward(a, b, scale_a, scale_b, bias, out_dtype)
    return scaled_matmul_forward(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum)


# ## A run small enough to watch
#
# Whole numbers: two programs for six tiles, and then four rows with scales of blocks.
def EXAMPLE():
    a = ((torch.arange(70 * 96, device=device.DEVICE) % 5 - 1).view(70, 96).float()).to(torch.float8_e4m3fn)
    b = ((torch.arange(24 * 96, device=device.DEVICE) % 7 - 3).view(24, 96).float()).to(torch.float8_e4m3fn).t()
    rows, columns = torch.full((70, 1), 0.5, device=device.DEVICE), torch.full((1, 24), 0.25, device=device.DEVICE)
    tiles = dict(BLOCK_M=32, BLOCK_N=16, BLOCK_K=32, GROUP_M=2)
    fast_sums(a, b, rows, columns, None, torch.float32, **tiles, NUM_PROGRAMS=2)
    scale_a = torch.tensor([1, 0.5, 2], device=device.DEVICE).expand(4, 3)
    scale_b = torch.tensor([[1, 1], [1, 2], [0.25, 4]], device=device.DEVICE)
    few_rows(a[:4], b, scale_a, scale_b, None, torch.float32, False, 32, BLOCK_M=4, BLOCK_N=32, BLOCK_K=32)


if __name__ == "__main__":
    M, weight = (130, 20), torch.randn(144, 400).to(device.DEVICE, torch.float8_e4m3fn).t()
    scales = {"tensor": lambda M: ((), ()), "row": lambda M: ((M, 1), (1, 144)), "block": lambda M: ((M, 4), (4, 2))}
    cases = [
        dict(a=torch.randn(rows, 400).to(device.DEVICE, torch.float8_e4m3fn), b=weight)
        | dict(zip(("scale_a", "scale_b"), (torch.rand(shape).to(device.DEVICE) + 0.5 for shape in shapes(rows))))
        | dict(recipe=recipe, out_dtype=torch.float32) for rows in M for recipe, shapes in scales.items()
    ]  # fmt: skip
    options = dict(pytorch=in_float32, dtypes=(torch.float32,), differentiable=False, eps=eps_of_sums())
    script.main(scaled_matmul, exactly, *cases, **options)
