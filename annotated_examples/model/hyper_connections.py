r"""
# Hyper-connections: four residual streams, and what mixes them

A transformer has one residual stream: each layer reads it and adds to it. With hyper-connections it has several, mostly
four. A layer reads a weighted sum of them,

[[eq: HC-collapse]]

and what it computed, $y$, goes back into all of them, while they are mixed with each other:

[[eq: HC-expand]]

[[figure: streams/layer]]

The coefficients $v$, $s$ and $M$ depend on the token. [A later lesson](stream_coefficients.py) computes them from the
streams, and $M$ is doubly stochastic, [by Sinkhorn's rounds](sinkhorn.py). That is what *manifold-constrained* stands
for.

New on this page: rows in a tuple, sums over channels beside sums over streams in one backward pass, and a mistake that
no sum of rows or columns shows, a matrix in the place of its transpose. A test needs a mixture that isn't symmetric.

**What it costs.** Streams are large and everything else is small: with 8192 tokens of 4 streams and 4096 channels in
bfloat16, `x` has 268 MB. Collapsing reads it, expanding reads it and writes the new one: 0.94 GB with what the layer
reads and writes itself, where a plain residual has 0.2. Backward moves 1.5 GB, and autograd 0.8 more to add the two
gradients of `x`. On an H200 this takes [[bench: hyper_connections/8192x4x4096/forward/ms]] forward and
[[bench: hyper_connections/8192x4x4096/backward/ms]] backward, [[bench: hyper_connections/8192x4x4096/forward/share]]
and [[bench: hyper_connections/8192x4x4096/backward/share]] of the speed of a copy. PyTorch takes
[[bench: hyper_connections/8192x4x4096/forward/eager.ms]] and
[[bench: hyper_connections/8192x4x4096/backward/eager.ms]], and what `torch.compile` makes of it
[[bench: hyper_connections/8192x4x4096/forward/torch.compile.ms]] and
[[bench: hyper_connections/8192x4x4096/backward/torch.compile.ms]].

**Contract.** `x` is (…, n, C), float32, float16 or bfloat16, with n from 1 to 8, and any strides. Coefficients and all
arithmetic are float32, and results are rounded once. Nobody adds to what another program adds to, so each call gives
the same bits. A NaN stays in its token.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.launching import power_of_2_up_to
from annotated_examples.common.rows import as_rows, row_stride
from annotated_examples.common.streams import beside, contiguous_like, streams_contract


# ## Reference
def collapse_streams_reference(x, pre):
    return (pre[..., None] * x).sum(-2).to(x.dtype)


def expand_streams_reference(x, out, res, post):
    return (res @ x.to(res.dtype) + post[..., None] * out[..., None, :]).to(x.dtype)


# ## Collapse and expand
#
# Forward, a program takes one token and a block of channels of all its streams. There are few streams, so each one's
# row is loaded by itself: `tl.static_range` unrolls a loop, and a tuple holds the rows. Each thread then has the same
# channels of all streams, and sums over streams need nobody else. In a block of three dimensions, of pairs of streams
# and channels, the compiler would lay streams across threads, which then have to exchange what they add up.
@triton.jit
def collapse_kernel(
    x_ptr, pre_ptr, u_ptr,  # (M, n, C); (M, n), contiguous; (M, C), contiguous
    C, stride_m, stride_i, N: tl.constexpr, BLOCK_C: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(C, BLOCK_C)
    m = (tl.program_id(0) // blocks).to(tl.int64)
    offs_c = tl.program_id(0) % blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    u = tl.zeros((BLOCK_C,), tl.float32)
    for i in tl.static_range(N):
        x = tl.load(x_ptr + m * stride_m + i * stride_i + offs_c, mask=offs_c < C, other=0.0).to(tl.float32)
        u += tl.load(pre_ptr + m * N + i) * x
    # [[tag: HC-collapse]]
    tl.store(u_ptr + m * C + offs_c, u, mask=offs_c < C)


# `res` has a row for each stream that comes out, and a column for each that goes in: `i * N + j` is its number for
# stream `j` going into stream `i`. Turned around, nothing would look wrong: rows and columns both add up to 1.
@triton.jit
def expand_kernel(
    x_ptr, out_ptr, res_ptr, post_ptr,  # (M, n, C); (M, C), rows stride_om apart; (M, n, n) and (M, n), contiguous
    y_ptr,  # (M, n, C), contiguous
    C, stride_m, stride_i, stride_om, N: tl.constexpr, BLOCK_C: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(C, BLOCK_C)
    m = (tl.program_id(0) // blocks).to(tl.int64)
    offs_c = tl.program_id(0) % blocks * BLOCK_C + tl.arange(0, BLOCK_C)
    out = tl.load(out_ptr + m * stride_om + offs_c, mask=offs_c < C, other=0.0).to(tl.float32)
    xs = ()
    for j in tl.static_range(N):
        x = tl.load(x_ptr + m * stride_m + j * stride_i + offs_c, mask=offs_c < C, other=0.0)
        xs = xs + (x.to(tl.float32),)
    # [[tag: HC-expand]]. The first new stream of the example's first token gets three quarters of (2, 0), a quarter of
    # (0, 2), and twice what the layer returned, (1, −1): `pid=0, i=0, j=2: y = [3.5, -1.5]`.
    for i in tl.static_range(N):
        y = tl.load(post_ptr + m * N + i) * out
        for j in tl.static_range(N):
            y += tl.load(res_ptr + m * N * N + i * N + j) * xs[j]
        tl.store(y_ptr + m * N * C + i * C + offs_c, y, mask=offs_c < C)


# ## Back through both
#
# Gradients of coefficients are sums over channels. So a program has a token with all its channels, and nobody else adds
# to its sums. A thread has eight neighbouring channels, `FOLD`, and adds up its own products of them at once. What
# threads have is added up when the loop is over.
@triton.jit
def fold(x, FOLD: tl.constexpr):
    return tl.sum(tl.reshape(x, (x.shape[0] // FOLD, FOLD)), 1)


@triton.jit
def zeros(COUNT: tl.constexpr, LANES: tl.constexpr):
    rows = ()
    for _ in tl.static_range(COUNT):
        rows = rows + (tl.zeros((LANES,), tl.float32),)
    return rows


@triton.jit
def collapse_backward_kernel(
    du_ptr, x_ptr, pre_ptr, dx_ptr, dpre_ptr,  # (M, C), rows stride_um apart; as above; like x, contiguous; like pre
    C, stride_um, stride_m, stride_i, N: tl.constexpr, BLOCK_C: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64)
    acc = zeros(N, BLOCK_C // FOLD)
    for start in tl.range(0, C, BLOCK_C):
        offs_c = start + tl.arange(0, BLOCK_C)
        du = tl.load(du_ptr + m * stride_um + offs_c, mask=offs_c < C, other=0.0).to(tl.float32)
        new = ()
        for i in tl.static_range(N):
            x = tl.load(x_ptr + m * stride_m + i * stride_i + offs_c, mask=offs_c < C, other=0.0).to(tl.float32)
            new = new + (acc[i] + fold(x * du, FOLD),)
            # [[tag: HC-v]], and the second half of [[tag: HC-X]]
            tl.store(dx_ptr + m * N * C + i * C + offs_c, tl.load(pre_ptr + m * N + i) * du, mask=offs_c < C)
        acc = new
    for i in tl.static_range(N):
        tl.store(dpre_ptr + m * N + i, tl.sum(acc[i], 0))


# `dx` is the product with the transposed mixture: now the sum runs over the streams that came out.
@triton.jit
def expand_backward_kernel(
    dy_ptr, x_ptr, out_ptr, res_ptr, post_ptr,  # (M, n, C), contiguous; as above
    dx_ptr, dout_ptr, dres_ptr, dpost_ptr,  # like them, all contiguous
    C, stride_m, stride_i, stride_om, N: tl.constexpr, BLOCK_C: tl.constexpr, FOLD: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64)
    acc_res, acc_post = zeros(N * N, BLOCK_C // FOLD), zeros(N, BLOCK_C // FOLD)
    for start in tl.range(0, C, BLOCK_C):
        offs_c = start + tl.arange(0, BLOCK_C)
        dys, xs, new_res, new_post = (), (), (), ()
        for i in tl.static_range(N):
            dy = tl.load(dy_ptr + m * N * C + i * C + offs_c, mask=offs_c < C, other=0.0)
            x = tl.load(x_ptr + m * stride_m + i * stride_i + offs_c, mask=offs_c < C, other=0.0)
            dys, xs = dys + (dy.to(tl.float32),), xs + (x.to(tl.float32),)
        out = tl.load(out_ptr + m * stride_om + offs_c, mask=offs_c < C, other=0.0).to(tl.float32)
        dout = tl.zeros((BLOCK_C,), tl.float32)
        for i in tl.static_range(N):
            dout += tl.load(post_ptr + m * N + i) * dys[i]
            new_post = new_post + (acc_post[i] + fold(dys[i] * out, FOLD),)
            dx = tl.zeros((BLOCK_C,), tl.float32)
            for j in tl.static_range(N):
                dx += tl.load(res_ptr + m * N * N + j * N + i) * dys[j]
                new_res = new_res + (acc_res[i * N + j] + fold(dys[i] * xs[j], FOLD),)
            # The first half of [[tag: HC-X]]
            tl.store(dx_ptr + m * N * C + i * C + offs_c, dx, mask=offs_c < C)
        # [[tag: HC-y]]
        tl.store(dout_ptr + m * C + offs_c, dout, mask=offs_c < C)
        acc_res, acc_post = new_res, new_post
    # [[tag: HC-M]] and [[tag: HC-s]]
    for i in tl.static_range(N):
        tl.store(dpost_ptr + m * N + i, tl.sum(acc_post[i], 0))
        for j in tl.static_range(N):
            tl.store(dres_ptr + m * N * N + i * N + j, tl.sum(acc_res[i * N + j], 0))


# ## Launchers
#
# As (M, n, C) with neighbouring channels: without a copy if the strides allow that.
def as_streams(x):
    streams = x.reshape(-1, *x.shape[-2:])
    return streams if streams.stride(2) == 1 or streams.shape[2] == 1 else streams.contiguous()


# A program is one warp, whose sums need no shared memory. A thread has twice eight channels of each stream, or where
# there are many streams eight, or registers wouldn't hold them.
def tile(n, C, BLOCK_C):
    checks.power_of_two(BLOCK_C=BLOCK_C)
    BLOCK_C = BLOCK_C or power_of_2_up_to(512 if n <= 4 else 256, C)
    return dict(N=n, BLOCK_C=BLOCK_C, FOLD=min(8, BLOCK_C), num_warps=1)


@replayed
def collapse_forward(x, pre, *, BLOCK_C=None):
    *lead, n, C = x.shape
    u = torch.empty(*lead, C, dtype=x.dtype, device=x.device)
    if u.numel():
        streams, sizes = as_streams(x), tile(n, C, BLOCK_C)
        grid = (len(streams) * triton.cdiv(C, sizes["BLOCK_C"]),)
        collapse_kernel[grid](streams, pre.contiguous(), u, C, *streams.stride()[:2], **sizes)
    return u


@replayed
def collapse_backward(du, x, pre, *, BLOCK_C=None):
    """`(dx, dpre)`."""
    n, C = x.shape[-2:]
    dx, dpre = contiguous_like(x, pre)
    if dpre.numel():
        streams, du = as_streams(x), as_rows(du)
        collapse_backward_kernel[(len(streams),)](
            du, streams, pre.contiguous(), dx, dpre, C, row_stride(du, C), *streams.stride()[:2],
            **tile(n, C, BLOCK_C),
        )  # fmt: skip
    return dx, dpre


@replayed
def expand_forward(x, out, res, post, *, BLOCK_C=None):
    n, C = x.shape[-2:]
    (y,) = contiguous_like(x)
    if y.numel():
        streams, rows, sizes = as_streams(x), as_rows(out), tile(n, C, BLOCK_C)
        expand_kernel[(len(streams) * triton.cdiv(C, sizes["BLOCK_C"]),)](
            streams, rows, res.contiguous(), post.contiguous(), y, C, *streams.stride()[:2], row_stride(rows, C),
            **sizes,
        )  # fmt: skip
    return y


@replayed
def expand_backward(dy, x, out, res, post, *, BLOCK_C=None):
    """`(dx, dout, dres, dpost)`."""
    n, C = x.shape[-2:]
    dx, dout, dres, dpost = contiguous_like(x, out, res, post)
    if dpost.numel():
        streams, rows = as_streams(x), as_rows(out)
        expand_backward_kernel[(len(streams),)](
            dy.contiguous(), streams, rows, res.contiguous(), post.contiguous(), dx, dout, dres, dpost, C,
            *streams.stride()[:2], row_stride(rows, C), **tile(n, C, BLOCK_C),
        )  # fmt: skip
    return dx, dout, dres, dpost


# ## Joining autograd
#
# The mixture's logits are handed to [sinkhorn](sinkhorn.py), which differentiates itself.
class CollapseStreams(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pre):
        ctx.save_for_backward(x, pre)
        return collapse_forward(x, pre)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, du):
        return collapse_backward(du, *ctx.saved_tensors)


class ExpandStreams(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out, res, post):
        ctx.save_for_backward(x, out, res, post)
        return expand_forward(x, out, res, post)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return expand_backward(dy, *ctx.saved_tensors)


# ## The public functions
@replayed
def collapse_streams(x, pre):
    r"""What a layer reads: $\sum_i$ `pre`$_i x_i$; differentiable in both.

    Args:
        x: (…, n, C) float32, float16 or bfloat16, any strides, n from 1 to 8.
        pre: (…, n) float32, how much of each stream.

    Returns:
        (…, C) in the dtype of `x`.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device.

    Source: as `stream_coefficients`.
    """
    lead, n, _ = streams_contract(x)
    beside(x, pre=(pre, (*lead, n)))
    checks.dtypes((torch.float32,), pre=pre)
    if not autograd.needs_frame(x, pre):
        return collapse_forward(x, pre)
    return CollapseStreams.apply(x, pre)


@replayed
def expand_streams(x, out, res, post):
    r"""The streams after a layer: each $\sum_j$ `res`$_{ij} x_j$ + `post`$_i$ `out`; differentiable in all four.

    Args:
        x: (…, n, C) float32, float16 or bfloat16, any strides, n from 1 to 8.
        out: (…, C), dtype of `x`, any strides: what the layer computed.
        res: (…, n, n) float32: [i, j] is how much of stream j goes into stream i.
        post: (…, n) float32: how much of `out` goes into each stream.

    Returns:
        (…, n, C) in the dtype of `x`, a new tensor.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device.

    Source: as `stream_coefficients`.
    """
    lead, n, C = streams_contract(x)
    beside(x, out=(out, (*lead, C)), res=(res, (*lead, n, n)), post=(post, (*lead, n)))
    checks.same_dtype(x=x, out=out)
    checks.dtypes((torch.float32,), res=res, post=post)
    if not autograd.needs_frame(x, out, res, post):
        return expand_forward(x, out, res, post)
    return ExpandStreams.apply(x, out, res, post)


# ## A run small enough to watch
#
# Two tokens of three streams and three channels, two channels at a time, through both functions and back.
def EXAMPLE():
    make = lambda rows: torch.tensor(rows, dtype=torch.float32, device=device.DEVICE)  # noqa: E731
    x = make([[[2, 0, 1], [0, 2, 0], [4, 0, 1]], [[1, 1, 0], [0, 1, 0], [3, 1, 2]]])
    pre, post = make([[0.5, 0.25, 0], [0.25, 0, 0.5]]), make([[2, 1, 0], [1, 0, 1]])
    res = make([[0.75, 0.25, 0], [0, 0.5, 0.5], [0.25, 0.25, 0.5]]).expand(2, 3, 3)
    out = make([[1, -1, 2], [0, 2, 1]])
    y = expand_forward(x, out, res, post, BLOCK_C=2)
    expand_backward(y.flip(1), x, out, res, post, BLOCK_C=2)
    u = collapse_forward(x, pre, BLOCK_C=2)
    collapse_backward(u, x, pre, BLOCK_C=2)


if __name__ == "__main__":
    script.main(expand_streams, expand_streams_reference)
