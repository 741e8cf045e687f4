"""Decoding with selected keys: what is compared with formulas, and what is measured.

`shape` is (batch, heads, rows of the pool, selected keys); a latent has 512 numbers and 64 rotated ones.
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.mla_decode import OPTIONS, RANK, ROTATED
from operations.sparse_mla import lists, some_lists, tame

LESSON = "attention.sparse_decode"
FAST = None
FUNCTION = "sparse_decode"
AXES = ("batch", "heads", "cached tokens", "selected keys")
DERIVATION = "sparse_mla"
HELPERS = {"to_slots": "index arithmetic of PyTorch, before"}


# ---------------------------------------------------------------- public functions
def selected_slots(sequences, keys, width):
    """A pool of pages of one row."""
    q, cache = torch.randn(sequences, 4, width), torch.randn(keys, 1, width)
    return {"q": q, "cache": cache, "slots": some_lists(sequences, keys)}


def in_pages():
    """Two sequences with two new tokens each, pages of 16."""
    slots = some_lists(4, 64).view(2, 2, 9).long()
    return {"q": torch.randn(2, 2, 4, 40).bfloat16(), "cache": torch.randn(4, 16, 40).bfloat16(), "slots": slots}


PUBLIC = [
    Public(
        "sparse_decode", selected_slots, at=(3, 300, 40), options=dict(rank=12, scale=0.2), differentiable=False,
        sizes={"width": (16, 40)}, calls=[dict(rank=12, scale=0.2)],
        batch={"sequences": "few sequences are split into more parts; with a num_splits that is given it holds"},
        more=[dict(inputs=in_pages, rank=32, scale=0.2, num_splits=2, return_lse=True)],
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
USUAL = dict(
    modules=LESSON, returns=("SP-O", "SP-lse"), values=tame, sizes={"g": 3, "m": 4, "n": 30, "r": 6, "t": 3},
    forward_only=True,
)  # fmt: skip


@case(**USUAL)
def sparse_decode(module, Q, C, J, Omega, s, r):
    """Each query is a sequence of its own, and all share the pool, in pages of one row; two parts."""
    options = dict(rank=r, scale=s, num_splits=2, return_lse=True)
    o, lse = module.sparse_decode(Q.transpose(0, 1), C[:, None], lists(J, Omega), **options)
    return o.transpose(0, 1), lse.T


# More heads than a tile has.
@case(**USUAL | dict(sizes=USUAL["sizes"] | {"g": 19}))
def from_pages(module, Q, C, J, Omega, s, r):
    """The queries are new tokens of one sequence, whose pages of three rows lie in reverse order, three parts."""
    size = 3 if len(C) % 3 == 0 else 1
    pool = C.unflatten(0, (-1, size)).flip(0)
    table = torch.arange(len(pool), dtype=torch.int32, device=C.device).flip(0)[None]
    slots = module.to_slots(lists(J, Omega)[None], table, size)
    arguments = Q.transpose(0, 1)[None], pool, slots, r, s, 3, True
    o, lse = module.sparse_decode_forward(*arguments, BLOCK_M=16, BLOCK_N=16, BLOCK_S=2)
    return o[0].transpose(0, 1), lse[0].T


@from_pages.pytorch
def _(module, Q, C, J, Omega, s, r):
    options = dict(rank=r, scale=s, return_lse=True)
    o, lse = module.sparse_decode_reference(Q.transpose(0, 1), C[:, None], lists(J, Omega), **options)
    return o.transpose(0, 1), lse.T


# ---------------------------------------------------------------- what is measured
def decode_cost(B, H, K, rank, rotated, size):
    W = rank + rotated
    return {
        "forward": dict(
            bytes_read=(B * H + B * K) * W * size + 4 * B * K, bytes_written=B * H * rank * size,
            operations=2 * B * H * K * (W + rank),
        )
    }  # fmt: skip


def cost(shape, dtype):
    B, H, _, K = shape
    return decode_cost(B, H, K, RANK, ROTATED, dtype.itemsize)


def inputs(shape, dtype, device):
    """Each sequence selects from rows of its own, as they lie in a pool that is in use: anywhere."""
    B, H, S, K = shape
    q, pool = (torch.randn(rows, RANK + ROTATED, dtype=dtype, device=device) for rows in (B * H, S))
    return dict(
        q=q.view(B, H, -1), cache=pool[:, None], slots=torch.randperm(S, device=device)[: B * K].view(B, K).int()
    )


def gathered(q, cache, slots):
    rows = cache.flatten(0, 1)[slots.long()]
    return torch.softmax(q @ rows.mT * OPTIONS["scale"], dim=-1) @ rows[..., :RANK]


# Two tokens of two heads, and lists of four, which name five rows between them.
EXAMPLES = {LESSON: {"forward": dict(bytes_read=(4 + 5) * 12 + 8 * 8, bytes_written=4 * 8, operations=0)}}

BENCH = dict(
    shapes=[(64, 128, 262144, 2048), (64, 16, 262144, 2048), (1, 128, 65536, 2048)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=lambda function: functools.partial(function, **OPTIONS),
    eager=gathered,
    eager_name="PyTorch, keys gathered",
    timing="graph",
    host_shape=(1, 16, 128, 64),
)
