r"""
# RoPE: turn pairs of features by the token's position

Attention doesn't know a token's position. Rotary embedding supplies it: before queries and keys are multiplied, their
features are taken in pairs, and each pair is turned by an angle that grows with the position,

[[eq: RoPE-q]]

How a pair is chosen is a convention of the model. In the *interleaved* convention, above, it is two neighbours. In the
*half-split* one, used by Llama and its relatives, it is a feature of the first half of the head and the one at the same
place in the second half, [[tag: RoPE-half]]. Weights trained for one give nonsense with the other, unless the features
of their queries and keys are put in the other order first. Some models turn only the first `R` features of a head and
leave the rest alone.

The gradient is the upstream gradient, turned back: [[tag: RoPE-dq]], [[tag: RoPE-half-dx]]. So backward is the same
kernel with the sign of the sine changed, and nothing has to be kept but the angles.

**What it costs.** Every element of `q` and `k` is read once and written once, for about three operations. The tables of
cosines and sines are small by comparison: all heads of a token share them. So this is a copy with a little arithmetic,
and can be as fast as a copy: with 8 sequences of 4096 tokens, 32 query heads and 8 key heads of 128 features, on an
H200 in bfloat16, it reaches [[bench: rope/8x32x8x4096x128/forward/share]] of the speed of a copy, and backward
[[bench: rope/8x32x8x4096x128/backward/share]]. So there is no faster version of this file.

**Where it falls behind.** Wide heads and few keys: 2 sequences of 8192 tokens, 16 query heads and 2 key heads of 256
features take [[bench: rope/2x16x2x8192x256/forward/ms]], and Liger's kernel, which writes over its inputs, takes
[[bench: rope/2x16x2x8192x256/forward/liger-kernel.ms]].

**Contract.** `q` has shape (B, H, T, D) and `k` (B, Hk, T, D), each in float32, float16 or bfloat16. `cos` and `sin`,
in any of these dtypes, have shape (T, R/2) if all sequences have the same positions, else (B, T, R/2). The caller
slices them from longer tables: a position offset means taking other rows. The products are float32, so a float32 table
isn't rounded to match a bfloat16 `q`. Any strides; a tensor in which the features of a head are not neighbours is
copied first. So `q` may be the view that `transpose(1, 2)` makes of a (B, T, H, D) tensor, and in memory the results
have its order of dimensions. Inputs are never written to, so the unturned `q` is still there for any other use. A NaN
reaches both features of its pair.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque


# ## Reference
#
# The same in PyTorch: take the pairs apart, turn them, put them together again.
def turned_reference(x, cos, sin, interleaved):
    R = 2 * cos.shape[-1]
    cos, sin = (table if table.dim() == 2 else table.unsqueeze(1) for table in (cos, sin))
    if interleaved:
        a, b = x[..., 0:R:2], x[..., 1:R:2]
        pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    else:
        a, b = x[..., : R // 2], x[..., R // 2 : R]
        pairs = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    return torch.cat([pairs.to(x.dtype), x[..., R:]], dim=-1)


def rope_reference(q, k, cos, sin, *, interleaved=False):
    return turned_reference(q, cos, sin, interleaved), turned_reference(k, cos, sin, interleaved)


# ## Turning the heads of one token
#
# The angles depend on the token alone. So a program takes one token and several of its heads: it loads the angles once,
# for all of them. The tile has a row for each head and a column for each pair.
#
# [[figure: attention/rope]]


# In the example run there are two tokens, three query heads, one key head, and 8 features, of which six make three
# pairs. A program takes two heads. The first head of the first query is 1, 2, 3, 4, 5, 6, 7, 8.
@triton.jit
def turn_heads(
    x, out,  # (pointer, stride_b, stride_h, stride_t): (B, H, T, D)
    batch, t, cos, sin, pid_h, H, R: tl.constexpr, D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_REST: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    # Each tensor comes with three strides, in elements: from one sequence to the next, from head to head, and from
    # token to token. To keep the list of arguments short, a pointer and its strides are passed as one tuple. It is
    # taken apart as in Python.
    x_ptr, stride_xb, stride_xh, stride_xt = x
    out_ptr, stride_ob, stride_oh, stride_ot = out
    # The heads of this program. Their strides may be as long as a whole sequence, so the offsets are int64. Three heads
    # in blocks of two: the second block has one that doesn't exist, `pid=1: mask_h = [1, 0]`.
    offs_h = (pid_h * BLOCK_H + tl.arange(0, BLOCK_H)).to(tl.int64)
    mask_h = offs_h < H
    x_rows = x_ptr + batch * stride_xb + t * stride_xt + (offs_h * stride_xh)[:, None]
    out_rows = out_ptr + batch * stride_ob + t * stride_ot + (offs_h * stride_oh)[:, None]

    if INTERLEAVED:
        # Neighbours make a pair. Loading every other feature would be two loads that each skip half of what they fetch.
        # So the whole stretch is loaded, eight numbers at a time in bfloat16, and taken apart in registers.
        # `tl.reshape` gives the tile a third dimension of two, and `tl.split` takes its two halves apart:
        # `launch=1, pid=0: a[0, :3] = [1, 3, 5]` and `launch=1: b[0, :3] = [2, 4, 6]`.
        offs_d = tl.arange(0, 2 * BLOCK_R)[None, :]
        mask = mask_h[:, None] & (offs_d < R)
        pairs = tl.load(x_rows + offs_d, mask=mask, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(pairs, (BLOCK_H, BLOCK_R, 2)))
    else:
        # A pair is a feature of the first half and one of the second, `R / 2` further on: two loads of neighbours.
        # `pid=0: a[0, :3] = [1, 2, 3]` and `b[0, :3] = [4, 5, 6]`. The fourth column doesn't exist.
        offs_d = tl.arange(0, BLOCK_R)[None, :]
        mask = mask_h[:, None] & (offs_d < R // 2)
        a = tl.load(x_rows + offs_d, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(x_rows + offs_d + R // 2, mask=mask, other=0.0).to(tl.float32)

    # The rotation, [[tag: RoPE-half]] or [[tag: RoPE-q]]. The angles of the first token are a right angle, the one
    # whose cosine is 0.6, and zero. So (1, 4) becomes (−4, 1), (2, 5) becomes (−2.8, 4.6), and (3, 6) stays:
    # `turned_a[0, :3] = [-4, -2.8, 3]` and `turned_b[0, :3] = [1, 4.6, 6]`.
    turned_a = a * cos - b * sin
    turned_b = b * cos + a * sin
    if INTERLEAVED:
        # `tl.join` is the opposite of `tl.split`.
        turned = tl.reshape(tl.join(turned_a, turned_b), (BLOCK_H, 2 * BLOCK_R))
        tl.store(out_rows + offs_d, turned, mask=mask)
    else:
        tl.store(out_rows + offs_d, turned_a, mask=mask)
        tl.store(out_rows + offs_d + R // 2, turned_b, mask=mask)

    # Features past `R` are copied as they are. If there are none, this part isn't even compiled.
    if R < D:
        offs_d = R + tl.arange(0, BLOCK_REST)[None, :]
        mask = mask_h[:, None] & (offs_d < D)
        rest = tl.load(x_rows + offs_d, mask=mask, other=0.0)
        tl.store(out_rows + offs_d, rest, mask=mask)


# ## The kernel
#
# One launch serves both tensors. Each token has as many programs as there are blocks of heads: first those of `q`, then
# those of `k`. They are numbered consecutively, so programs that run at the same time read memory that lies together,
# and the same angles.
@triton.jit
def rope_kernel(
    q, k, q_out, k_out,  # (pointer, stride_b, stride_h, stride_t): (B, H, T, D), and (B, Hk, T, D) of k
    cos_ptr, sin_ptr, stride_cb,  # (T, R/2), contiguous; of each sequence, or the same for all: then stride_cb is 0
    T, H, Hk, R: tl.constexpr, D: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_REST: tl.constexpr, INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr,
):  # fmt: skip
    # Which token is mine, and which block of its heads? Three query heads are two blocks, the key head is a third one.
    # So program 3 has the first block of the second token: `pid=3: token = 1`, `pid_h = 0`, `b = 0` and `t = 1`.
    blocks_of_q = tl.cdiv(H, BLOCK_H)
    blocks = blocks_of_q + tl.cdiv(Hk, BLOCK_H)
    token = tl.program_id(0) // blocks
    pid_h = tl.program_id(0) % blocks
    b = (token // T).to(tl.int64)
    t = (token % T).to(tl.int64)

    # Its angles. All sequences may share one table: then the stride from one sequence to the next is zero. A lane that
    # has no pair gets zeros: `pid=0: cos = [0, 0.6, 1, 0]` and `sin = [1, 0.8, 0, 0]`. The opposite angle has the
    # same cosine, and a sine of the other sign.
    offs_r = tl.arange(0, BLOCK_R)
    angles = b * stride_cb + t * (R // 2) + offs_r
    cos = tl.load(cos_ptr + angles, mask=offs_r < R // 2, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angles, mask=offs_r < R // 2, other=0.0).to(tl.float32)
    if INVERSE:
        sin = -sin
    cos, sin = cos[None, :], sin[None, :]

    # Block 2 of a token is the first one of `k`.
    if pid_h < blocks_of_q:
        turn_heads(q, q_out, b, t, cos, sin, pid_h, H, R, D, BLOCK_H, BLOCK_R, BLOCK_REST, INTERLEAVED)
    else:
        pid_h -= blocks_of_q
        turn_heads(k, k_out, b, t, cos, sin, pid_h, Hk, R, D, BLOCK_H, BLOCK_R, BLOCK_REST, INTERLEAVED)


# ## Launchers
#
# The features of a head have to be neighbours. A tensor in which they are not is copied; any other is used in place.
# `torch.empty_like` keeps the order of the dimensions in memory, so the result has the layout of `q`.
def neighbours(x):
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def like(x):
    out = torch.empty_like(x)
    return out if out.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


# A tile of 1024 pairs is 8 for each of 128 threads: in bfloat16 a load of 16 bytes from each half. Fewer heads than
# that make a smaller tile, with a warp for every 256 pairs. A tile holds only a few wide heads, and the last tile is
# often not full, so their programs have one warp, which leaves fewer threads idle. `R` and `D` are constants of the
# kernel: a model has one head size, and the compiler learns which loads are aligned.
#
# `torch.compile` can trace a launch, but not one with tuples. So inside it `turn` is an operator of its own, of which
# the compiler knows the shapes of the results.
def same_layouts(q, k, cos, sin, **options):
    return like(neighbours(q)), like(neighbours(k))


@opaque(
    "(Tensor q, Tensor k, Tensor cos, Tensor sin, *, bool interleaved, bool inverse) -> (Tensor, Tensor)", same_layouts
)
def turn(q, k, cos, sin, *, interleaved=False, inverse=False, BLOCK_H=None, num_warps=None):
    """New tensors like `q` and `k`, turned by the angles of the tables, or with `inverse` by the opposite angles."""
    checks.power_of_two(BLOCK_H=BLOCK_H, num_warps=num_warps)
    q, k, cos, sin = neighbours(q), neighbours(k), cos.contiguous(), sin.contiguous()
    q_out, k_out = like(q), like(k)
    B, H, T, D = q.shape
    Hk, R = k.shape[1], 2 * cos.shape[-1]
    if q.numel() + k.numel() == 0:
        return q_out, k_out
    BLOCK_R = triton.next_power_of_2(max(R // 2, 1))
    BLOCK_H = BLOCK_H or min(triton.next_power_of_2(max(H, Hk)), max(1024 // BLOCK_R, 1))
    num_warps = num_warps or (min(max(BLOCK_H * BLOCK_R // 256, 1), 4) if BLOCK_R < 128 else 1)
    grid = (B * T * (triton.cdiv(H, BLOCK_H) + triton.cdiv(Hk, BLOCK_H)),)
    tensors = [(x, *x.stride()[:3]) for x in (q, k, q_out, k_out)]
    rope_kernel[grid](
        *tensors, cos, sin, T * R // 2 if cos.dim() == 3 else 0, T, H, Hk,
        R=R, D=D, BLOCK_H=BLOCK_H, BLOCK_R=BLOCK_R, BLOCK_REST=triton.next_power_of_2(max(D - R, 1)),
        INTERLEAVED=interleaved, INVERSE=inverse, num_warps=num_warps,
    )  # fmt: skip
    return q_out, k_out


def rope_forward(q, k, cos, sin, interleaved=False, *, BLOCK_H=None, num_warps=None):
    """Returns `q` and `k`, turned."""
    return turn(q, k, cos, sin, interleaved=interleaved, inverse=False, BLOCK_H=BLOCK_H, num_warps=num_warps)


# The transpose of a rotation is the rotation by the opposite angle, so backward is the same launch.
def rope_backward(dq_out, dk_out, cos, sin, interleaved=False, *, BLOCK_H=None, num_warps=None):
    """Returns `(dq, dk)`, the upstream gradients turned back: [[tag: RoPE-dq]] and [[tag: RoPE-dk]]."""
    return turn(dq_out, dk_out, cos, sin, interleaved=interleaved, inverse=True, BLOCK_H=BLOCK_H, num_warps=num_warps)


# ## Joining autograd
#
# The gradient of a rotation needs neither `q` nor `k`, so neither is kept alive.
class Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, cos, sin, interleaved):
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return rope_forward(q, k, cos, sin, interleaved)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dq_out, dk_out):
        cos, sin = ctx.saved_tensors
        return *rope_backward(dq_out, dk_out, cos, sin, ctx.interleaved), None, None, None


# ## The public function
#
# Arguments are checked before anything is launched.
def contract(q, k, cos, sin, interleaved):
    checks.tensors(q=q, k=k, cos=cos, sin=sin)
    checks.dtypes(q=q, k=k, cos=cos, sin=sin)
    checks.dimensions("q", q, 4, "B, H, T, D")
    checks.dimensions("k", k, 4, "B, Hk, T, D")
    B, _, T, D = q.shape
    checks.shape("k", k, (B, k.shape[1], T, D), "B, T and D as q has them")
    checks.dimensions("cos", cos, range(2, 4), "T, R/2 or B, T, R/2")
    pairs = cos.shape[-1]
    checks.shape("cos", cos, (T, pairs) if cos.dim() == 2 else (B, T, pairs), "T, R/2 or B, T, R/2 with those of q")
    checks.shape("sin", sin, cos.shape, "as cos")
    if 2 * pairs > D:
        raise ValueError(f"cos must have a column for each pair of the {D} features of q, got {pairs} columns")
    checks.choice("interleaved", interleaved, (False, True))
    checks.no_gradient("rope, as a function of its angles,", cos=cos, sin=sin)


@replayed
def rope(q, k, cos, sin, *, interleaved=False):
    """Rotary position embedding of queries and keys, differentiable in both.

    Args:
        q: tensor of shape (B, H, T, D), float32, float16 or bfloat16, any strides.
        k: tensor of shape (B, Hk, T, D), any of these dtypes, any strides.
        cos, sin: cosine and sine of each token's angles, shape (T, R/2) or (B, T, R/2), any of these dtypes. The first
            R features of a head are turned, the others are copied. For a position offset pass other rows of a table.
        interleaved: pairs are neighbours (2i, 2i + 1), instead of one feature from each half (i, i + R/2).

    Returns:
        `(q', k')`, new tensors in the shapes and dtypes of `q` and `k`: each pair (a, b) becomes
        (a·cos − b·sin, b·cos + a·sin).

    Raises:
        TypeError: an argument isn't a tensor, or its dtype isn't allowed.
        ValueError: shapes don't fit together, R is larger than D, a tensor is on the wrong device, `cos` or `sin`
            requires a gradient, or `interleaved` isn't a bool.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
    """
    contract(q, k, cos, sin, interleaved)
    if not autograd.needs_frame(q, k):
        return rope_forward(q, k, cos, sin, interleaved)
    return Rope.apply(q, k, cos, sin, interleaved)


# ## A run small enough to watch
#
# Two tokens, three query heads and one key head; half-split, then interleaved, then back.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    count = torch.arange(1, 65, device=device.DEVICE).float()
    q, k = count[:48].view(1, 3, 2, 8), count[48:].view(1, 1, 2, 8)
    cos, sin = make([[0, 0.6, 1], [-1, -0.28, 0.8]]), make([[1, 0.8, 0], [0, 0.96, 0.6]])
    rope_forward(q, k, cos, sin, BLOCK_H=2)
    q_out, k_out = rope_forward(q, k, cos, sin, True, BLOCK_H=2)
    rope_backward(q_out, k_out, cos, sin, True, BLOCK_H=2)


if __name__ == "__main__":
    script.main(rope, rope_reference)
