r"""
# Muon, fast: tiles that the card copies

[The lesson](../optimizers/muon.py) does three quarters of the work of three ordinary products, for a square matrix two
thirds, and takes as long as they do or longer. Half of the tiles help only if a tile is made as fast as a library makes
it. So here both kinds of products are made as in [matmul, fast](matmul.py): the card copies tiles by itself, and as
many programs as there are SMs each make one tile after the other.

A mirror image has to be turned: stored as it lies, each of its numbers would have a line of memory of its own. In the
lesson the compiler turns most tiles. Those on the diagonal, whose mask ends elsewhere in each row, are stored number by
number. Here a tile is turned in shared memory, which a store by the card goes through anyway, and leaves as whole rows.

[[figure: muon/mirror]]

**What it costs.** As in the lesson: `3 m² n + m³` operations a round. On an H200 a matrix of 4096 x 4096 takes
[[bench: muon/1x4096x4096/forward/ms]], the lesson [[bench: muon/1x4096x4096/forward/lesson.ms]], and the rounds of
`torch.optim.Muon`, compiled, [[bench: muon/1x4096x4096/forward/torch.compile.ms]]. For 24 of 1024 x 1024 it is
[[bench: muon/24x1024x1024/forward/ms]], [[bench: muon/24x1024x1024/forward/lesson.ms]] and, as products of a batch in
PyTorch, [[bench: muon/24x1024x1024/forward/batched.ms]].

**Where it falls behind.** At 2048 x 2048 a symmetric product has 136 tiles, 4 more than an H200 has SMs, and these 4
take as long again as the others: [[bench: muon/1x2048x2048/forward/ms]] to
[[bench: muon/1x2048x2048/forward/torch.compile.ms]]. The same goes for 2048 x 8192,
[[bench: muon/1x2048x8192/forward/ms]] to [[bench: muon/1x2048x8192/forward/torch.compile.ms]]. And a product by half
takes more than half of the time: its tiles must be square, and one of 128 x 128 reads 256 rows, where one of 128 x 256
reads 384 for twice the work.

**Contract.** The lesson's, and its bits. Matrices of float32, those whose rows don't begin at multiples of 16 bytes,
and cards before Hopper are left to its kernels.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import Tiles, cdiv, launch

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.tile_order import grouped_order
from annotated_examples.fast.matmul import multiprocessors
from annotated_examples.optimizers import muon as lesson
from annotated_examples.optimizers.muon import (
    NEWTON_SCHULZ,
    orthogonalize_reference,
    orthogonalized,
    product_under_contract,
    tile_of_triangle,
)


# ## A batch has three dimensions
#
# A descriptor of `(batch, m, n)` hands out tiles of one matrix, and where a matrix ends, it ends: what lies below its
# last row is zeros, not the first row of the next one, and isn't stored. The dimension of size 1 that names the matrix
# is dropped after a load and put back before a store.
@triton.jit
def load_tile(desc, matrix, row, column):
    return desc.load([matrix, row, column]).reshape((desc.block_shape[1], desc.block_shape[2]))


@triton.jit
def store_tile(desc, tile, matrix, row, column):
    desc.store([matrix, row, column], tile.to(desc.dtype).reshape((1, tile.shape[0], tile.shape[1])))


# ## The product, by half
#
# [[tag: MU-C]]. Both factors are tiles of the same matrix, and of the second one the transpose is multiplied, which
# tensor cores do with how they read it.
#
# The upper half of a tile on the diagonal is made of its lower half, since tensor cores don't promise that the two are
# equal to the last bit.
@triton.jit
def symmetric_descriptor_kernel(
    a_desc,  # of (batch, m, k)
    d_desc,  # of (batch, m, m), symmetric; or None
    c_desc,  # of (batch, m, m)
    batch, m, k, alpha, beta, NUM_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # The example has `pid=0: rows = 3` rows of tiles, and two programs for its six tiles.
    rows = tl.cdiv(m, BLOCK)
    pairs = rows * (rows + 1) // 2
    for tile in tl.range(tl.program_id(0), batch * pairs, NUM_PROGRAMS, flatten=True):
        matrix = tile // pairs
        # Program 1 begins with `pid=1: i = 2`, `pid=1: j = 1`, and goes on with `pid=1, tile=3: i = 1`,
        # `pid=1, tile=3: j = 0`.
        i, j = tile_of_triangle(tile % pairs, rows)
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for step in range(0, tl.cdiv(k, BLOCK_K)):
            left = load_tile(a_desc, matrix, i * BLOCK, step * BLOCK_K)
            right = load_tile(a_desc, matrix, j * BLOCK, step * BLOCK_K)
            acc = tl.dot(left, right.T, acc)
        acc *= alpha
        if d_desc is not None:
            acc += beta * load_tile(d_desc, matrix, i * BLOCK, j * BLOCK).to(tl.float32)
        # In 16 bits, before it is turned: half as much goes through shared memory. On the diagonal, too, both stores
        # are made, of the same numbers: Triton 3.6 doesn't compile a branch at the end of such a loop.
        c = acc.to(c_desc.dtype)
        mirrored = c.T
        offs = tl.arange(0, BLOCK)
        c = tl.where((i * BLOCK + offs)[:, None] >= (j * BLOCK + offs)[None, :], c, mirrored)
        store_tile(c_desc, c, matrix, i * BLOCK, j * BLOCK)
        store_tile(c_desc, tl.where(i == j, c, mirrored), matrix, j * BLOCK, i * BLOCK)


# ## The third product
#
# [[tag: MU-step]] has no symmetry to use, so its tiles are twice as wide, in which each number that is loaded is used
# more often. The old matrix is added to one half after the other: as in [matmul, fast](matmul.py) there is no room in
# shared memory for more.
@triton.jit
def step_descriptor_kernel(
    b_desc, x_desc,  # of (batch, m, m) and (batch, m, n)
    old_desc, y_desc,  # of (batch, m, n), in halves of a tile: `x` once more, and the result
    batch, m, n, factor,
    NUM_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    num_pid_m = tl.cdiv(m, BLOCK)
    num_pid_n = tl.cdiv(n, 2 * BLOCK)
    tiles = num_pid_m * num_pid_n
    for tile in tl.range(tl.program_id(0), batch * tiles, NUM_PROGRAMS, flatten=True):
        matrix = tile // tiles
        pid_m, pid_n = grouped_order(tile % tiles, num_pid_m, num_pid_n, GROUP_M)
        row, column = pid_m * BLOCK, pid_n * 2 * BLOCK
        acc = tl.zeros((BLOCK, 2 * BLOCK), dtype=tl.float32)
        for step in range(0, tl.cdiv(m, BLOCK_K)):
            b = load_tile(b_desc, matrix, row, step * BLOCK_K)
            x = load_tile(x_desc, matrix, step * BLOCK_K, column)
            acc = tl.dot(b, x, acc)
        left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK, 2, BLOCK)), (0, 2, 1)))
        left += factor * load_tile(old_desc, matrix, row, column).to(tl.float32)
        store_tile(y_desc, left, matrix, row, column)
        right += factor * load_tile(old_desc, matrix, row, column + BLOCK).to(tl.float32)
        store_tile(y_desc, right, matrix, row, column + BLOCK)


# ## The launchers
#
# A descriptor wants rows that lie in one piece and begin at multiples of 16 bytes, in each matrix of the batch.
def describable(*matrices):
    return all(
        x.dtype != torch.float32 and x.numel() and x.stride(2) == 1 and x.data_ptr() % 16 == 0
        and not x.stride(0) % 8 and not x.stride(1) % 8 and x.stride(1) >= x.shape[2] and x.shape[1] % 8 == 0
        for x in matrices
    ) and multiprocessors(matrices[0].device.index)  # fmt: skip


def described(x, rows, columns):
    return Tiles(x, tuple(x.shape), x.stride(), (1, rows, columns))


# Tiles of 128, where a matrix has enough of them. As in the lesson the choice depends on one matrix alone.
def tile_options(m, BLOCK, BLOCK_K):
    checks.power_of_two(BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    return BLOCK or (128 if m > 512 else 64), BLOCK_K or 64


@opaque(
    "(Tensor a, Tensor? d, float alpha, float beta) -> Tensor",
    lambda a, d, alpha, beta: a.new_empty(*a.shape[:2], a.shape[1]),
)
def symmetric_forward(a, d, alpha, beta, *, BLOCK=None, BLOCK_K=None):
    """As the lesson's."""
    if not describable(a, *([] if d is None else [d])):
        return lesson.symmetric_forward(a, d, alpha, beta, BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    batch, m, k = a.shape
    c, (BLOCK, BLOCK_K) = torch.empty(batch, m, m, dtype=a.dtype, device=a.device), tile_options(m, BLOCK, BLOCK_K)
    rows = cdiv(m, BLOCK)
    programs = min(multiprocessors(a.device.index), batch * rows * (rows + 1) // 2)
    square = None if d is None else described(d, BLOCK, BLOCK)
    launch(
        symmetric_descriptor_kernel, (programs,), (described(a, BLOCK, BLOCK_K), square, described(c, BLOCK, BLOCK)),
        (batch, m, k, float(alpha), float(beta)), NUM_PROGRAMS=programs, BLOCK=BLOCK, BLOCK_K=BLOCK_K,
        num_warps=8 if BLOCK == 128 else 4, num_stages=5 if BLOCK == 128 else 4,
    )  # fmt: skip
    return c


@opaque("(Tensor b, Tensor x, float factor) -> Tensor", lambda b, x, factor: torch.empty_like(x))
def step_forward(b, x, factor, *, BLOCK=None, BLOCK_K=None, GROUP_M=8):
    """As the lesson's."""
    if not describable(b, x):
        return lesson.step_forward(b, x, factor, BLOCK=BLOCK, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M)
    batch, m, n = x.shape
    y, (BLOCK, BLOCK_K) = torch.empty_like(x), tile_options(m, BLOCK, BLOCK_K)
    programs = min(multiprocessors(x.device.index), batch * cdiv(m, BLOCK) * cdiv(n, 2 * BLOCK))
    launch(
        step_descriptor_kernel, (programs,),
        (described(b, BLOCK, BLOCK_K), described(x, BLOCK_K, 2 * BLOCK), *(described(z, BLOCK, BLOCK) for z in (x, y))),
        (batch, m, n, float(factor)), NUM_PROGRAMS=programs, BLOCK=BLOCK, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M,
        num_warps=8 if BLOCK == 128 else 4, num_stages=3 if BLOCK == 128 else 4,
    )  # fmt: skip
    return y


def orthogonalize_forward(x, coefficients, safety, eps, **tiles):
    """As the lesson's."""
    launchers = symmetric_forward, step_forward
    return lesson.orthogonalize_forward(x, coefficients, safety, eps, launchers=launchers, **tiles)


# ## The functions, and the optimizer
def symmetric_product(a, *, alpha=1.0, d=None, beta=0.0):
    """The same as `annotated_examples.optimizers.muon.symmetric_product`, but faster.

    Args: as `symmetric_product` of the lesson.

    Returns:
        (…, m, m), the dtype of `a`.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson; the loop is that of Triton's tutorial "Persistent Matmul".
    """
    return product_under_contract(a, alpha, d, beta, symmetric_forward)


def orthogonalize(x, coefficients=NEWTON_SCHULZ, *, safety=1.0, eps=1e-7):
    """The same as `annotated_examples.optimizers.muon.orthogonalize`, but faster.

    Args: as `orthogonalize` of the lesson.

    Returns:
        (…, m, n) bfloat16. A tall matrix is computed as its transpose, and comes back with the strides of that.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson.
    """
    return orthogonalized(x, coefficients, safety, eps, launchers=(symmetric_forward, step_forward))


class Muon(lesson.Muon):
    """The same as `annotated_examples.optimizers.muon.Muon`, but faster."""

    orthogonalize = staticmethod(orthogonalize)


# ## A run small enough to watch
#
# A product of 40 by 16 with itself: three rows of tiles, the last of which ends outside, by two programs. Then a round.
def EXAMPLE():
    x = (torch.arange(40 * 16, device=device.DEVICE) % 7 - 3).view(1, 40, 16).bfloat16()
    product = symmetric_forward(x, None, 1.0, 0.0, BLOCK=16, BLOCK_K=16)
    y = x[:, :8].contiguous() / 8
    gram = symmetric_forward(y, None, 1.0, 0.0, BLOCK=16, BLOCK_K=16)
    poly = symmetric_forward(gram, gram, 0.5, -1.5, BLOCK=16, BLOCK_K=16)
    return product, step_forward(poly, y, 2.0, BLOCK=16, BLOCK_K=16)


if __name__ == "__main__":
    script.main(orthogonalize, orthogonalize_reference)
