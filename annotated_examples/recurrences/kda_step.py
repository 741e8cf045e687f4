r"""
# One token of Kimi delta attention

A layer that writes text has its state and nothing else, as [the gated delta rule](gated_delta_rule_step.py) has. The
token brings a gate for each row of the state:

[[eq: KDA-S]]

[[eq: KDA-O]]

[[figure: kda/rows]]

There is no chunk, no pair of tokens and no half. A row of the state is multiplied by what its own gate leaves, and the
rest is the same.

**What it costs.** A state of 128 by 128 numbers in float32 is 64 KB for each head. It is read and written, and each of
its numbers takes part in seven operations. The gates are as many numbers as the key, 512 bytes in float32.

**Contract.** `state` is (B, H, D, E), float32, any strides, and is updated in place; `q` and `k` are (B, Hk, D), `v` is
(B, H, E), in float32, float16 or bfloat16; `g` is (B, H, D). `slots` says which state belongs to which row, as in the
gated delta rule. All arithmetic is float32. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head
from annotated_examples.common.chunks import decay_of, load_block, load_gates, store_block, tensor
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.delta_rule import load_vector, step_contract


# ## Reference
#
# The two formulas. A slot of −1 stands for no request: its row is 0.
def kda_step_reference(state, q, k, v, g, beta, *, scale=None, slots=None):
    group, scale = v.shape[1] // q.shape[1], q.shape[-1] ** -0.5 if scale is None else scale
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = (x.to(wide).repeat_interleave(group, dim=1) for x in (q, k))
    slots = torch.arange(len(q), device=q.device) if slots is None else slots.long()
    o, used = torch.zeros_like(v), slots >= 0
    S = state[slots[used]].to(wide)
    S = S if g is None else S * g[used].to(wide).exp()[..., None]
    u = beta[used].to(wide)[..., None] * (v[used] - (k[used][..., None] * S).sum(-2))
    S = S + k[used][..., None] * u[..., None, :]
    o[used] = (scale * (q[used][..., None] * S).sum(-2)).to(v.dtype)
    state[slots[used]] = S.to(state.dtype)
    return o


# ## The kernel
#
# A program has one head of one row, and `BLOCK_E` columns of its state, which stays in registers from the load to the
# store. Gates are a vector of as many numbers as the state has rows, and are loaded like the key. Nothing is rounded to
# 16 bits on the way: the difference of a value and what a rounded state answers would be that rounding.
@triton.jit
def kda_step_kernel(
    q_tensor, k_tensor, v_tensor, g_tensor, beta_tensor,  # (pointer, strides) as of one token: (B, heads, 1, width)
    state_tensor, o_tensor, slots_ptr,  # (slots, H, D, E), updated; like v; (B,), or None
    slots, H, group, scale, widths, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    D, E = widths
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    token, offs_d, offs_e = tl.arange(0, 1), tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    slot = b
    if slots_ptr is not None:
        slot = tl.load(slots_ptr + b)
    # A row without a state: 0 rows of it are loaded and stored. In the example `pid=1: slot = -1`.
    used = (slot >= 0) & (slot < slots)
    matrix, rows = head(state_tensor, slot, h, 0), tl.where(used, D, 0)
    state = load_block(matrix, offs_d, rows, offs_e, E)
    k = load_vector(head(k_tensor, b, h // group, 0), offs_d, D)[:, None]
    q = load_vector(head(q_tensor, b, h // group, 0), offs_d, D)[:, None]
    v = load_vector(head(v_tensor, b, h, 0), offs_e, E)
    # Each row fades by itself, [[tag: KDA-S]]. In the example the second row's gate is −∞, and the row is gone:
    # `pid=0: left = [1, 0]`.
    left = decay_of(load_vector(head(g_tensor, b, h, 0), offs_d, D))
    state *= left[:, None]
    # Then the state is asked, and the difference is written.
    answer = tl.sum(k * state, axis=0)
    u = load_gates(beta_tensor, b, h, 0, token, 1) * (v - answer)
    state += k * u[None, :]
    # [[tag: KDA-O]]: the query reads the new state, before it is stored.
    o = scale * tl.sum(q * state, axis=0)
    o = tl.where(used, o, 0.0)
    store_block(head(o_tensor, b, h, 0), o[None, :], token, 1, offs_e, E)
    store_block(matrix, state, offs_d, rows, offs_e, E)


# ## The launcher
#
# The tiles of the gated delta rule's step. A call without gates has gates of 0, one number in memory.
@opaque(
    "(Tensor(a!) state, Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? slots, float scale) -> Tensor",
    lambda state, q, k, v, *rest: torch.empty_like(v),
)
def kda_step_launch(state, q, k, v, g, beta, slots, scale, *, BLOCK_E=32, num_warps=2):
    """`o`; all tensors have the heads before a single token, as (B, heads, 1, width)."""
    checks.power_of_two(BLOCK_E=BLOCK_E, num_warps=num_warps)
    (B, Hk, _, D), (H, E), o = q.shape, (v.shape[1], v.shape[3]), torch.empty_like(v)
    g = state.new_zeros(()).expand(B, H, 1, D) if g is None else g
    BLOCK_D, BLOCK_E = triton.next_power_of_2(D), min(BLOCK_E, triton.next_power_of_2(E))
    if o.numel():
        kda_step_kernel[(B * H * triton.cdiv(E, BLOCK_E),)](
            *(tensor(x) for x in (q, k, v, g, beta, state, o)), None if slots is None else slots.contiguous(),
            state.shape[0], H, H // Hk, scale, (D, E), BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E, num_warps=num_warps,
        )  # fmt: skip
    return o


# ## The public function
#
# Its contract is in `step_contract`, which checks what every step of a delta rule takes.
@replayed
def kda_step_(state, q, k, v, g, beta, *, scale=None, slots=None):
    r"""One token of `kda` for each row. `state` is updated in place. Forward only.

    Args:
        state: (B, H, D, E), float32, any strides; with `slots` (number of slots, H, D, E).
        q, k: (B, Hk, D), float32, float16 or bfloat16, any strides, D at most 256. Keys should have length 1 at most.
        v: (B, H, E), dtype of `q`, any strides, E at most 256; H is a multiple of Hk.
        g: (B, H, D), float32 or the dtype of `q`: the logarithm of the decay of each row of the state, 0 or negative;
            −∞ forgets the row. None: no decay.
        beta: (B, H), float32 or the dtype of `q`: how much of the difference is written.
        scale: of the query, default $1/\sqrt{D}$.
        slots: (B,) int32: which state belongs to each row, no state twice; −1: none. Checked on the CPU and with
            `ACADEMY_DEBUG=1`; elsewhere a number that is no slot is taken for −1. None: row b has state b.

    Returns:
        o, (B, H, E) in the dtype of `q`; 0 in rows without a state.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, is out of range, or requires a
            gradient.

    Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture" (arXiv 2510.26692).
    """
    scale, tensors = step_contract("kda_step_", state, q, k, v, g, beta, scale, slots, per_channel=True)
    return kda_step_launch(state, *tensors, slots, scale)[:, :, 0]


# ## A run small enough to watch
#
# Two rows, of which the second has no state.
def EXAMPLE():
    state = torch.tensor([[1.0, 2], [3, 4]], device=device.DEVICE)[None, None]
    k = torch.tensor([[1.0, 0], [0, 1]], device=device.DEVICE)[:, None]
    q, v = k.flip(0), torch.tensor([[5.0, 4], [7, 8]], device=device.DEVICE)[:, None]
    g = torch.tensor([0.0, -float("inf")], device=device.DEVICE).expand(2, 1, 2)
    beta, slots = torch.full((2, 1), 0.5, device=device.DEVICE), torch.tensor([0, -1], device=device.DEVICE)
    kda_step_(state, q, k, v, g, beta, scale=1.0, slots=slots.to(torch.int32))


if __name__ == "__main__":
    script.main(kda_step_, kda_step_reference)
