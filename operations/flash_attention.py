"""Flash attention: what is compared with formulas, and what is measured.

`shape` is (batch, heads, heads of keys, tokens, head dim).

Triton's tutorial kernel is no peer: it comes with no package, and its text isn't ours to copy.
"""

import functools
import importlib

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import BACKWARD_ALONE, BOTH_RESULTS, DENSE, WIDTH, capped, flex, group, tame, widened
from operations._packed import ends, ends_made_inside

LESSON = "attention.flash_attention"
FAST = "fast.flash_attention"
BACKWARD = "fast.flash_attention_backward"
FUNCTION = "flash_attention"
AXES = ("batch", "heads", "key heads", "tokens", "head dimension")
DERIVATION = "attention"
WITHOUT_ROUNDING = {"listed": {"one_number_a_row": "it asks through a sink that weighs e⁻²⁰, which the formula lacks"}}


# ---------------------------------------------------------------- public functions
def sequences(tokens, width):
    heads = {name: torch.randn(tokens, count, width) for name, count in (("q", 4), ("k", 2), ("v", 2))}
    return heads | {"cu_seqlens_q": ends(tokens), "cu_seqlens_k": ends(tokens)}


def of_sequences(q, k, v, cu_seqlens_q, cu_seqlens_k, whole=None, **options):
    """One sequence after the other; the reference for single ones wants (B, H, T, D)."""
    from annotated_examples.attention.flash_attention import flash_attention_reference

    whole, parts = whole or flash_attention_reference, []
    for i in range(len(cu_seqlens_q) - 1):
        rows = [slice(int(ends[i]), int(ends[i + 1])) for ends in (cu_seqlens_q, cu_seqlens_k, cu_seqlens_k)]
        one = [x[part].transpose(0, 1)[None] for x, part in zip((q, k, v), rows)]
        parts.append(whole(*one, **options)[0].transpose(0, 1))
    return torch.cat(parts)


SINKS = dict(inputs={"sinks": "4"})
PUBLIC = [
    Public(
        "flash_attention",
        {"q": "batch 4 queries width", "k": "batch 2 keys width", "v": "batch 2 keys width", "causal": (False, True)},
        at=(1, 40, 64, 40), calls=[dict(causal=True), SINKS | dict(causal=True, window=9, softcap=5.0)],
        more=[dict(scale=0.2, window=(3, 2), return_lse=True)], sizes=WIDTH, without=DENSE,
        batch={"batch": {FAST: "large calls go to another kernel on a Hopper card"}},
    ),
    Public(
        "flash_attention_varlen", sequences, at=(40, 64), calls=[dict(causal=True)],
        more=[
            SINKS | dict(
                wrap=ends_made_inside(40, "cu_seqlens_q", "cu_seqlens_k"), scale=0.2, window=9, causal=True,
                softcap=5.0, return_lse=True, max_seqlen_q=30, max_seqlen_k=30,
            )
        ],
        reference=of_sequences, sizes=WIDTH, without=DENSE,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
FLASH = (LESSON, FAST)
USUAL = {"g": 3, "m": 21, "p": 17, "d": 6, "l": 9, "r": 5}
#: 16-bit numbers, eight to a row: what a descriptor fits.
DESCRIBED = dict(dtypes=("float16",), sizes={**USUAL, "d": 8})


# The page's window counts the key at the query's own position on both sides.
def window(l, r):
    return dict(window=(l - 1, r - 1))


@case(modules=FLASH, **BOTH_RESULTS, sizes=USUAL)
def flash_attention(module, Q, K, V, s, l, r):
    o, lse = module.flash_attention(*group(Q, K, V), scale=s, return_lse=True, **window(l, r))
    return o[0], lse[0]


# ---------------------------------------------------------------- with all options
# The fast file leaves what no descriptor fits to the lesson's kernels.
@case(modules=FAST, **BOTH_RESULTS, **DESCRIBED)
def by_descriptor(module, Q, K, V, s, l, r):
    o, lse = module.flash_attention(*group(Q, K, V), scale=s, return_lse=True, **window(l, r))
    return o[0], lse[0]


@case(modules=FLASH, **BOTH_RESULTS, sizes={"g": 2, "m": 19, "p": 4, "d": 5, "l": 8, "r": 1})
def sliding_window(module, Q, K, V, s, l):
    o, lse = module.flash_attention(*group(Q, K, V), scale=s, return_lse=True, causal=True, window=l)
    return o[0], lse[0]


@case(
    modules=FLASH,
    returns=("AT-sink-O", "AT-sink-lse"),
    gradients={"Q": "AT-cap-dQ", "K": "AT-cap-dK", "V": "AT-sink-dV", "b": "AT-dsink"},
    values=capped,
    sizes={"g": 16, "m": 10, "p": 7, "d": 6, "l": 6, "r": 4},
)
def cap_and_sinks(module, Q, K, V, s, t, b, l, r):
    options = dict(scale=s, softcap=t, sinks=b, return_lse=True, **window(l, r))
    o, lse = module.flash_attention(*group(Q, K, V), **options)
    return o[0], lse[0]


@case(modules=FLASH, **BOTH_RESULTS, sizes=USUAL)
def one_sequence_of_several(module, Q, K, V, s, l, r, m, n):
    """Between two others."""
    others = lambda x: torch.cat([x[:1], x, x[:1]])  # noqa: E731
    ends = lambda length: torch.tensor([0, 1, 1 + length, 2 + length], dtype=torch.int32, device=Q.device)  # noqa: E731
    q, k, v = others(Q.transpose(0, 1)), others(K[:, None]), others(V[:, None])
    options = dict(scale=s, return_lse=True, max_seqlen_q=m, max_seqlen_k=n, **window(l, r))
    o, lse = module.flash_attention_varlen(q, k, v, ends(m), ends(n), **options)
    return o[1 : 1 + m].transpose(0, 1), lse[:, 1 : 1 + m]


@one_sequence_of_several.pytorch
def _(module, Q, K, V, s, l, r):
    reference = module.flash_attention_reference
    o, lse = reference(*group(Q, K, V), scale=s, return_lse=True, **window(l, r))
    return o[0], lse[0]


# ---------------------------------------------------------------- what is never returned
@case(modules=FLASH, returns="AT-S", values=tame, sizes={"g": 2, "m": 5, "p": 4, "d": 6}, forward_only=True)
def scores(module, Q, K, V, s):
    """Each key alone, as a sequence of its own: the log-sum-exp of one score is the score."""
    q, k, v = Q.expand(len(K), *Q.shape), K[:, None, None], V[:, None, None]
    return module.flash_attention(q, k, v, scale=s, return_lse=True)[1].permute(1, 2, 0)


@case(modules=FLASH, returns="AT-cap", values=capped, sizes={"g": 2, "m": 5, "p": 4, "d": 6}, forward_only=True)
def capped_scores(module, Q, K, V, s, t):
    q, k, v = Q.expand(len(K), *Q.shape), K[:, None, None], V[:, None, None]
    return module.flash_attention(q, k, v, scale=s, softcap=t, return_lse=True)[1].permute(1, 2, 0)


@case(
    modules=FLASH,
    returns="AT-P",
    values=tame,
    sizes={"g": 3, "m": 9, "p": 8, "d": 17, "l": 6, "r": 4},
    forward_only=True,
)
def probabilities(module, Q, K, V, s, l, r, n):
    """Values that are the columns of an identity leave the probabilities as they are."""
    K = torch.nn.functional.pad(K, (0, max(n - K.shape[1], 0)))
    Q = torch.nn.functional.pad(Q, (0, max(n - Q.shape[2], 0)))
    identity = torch.eye(n, K.shape[1], dtype=V.dtype, device=V.device)
    return module.flash_attention(*group(Q, K, identity), scale=s, **window(l, r))[0, ..., :n]


@case(
    modules=FLASH,
    returns="AT-seen",
    values=tame,
    sizes={"g": 1, "m": 20, "p": 12, "d": 32, "l": 7, "r": 5},
    forward_only=True,
)
def keys_seen(module, Q, K, V, s, l, r, n):
    """A key is seen where its probability isn't zero."""
    Q = torch.nn.functional.pad(Q[:1], (0, max(n - Q.shape[2], 0)))
    K = torch.nn.functional.pad(K, (0, max(n - K.shape[1], 0)))
    identity = torch.eye(n, K.shape[1], dtype=V.dtype, device=V.device)
    o = module.flash_attention(*group(Q, K, identity), scale=s, **window(l, r))[0, 0, :, :n]
    return (o > 0).to(V.dtype)


@case(modules=FLASH, returns="AT-merge", values=tame, sizes={"g": 2, "m": 9, "p": 16, "d": 5}, forward_only=True)
def two_tiles_of_keys(module, Q, K, V, s, alpha, beta):
    """The sum before it is divided, relative to β."""
    options = module.contract(*group(Q, K, V), False, s, None, 0.0, None, True)
    o, lse = module.attention_forward(*group(Q, K, V), None, None, None, options, BLOCK_M=16, BLOCK_N=16)
    return o[0].float() * torch.exp(lse[0].float() - beta)[..., None]


@two_tiles_of_keys.pytorch
def _(module, Q, K, V, s, beta):
    o, lse = module.flash_attention_reference(*group(Q, K, V), scale=s, return_lse=True)
    return o[0].to(lse.dtype) * torch.exp(lse[0] - beta)[..., None]


def identity_keys(Q, K, V, s, b):
    """Scores that are the queries: then the gradient of a score is that of a query."""
    return {**capped(Q, K, V, s, b), "K": torch.eye(*K.shape, dtype=K.dtype, device=K.device), "s": 1.0}


@case(
    modules=FLASH,
    returns="AT-dS",
    values=identity_keys,
    sizes={"g": 2, "m": 5, "p": 4, "d": 9, "l": 5, "r": 3},
    forward_only=True,
)
def gradient_of_scores(module, Q, K, V, l, r, n, nabla_O, nabla_L):
    Q, V, nabla_O = widened(n, Q, V, nabla_O)
    return scores_gradient(module, Q, V, nabla_O, nabla_L.float(), n, 0.0, None, **window(l, r))


@gradient_of_scores.pytorch
def _(module, Q, V, l, r, n, nabla_O, nabla_L):
    Q, V, nabla_O = widened(n, Q, V, nabla_O)
    return scores_gradient_of_pytorch(module, Q, V, nabla_O, nabla_L, n, **window(l, r))


@case(
    modules=FLASH,
    returns="AT-cap-dS",
    values=identity_keys,
    sizes={"g": 2, "m": 5, "p": 4, "d": 9, "l": 5, "r": 3},
    forward_only=True,
)
def gradient_of_capped_scores(module, Q, K, V, t, b, l, r, n, nabla_O, nabla_L):
    Q, V, nabla_O = widened(n, Q, V, nabla_O)
    return scores_gradient(module, Q, V, nabla_O, nabla_L.float(), n, t, b, **window(l, r))


@gradient_of_capped_scores.pytorch
def _(module, Q, V, t, b, l, r, n, nabla_O, nabla_L):
    Q, V, nabla_O = widened(n, Q, V, nabla_O)
    return scores_gradient_of_pytorch(module, Q, V, nabla_O, nabla_L, n, softcap=t, sinks=b, **window(l, r))


def scores_gradient(module, Q, V, do, dlse, n, softcap, sinks, window):
    q, k, v = group(Q, torch.eye(n, Q.shape[-1], dtype=Q.dtype, device=Q.device), V)
    options = module.contract(q, k, v, False, 1.0, window, softcap, sinks, True)
    o, lse = module.attention_forward(q, k, v, sinks, None, None, options, BLOCK_M=16, BLOCK_N=16)
    saved = q, k, v, sinks, None, None, o, lse, options
    return module.attention_backward(do[None], dlse[None], *saved, BLOCK_M=16, BLOCK_N=16)[0][0, ..., :n]


def scores_gradient_of_pytorch(module, Q, V, do, dlse, n, **options):
    with torch.enable_grad():
        Q = Q.detach().requires_grad_()
        q, k, v = group(Q, torch.eye(n, Q.shape[-1], dtype=Q.dtype, device=Q.device), V)
        o, lse = module.flash_attention_reference(q, k, v, scale=1.0, return_lse=True, **options)
        return torch.autograd.grad((o, lse), Q, (do[None], dlse[None].to(lse.dtype)))[0][..., :n].detach()


# The fast backward pass alone, behind the lesson's forward pass. 16-bit numbers, eight to a row: others are left to the
# lesson's kernels.
@case(modules=("fast.flash_attention_backward",), **BACKWARD_ALONE, **DESCRIBED)
def in_two_kernels(module, Q, K, V, s, l, r, nabla_O, nabla_L):
    return fast_gradients(module, Q, K, V, s, nabla_O, nabla_L, **window(l, r))


def fast_gradients(module, Q, K, V, s, do, dlse, window, **how):
    q, k, v = group(Q, K, V)
    options = module.contract(q, k, v, False, s, window, 0.0, None, True)
    saved = module.lesson.attention_forward(q, k, v, None, None, None, options)
    inputs = do[None], dlse[None].float(), q, k, v, None, None, None
    dq, dk, dv, _ = module.attention_backward(*inputs, *saved, options, **how)
    return dq[0], dk[0, 0], dv[0, 0]


@in_two_kernels.pytorch
def _(module, Q, K, V, s, l, r, nabla_O, nabla_L):
    return gradients_of_pytorch(module, Q, K, V, s, nabla_O, nabla_L, **window(l, r))


def gradients_of_pytorch(module, Q, K, V, s, do, dlse, window):
    with torch.enable_grad():
        leaves = [value.detach().requires_grad_() for value in (Q, K, V)]
        o, lse = module.flash_attention_reference(*group(*leaves), scale=s, return_lse=True, window=window)
        return torch.autograd.grad((o, lse), leaves, (do[None], dlse[None].to(lse.dtype)))


# All three gradients from one kernel, which adds up dQ by atomics.
@case(modules=("fast.flash_attention_backward",), **BACKWARD_ALONE, **DESCRIBED)
def in_one_pass(module, Q, K, V, s, l, r, nabla_O, nabla_L):
    return fast_gradients(module, Q, K, V, s, nabla_O, nabla_L, **window(l, r), deterministic=False)


@in_one_pass.pytorch
def _(module, Q, K, V, s, l, r, nabla_O, nabla_L):
    return gradients_of_pytorch(module, Q, K, V, s, nabla_O, nabla_L, **window(l, r))


# Long windows, so that rows can take the place of heads: each row then has a sink of its own.
@case(
    modules=FLASH,
    returns="AT-D",
    values=tame,
    sizes={"g": 4, "m": 5, "p": 4, "d": 6, "l": 9, "r": 5},
    dtypes=("float32",),
    forward_only=True,
)
def one_number_a_row(module, Q, K, V, s, l, r, g, m, nabla_O, nabla_L):
    """A sink that weighs next to nothing has the gradient −exp(b − L) · D."""
    q, k, v = Q.reshape(1, g * m, 1, -1), K[None, None], V[None, None]
    sinks = torch.full((g * m,), -20.0, device=Q.device)
    options = module.contract(q, k, v, False, s, *window(l, r).values(), 0.0, sinks, True)
    o, lse = module.attention_forward(q, k, v, sinks, None, None, options)
    do, dlse = nabla_O.reshape(q.shape), nabla_L.reshape(lse.shape)
    *_, dsinks = module.attention_backward(do, dlse, q, k, v, sinks, None, None, o, lse, options)
    return (-dsinks / torch.exp(sinks - lse.flatten())).float().view(g, m)


@one_number_a_row.pytorch
def _(module, Q, K, V, s, l, r, nabla_O, nabla_L):
    o = module.flash_attention_reference(*group(Q, K, V), scale=s, **window(l, r))
    return (o[0] * nabla_O).sum(-1) - nabla_L


# ---------------------------------------------------------------- what is measured
# Queries, keys and values are read once, the output and a log-sum-exp a row are written. Two products of 2·T·S·D
# operations forward, five backward. A causal mask is counted as half of them.
def attention_cost(queries, keys, D, size, pairs, gradient_of_lse=0):
    """queries, keys: rows of all heads together. pairs: of a query and a key, those that count."""
    q, k, lse = queries * D * size, keys * D * size, queries * (8 if size == 4 else 4)
    return {
        "forward": dict(bytes_read=q + 2 * k, bytes_written=q + lse, operations=4 * pairs * D),
        "backward": dict(
            bytes_read=3 * q + 2 * k + lse + gradient_of_lse,
            bytes_written=q + 2 * k,
            operations=10 * pairs * D,
        ),
    }


def cost(shape, dtype, part=1.0):
    B, H, Hk, N, D = shape
    return attention_cost(B * H * N, B * Hk * N, D, dtype.itemsize, int(part * B * H * N * N))


def inputs(shape, dtype, device):
    B, H, Hk, N, D = shape
    heads = dict(q=H, k=Hk, v=Hk)
    return {name: torch.randn(B, count, N, D, dtype=dtype, device=device) for name, count in heads.items()}


def sdpa(backend, causal):
    """PyTorch's `scaled_dot_product_attention` with one of its backends; with equal lengths its causal mask is ours."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    return call


def tri_dao(module, causal):
    """FlashAttention's own package, which has another order of dimensions. Some versions give the log-sum-exps, too."""
    attention = importlib.import_module(module).flash_attn_func

    def call(q, k, v):
        out = attention(*(x.transpose(1, 2) for x in (q, k, v)), causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return call


# A head at a time, and its scores computed again for the backward pass: all of them in float64 would fill the card.
def reference(q, k, v, causal):
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.attention.flash_attention import flash_attention_reference

    one = functools.partial(checkpoint, flash_attention_reference, causal=causal, use_reentrant=False)
    group = q.shape[1] // k.shape[1]
    batches = []
    for b in range(len(q)):
        alone = ((q[b, h], k[b, h // group], v[b, h // group]) for h in range(q.shape[1]))
        batches.append(torch.cat([one(*(x[None, None] for x in head)) for head in alone], dim=1))
    return torch.cat(batches)


def variant(causal):
    return dict(
        call=lambda function: lambda q, k, v: function(q, k, v, causal=causal),
        eager=sdpa("FLASH_ATTENTION", causal),
        reference=functools.partial(reference, causal=causal),
        peers={
            "cuDNN (SDPA)": lambda: sdpa("CUDNN_ATTENTION", causal),
            "flex, compiled": lambda inputs: flex(inputs["q"], inputs["k"], causal),
            "FlashAttention-3": lambda: tri_dao("flash_attn_interface", causal),
            "FlashAttention-4": lambda: tri_dao("flash_attn.cute", causal),
        },
        cost=functools.partial(cost, part=0.5 if causal else 1.0),
    )


EXAMPLES = {
    # Five queries, nine keys; no gradient of the log-sum-exp is a single zero.
    LESSON: attention_cost(5, 9, 3, 4, pairs=45, gradient_of_lse=4),
    # Twelve of each, in 16 bits; query i sees the keys up to its own.
    FAST: dict(forward=attention_cost(12, 12, 8, 2, pairs=78)["forward"]),
    "fast.flash_attention_backward": dict(
        backward=attention_cost(12, 12, 8, 2, pairs=78, gradient_of_lse=4)["backward"]
    ),
}
BENCH = dict(
    shapes=[(4, 16, 16, 4096, 128), (4, 32, 8, 4096, 128), (1, 16, 16, 16384, 128)]
    + [(16, 16, 16, 1024, 64), (4, 32, 32, 4096, 64), (1, 16, 16, 16384, 64)]
    + [(16384 // N, 16, 16, N, D) for N in (512, 1024, 2048, 8192) for D in (64, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager_name="flash-2 (SDPA)",
    compile=False,
    passes=["forward", "backward"],
    differentiable=["q", "k", "v"],
    host_shape=(1, 2, 1, 128, 64),
    variants={"causal": variant(True), "full": variant(False)},
)
