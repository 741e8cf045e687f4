r"""
# The gated delta rule, fast

The same function as in the [lesson](../recurrences/gated_delta_rule.py), with the same reference and arguments.

[[eq: GD-U]]

What is slow about the lesson? It prepares two tensors, $W$ and $U^0$, so that the walk has little to do, and writes a
state for each chunk, so that the outputs wait for nobody. All of that is written and read again. With enough heads a
walk can do all of it on its way.

[[figure: chunks/corrections]]

1. *Only the inverses are prepared.* They need keys, gates and $\beta$ alone, and take a half of the bytes of k.
2. *One walk for the rest.* It asks the state, solves the chunk's system with the inverse, computes the outputs, and
   moves the state on. Nothing else is stored.
3. *The copy unit, and sums of gates*, as in [fast linear attention](linear_attention.py).

**What it costs.** Per chunk of $C$ tokens and head: about $2 C^3$ multiplications for the inverse, and
$C^2 (2 D + 2 E) + 3 C D E$ in products. Inverses are written and read.

**Where it falls behind.** A program walks over a whole sequence. With few heads and a long text most multiprocessors
have nothing to do. The backward pass is the lesson's.

**Contract.** As the lesson's. float32, heads wider than 128, and strides that no descriptor fits are left to the
lesson's kernels.
"""

if __name__ == "__main__":  # run as a script: make the repository importable
    import pathlib
    import sys

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from academy import checks, device, script
from academy.launch import launch

from functools import partial

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import head
from annotated_examples.common.attention_tiles import describe, load_rows
from annotated_examples.common.chunks import (
    between_sums, chunk_at, chunks_of, contract, cut, decays_of_sums, load_gates, load_state, new_like, new_state,
    state_product, store_block, suits, tensor,
)  # fmt: skip
from annotated_examples.common.opaque import opaque
from annotated_examples.recurrences import gated_delta_rule as lesson
from annotated_examples.recurrences.gated_delta_rule import (
    attend, gated_delta_rule_reference, inverse_of_system,
)  # fmt: skip


# ## The inverses
#
# [[tag: GD-T]], a program for each chunk of each head, by the lesson's function. TF32 is exact enough: the
# inverse is rounded to 16 bits when it is stored. Its diagonal of ones is left out. Then what a token writes of its own
# is added in float32, and rounding is left to what others take away.
@triton.jit
def inverses_kernel(
    k_desc,  # a descriptor of (B, Hk, T, D)
    g_tensor, beta_tensor, inverse_tensor,  # (pointer, four strides) of (B, H, T) and (chunks, H, BLOCK_T, BLOCK_T)
    sequences, H, group, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    c, h = tl.program_id(0) // H, tl.program_id(0) % H
    b, start, length, start_t = chunk_at(sequences, c, BLOCK_T)
    if start_t >= length:
        return
    PACKED: tl.constexpr = sequences[0] is not None
    place = tl.arange(0, BLOCK_T)
    offs_t = start_t + place
    k = load_rows(k_desc, 0 if PACKED else b, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
    g, beta = load_gates(g_tensor, b, h, start, offs_t, length), load_gates(beta_tensor, b, h, start, offs_t, length)
    sums, _, _, _ = decays_of_sums(g)
    overlap = tl.dot(k, tl.trans(k), input_precision="ieee") * between_sums(sums) * beta[:, None]
    # The example's third token has the key of the first, `pid=0: a[2] = [1, 0, 0, 0, 0, 0, 0, 0]`, and the fourth that
    # of the second, with a β of a half, `pid=0: a[3, 1] = 0.5`. So the inverse takes off what those had written,
    # `pid=0: inverse[2, 0] = -1` and `pid=0: inverse[3, 1] = -0.5`, without its ones, `pid=0: inverse[0, 0] = 0`.
    a = tl.where(place[:, None] > place[None, :], overlap, 0.0)
    inverse = inverse_of_system(a, BLOCK_T, "tf32") - tl.where(place[:, None] == place[None, :], 1.0, 0.0)
    store_block(head(inverse_tensor, c, h, 0), inverse, place, BLOCK_T, place, BLOCK_T)


# ## The walk
#
# A program has one head of one sequence and `BLOCK_E` columns of its state. It asks the state before the chunk,
# and the inverse takes off what the chunk's own tokens had written, [[tag: GD-U]].
@triton.jit
def walk_kernel(
    q_desc, k_desc, v_desc, inverse_desc,  # descriptors of (B, Hk, T, D), (B, H, T, E), (chunks, H, BLOCK_T, BLOCK_T)
    g_tensor, beta_tensor, initial_tensor,  # (pointer, four strides) of (B, H, T) and (sequences, H, D, E)
    o_tensor, final_tensor,  # the same, of (B, H, T, E) and (sequences, H, D, E)
    sequences, widths, H, group, scale,
    BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    D, E = widths
    tiles = tl.cdiv(E, BLOCK_E)
    b, h, tile = tl.program_id(0) // tiles // H, tl.program_id(0) // tiles % H, tl.program_id(0) % tiles
    start, length, first = chunks_of(sequences, b, BLOCK_T)
    PACKED: tl.constexpr = sequences[0] is not None
    entry = 0 if PACKED else b
    offs_d, offs_e = tl.arange(0, BLOCK_D), tile * BLOCK_E + tl.arange(0, BLOCK_E)
    state = load_state(initial_tensor, b, h, offs_d, D, offs_e, E)
    for start_t in tl.range(0, length, BLOCK_T, num_stages=STAGES):
        offs_t, c = start_t + tl.arange(0, BLOCK_T), first + start_t // BLOCK_T
        k = load_rows(k_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        v = load_rows(v_desc, entry, h, start, start_t, length, PACKED, BLOCK_T, BLOCK_E, tile * BLOCK_E)
        inverse = load_rows(inverse_desc, c, h, 0, 0, BLOCK_T, False, BLOCK_T, BLOCK_T)
        beta = load_gates(beta_tensor, b, h, start, offs_t, length)
        sums, left, kept, whole = decays_of_sums(load_gates(g_tensor, b, h, start, offs_t, length))
        # What the state before the chunk would leave to be written, and then what is left of it beside the chunk's own
        # tokens, [[tag: GD-U]]. In the example the third token wants to write `pid=0, start_t=0: r[2, 1] = 4` where the
        # first has written `pid=0, start_t=0: u[0, 1] = 2`, so it writes `pid=0, start_t=0: u[2, 1] = 2`. The fourth
        # has a share of `pid=0, start_t=0: beta[3] = 0.5`.
        r = (v - state_product(k, state, "ieee") * left[:, None]) * beta[:, None]
        u = tl.dot(inverse, r.to(k.dtype), r, input_precision="ieee")
        q = load_rows(q_desc, entry, h // group, start, start_t, length, PACKED, BLOCK_T, BLOCK_D)
        # [[tag: GD-chunk]], which is linear attention with u for v. The second query takes
        # `pid=0, start_t=0: p[1, 0] = 2` of the first token, and `pid=0, start_t=0: p[1, 1] = 0` of its own.
        p = tl.dot(q, tl.trans(k), input_precision="ieee") * scale * between_sums(sums)
        o = state_product(q, state, "ieee") * (left * scale)[:, None]
        o = tl.dot(p.to(v.dtype), u.to(v.dtype), o, input_precision="ieee")
        store_block(head(o_tensor, b, h, start), o, offs_t, length, offs_e, E)
        state = tl.dot(tl.trans(k), (u * kept[:, None]).to(v.dtype), state * whole, input_precision="ieee")
    store_block(head(final_tensor, b, h, 0), state, offs_d, D, offs_e, E)


# ## The launchers
def sizes(q, v, BLOCK_T, BLOCK_E):
    checks.power_of_two(BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
    D, E = (max(16, triton.next_power_of_2(x.shape[3])) for x in (q, v))
    # Beside keys wider than 32, on four warps, values are padded to 64 columns: see the lesson of linear attention.
    E = min(64, E) if D <= 32 else 64
    return dict(BLOCK_T=BLOCK_T or 64, BLOCK_D=D, BLOCK_E=BLOCK_E or E, num_warps=2 if D <= 32 else 4)


# Two launches: the inverses of all chunks, and the walk.
@opaque(
    "(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor beta, Tensor? initial_state, Tensor? cu_seqlens, *, float scale) "
    "-> (Tensor, Tensor)",
    lambda q, k, v, g, beta, initial, cu_seqlens, **scale: (torch.empty_like(v), new_state(q, v, cu_seqlens)),
)
def gated_delta_rule_forward(q, k, v, g, beta, initial_state, cu_seqlens, *, scale, BLOCK_T=None, BLOCK_E=None):
    """`(o, final_state)`, as the lesson's."""
    if not suits(q, k, v):
        given = dict(scale=scale, BLOCK_T=BLOCK_T, BLOCK_E=BLOCK_E)
        return lesson.gated_delta_rule_forward(q, k, v, g, beta, initial_state, cu_seqlens, **given)
    tiles, (Hk, H) = sizes(q, v, BLOCK_T, BLOCK_E), (q.shape[1], v.shape[1])
    packed = partial(tensor, cu_seqlens=cu_seqlens)
    T, D, E = (tiles[name] for name in ("BLOCK_T", "BLOCK_D", "BLOCK_E"))
    chunks, o, final = cut(q, cu_seqlens, T), new_like(v, cu_seqlens), new_state(q, v, cu_seqlens)
    inverse = k.new_empty(chunks.count, H, T, T)
    if chunks.batch:
        launch(
            inverses_kernel, (chunks.count * H,),
            (describe(k, T, D), packed(g), packed(beta), tensor(inverse), chunks.sequences), (H, H // Hk),
            BLOCK_T=T, BLOCK_D=D, num_warps=tiles["num_warps"],
        )  # fmt: skip
        launch(
            walk_kernel, (chunks.batch * H * triton.cdiv(v.shape[3], E),),
            (
                describe(q, T, D), describe(k, T, D), describe(v, T, E), describe(inverse, T, T),
                packed(g), packed(beta), tensor(initial_state), packed(o), tensor(final),
                chunks.sequences, (q.shape[3], v.shape[3]),
            ),
            (H, H // Hk, scale), STAGES=2, **tiles,
        )  # fmt: skip
    return o, final


# ## Public functions
def gated_delta_rule(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule`, but faster.

    Args: as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464) and "Parallelizing Linear Transformers with the Delta
    Rule over Sequence Length" (arXiv 2406.06484).
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(1, 2) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, None, scale, gated_delta_rule_forward)
    return (o.transpose(1, 2), final) if return_final_state else o.transpose(1, 2)


def gated_delta_rule_varlen(q, k, v, g, beta, cu_seqlens, *, scale=None, initial_state=None, return_final_state=False):
    """The same as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule_varlen`, but faster.

    Args: as `annotated_examples.recurrences.gated_delta_rule.gated_delta_rule_varlen`.

    Returns:
        o, or (o, state), as the lesson's.

    Raises:
        TypeError, ValueError: as the lesson's.

    Source: as `gated_delta_rule`.
    """
    scale = contract(q, k, v, g, scale, initial_state, return_final_state, cu_seqlens, packed=True, beta=beta)
    q, k, v, g, beta = (None if x is None else x.transpose(0, 1).unsqueeze(0) for x in (q, k, v, g, beta))
    o, final = attend(q, k, v, g, beta, initial_state, cu_seqlens, scale, gated_delta_rule_forward)
    o = o.squeeze(0).transpose(0, 1)
    return (o, final) if return_final_state else o


# ## A run small enough to watch
#
# Four tokens in a chunk of eight. The keys are the first two columns of an identity, and both again: the third token
# replaces what the first wrote.
def EXAMPLE():
    at = torch.arange(32, device=device.DEVICE)
    k = torch.eye(8, device=device.DEVICE).half()[[0, 1, 0, 1]].view(1, 1, 4, 8)
    q, v = (at * 3 % 5 - 2).half().view(1, 1, 4, 8), (at * 7 % 5).half().view(1, 1, 4, 8)
    beta = torch.tensor([[[1.0, 1.0, 1.0, 0.5]]], device=device.DEVICE)
    gated_delta_rule_forward(q, k, v, None, beta, None, None, scale=1.0, BLOCK_T=8, BLOCK_E=8)


if __name__ == "__main__":
    shapes = dict(q=(2, 70, 1, 24), k=(2, 70, 1, 24), v=(2, 70, 2, 40), g=None, beta=(2, 70, 2), scale=0.01)

    def tame(function):  # random keys are too long
        return lambda q, k, v, g, beta, **rest: function(q, k / 8, v, g, beta.sigmoid(), **rest)

    script.main(tame(gated_delta_rule), tame(gated_delta_rule_reference), shapes)
