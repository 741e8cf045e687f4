"""Decoding from latents: what is compared with formulas, and what is measured.

`shape` is (batch, heads, cached tokens); a latent has 512 numbers and 64 rotated ones.
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import flex
from operations.decode import in_pages_of
from operations.mla import tame

LESSON = "attention.mla_decode"
FAST = None
FUNCTION = "mla_decode"
AXES = ("batch", "heads", "cached tokens")
DERIVATION = "mla"
# A softmax of 23 keys would have a denominator that 23 divides.
WITHOUT_ROUNDING = {"sizes": {"": {"m": 6, "p": 15}, "scores": {"p": 9}}}
HELPERS = dict.fromkeys(("absorb", "expand"), "products of PyTorch, before and after")


# ---------------------------------------------------------------- public functions
def filled_cache(sequences, keys, width):
    lengths = torch.arange(sequences, dtype=torch.int32) * keys // max(sequences - 1, 1)
    return {"q": torch.randn(sequences, 4, width), "cache": torch.randn(sequences, keys, width), "lengths": lengths}


def in_pages():
    """Two sequences of 30 and 20 keys, in pages of 16, each with two new tokens."""
    whole = {"lengths": [30, 20], "block_table": [[3, 1], [0, 2]]}
    numbers = {name: torch.tensor(values, dtype=torch.int32) for name, values in whole.items()}
    return {"q": torch.randn(2, 2, 4, 40).bfloat16(), "cache": torch.randn(4, 16, 40).bfloat16(), **numbers}


PUBLIC = [
    Public(
        "mla_decode", filled_cache, at=(3, 300, 40), options=dict(rank=12, scale=0.2), differentiable=False,
        sizes={"width": (16, 40)}, calls=[dict(rank=12, scale=0.2)],
        batch={"sequences": "few sequences are split into more parts; with a num_splits that is given it holds"},
        more=[dict(inputs=in_pages, rank=32, scale=0.2, num_splits=2, return_lse=True)],
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def absorbed(Q, R, U):
    """(m, g, r + t): a token's heads side by side."""
    return torch.cat([Q @ U, R], -1).transpose(0, 1)


def whole_length(x, sequences=1):
    return torch.full((sequences,), len(x), dtype=torch.int32, device=x.device)


#: At most 8 new tokens.
USUAL = dict(values=tame, sizes={"g": 3, "m": 7, "p": 30, "d": 5, "t": 3, "r": 6, "v": 7}, forward_only=True)


@case(modules=LESSON, returns=("MLA-latent", "MLA-lse"), **USUAL)
def mla_decode(module, Q, R, C, E, U, s):
    """Two parts."""
    q, cache = absorbed(Q, R, U)[None], torch.cat([C, E], -1)[None]
    options = dict(rank=C.shape[1], scale=s, num_splits=2, return_lse=True)
    o, lse = module.mla_decode(q, cache, whole_length(C), **options)
    return o[0].transpose(0, 1), lse[0].T


@case(modules=LESSON, returns="MLA-latent", **USUAL)
def from_pages(module, Q, R, C, E, U, s):
    """Pages of one key, in reverse order; queries with a gap after each number."""
    q, pool = absorbed(Q, R, U)[None], torch.cat([C, E], -1).flip(0)[:, None]
    q = torch.stack([q, torch.full_like(q, float("nan"))], -1)[..., 0]
    table = torch.arange(len(C), dtype=torch.int32, device=C.device).flip(0)[None]
    return module.mla_decode(q, pool, whole_length(C), rank=C.shape[1], scale=s, block_table=table)[0].transpose(0, 1)


@case(modules=LESSON, returns="MLA-S-absorbed", **USUAL | dict(sizes=USUAL["sizes"] | {"p": 9}))
def scores(module, Q, R, C, E, U, s):
    """Each key alone, as a sequence of its own: the log-sum-exp of one score is the score. All queries are heads."""
    q, cache = absorbed(Q, R, U).flatten(0, 1), torch.cat([C, E], -1)[:, None]
    options = dict(rank=C.shape[1], scale=s, return_lse=True)
    _, lse = module.mla_decode(q.expand(len(C), -1, -1), cache, whole_length(cache[0], len(C)), **options)
    return lse.unflatten(1, (-1, len(Q))).permute(2, 1, 0)


@case(modules=LESSON, returns="MLA-absorb", **USUAL)
def absorbed_queries(module, Q, R, U):
    return module.absorb(Q.transpose(0, 1), R.transpose(0, 1), U)[..., : U.shape[2]].transpose(0, 1)


@absorbed_queries.pytorch
def _(Q, U):
    return Q @ U


@case(modules=LESSON, returns="MLA-expand", **USUAL)
def expanded(module, Q, R, C, E, U, W, s):
    """The whole way: absorbed, read, expanded."""
    q, cache = module.absorb(Q.transpose(0, 1)[None], R.transpose(0, 1)[None], U), torch.cat([C, E], -1)[None]
    o = module.mla_decode(q, cache, whole_length(C), rank=C.shape[1], scale=s)
    return module.expand(o, W)[0].transpose(0, 1)


@expanded.pytorch
def _(module, Q, R, C, E, U, W, s):
    q, cache = absorbed(Q, R, U)[None], torch.cat([C, E], -1)[None]
    o = module.mla_decode_reference(q, cache, whole_length(C), rank=C.shape[1], scale=s)
    return o[0].transpose(0, 1) @ W.mT


# ---------------------------------------------------------------- what is measured
RANK, ROTATED = 512, 64


def decode_cost(queries, keys, pairs, rank, rotated, size, small):
    """queries: tokens and heads of all sequences. small: bytes of lengths and tables."""
    return {
        "forward": dict(
            bytes_read=(queries + keys) * (rank + rotated) * size + small, bytes_written=queries * rank * size,
            operations=2 * pairs * (2 * rank + rotated),
        )
    }  # fmt: skip


def cost(shape, dtype):
    B, H, S = shape
    return decode_cost(B * H, B * S, B * H * S, RANK, ROTATED, dtype.itemsize, 4 * B)


def inputs(shape, dtype, device):
    B, H, S = shape
    lengths = torch.full((B,), S, dtype=torch.int32, device=device)
    q, cache = (torch.randn(B, rows, RANK + ROTATED, dtype=dtype, device=device) for rows in (H, S))
    return dict(q=q, cache=cache, lengths=lengths)


#: One over the square root of the width of a key, 128 + 64.
OPTIONS = dict(rank=RANK, scale=192**-0.5)


def eager(q, cache, lengths):
    """Two products for all sequences, which have the full length."""
    p = torch.softmax(q @ cache.mT * OPTIONS["scale"], dim=-1)
    return p @ cache[..., :RANK]


def flex_of_one_head(inputs):
    """All heads of queries share the one head of keys, whose first part is the values."""
    q, cache = inputs["q"][:, :, None], inputs["cache"][:, None]
    attention = flex(q, cache, causal=False, scale=OPTIONS["scale"])
    return lambda q, cache, lengths: attention(q[:, :, None], cache[:, None], cache[:, None, :, :RANK])[:, :, 0]


def flashinfer(inputs):
    """Its plan is made before the clock starts; the cache is one of pages of 64 latents."""
    from flashinfer.mla import BatchMLAPagedAttentionWrapper, MLAPlanMetadata

    q, cache, lengths = inputs["q"], inputs["cache"], inputs["lengths"]
    B, S, W = cache.shape
    first, pages, _ = in_pages_of(64, B, S)
    wrapper = BatchMLAPagedAttentionWrapper(torch.empty(256 << 20, dtype=torch.uint8, device=q.device))
    wrapper.plan(
        metadata=MLAPlanMetadata.csr(torch.arange(B + 1, dtype=torch.int32), first, pages, lengths),
        num_heads=q.shape[1], head_dim_ckv=RANK, head_dim_kpe=ROTATED, page_size=64, causal=False,
        sm_scale=OPTIONS["scale"], q_data_type=q.dtype, kv_data_type=cache.dtype,
    )  # fmt: skip
    return lambda q, cache, lengths: wrapper.run(query=q, kv_cache=cache.view(-1, 64, W))


# Of five keys the second new token sees all, the first four; two heads. The table has two pages.
EXAMPLES = {LESSON: decode_cost(4, 5, 18, 2, 1, 4, small=4 + 8)}
BENCH = dict(
    shapes=[(128, 16, 4096), (128, 128, 4096), (1, 128, 65536)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=lambda function: functools.partial(function, **OPTIONS),
    eager=eager,
    eager_name="PyTorch, absorbed",
    peers={"flex, compiled": flex_of_one_head, "FlashInfer": flashinfer},
    timing="graph",
    host_shape=(1, 16, 128),
)
