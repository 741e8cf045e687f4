"""The indexer's target: what is compared with formulas, and what is measured.

`shape` is (queries, heads, keys, selected keys); a row has 576 numbers.
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.mla_decode import OPTIONS, RANK, ROTATED
from operations.sparse_mla import AXES, inputs, lists, selected, tame, with_a_sink  # noqa: F401

LESSON = "attention.selected_probabilities"
FAST = None
FUNCTION = "selected_probabilities"
DERIVATION = "sparse_mla"


# ---------------------------------------------------------------- public functions
def scores_of(q, kv, indices, scale):
    """(T, H, K), −∞ where there is none."""
    none = indices < 0
    rows = torch.nn.functional.pad(kv, (0, 0, 0, 1))[indices.masked_fill(none, len(kv)).long()]
    return (scale * torch.einsum("thw,tkw->thk", q, rows)).masked_fill(none[:, None], -torch.inf)


def with_their_sum(function):
    """The log-sum-exp is that of these scores: another one isn't asked for."""

    def call(q, kv, indices, scale):
        wide = torch.promote_types(q.dtype, torch.float32)
        lse = torch.logsumexp(scores_of(q.to(wide), kv.to(wide), indices, scale), -1)
        return function(q, kv, indices, lse, scale=scale)

    return call


PUBLIC = [
    Public(
        "selected_probabilities", selected, at=(9, 40, 40), options=dict(scale=0.2), differentiable=False,
        sizes={"width": (16, 40)}, calls=[dict(scale=0.2)], wrap=with_their_sum, batch={"tokens": ""},
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
SIZES = {"g": 3, "m": 7, "n": 21, "r": 6, "t": 3}
USUAL = dict(modules=LESSON, returns="SP-p", forward_only=True)


def log_sums(Q, C, J, Omega, s, b, beta):
    """(m, g), of the formula."""
    S = s * Q @ C.mT
    total = (beta * torch.exp(b))[:, None] + ((J + Omega) * torch.exp(S)).sum(-1)
    return torch.log(total).T.contiguous()


def by_key(p, indices, like):
    """The probabilities of a list, (m, K), added up by key."""
    columns = torch.where(indices < 0, like.shape[1], indices).long()
    found = torch.zeros(len(like), like.shape[1] + 1, dtype=p.dtype, device=p.device)
    return found.scatter_add(1, columns, p)[:, :-1]


@case(values=tame, sizes=SIZES, **USUAL)
def selected_probabilities(module, Q, C, J, Omega, s, b, beta):
    indices, lse = lists(J, Omega), log_sums(Q, C, J, Omega, s, b, beta)
    p = module.selected_probabilities(Q.transpose(0, 1), C, indices, lse.float(), scale=s)
    return by_key(p, indices, J)


@selected_probabilities.pytorch
def _(module, Q, C, J, Omega, s, b, beta):
    indices, lse = lists(J, Omega), log_sums(Q, C, J, Omega, s, b, beta)
    p = module.selected_probabilities_reference(Q.transpose(0, 1), C, indices, lse, scale=s)
    return by_key(p, indices, J)


@case(values=with_a_sink, sizes=SIZES | {"g": 19}, dtypes=("float32",), **USUAL)
def in_small_tiles(module, Q, C, J, Omega, s, b, beta):
    """More heads than a tile has, and less than 1 for the keys."""
    indices, lse = lists(J, Omega), log_sums(Q, C, J, Omega, s, b, beta).float()
    tiles = dict(BLOCK_M=16, BLOCK_N=16)
    return by_key(module.selected_probabilities_forward(Q.transpose(0, 1), C, indices, lse, s, **tiles), indices, J)


in_small_tiles.pytorch(selected_probabilities.said["pytorch"])


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    T, H, S, K = shape
    read = (T * H + S) * (RANK + ROTATED) * dtype.itemsize + 4 * T * (H + K)
    return {
        "forward": dict(bytes_read=read, bytes_written=4 * T * K, operations=2 * T * H * K * (RANK + ROTATED))
    }  # fmt: skip


def with_sums(shape, dtype, device):
    given = inputs(shape, dtype, device)
    T, H, _, K = shape
    # Sums of about as many exponentials as the list has.
    return given | dict(lse=torch.randn(T, H, device=device) + torch.log(torch.tensor(float(K))).item())


def gathered(q, kv, indices, lse):
    """A copy of the keys of a few queries at a time."""
    means = []
    for queries, keys, sums in zip(q.split(256), indices.split(256), lse.split(256)):
        scores = queries @ kv[keys.long()].mT * OPTIONS["scale"]
        means.append(torch.exp(scores.to(sums.dtype) - sums[..., None]).mean(1))
    return torch.cat(means)


# Two queries of two heads, three keys, lists of three.
EXAMPLES = {LESSON: {"forward": dict(bytes_read=(4 + 3) * 12 + 16 + 24, bytes_written=24, operations=0)}}

BENCH = dict(
    shapes=[(4096, 128, 8192, 2048), (4096, 64, 8192, 2048)],
    dtypes=[torch.bfloat16],
    inputs=with_sums,
    call=lambda function: functools.partial(function, scale=OPTIONS["scale"]),
    eager=gathered,
    eager_name="PyTorch, keys gathered",
    host_shape=(16, 16, 256, 64),
)
