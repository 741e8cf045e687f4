"""What calls of the attention kernels are compared with the formulas of backprop_math/attention.md.

A group of heads is a batch of one sequence with one head of keys. Where a formula is about something that the kernels
never return, such as a probability, the call's inputs are chosen so that it becomes the result.
"""

# ruff: noqa: E741  (l is the page's name of a length)

from academy.formulas.cases import case

FLASH = ("attention.flash_attention", "fast.flash_attention")
DECODE = ("attention.decode", "fast.decode")
GRADIENTS = {"Q": "AT-dQ", "K": "AT-dK", "V": "AT-dV"}
USUAL = {"g": 3, "m": 21, "p": 17, "d": 6, "l": 9, "r": 5}
#: 16-bit numbers, eight to a row: what a descriptor fits.
DESCRIBED = dict(dtypes=("float16",), sizes={**USUAL, "d": 8})


def tame(Q, K, V, s):
    """Scores of a few units. Around ±10⁴ each softmax has a single key, and nothing is compared but its choice."""
    import torch

    return {"Q": torch.sin(Q), "K": torch.sin(K), "V": torch.sin(V), "s": 1.5}


def capped(Q, K, V, s, b):
    import torch

    return {**tame(Q, K, V, s), "b": torch.sin(b), "t": 1.25}


BACKWARD_ALONE = dict(returns=tuple(GRADIENTS.values()), values=tame, forward_only=True)
BOTH_RESULTS = dict(returns=("AT-O", "AT-lse"), gradients=GRADIENTS, values=tame)


def group(Q, K, V):
    return Q[None], K[None, None], V[None, None]


# The page's window counts the key at the query's own position on both sides.
def window(l, r):
    return dict(window=(l - 1, r - 1))


@case(modules=FLASH, **BOTH_RESULTS, sizes=USUAL)
def flash_attention(module, Q, K, V, s, l, r):
    o, lse = module.flash_attention(*group(Q, K, V), scale=s, return_lse=True, **window(l, r))
    return o[0], lse[0]


# ---------------------------------------------------------------- dense and causal
# One head, as many keys as queries: no older keys (p = 0), nothing too far back (l > m), and nothing later (r = 1).
CAUSAL = {"g": 1, "m": 37, "p": 0, "d": 16, "l": 40, "r": 1}


def without_gradient_of_lse(Q, K, V, s, nabla_L):
    """The function returns the output only."""
    import torch

    return {**tame(Q, K, V, s), "nabla_L": torch.zeros_like(nabla_L)}


@case(
    modules=("attention.causal_attention",),
    returns="AT-O",
    gradients=GRADIENTS,
    values=without_gradient_of_lse,
    sizes=CAUSAL,
)
def causal_attention(module, Q, K, V, s, m, d):
    q, k, v = own_tokens(Q, K, V, m)
    return module.causal_attention(q, k, v, scale=s)[0, ..., :d]


# Of older keys, which only the case of one element has, the query sees none; and a head has `width` columns at least.
def own_tokens(Q, K, V, m, width=16):
    return group(*(x if x.shape[-1] == width else widened(width, x)[0] for x in (Q, K[-m:], V[-m:])))


@case(modules=("attention.causal_attention",), returns="AT-lse", values=tame, sizes=CAUSAL, forward_only=True)
def causal_log_sum_exp(module, Q, K, V, s, m):
    return module.causal_attention_forward(*own_tokens(Q, K, V, m), s, BLOCK_M=16, BLOCK_N=16)[1][0]


@causal_log_sum_exp.pytorch
def _(module, Q, K, V, s, m):
    import torch

    scores = (Q @ K[-m:].mT * s).to(torch.promote_types(Q.dtype, torch.float32))
    return scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -float("inf")).logsumexp(-1)


# ---------------------------------------------------------------- below Triton
# Heads of 64 numbers. Two heads share the keys.
BELOW_TRITON = {"g": 2, "m": 70, "p": 0, "d": 64, "l": 71, "r": 1}


@case(modules=("gluon.flash_attention",), **BOTH_RESULTS, dtypes=("float16",), sizes=BELOW_TRITON)
def below_triton(module, Q, K, V, s, m, d):
    q, k, v = own_tokens(Q, K, V, m, 64)
    o, lse = module.flash_attention(q, k, v, causal=True, scale=s, return_lse=True)
    return o[0, ..., :d], lse[0]


# Its backward pass alone, with the gradient of the log-sum-exp.
@case(modules=("gluon.flash_attention_backward",), **BACKWARD_ALONE, dtypes=("float16",), sizes=BELOW_TRITON)
def backward_below_triton(module, Q, K, V, s, m, d, nabla_O, nabla_L):
    q, k, v = own_tokens(Q, K, V, m, 64)
    do, dlse = widened(64, nabla_O)[0][None], nabla_L[None].float()
    options = module.contract(q, k, v, True, s, None, 0.0, None, True)
    saved = module.attention_forward(q, k, v, None, None, None, options)
    dq, dk, dv, _ = module.attention_backward(do, dlse, q, k, v, None, None, None, *saved, options)
    return dq[0, ..., :d], older(K, dk[0, 0, :, :d]), older(V, dv[0, 0, :, :d])


def older(all_keys, gradient):
    """Keys that no query sees, of which only the case of one element has any, have a gradient of 0."""
    import torch

    return torch.nn.functional.pad(gradient, (0, 0, len(all_keys) - len(gradient), 0))


@backward_below_triton.pytorch
def _(module, Q, K, V, s, m, nabla_O, nabla_L):
    import torch

    with torch.enable_grad():
        leaves = [value.detach().requires_grad_() for value in (Q, K, V)]
        q, k, v = group(leaves[0], leaves[1][-m:], leaves[2][-m:])
        o, lse = module.flash_attention_reference(q, k, v, scale=s, return_lse=True, causal=True)
        return torch.autograd.grad((o, lse), leaves, (nabla_O[None], nabla_L[None].to(lse.dtype)))


# ---------------------------------------------------------------- with all options
# The fast file leaves what no descriptor fits to the lesson's kernels.
@case(modules=("fast.flash_attention",), **BOTH_RESULTS, **DESCRIBED)
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
    import torch

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
    import torch

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
    import torch

    Q = torch.nn.functional.pad(Q[:1], (0, max(n - Q.shape[2], 0)))
    K = torch.nn.functional.pad(K, (0, max(n - K.shape[1], 0)))
    identity = torch.eye(n, K.shape[1], dtype=V.dtype, device=V.device)
    o = module.flash_attention(*group(Q, K, identity), scale=s, **window(l, r))[0, 0, :, :n]
    return (o > 0).to(V.dtype)


@case(modules=FLASH, returns="AT-merge", values=tame, sizes={"g": 2, "m": 9, "p": 16, "d": 5}, forward_only=True)
def two_tiles_of_keys(module, Q, K, V, s, alpha, beta):
    """The sum before it is divided, relative to β."""
    import torch

    options = module.contract(*group(Q, K, V), False, s, None, 0.0, None, True)
    o, lse = module.attention_forward(*group(Q, K, V), None, None, None, options, BLOCK_M=16, BLOCK_N=16)
    return o[0].float() * torch.exp(lse[0] - beta)[..., None]


@two_tiles_of_keys.pytorch
def _(module, Q, K, V, s, beta):
    import torch

    o, lse = module.flash_attention_reference(*group(Q, K, V), scale=s, return_lse=True)
    return o[0].to(lse.dtype) * torch.exp(lse[0] - beta)[..., None]


def identity_keys(Q, K, V, s, b):
    """Scores that are the queries: then the gradient of a score is that of a query."""
    import torch

    return {**capped(Q, K, V, s, b), "K": torch.eye(*K.shape, dtype=K.dtype, device=K.device), "s": 1.0}


def widened(n, *tensors):
    """As many columns as there are keys."""
    import torch

    return [torch.nn.functional.pad(x, (0, max(n - x.shape[-1], 0))) for x in tensors]


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
    import torch

    q, k, v = group(Q, torch.eye(n, Q.shape[-1], dtype=Q.dtype, device=Q.device), V)
    options = module.contract(q, k, v, False, 1.0, window, softcap, sinks, True)
    o, lse = module.attention_forward(q, k, v, sinks, None, None, options, BLOCK_M=16, BLOCK_N=16)
    saved = q, k, v, sinks, None, None, o, lse, options
    return module.attention_backward(do[None], dlse[None], *saved, BLOCK_M=16, BLOCK_N=16)[0][0, ..., :n]


def scores_gradient_of_pytorch(module, Q, V, do, dlse, n, **options):
    import torch

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
    import torch

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
    import torch

    q, k, v = Q.reshape(1, g * m, 1, -1), K[None, None], V[None, None]
    sinks = torch.full((g * m,), -20.0, device=Q.device)
    options = module.contract(q, k, v, False, s, *window(l, r).values(), 0.0, sinks, True)
    o, lse = module.attention_forward(q, k, v, sinks, None, None, options)
    do, dlse = nabla_O.reshape(q.shape), nabla_L.reshape(lse.shape)
    *_, dsinks = module.attention_backward(do, dlse, q, k, v, sinks, None, None, o, lse, options)
    return (-dsinks / torch.exp(sinks - lse.flatten())).view(g, m)


@one_number_a_row.pytorch
def _(module, Q, K, V, s, l, r, nabla_O, nabla_L):
    o = module.flash_attention_reference(*group(Q, K, V), scale=s, **window(l, r))
    return (o[0] * nabla_O).sum(-1) - nabla_L


# ---------------------------------------------------------------- decode
# Each query is a sequence, and all have the same keys. So no query may see fewer than another: the windows are long.
def sequences(Q, K, V, m):
    import torch

    caches = (x[None, :, None].expand(m, -1, 1, -1) for x in (K, V))
    return Q.transpose(0, 1), *caches, torch.full((m,), len(K), dtype=torch.int32, device=Q.device)


@case(modules=DECODE, returns="AT-parts", values=tame, sizes={"g": 3, "m": 16, "p": 16, "d": 6}, forward_only=True)
def decode_attention(module, Q, K, V, s, m):
    """Two parts: the older keys and the newer ones."""
    q, k, v, lengths = sequences(Q, K, V, m)
    return module.decode_attention(q, k, v, lengths, scale=s, num_splits=2).transpose(0, 1)


@case(
    modules=DECODE,
    returns="AT-sink-O",
    values=capped,
    sizes={"g": 3, "m": 6, "p": 7, "d": 6, "l": 13, "r": 6},
    forward_only=True,
)
def decode_with_options(module, Q, K, V, s, t, b, l, m):
    q, k, v, lengths = sequences(Q, K, V, m)
    return module.decode_attention(q, k, v, lengths, scale=s, softcap=t, sinks=b, window=l).transpose(0, 1)


@case(
    modules=DECODE,
    returns="AT-O",
    values=tame,
    sizes={"g": 3, "m": 6, "p": 7, "d": 6, "l": 13, "r": 6},
    forward_only=True,
)
def decode_from_pages(module, Q, K, V, s, l, m, n):
    """Pages of one key, in reverse order."""
    import torch

    q, _, _, lengths = sequences(Q, K, V, m)
    pools = (x.flip(0)[:, None, None] for x in (K, V))
    table = torch.arange(n, dtype=torch.int32, device=Q.device).flip(0).expand(m, n)
    return module.decode_attention(q, *pools, lengths, block_table=table, scale=s, window=(l - 1, 0)).transpose(0, 1)
