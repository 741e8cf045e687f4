r"""
# A layer of experts, forward and backward

A feed-forward layer of a transformer multiplies by two matrices, with [SwiGLU](../classics/swiglu.py) between them.
With experts there are `E` pairs of matrices, and a token goes through those of the experts that its
[router](router.py) chose, here the $j$-th slot of token $t$, with expert $i$:

[[eq: ME-h]]

That is the gate; up is the same with a second matrix. The expert's result is the activated row, times a third one.
A token's result is the sum over its rows, with the router's weights: [[tag: ME-o]]. The weight can't go in before: the
activation of half a row isn't half the activated row.

With [grouped products](grouped_matmul.py) that is soon written: gather the rows, multiply, activate, multiply, scatter.
But each of these steps takes all rows through memory again. Here the gathering is in the loads of the first product,
and the activation in its epilogue. The last step isn't a scatter: every token *collects* its own rows, in order.

[[figure: experts/layer]]

**What it costs.** `6 · T · k · H · N` operations forward, twice as many backward, and the matrices of all experts
have to be read. The backward pass keeps `x`, the rows `h` before the activation, and the plan. It doesn't need the rows
`y` after the second product: see below.

On an H200, 8192 tokens with 6 of 64 experts, 2048 x 1408, take
[[bench: moe_mlp/8192x6x64x2048x1408/forward/lesson.ms]] forward and
[[bench: moe_mlp/8192x6x64x2048x1408/backward/lesson.ms]] backward. A loop over the experts in PyTorch takes
[[bench: moe_mlp/8192x6x64x2048x1408/forward/eager.ms]] and
[[bench: moe_mlp/8192x6x64x2048x1408/backward/eager.ms]]: each of its products is small, and it waits for the GPU 64
times to learn how small. Against the limit this is slow, for the reasons that the grouped product names. [The fast
version](../fast/moe_mlp.py) is built on the fast product.

**Contract.** `x` is (T, H) in float32, float16 or bfloat16, as are the matrices, with any strides. `h`, the activated
rows and `y` are stored in that dtype, as PyTorch would; sums are float32. Router's weights stay as they are, and enter
after the second product. An expert of −1 is a dropped slot: it adds nothing, and its weight gets the gradient 0. There
are no atomics, so the same call gives the same bits.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from annotated_examples.common.experts import (
    MOST_EXPERTS,
    Plan,
    end_of_expert,
    experts_contract,
    sorted_by_expert,
    tile_of_expert,
)
from annotated_examples.common.exponential import sigmoid_of
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.products import input_precision, multiply_add, tile_of_product

# The schemas of the two launchers, which inside `torch.compile` are operators.
PLAN = "Tensor offsets, Tensor order, Tensor position"
FORWARD = f"(Tensor x, Tensor weights, Tensor gate_up, Tensor down, {PLAN}) -> (Tensor, Tensor)"
SAVED = f"Tensor x, Tensor weights, Tensor gate_up, Tensor down, Tensor h, {PLAN}"
BACKWARD = f"(Tensor dout, {SAVED}, *, bool[] needs) -> Tensor[]"


# ## Reference
def moe_mlp_reference(x, experts, weights, gate_up, down, *, plan=None):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    rows = torch.zeros(*experts.shape, x.shape[1], dtype=wide, device=x.device)
    for e in range(len(gate_up)):
        token, slot = torch.where(experts == e)
        gate, up = F.linear(x[token], gate_up[e]).chunk(2, 1)
        rows = rows.index_put((token, slot), F.linear(F.silu(gate) * up, down[e]).to(wide))
    kept = torch.where(experts >= 0, weights.to(wide), 0.0)
    return (rows * kept[:, :, None]).sum(1).to(x.dtype)


# ## The first product, with the gather and the activation
#
# Row r of the plan is slot `order[r]`, which belongs to token `order[r] // k`. So the rows of `x` needn't be copied
# into order: the tile's pointers go to the right ones. They may lie anywhere in memory. Only the numbers within a row
# are neighbours, and along these the loads are still coalesced.
#
# Gate and up of the same column are needed together, so a program computes both: two sums, and each tile of `x` that is
# loaded serves both.
@triton.jit
def gate_up_kernel(
    x_ptr, w_ptr, order_ptr, offsets_ptr,  # (T, H), (E, 2N, H), (R,), (E,)
    h_ptr, a_ptr,  # (R, 2N), (R, N), both contiguous
    R, H, N, E, x_strides, w_strides, TOP_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    expert, first, end = tile_of_expert(offsets_ptr, tl.program_id(0), R, E, BLOCK_M)
    if (first >= end) | (expert == E):
        return
    # In the example tokens 0, 1, 2 and 4 have expert 0 in one of their slots: `pid=(0, 0): token = [0, 1, 2, 4]`. A
    # tile is multiplied by one matrix, so it ends where an expert's rows do: 4, 0 and 6 rows are 1, 0 and 2 tiles of
    # four, and the last of these computes two rows for nothing.
    rows = first + tl.arange(0, BLOCK_M)
    mask_m = rows < end
    token = tl.load(order_ptr + rows, mask=mask_m, other=0).to(tl.int64) // TOP_K
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < N

    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    x_ptr += token[:, None] * x_strides[0]
    w_ptr += expert.to(tl.int64) * w_strides[0] + offs_n[None, :] * w_strides[1]
    half = tl.cast(N, tl.int64) * w_strides[1]
    for start in range(0, H, BLOCK_K):
        offs_k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        mask_k = offs_k < H
        x = tl.load(x_ptr + offs_k[None, :] * x_strides[1], mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        w_ptrs = w_ptr + offs_k[:, None] * w_strides[2]
        mask = mask_k[:, None] & mask_n[None, :]
        gate = multiply_add(x, tl.load(w_ptrs, mask=mask, other=0.0), gate, INPUT_PRECISION)
        up = multiply_add(x, tl.load(w_ptrs + half, mask=mask, other=0.0), up, INPUT_PRECISION)

    # The activation is computed from what is stored, so that the backward pass, which reads that, finds the same.
    gate, up = gate.to(h_ptr.dtype.element_ty), up.to(h_ptr.dtype.element_ty)
    mask = mask_m[:, None] & mask_n[None, :]
    h_ptrs = h_ptr + rows[:, None] * (2 * N) + offs_n[None, :]
    tl.store(h_ptrs, gate, mask=mask)
    tl.store(h_ptrs + N, up, mask=mask)
    gate, up = gate.to(tl.float32), up.to(tl.float32)
    tl.store(a_ptr + rows[:, None] * N + offs_n[None, :], gate * sigmoid_of(gate) * up, mask=mask)


# ## A product of rows that are in order already
#
# The second product, and in the backward pass the one that leads back to `x`, [[tag: ME-dx]].
@triton.jit
def rows_kernel(
    a_ptr, w_ptr, offsets_ptr, y_ptr,  # (R, K), contiguous; (E, K, N); (E,); (R, N), contiguous
    R, K, N, E, w_strides,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    expert, first, end = tile_of_expert(offsets_ptr, tl.program_id(0), R, E, BLOCK_M)
    if (first >= end) | (expert == E):
        return
    rows = first + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tile_of_product(
        a_ptr, w_ptr + expert.to(tl.int64) * w_strides[0], rows, offs_n, end, N, K, K, 1, w_strides[1], w_strides[2],
        INPUT_PRECISION, BLOCK_K,
    )  # fmt: skip
    mask = (rows < end)[:, None] & (offs_n < N)[None, :]
    tl.store(y_ptr + rows[:, None] * N + offs_n[None, :], acc, mask=mask)


# ## Every token collects its rows
#
# [[tag: ME-o]], in the order of the slots, in float32, and rounded once. If rows were *added* to their tokens instead,
# with atomics, the order could be another one each time, and so could the last bits. `position` is `order` the other
# way round: the row of each slot. A dropped slot's row comes after the last expert's: nothing was computed there, and
# nothing is read.
@triton.jit
def collect_kernel(
    y_ptr, weights_ptr, position_ptr, offsets_ptr, out_ptr,  # (R, H); (T, k), or None; (T, k); (E,); (T, H)
    H, E, stride_wt, stride_wk, TOP_K: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    rows = tl.load(offsets_ptr + E - 1)
    total = tl.zeros((BLOCK_H,), tl.float32)
    for j in range(TOP_K):
        # Token 1 has expert 2 first and then expert 0, so its rows are far apart: `pid=(1, 0), j=0: row = 5`,
        # `pid=(1, 0), j=1: row = 1`.
        row = tl.load(position_ptr + token * TOP_K + j).to(tl.int64)
        kept = row < rows
        y = tl.load(y_ptr + row * H + offs, mask=kept & (offs < H), other=0.0).to(tl.float32)
        if weights_ptr is not None:
            y *= tl.load(weights_ptr + token * stride_wt + j * stride_wk, mask=kept, other=0.0).to(tl.float32)
        total += y
    tl.store(out_ptr + token * H + offs, total, mask=offs < H)


# ## Backward through the second product and the activation
#
# The gradient of a weight is the product of its row `y` with the token's upstream gradient. `y` wasn't kept. But it is
# `a` times the second matrix, and the matrix may be moved to the other side, [[tag: ME-dw]]: what comes back through
# the second product, `u`, times `a`. Both are at hand here. `u` is formed of the gradient as it comes, and gets
# the weight afterwards.
#
# A program has some columns of a row only. So it stores a partial sum, and PyTorch adds up these few.
@triton.jit
def swiglu_backward_kernel(
    dout_ptr, w_ptr, order_ptr, offsets_ptr, weights_ptr, h_ptr,  # (T, H), (E, H, N), (R,), (E,), (T, k), (R, 2N)
    dh_ptr, wa_ptr, partial_ptr,  # (R, 2N), (R, N), (column tiles, R)
    T, R, H, N, E, strides, TOP_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    expert, first, end = tile_of_expert(offsets_ptr, tl.program_id(0), R, E, BLOCK_M)
    if (first >= end) | (expert == E):
        return
    rows = first + tl.arange(0, BLOCK_M)
    mask_m = rows < end
    slot = tl.load(order_ptr + rows, mask=mask_m, other=0).to(tl.int64)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = mask_m[:, None] & (offs_n < N)[None, :]
    # A row that isn't this expert's gets the token `T`, which doesn't exist: the product masks it.
    u = tile_of_product(
        dout_ptr, w_ptr + expert.to(tl.int64) * strides[2], tl.where(mask_m, slot // TOP_K, T), offs_n, T, N, H,
        strides[0], strides[1], strides[3], strides[4], INPUT_PRECISION, BLOCK_K,
    )  # fmt: skip
    h_ptrs = h_ptr + rows[:, None] * (2 * N) + offs_n[None, :]
    gate = tl.load(h_ptrs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(h_ptrs + N, mask=mask, other=0.0).to(tl.float32)
    sigmoid = sigmoid_of(gate)
    a = (gate * sigmoid * up).to(wa_ptr.dtype.element_ty).to(tl.float32)
    tl.store(partial_ptr + tl.program_id(1).to(tl.int64) * R + rows, tl.sum(u * a, 1), mask=mask_m)

    # The gradients of gate and up, and the weighted activations for [[tag: ME-W2]].
    weight_ptrs = weights_ptr + slot // TOP_K * strides[5] + slot % TOP_K * strides[6]
    weight = tl.load(weight_ptrs, mask=mask_m, other=0.0).to(tl.float32)[:, None]
    dh_ptrs = dh_ptr + rows[:, None] * (2 * N) + offs_n[None, :]
    tl.store(dh_ptrs, weight * u * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)), mask=mask)
    tl.store(dh_ptrs + N, weight * u * gate * sigmoid, mask=mask)
    tl.store(wa_ptr + rows[:, None] * N + offs_n[None, :], weight * a, mask=mask)


# ## Gradients of the matrices
#
# A sum over each expert's rows of a column times a row. Of the two factors one is in order, and the other is gathered:
# the upstream gradient on the left in [[tag: ME-W2]], `x` on the right in [[tag: ME-W1-gate]] and [[tag: ME-W1-up]].
# An expert without rows has programs, too: their loop makes no step, and they store zeros.
@triton.jit
def matrices_kernel(
    left_ptr, right_ptr, order_ptr, offsets_ptr, dw_ptr,  # (R or T, M), (R or T, N), (R,), (E,), (E, M, N)
    R, M, N, E, left_strides, right_strides, TOP_K: tl.constexpr, GATHER_LEFT: tl.constexpr,
    INPUT_PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BLOCK_M)
    expert = tl.program_id(0) // tiles
    before = tl.load(offsets_ptr + expert - 1, mask=expert > 0, other=0).to(tl.int64)
    start = tl.minimum(tl.maximum(before, 0), R)
    end = end_of_expert(offsets_ptr, expert, start, R, E)
    offs_m = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = (offs_m < M)[:, None], (offs_n < N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(end - start, BLOCK_R)):
        row = start + step * BLOCK_R + tl.arange(0, BLOCK_R)
        mask = row < end
        token = tl.load(order_ptr + row, mask=mask, other=0).to(tl.int64) // TOP_K
        of_left, of_right = (token, row) if GATHER_LEFT else (row, token)
        left_ptrs = left_ptr + offs_m[:, None] * left_strides[1] + of_left[None, :] * left_strides[0]
        right_ptrs = right_ptr + of_right[:, None] * right_strides[0] + offs_n[None, :] * right_strides[1]
        left = tl.load(left_ptrs, mask=mask_m & mask[None, :], other=0.0)
        right = tl.load(right_ptrs, mask=mask[:, None] & mask_n, other=0.0)
        acc = multiply_add(left, right, acc, INPUT_PRECISION)
    dw_ptrs = dw_ptr + (expert.to(tl.int64) * M + offs_m[:, None]) * N + offs_n[None, :]
    tl.store(dw_ptrs, acc, mask=mask_m & mask_n)


# ## Launchers
def tiles_of_rows(plan, E, columns, BLOCK_M, BLOCK_N):
    """The grid of the kernels whose programs look for their expert."""
    return triton.cdiv(len(plan.order), BLOCK_M) + E, triton.cdiv(columns, BLOCK_N)


def rows_product(a, w, plan, *, BLOCK_M, BLOCK_N, BLOCK_K):
    """Rows in order times the matrices `w`, (E, K, N)."""
    (R, K), (E, _, N) = a.shape, w.shape
    y = torch.empty((R, N), dtype=a.dtype, device=a.device)
    if y.numel():
        rows_kernel[tiles_of_rows(plan, E, N, BLOCK_M, BLOCK_N)](
            a, w, plan.offsets, y, R, K, N, E, w.stride(),
            INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        )  # fmt: skip
    return y


def collect(y, weights, plan, BLOCK_H=1024):
    """Each token's rows, weighted and added up: (T, H)."""
    (T, k), H = plan.position.shape, y.shape[1]
    out = torch.empty((T, H), dtype=y.dtype, device=y.device)
    if out.numel():
        collect_kernel[(T, triton.cdiv(H, BLOCK_H))](
            y, weights, plan.position, plan.offsets, out, H, len(plan.offsets),
            *((0, 0) if weights is None else weights.stride()), TOP_K=k, BLOCK_H=BLOCK_H,
        )  # fmt: skip
    return out


# The two launchers of the layer take strides as tuples, which `torch.compile` can't follow into a kernel. So inside it
# they are [custom operators](../common/custom_operator.py). Operators take tensors, hence a plan's three by themselves.
def empty_forward(x, weights, gate_up, down, offsets, order, position):
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(len(order), gate_up.shape[1])


@opaque(FORWARD, empty_forward)
def mlp_forward(x, weights, gate_up, down, *plan, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32):
    """`(out, h)`: the result, and the rows before the activation, (T · k, 2N)."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    plan = Plan(*plan)
    R, (E, H, N) = len(plan.order), down.shape
    h = torch.empty((R, 2 * N), dtype=x.dtype, device=x.device)
    a = torch.empty((R, N), dtype=x.dtype, device=x.device)
    if a.numel():
        gate_up_kernel[tiles_of_rows(plan, E, N, BLOCK_M, BLOCK_N)](
            x, gate_up, plan.order, plan.offsets, h, a, R, H, N, E, x.stride(), gate_up.stride(),
            TOP_K=plan.position.shape[1], INPUT_PRECISION=input_precision(),
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        )  # fmt: skip
    y = rows_product(a, down.transpose(1, 2), plan, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    return collect(y, weights, plan), h


# `needs` says which gradients are wanted: of `x`, the weights, `gate_up`, `down`. Those come as a list.
def empty_backward(dout, x, weights, gate_up, down, h, *plan, needs):
    wanted = [value for value, need in zip((x, weights, gate_up, down), needs) if need]
    return [torch.empty_like(value, memory_format=torch.contiguous_format) for value in wanted]


@opaque(BACKWARD, empty_backward)
def mlp_backward(
    dout, x, weights, gate_up, down, h, *plan, needs=(True,) * 4, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
):  # fmt: skip
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    plan = Plan(*plan)
    R, T, (E, H, N), k = len(plan.order), len(x), down.shape, plan.position.shape[1]
    tiles = dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    dh, wa = torch.empty_like(h), torch.empty((R, N), dtype=h.dtype, device=h.device)
    partial = torch.empty((triton.cdiv(N, BLOCK_N), R), dtype=torch.float32, device=h.device)
    if wa.numel():
        swiglu_backward_kernel[tiles_of_rows(plan, E, N, BLOCK_M, BLOCK_N)](
            dout, down, plan.order, plan.offsets, weights, h, dh, wa, partial, T, R, H, N, E,
            (*dout.stride(), *down.stride(), *weights.stride()), TOP_K=k, INPUT_PRECISION=input_precision(), **tiles,
        )  # fmt: skip
    gradients = []
    if needs[0]:
        gradients.append(collect(rows_product(dh, gate_up, plan, **tiles), None, plan))
    if needs[1]:
        dw = partial.sum(0)[plan.position.long()]
        gradients.append(torch.where(plan.position < plan.offsets[-1], dw, 0.0).to(weights.dtype))
    if needs[2]:
        gradients.append(matrices(dh, x, plan, k, False, E, BLOCK_M, BLOCK_N, BLOCK_K))
    if needs[3]:
        gradients.append(matrices(dout, wa, plan, k, True, E, BLOCK_M, BLOCK_N, BLOCK_K))
    return gradients


def matrices(left, right, plan, k, gather_left, E, BLOCK_M, BLOCK_N, BLOCK_R):
    (_, M), (_, N) = left.shape, right.shape
    dw = torch.empty((E, M, N), dtype=left.dtype, device=left.device)
    if dw.numel():
        matrices_kernel[(E * triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))](
            left, right, plan.order, plan.offsets, dw, len(plan.order), M, N, E, left.stride(), right.stride(), TOP_K=k,
            GATHER_LEFT=gather_left, INPUT_PRECISION=input_precision(), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
            BLOCK_R=BLOCK_R,
        )  # fmt: skip
    return dw


# ## Joining autograd
#
# With these launchers, or with those of [the fast version](../fast/moe_mlp.py).
class MoEMLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, forward, backward, x, weights, gate_up, down, *plan):
        out, h = forward(x, weights, gate_up, down, *plan)
        ctx.save_for_backward(x, weights, gate_up, down, h, *plan)
        ctx.launch_backward = backward
        return out

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dout):
        needs = list(ctx.needs_input_grad[2:6])
        gradients = iter(ctx.launch_backward(dout, *ctx.saved_tensors, needs=needs))
        return None, None, *(next(gradients) if need else None for need in needs), None, None, None


# ## The public function
def contract(x, experts, weights, gate_up, down, plan):
    """Raises on bad arguments."""
    checks.tensors(x=x, experts=experts, weights=weights, gate_up=gate_up, down=down)
    checks.dtypes(x=x)
    checks.same_dtype(x=x, gate_up=gate_up, down=down)
    checks.dtypes((torch.float32, x.dtype), weights=weights)
    checks.dimensions("x", x, 2, "tokens, width")
    checks.dimensions("down", down, 3, "experts, width, inner width")
    E, H, N = down.shape
    checks.programs("down", "rows or columns", max(H, N), 64)
    if not 1 <= E <= MOST_EXPERTS:
        raise ValueError(f"down must have 1 to {MOST_EXPERTS} experts, got shape {tuple(down.shape)}")
    checks.shape("down", down, (E, x.shape[1], N), "as wide as x")
    checks.shape("gate_up", gate_up, (E, 2 * N, H), "both halves, as down has them")
    experts_contract(experts, E)
    checks.shape("experts", experts, (len(x), experts.shape[1]), "one row for each of x")
    checks.shape("weights", weights, tuple(experts.shape), "one for each of experts")
    if plan is not None:
        if not isinstance(plan, Plan):
            raise TypeError(f"plan must come from sort_by_expert, got {type(plan).__name__}")
        if plan.position.shape != experts.shape or len(plan.offsets) != E:
            raise ValueError(f"plan must be that of experts, {tuple(experts.shape)}, for {E} experts")


@replayed
def moe_mlp(x, experts, weights, gate_up, down, *, plan=None):
    """A layer of SwiGLU experts; differentiable in `x`, `weights`, `gate_up` and `down`.

    Args:
        x: tokens, (T, H), float32, float16 or bfloat16, any strides.
        experts: int32 or int64 of shape (T, k), the experts of each token; −1 is a dropped slot. The same expert twice
            counts twice.
        weights: (T, k), float32 or the dtype of `x`.
        gate_up: (E, 2N, H), the dtype of `x`, any strides: for each expert the rows of the gate, then those of up.
        down: (E, H, N), the dtype of `x`, any strides.
        plan: what `sort_by_expert(experts, E)` returns, if it is there already.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError: an argument isn't a tensor (plan: not a `Plan`), or the dtypes differ or are not allowed.
        ValueError: shapes that don't fit, a tensor on the wrong device; on the CPU and with `ACADEMY_DEBUG=1` also an
            expert out of range, which a GPU takes for a dropped slot.

    Source: Shazeer et al., "Outrageously Large Neural Networks" (2017); the gradient of the weights as in Guo et al.,
    "SonicMoE" (2025).
    """
    contract(x, experts, weights, gate_up, down, plan)
    plan = plan or sorted_by_expert(experts, len(down))
    if not autograd.needs_frame(x, weights, gate_up, down):
        return mlp_forward(x, weights, gate_up, down, *plan)[0]
    return MoEMLP.apply(mlp_forward, mlp_backward, x, weights, gate_up, down, *plan)


# ## A run small enough to watch
#
# Five tokens with the experts 0 and 2, 2 and 0, 0 and 2, 2 twice, 2 and 0. Expert 1 has nobody. The plan is given.
def EXAMPLE():
    numbers = lambda *shape: (torch.arange(torch.Size(shape).numel(), device=device.DEVICE) % 5 - 2.0).view(shape)  # noqa: E731
    whole = lambda values: torch.tensor(values, device=device.DEVICE, dtype=torch.int32)  # noqa: E731
    position = [[0, 4], [5, 1], [2, 6], [7, 8], [9, 3]]
    plan = Plan(whole([4, 4, 10]), whole([0, 3, 4, 9, 1, 2, 5, 6, 7, 8]), whole(position))
    x, weights, gate_up, down = numbers(5, 4), numbers(5, 2), numbers(3, 6, 4), numbers(3, 4, 3)
    tiles = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=4)
    out, h = mlp_forward(x, weights, gate_up, down, *plan, **tiles)
    mlp_backward(torch.ones_like(out), x, weights, gate_up, down, h, *plan, **tiles)


if __name__ == "__main__":
    script.main(moe_mlp, moe_mlp_reference)
