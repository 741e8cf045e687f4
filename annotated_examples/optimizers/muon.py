r"""
# Muon: a triangle of a product, and its mirror image

AdamW handles each number of a weight by itself. Muon takes a weight as what it is, a matrix: it replaces the averaged
gradient by the nearest orthogonal matrix, which moves the weight by the same amount in every direction. An SVD would
give that matrix, and is slow on a GPU. A few products get close enough. Each round forms

[[eq: MU-gram]]

[[eq: MU-poly]]

[[eq: MU-step]]

That leaves the singular vectors as they are and puts each singular value through
[a polynomial](../../backprop_math/muon.md). Two of the three products are symmetric. So a kernel may compute half of
their tiles, and store each of them twice.

**What it costs.** For an `m` by `n` matrix with `m` at most `n`, each round takes `4 m² n + 2 m³` operations as three
ordinary products, and `3 m² n + m³` if a symmetric product is done by half: 1.5 times fewer for a square matrix, 1.33
times for a wide one. What that is worth in time, and where this falls behind, is on [Muon, fast](../fast/muon.py).

**Contract.** Matrices are float32, float16 or bfloat16, with any strides and any number of leading dimensions, which
count the matrices of a batch. `symmetric_product` gives the dtype of its argument and is symmetric to the last bit.
`orthogonalize` gives bfloat16: five rounds forgive its errors. A NaN or an infinity reaches its own matrix only. A
matrix has the same bits alone as in a batch, and in each call. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import math

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.frobenius import normalized
from annotated_examples.common.launching import power_of_2_up_to
from annotated_examples.common.optimizers import InFloat32
from annotated_examples.common.products import input_precision, tile_of_product
from annotated_examples.common.tile_order import grouped_order

# ## Which polynomials
#
# [[figure: muon/path]]
#
# Each round multiplies a small singular value by the first coefficient. Keller Jordan's polynomial is the same in all
# five rounds. It grows fast, by 3.4, and doesn't settle: what begins at 0.002 or more comes out between about 0.7 and
# 1.2, which is good enough. Polar Express has another polynomial for each round, the best one for what the rounds
# before have left. It gets closer to 1, but **not from above**: a singular value of 1.015 at the start ends at
# infinity.
NEWTON_SCHULZ = ((3.4445, -4.7750, 2.0315),) * 5
POLAR_EXPRESS = (
    (8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250), (3.2856, -2.4153, 0.4853),
    (2.2779, -1.6198, 0.3985), (1.8726, -1.2307, 0.3585), (1.8564, -1.2132, 0.3568), (1.8750, -1.2500, 0.3750),
)  # fmt: skip


# ## Reference
#
# The same in PyTorch. Between the products it keeps bfloat16, as `torch.optim.Muon` does, or float64.
def symmetric_product_reference(a, *, alpha=1.0, d=None, beta=0.0):
    c = alpha * (a @ a.mT)
    return c + beta * d if beta else c


def orthogonalize_reference(x, coefficients=NEWTON_SCHULZ, *, safety=1.0, eps=1e-7):
    wide, tall = torch.promote_types(x.dtype, torch.float32), x.shape[-2] > x.shape[-1]
    narrow = wide if wide is torch.float64 else torch.bfloat16
    norm = torch.linalg.matrix_norm(x.to(wide), keepdim=True) * safety
    y = (x.to(wide) / norm.clamp(min=eps)).to(narrow).to(wide)
    y = y.mT if tall else y
    for a, b, c in coefficients:
        gram = (y @ y.mT).to(narrow).to(wide)
        poly = (b * gram + c * gram @ gram).to(narrow).to(wide)
        y = (a * y + poly @ y).to(narrow).to(wide)
    return (y.mT if tall else y).to(narrow)


# ## Which tile is mine?
#
# [[figure: muon/triangle]]
#
# A symmetric matrix of 3 by 3 tiles has six tiles that differ. A grid can't be a triangle, so the triangle is folded
# into a rectangle. Its longest row comes first. Beside the second longest lies the shortest, beside the third longest
# the second shortest, and each such pair is as wide as the longest row, `tiles`. With an even number of rows one is
# left, half as wide, and comes last. (The usual formula has a square root, which is only nearly right.)
@triton.jit
def tile_of_triangle(pid, tiles):
    row = pid // tiles
    column = pid % tiles
    in_long = column < tiles - row
    i = tl.where(in_long, tiles - 1 - row, row - 1)
    j = tl.where(in_long, column, column - (tiles - row))
    return i, j


# ## The product, by half
#
# `tile_of_product` is the loop of a [tiled product](../tutorials/matmul_blocked.py). Here both factors are the same
# matrix: the right one is read with its strides exchanged, which transposes it.
#
# Tiles must be **square**. A tile of 2 by 4 and its mirror image of 4 by 2 would cover other tiles in part, and two
# programs would store to the same elements.
@triton.jit
def symmetric_kernel(
    a_ptr,  # (batch, m, k)
    d_ptr,  # (batch, m, m), contiguous, symmetric; or None
    c_ptr,  # (batch, m, m), contiguous
    m, k, stride_ab, stride_am, stride_ak, alpha, beta,
    INPUT_PRECISION: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # The example's first matrix has 5 rows, in tiles of 2 by 2: `pid=0: tiles = 3` rows of tiles. Program 4 has the
    # tile `pid=4: i = 1`, `pid=4: j = 1`.
    tiles = tl.cdiv(m, BLOCK)
    pairs = tiles * (tiles + 1) // 2
    # All matrices of a batch lie along one axis of the grid. How many there are changes no tile, and no bit.
    matrix = (tl.program_id(0) // pairs).to(tl.int64)
    i, j = tile_of_triangle(tl.program_id(0) % pairs, tiles)
    offs_i = i.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_j = j.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a_ptr += matrix * stride_ab
    acc = tile_of_product(
        a_ptr, a_ptr, offs_i, offs_j, m, m, k, stride_am, stride_ak, stride_ak, stride_am, INPUT_PRECISION, BLOCK_K
    )
    acc *= alpha
    inside = (offs_i < m)[:, None] & (offs_j < m)[None, :]
    first = matrix * m * m
    here = first + offs_i[:, None] * m + offs_j[None, :]
    mirrored = first + offs_j[None, :] * m + offs_i[:, None]
    if d_ptr is not None:
        acc += beta * tl.load(d_ptr + here, mask=inside, other=0.0).to(tl.float32)
    # [[tag: MU-C]], stored where it belongs and in the mirror.
    if i > j:
        tl.store(c_ptr + here, acc, mask=inside)
        tl.store(c_ptr + mirrored, acc, mask=inside)
    else:
        # A tile on the diagonal has both halves of itself. Tensor cores don't promise that these are equal to the last
        # bit, so only the lower one counts: `pid=4: lower = [[1, 0], [1, 1]]`. The diagonal is stored once.
        lower = inside & (offs_i[:, None] >= offs_j[None, :])
        tl.store(c_ptr + here, acc, mask=lower)
        tl.store(c_ptr + mirrored, acc, mask=lower & (offs_i[:, None] > offs_j[None, :]))


# ## The third product
#
# [[tag: MU-step]] isn't symmetric, so all tiles are computed, in the [grouped order](../common/tile_order.py). The old
# matrix is added while the sums are still in registers.
@triton.jit
def step_kernel(
    b_ptr, x_ptr, y_ptr,  # (batch, m, m), (batch, m, n), (batch, m, n), all contiguous
    m, n, factor,
    INPUT_PRECISION: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    num_pid_m = tl.cdiv(m, BLOCK)
    num_pid_n = tl.cdiv(n, BLOCK)
    tiles = num_pid_m * num_pid_n
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    pid_m, pid_n = grouped_order(tl.program_id(0) % tiles, num_pid_m, num_pid_n, GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    b_ptr += matrix * m * m
    x_ptr += matrix * m * n
    acc = tile_of_product(b_ptr, x_ptr, offs_m, offs_n, m, n, m, m, 1, n, 1, INPUT_PRECISION, BLOCK_K)
    offsets = offs_m[:, None] * n + offs_n[None, :]
    mask = (offs_m < m)[:, None] & (offs_n < n)[None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + matrix * m * n + offsets, acc + factor * x, mask=mask)


# ## The launchers
#
# Square tiles of 128 in 16 bits, with 64 columns in each round of the loop: two rounds in flight take 64 KiB of shared
# memory, and the three of Hopper 96, so at least one program fits on an SM of any card. A matrix with a short edge has
# few such tiles, and most SMs would wait, so up to 1024 rows they are smaller. The choice depends on one matrix alone,
# and so its bits don't depend on the batch. float32 has no tensor cores, unless PyTorch allows TF32, and needs more
# room.
def tile_options(m, dtype, BLOCK=None, BLOCK_K=None):
    checks.power_of_two(BLOCK=BLOCK, BLOCK_K=BLOCK_K)
    most = 128 if m > 1024 and dtype != torch.float32 else 64
    return dict(
        INPUT_PRECISION=input_precision(), BLOCK=BLOCK or max(16, power_of_2_up_to(most, m)),
        BLOCK_K=BLOCK_K or (32 if dtype == torch.float32 else 64), num_warps=8 if most == 128 else 4, num_stages=3,
    )  # fmt: skip


@opaque(
    "(Tensor a, Tensor? d, float alpha, float beta) -> Tensor",
    lambda a, d, alpha, beta: a.new_empty(*a.shape[:2], a.shape[1]),
)
def symmetric_forward(a, d, alpha, beta, **tiles):
    """a: (batch, m, k); d: (batch, m, m), contiguous, or None. The result is (batch, m, m)."""
    batch, m, k = a.shape
    c = torch.empty(batch, m, m, dtype=a.dtype, device=a.device)
    if c.numel():
        options = tile_options(m, a.dtype, **tiles)
        rows = triton.cdiv(m, options["BLOCK"])
        grid = (batch * rows * (rows + 1) // 2,)
        symmetric_kernel[grid](a, d, c, m, k, *a.stride(), float(alpha), float(beta), **options)
    return c


@opaque("(Tensor b, Tensor x, float factor) -> Tensor", lambda b, x, factor: torch.empty_like(x))
def step_forward(b, x, factor, *, GROUP_M=8, **tiles):
    """b: (batch, m, m), x: (batch, m, n), both contiguous. `b @ x + factor * x`."""
    batch, m, n = x.shape
    y = torch.empty_like(x)
    if y.numel():
        options = tile_options(m, x.dtype, **tiles)
        programs = triton.cdiv(m, options["BLOCK"]) * triton.cdiv(n, options["BLOCK"])
        step_kernel[(batch * programs,)](b, x, y, m, n, float(factor), GROUP_M=GROUP_M, **options)
    return y


# The polynomials expect singular values of at most 1. None is larger than the root of the sum of all squares, so
# [normalized](../common/frobenius.py) divides by that first, [[tag: MU-norm]].
def orthogonalize_forward(x, coefficients, safety, eps, *, launchers=(symmetric_forward, step_forward), **tiles):
    """x: (batch, m, n) with m at most n."""
    y, (symmetric, step) = normalized(x, safety, eps), launchers
    for a, b, c in coefficients:
        gram = symmetric(y, None, 1.0, 0.0, **tiles)
        # `c A A + b A`: A is symmetric, so A A is A times its transpose, which is a symmetric product again.
        poly = symmetric(gram, gram, c, b, **tiles)
        y = step(poly, y, a, **tiles)
    return y


# ## The functions
def matrices_contract(function, **matrices):
    checks.optional_tensors(**matrices)
    checks.no_gradient(function, **matrices)
    checks.dtypes(**matrices)
    for name, value in matrices.items():
        if value is not None:
            checks.dimensions(name, value, range(2, 65), "a matrix lies along the last two")


# (…, m, n) as (batch, m, n), without a copy if the strides allow it.
def as_batch(x):
    return x[None] if x.dim() == 2 else x.flatten(0, -3)


def coefficients_contract(name, coefficients):
    if not isinstance(coefficients, tuple | list) or not coefficients:
        raise TypeError(f"{name} must be a list of triples of numbers, got {coefficients!r}")
    for triple in coefficients:
        if not isinstance(triple, tuple | list) or len(triple) != 3:
            raise ValueError(f"{name} must be triples (a, b, c), got {triple!r}")
        for each in triple:
            checks.number(name, each)


def product_under_contract(a, alpha, d, beta, launcher):
    checks.tensors(a=a)
    matrices_contract("symmetric_product", a=a, d=d)
    checks.same_dtype(a=a, d=d)
    checks.number("alpha", alpha)
    checks.number("beta", beta)
    shape = (*a.shape[:-1], a.shape[-2])
    checks.shape("d", d, shape, "a row and a column for each row of a")
    if d is None and beta:
        raise ValueError(f"d must be given: beta is {beta}")
    if d is not None and d.device != a.device:
        raise ValueError(f"d must be on the device of a, {a.device}, got {d.device}")
    if beta and checks.looks_at_values() and not torch.equal(d.nan_to_num(), d.mT.nan_to_num()):
        raise ValueError("d must be symmetric, because only its lower half is read")
    flat = as_batch(d).contiguous() if beta else None
    return launcher(as_batch(a), flat, float(alpha), float(beta)).reshape(shape)


def orthogonalized(x, coefficients, safety, eps, **launchers):
    checks.tensors(x=x)
    matrices_contract("orthogonalize", x=x)
    coefficients_contract("coefficients", coefficients)
    checks.number("safety", safety, above=0)
    checks.number("eps", eps, above=0)
    flat, tall = as_batch(x), x.shape[-2] > x.shape[-1]
    y = orthogonalize_forward(flat.mT if tall else flat, coefficients, safety, eps, **launchers)
    return (y.mT if tall else y).reshape(x.shape)


def symmetric_product(a, *, alpha=1.0, d=None, beta=0.0):
    r"""$\alpha a a^\top + \beta d$, symmetric to the last bit.

    Args:
        a: (…, m, k) float32, float16 or bfloat16, any strides.
        alpha, beta: numbers.
        d: (…, m, m), symmetric, of the dtype of `a`. With `beta=0` it isn't read.

    Returns:
        (…, m, m), the dtype of `a`.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device; `beta` isn't 0 and there is no `d`;
            `a` or `d` requires a gradient. In the interpreter, or with `ACADEMY_DEBUG=1`: `d` isn't symmetric.

    Source: quack's `gemm_symmetric` and the kernels of modded-nanogpt.
    """
    return product_under_contract(a, alpha, d, beta, symmetric_forward)


def orthogonalize(x, coefficients=NEWTON_SCHULZ, *, safety=1.0, eps=1e-7):
    r"""A matrix with the singular vectors of `x` and singular values near 1, by a few rounds of products.

    Args:
        x: (…, m, n) float32, float16 or bfloat16, any strides; each matrix by itself.
        coefficients: a triple (a, b, c) for each round, which makes $a \sigma + b \sigma^3 + c \sigma^5$ of a singular
            value $\sigma$.
        safety: the norm is taken as so much larger, above 0. With `POLAR_EXPRESS` take 1.01.
        eps: the smallest norm that is divided by, above 0. Smaller matrices keep a smaller result.

    Returns:
        (…, m, n) bfloat16. A tall matrix is computed as its transpose, and comes back with the strides of that.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or is out of range; `x` requires a
            gradient.

    Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks"; Amsel et al., "The Polar Express"
    (arXiv 2505.16932).
    """
    return orthogonalized(x, coefficients, safety, eps)


# ## The optimizer
#
# Used like PyTorch's `torch.optim.Muon`. A weight that isn't a matrix is refused: embeddings, norms and biases belong
# to AdamW. Weights of one shape are orthogonalized as one batch.
#
# `heads`. The projection to queries has the rows of all heads below each other. As one matrix, its heads would be made
# orthogonal *to each other*. With `heads` each is a matrix of its own, a view of the same memory.
#
# How large is a step? The squares of `m` orthogonal rows add up to `m`, so a number in them is about one over the root
# of `n`. The learning rate is adjusted for that: by Keller's rule, or so that a step is as large as AdamW's. The decay
# is not.
def adjusted(lr, rows, columns, rule):
    return lr * (
        0.2 * math.sqrt(max(rows, columns)) if rule == "match_rms_adamw" else math.sqrt(max(1, rows / columns))
    )


# A triple is for all rounds. Of a list of triples the first ones are taken, and the last one is repeated.
def rounds(coefficients, steps):
    if isinstance(coefficients, tuple | list) and coefficients and not isinstance(coefficients[0], tuple | list):
        coefficients = [coefficients]
    coefficients_contract("ns_coefficients", coefficients)
    return [coefficients[min(at, len(coefficients) - 1)] for at in range(steps)]


def group_contract(params, lr, weight_decay, momentum, ns_coefficients, eps, ns_steps, adjust_lr_fn, heads, **rest):
    for name, number in dict(lr=lr, weight_decay=weight_decay, momentum=momentum).items():
        checks.number(name, number, at_least=0)
    if momentum >= 1:
        raise ValueError(f"momentum must be below 1, got {momentum}")
    checks.number("eps", eps, above=0)
    checks.whole_number("ns_steps", ns_steps, at_least=1, at_most=99)
    rounds(ns_coefficients, ns_steps)
    checks.choice("adjust_lr_fn", adjust_lr_fn, (None, "original", "match_rms_adamw"))
    checks.whole_number("heads", heads, at_least=1)
    for p in params:
        checks.tensors(params=p)
        checks.dtypes(params=p)
        checks.dimensions("params", p, 2, "Muon is for matrices; give the others to AdamW")
        if p.shape[0] % heads:
            raise ValueError(f"heads must divide the rows of each weight, {p.shape[0]}, got {heads}")


class Muon(InFloat32):
    r"""PyTorch's Muon, with symmetric products by half, and heads.

    Args:
        params: matrices, float32, float16 or bfloat16; as PyTorch's optimizers take them, groups included.
        lr, weight_decay: each weight is multiplied by `1 - lr * weight_decay`, then moves by the adjusted `lr`.
        momentum: from 0 to below 1; how much of the average is kept. The average is float32.
        nesterov: whether the gradient counts once more.
        ns_coefficients: a triple for all rounds, or a list of triples, such as `POLAR_EXPRESS`: the first `ns_steps` of
            it. With a list the norm is taken as 1.01 times as large.
        eps, ns_steps: as in `orthogonalize`; how many rounds.
        adjust_lr_fn: "original" or None: `lr` times the root of rows over columns, if that is above 1;
            "match_rms_adamw": times 0.2 times the root of the longer edge.
        heads: so many matrices lie below each other in each weight, and each is a matrix of its own.

    Raises:
        TypeError, ValueError: an argument has a wrong type or is out of range, or a weight is no matrix.

    Source: Keller Jordan, "Muon"; Liu et al., "Muon is Scalable for LLM Training" (arXiv 2502.16982).
    """

    orthogonalize = staticmethod(orthogonalize)

    def __init__(
        self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=NEWTON_SCHULZ[0],
        eps=1e-7, ns_steps=5, adjust_lr_fn=None, heads=None,
    ):  # fmt: skip
        options = dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps)
        rule = dict(ns_coefficients=ns_coefficients, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn)
        super().__init__(params, options | rule | dict(heads=1 if heads is None else heads))

    def add_param_group(self, param_group):
        """As PyTorch's; the group is checked."""
        super().add_param_group(param_group)
        group = self.param_groups.pop()
        group_contract(**group)
        self.param_groups.append(group)

    def update(self, group):
        alike = {}
        for p in group["params"]:
            if p.grad is not None:
                alike.setdefault((p.shape, p.device), []).append(p)
        triples = rounds(group["ns_coefficients"], group["ns_steps"])
        safety = 1.01 if isinstance(group["ns_coefficients"][0], tuple | list) else 1.0
        for params in alike.values():
            batch = self.averaged(params, group).unflatten(1, (group["heads"], -1))
            steps = self.orthogonalize(batch, triples, safety=safety, eps=group["eps"]).flatten(1, 2)
            for p, step in zip(params, steps):
                # In float32, and rounded once: a bfloat16 weight may be too coarse to decay by itself.
                moved = p.float() * (1 - group["lr"] * group["weight_decay"])
                p.copy_(moved.sub_(step, alpha=adjusted(group["lr"], *batch.shape[-2:], group["adjust_lr_fn"])))

    def averaged(self, params, group):
        """[[tag: MU-average]] and [[tag: MU-update]] of each weight, (weights, rows, columns) in float32."""
        updates = torch.empty(len(params), *params[0].shape, dtype=torch.float32, device=params[0].device)
        for p, update in zip(params, updates):
            if p.grad.layout is not torch.strided:
                raise TypeError("params must have dense gradients, got a sparse one")
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros(p.shape, dtype=torch.float32, device=p.device)
            average, grad = self.state[p]["momentum_buffer"], p.grad.float()
            average.add_(grad - average, alpha=1 - group["momentum"])
            # The average goes on to the next step, so what is orthogonalized is always a copy.
            update.copy_(grad + group["momentum"] * (average - grad) if group["nesterov"] else average)
        return updates


# ## A run small enough to watch
#
# A product of 5 by 6 with itself in tiles of 2, six programs; then a round for a matrix of 3 by 4, in tiles as small.
def EXAMPLE():
    x = torch.arange(30.0, device=device.DEVICE).reshape(1, 5, 6) % 7 - 3
    product = symmetric_forward(x, None, 1.0, 0.0, BLOCK=2, BLOCK_K=4)
    y = x[:, :3, :4].contiguous() / 8
    gram = symmetric_forward(y, None, 1.0, 0.0, BLOCK=2, BLOCK_K=4)
    poly = symmetric_forward(gram, gram, 0.5, -1.5, BLOCK=2, BLOCK_K=4)
    return product, step_forward(poly, y, 2.0, BLOCK=2, BLOCK_K=4, GROUP_M=2)


if __name__ == "__main__":
    script.main(orthogonalize, orthogonalize_reference)
