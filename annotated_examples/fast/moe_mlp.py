r"""
# A layer of experts, fast: fuse less

[The lesson](../moe/moe_mlp.py) gathers rows in the loads of its first product, and applies the activation at its end.

[[eq: ME-h]]

Here $c_{tji}$ is 1 if slot $j$ of token $t$ belongs to expert $i$, and 0 otherwise.

Fusing saves passes through memory. But the products are the bulk of this layer, and whatever is fused into them slows
them down. Hopper's TMA unit fetches rows that lie one after another, so it can't gather a tile of them. (Blackwell's
can.) And while a tile is activated and stored its program multiplies nothing. So here all six products are those of
[the fast grouped product](grouped_matmul.py), and between them stand short kernels without products. At 8192 tokens
with 6 of 64 experts, 2048 x 1408, in bfloat16 on an H200:

| step | time |
|---|---:|
| first product, gather in its loads, SwiGLU at its end | [[bench: moe_mlp/ladder/gate and up, fused/step_ms]] |
| that product by itself | [[bench: moe_mlp/ladder/gate and up/step_ms]] |
| the gather | [[bench: moe_mlp/ladder/gather/step_ms]] |
| SwiGLU | [[bench: moe_mlp/ladder/SwiGLU/step_ms]] |
| back through the second product, both fused | [[bench: moe_mlp/ladder/back through down, fused/step_ms]] |
| that product by itself | [[bench: moe_mlp/ladder/back through down/step_ms]] |
| the derivative of SwiGLU, and the weights | [[bench: moe_mlp/ladder/SwiGLU backward/step_ms]] |
| gradient of the first matrices, with gathered rows | [[bench: moe_mlp/ladder/matrices, gathered/step_ms]] |
| that gradient with rows in order | [[bench: moe_mlp/ladder/matrices/step_ms]] |

(The way back was measured with `u` in bfloat16. Here it is float32, see below: twice as many bytes go out and come
back.)

The fused kernels were as good as we could make them: two loops, tiles of 128 x 128, three stages.

**Against others.** The whole layer of that size, Liger's after its own search, and the one of transformers with
PyTorch's grouped product. Memory is the peak beside the inputs:

| the whole layer | measured |
|---|---:|
| forward: here | [[bench: moe_mlp/ladder/the layer/forward_ms]] |
| forward: Liger | [[bench: moe_mlp/ladder/Liger/forward_ms]] |
| forward: transformers | [[bench: moe_mlp/ladder/transformers/forward_ms]] |
| backward: here | [[bench: moe_mlp/ladder/the layer/backward_ms]] |
| backward: Liger | [[bench: moe_mlp/ladder/Liger/backward_ms]] |
| backward: transformers | [[bench: moe_mlp/ladder/transformers/backward_ms]] |
| memory, MiB: here | [[bench: moe_mlp/ladder/the layer/memory_mib]] |
| memory, MiB: Liger | [[bench: moe_mlp/ladder/Liger/memory_mib]] |
| memory, MiB: transformers | [[bench: moe_mlp/ladder/transformers/memory_mib]] |

**What it costs.** The lesson's operations. The gathered rows are a matrix of the size of `y`. It is dropped before `y`
is needed, so the forward pass holds no more memory at a time.

**Contract.** That of the lesson.
"""

from academy.runtime import autograd, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import launch
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.experts import Plan, sorted_by_expert
from annotated_examples.common.exponential import sigmoid_of
from annotated_examples.common.custom_operator import opaque
from annotated_examples.fast.grouped_matmul import grouped_rows_forward, grouped_sums_forward
from annotated_examples.moe.moe_mlp import (
    BACKWARD,
    FORWARD,
    MoEMLP,
    collect,
    contract,
    empty_backward,
    empty_forward,
    moe_mlp_reference,
)


# ## Rows in the order of their experts
#
# A line of this picture, from a slot to its row, is one program:
#
# [[figure: experts/sorted_rows]]
#
# It copies that row. Dropped slots lie behind the last expert's rows: nothing is copied for them, and the product
# doesn't read what is there. (The picture is of the router's example, where row 1 is slot 5. The notes below are of the
# lesson's.)
@triton.jit
def gather_kernel(
    x_ptr, rows_ptr, order_ptr, offsets_ptr,  # (T, C), (R, C), (R,), (E,)
    C, E, stride_xt, stride_xc, TOP_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Row 1 is slot 3, which belongs to token 1: `pid=1: token = 1`. Its eight columns are two blocks, the second one
    # `pid=1, start=4: offs = [4, 5, 6, 7]`.
    row = tl.program_id(0).to(tl.int64)
    if row < tl.load(offsets_ptr + E - 1):
        token = tl.load(order_ptr + row).to(tl.int64) // TOP_K
        for start in range(0, C, BLOCK):
            offs = (start + tl.arange(0, BLOCK)).to(tl.int64)
            mask = offs < C
            x = tl.load(x_ptr + token * stride_xt + offs * stride_xc, mask=mask, other=0.0)
            tl.store(rows_ptr + row * C + offs, x, mask=mask)


# ## The activation, and its derivative
#
# Two halves of a row become one.
@triton.jit
def swiglu_kernel(
    h_ptr, a_ptr, offsets_ptr,  # (R, 2N), (R, N), both contiguous; (E,)
    N, E, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if row < tl.load(offsets_ptr + E - 1):
        for start in range(0, N, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < N
            gate = tl.load(h_ptr + row * 2 * N + offs, mask=mask, other=0.0).to(tl.float32)
            up = tl.load(h_ptr + row * 2 * N + N + offs, mask=mask, other=0.0).to(tl.float32)
            tl.store(a_ptr + row * N + offs, gate * sigmoid_of(gate) * up, mask=mask)


# A program has a whole row, so the gradient of its weight, [[tag: ME-dw]], is complete at once: the lesson stores a sum
# for each tile of columns. It is stored at the row's slot, so nothing has to be put back in order. The product leaves
# `u` in float32: rounded to 16 bits, it made the gradient of a weight, in which large terms may cancel, more than twice
# as wrong as PyTorch's. A dropped slot's gradient is 0, and its row isn't touched.
@triton.jit
def swiglu_backward_kernel(
    u_ptr, h_ptr, weights_ptr, order_ptr, offsets_ptr,  # (R, N), (R, 2N), (T, k), (R,), (E,)
    dh_ptr, wa_ptr, dweights_ptr,  # (R, 2N), (R, N), (T, k), all contiguous
    N, E, stride_wt, stride_wk, TOP_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Slot 3 is the second one of token 1: `pid=1: slot = 3`.
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(order_ptr + row).to(tl.int64)
    kept = row < tl.load(offsets_ptr + E - 1)
    weight_ptr = weights_ptr + slot // TOP_K * stride_wt + slot % TOP_K * stride_wk
    weight = tl.load(weight_ptr, mask=kept, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = kept & (offs < N)
        u = tl.load(u_ptr + row * N + offs, mask=mask, other=0.0).to(tl.float32)
        gate = tl.load(h_ptr + row * 2 * N + offs, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(h_ptr + row * 2 * N + N + offs, mask=mask, other=0.0).to(tl.float32)
        sigmoid = sigmoid_of(gate)
        a = (gate * sigmoid * up).to(wa_ptr.dtype.element_ty).to(tl.float32)
        total += u * a
        # The gradients of gate and up, and the weighted activations for [[tag: ME-W2]].
        u *= weight
        tl.store(dh_ptr + row * 2 * N + offs, u * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)), mask=mask)
        tl.store(dh_ptr + row * 2 * N + N + offs, u * gate * sigmoid, mask=mask)
        tl.store(wa_ptr + row * N + offs, weight * a, mask=mask)
    tl.store(dweights_ptr + slot, tl.sum(total, 0))


# ## Launchers
def block_of(columns, BLOCK):
    return dict(BLOCK=BLOCK or min(2048, triton.next_power_of_2(columns)), num_warps=4)


def gathered(x, plan, BLOCK=None):
    """The rows of `x`, in order: (T · k, C)."""
    C, R = x.shape[1], len(plan.order)
    rows = torch.empty((R, C), dtype=x.dtype, device=x.device)
    if rows.numel():
        launch(
            gather_kernel, (R,), (x, rows, plan.order, plan.offsets), (C, len(plan.offsets), *x.stride()),
            TOP_K=plan.position.shape[1], **block_of(C, BLOCK),
        )  # fmt: skip
    return rows


# `del` drops large matrices early, so that the next one finds room.
@opaque(FORWARD, empty_forward)
def mlp_forward(x, weights, gate_up, down, *plan, BLOCK=None):
    """`(out, h)`: the result, and the rows before the activation, (T · k, 2N)."""
    plan = Plan(*plan)
    R, (E, _, N) = len(plan.order), down.shape
    h = grouped_rows_forward(gathered(x, plan, BLOCK), gate_up.transpose(1, 2), plan.offsets)
    a = torch.empty((R, N), dtype=x.dtype, device=x.device)
    if a.numel():
        launch(swiglu_kernel, (R,), (h, a, plan.offsets), (N, E), **block_of(N, BLOCK))
    y = grouped_rows_forward(a, down.transpose(1, 2), plan.offsets)
    return collect(y, weights, plan), h


# What comes back through the second product, `u`, is formed of the upstream gradient as it is; the weights come in
# afterwards. The gathered gradient serves twice, for `u` and for [[tag: ME-W2]].
@opaque(BACKWARD, empty_backward)
def mlp_backward(dout, x, weights, gate_up, down, h, *plan, needs=(True,) * 4, BLOCK=None):
    """The gradients that `needs` asks for, of `x`, the weights, `gate_up` and `down`."""
    plan = Plan(*plan)
    R, (E, _, N), k = len(plan.order), down.shape, plan.position.shape[1]
    upstream = gathered(dout, plan, BLOCK)
    u = grouped_rows_forward(upstream, down, plan.offsets, None, torch.float32)
    dh, wa = torch.empty_like(h), torch.empty((R, N), dtype=h.dtype, device=h.device)
    dweights = torch.empty(plan.position.shape, dtype=torch.float32, device=x.device)
    if R:
        launch(
            swiglu_backward_kernel, (R,), (u, h, weights, plan.order, plan.offsets, dh, wa, dweights),
            (N, E, *weights.stride()), TOP_K=k, **block_of(N, BLOCK),
        )  # fmt: skip
    del u
    of_down = grouped_sums_forward(upstream.t(), wa, plan.offsets) if needs[3] else None
    del upstream, wa
    gradients = []
    if needs[0]:
        gradients.append(collect(grouped_rows_forward(dh, gate_up, plan.offsets), None, plan))
    if needs[1]:
        gradients.append(dweights.to(weights.dtype))
    if needs[2]:
        gradients.append(grouped_sums_forward(dh.t(), gathered(x, plan, BLOCK), plan.offsets))
    return [*gradients, of_down] if needs[3] else gradients


# ## The public function
@replayed
def moe_mlp(x, experts, weights, gate_up, down, *, plan=None):
    """A layer of SwiGLU experts; differentiable in `x`, `weights`, `gate_up` and `down`.

    Args: as `moe_mlp` of the lesson.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson.
    """
    contract(x, experts, weights, gate_up, down, plan)
    plan = plan or sorted_by_expert(experts, len(down))
    if not autograd.needs_frame(x, weights, gate_up, down):
        return mlp_forward(x, weights, gate_up, down, *plan)[0]
    return MoEMLP.apply(mlp_forward, mlp_backward, x, weights, gate_up, down, *plan)


# ## Where it falls behind
#
# A sum over gathered rows needs them as a matrix, so the backward pass copies the rows of the upstream gradient, and
# those of `x` once more. Between products the rows go out to memory and come back,
# [[bench: moe_mlp/ladder/SwiGLU/step_ms]] forward and [[bench: moe_mlp/ladder/SwiGLU backward/step_ms]] backward. A
# kernel that overlaps one tile's activation with the next tile's product, [below Triton](../gluon/matmul.py), would
# save these.


# ## A run small enough to watch
#
# The lesson's example.
def EXAMPLE():
    numbers = lambda *shape: (torch.arange(torch.Size(shape).numel(), device=device.DEVICE) % 5 - 2.0).view(shape)  # noqa: E731
    whole = lambda values: torch.tensor(values, device=device.DEVICE, dtype=torch.int32)  # noqa: E731
    position = [[0, 4], [5, 1], [2, 6], [7, 8], [9, 3]]
    plan = Plan(whole([4, 4, 10]), whole([0, 3, 4, 9, 1, 2, 5, 6, 7, 8]), whole(position))
    x, gate_up, down = (numbers(*shape).half() for shape in ((5, 8), (3, 16, 8), (3, 8, 8)))
    out, h = mlp_forward(x, numbers(5, 2), gate_up, down, *plan, BLOCK=4)
    mlp_backward(torch.ones_like(out), x, numbers(5, 2), gate_up, down, h, *plan, BLOCK=4)


if __name__ == "__main__":
    script.main(moe_mlp, moe_mlp_reference)
