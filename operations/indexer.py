"""The indexer's scores: what is compared with formulas, and what is measured.

`shape` is (queries, keys, heads); a key has 128 numbers.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "attention.indexer"
FAST = None
FUNCTION = "indexer_logits"
AXES = ("queries", "keys", "heads")
DERIVATION = "indexer"
CODES = torch.float8_e4m3fn


# ---------------------------------------------------------------- public functions
def of_codes(function):
    """Any numbers as codes, with a scale for each key."""

    def call(q, k, weights, k_scale, **options):
        return function(*(x.float().clamp(-448, 448).to(CODES) for x in (q, k)), weights, k_scale, **options)

    return call


def in_pages():
    """Two sequences of 30 and 20 keys, in pages of 16, each with two new tokens."""
    whole = {"lengths": [30, 20], "block_table": [[3, 1], [0, 2]]}
    numbers = {name: torch.tensor(values, dtype=torch.int32) for name, values in whole.items()}
    q, cache = torch.randn(2, 2, 4, 40).bfloat16(), torch.randn(4, 16, 40).bfloat16()
    return {"q": q, "k_cache": cache, "weights": torch.randn(2, 2, 4), "k_scale": torch.rand(4, 16) + 0.5, **numbers}


def pages_of_sequences(sequences, keys, width):
    """A page for each sequence, in reverse order."""
    lengths = torch.arange(sequences, dtype=torch.int32) * keys // max(sequences - 1, 1)
    table = torch.arange(sequences, dtype=torch.int32).flip(0)[:, None]
    q, cache = torch.randn(sequences, 2, 4, width), torch.randn(sequences, keys, width)
    return dict(q=q, k_cache=cache, weights=torch.randn(sequences, 2, 4), lengths=lengths, block_table=table)


SCORED = {"q": "queries 4 width", "k": "keys width", "weights": "queries 4: float32", "k_scale": "keys: float32"}
WINDOWS = {"start": "queries: int32 below keys", "end": "queries: int32 below keys"}
PUBLIC = [
    Public(
        "indexer_logits",
        SCORED | WINDOWS,
        at=(20, 70, 40), float32=("weights", "k_scale"), sizes={"width": (16, 40)}, differentiable=False,
        calls=[{}, dict(wrap=of_codes)], batch={"queries": ""},
    ),
    Public(
        "indexer_logits_paged", pages_of_sequences, at=(3, 40, 40), float32=("weights",), sizes={"width": (16, 40)},
        differentiable=False, calls=[{}], more=[dict(inputs=in_pages)],
    ),
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
USUAL = dict(modules=LESSON, sizes={"m": 7, "n": 37, "f": 3, "w": 9}, forward_only=True)


@case(returns="IX-I", **USUAL)
def scores(module, x, y, omega):
    return module.indexer_logits(x, y, omega.float(), end=None)


@case(returns="IX-I", **USUAL)
def scores_in_small_tiles(module, x, y, omega):
    """Windows of all keys, in tiles of 16 keys and two queries."""
    end = torch.full((len(omega),), len(y), dtype=torch.int32, device=x.device)
    arguments = x[None], y[None], omega.float()[None], None, torch.zeros_like(end), end, None, None
    return module.indexer_logits_forward(*arguments, BLOCK_T=2, BLOCK_N=16)[0]


@scores_in_small_tiles.pytorch
def _(module, x, y, omega):
    return module.indexer_logits_reference(x, y, omega.float(), end=None)


@case(returns="IX-scales", **USUAL)
def scales_outside(module, x, y, omega, sigma, kappa):
    return module.indexer_logits(x, y, omega.float() * sigma.float(), kappa.float(), end=None)


def seen(logits):
    """0 in the place of −∞."""
    return torch.where(logits == -torch.inf, 0.0, logits)


def windows(m, n):
    """Some end or begin within a tile of 16 or with it, and two queries beside each other see nothing of some tiles."""
    first, last = torch.arange(m) * 16 % 33, torch.arange(m) * 9 % 20 + 17
    at = torch.arange(n)
    return {"J": ((at >= first[:, None]) & (at < last[:, None])).double()}


@case(returns="IX-window", values=windows, **USUAL)
def windows_in_small_tiles(module, x, y, omega, J):
    last = torch.where(J.sum(1) == 0, 0, J.shape[1] - J.flip(1).argmax(1)).to(torch.int32)
    arguments = x[None], y[None], omega.float()[None], None, J.argmax(1).to(torch.int32), last, None, None
    return seen(module.indexer_logits_forward(*arguments, BLOCK_T=2, BLOCK_N=16)[0])


@windows_in_small_tiles.pytorch
def _(module, x, y, omega, J):
    return torch.where(J > 0, module.indexer_logits_reference(x, y, omega.float(), end=None), 0.0)


# Sequences of two new tokens, which share the pages of a pool.
PAGED = USUAL | dict(sizes={"m": 8, "n": 36, "f": 3, "w": 9})


def paged(y, kappa, sequences):
    """A pool in reverse order, in pages of four keys where that is possible, its scales, and a table."""
    size = 1 if len(y) % 4 else 4
    table = torch.arange(len(y) // size, dtype=torch.int32, device=y.device).flip(0).expand(sequences, -1)
    return y.view(-1, size, y.shape[1]).flip(0), kappa.float().view(-1, size).flip(0), table


def new_tokens(m, n):
    """Each second query sees one key more than the one before."""
    last = torch.arange(m) // 2 * 11 % n + 1 + torch.arange(m) % 2
    return {"J": (torch.arange(n) < last[:, None]).double()}


@case(returns="IX-window", values=new_tokens, **PAGED)
def from_pages(module, x, y, omega, J):
    tokens = 1 if len(omega) % 2 else 2
    q, weights = x.unflatten(0, (-1, tokens)), omega.float().unflatten(0, (-1, tokens))
    pool, scale, table = paged(y, torch.ones_like(y[:, 0]), len(q))
    lengths = J.sum(1).to(torch.int32)[tokens - 1 :: tokens]
    return seen(module.indexer_logits_paged(q, pool, weights, lengths, table, scale).flatten(0, 1))


@from_pages.pytorch
def _(module, x, y, omega, J):
    return torch.where(J > 0, module.indexer_logits_reference(x, y, omega.float(), end=None), 0.0)


@case(returns="IX-scales", **PAGED)
def scales_from_pages(module, x, y, omega, sigma, kappa, m, n):
    pool, scale, table = paged(y, kappa, m)
    lengths = torch.full((m,), n, dtype=torch.int32, device=x.device)
    weights = (omega.float() * sigma.float())[:, None]
    return module.indexer_logits_paged(x[:, None], pool, weights, lengths, table, scale)[:, 0]


@scales_from_pages.pytorch
def _(module, x, y, omega, sigma, kappa):
    return module.indexer_logits_reference(x, y, omega.float() * sigma.float(), kappa.float(), end=None)


# ---------------------------------------------------------------- what is measured
WIDTH = 128


def logits_cost(M, S, H, D, size, windows, scales=True):
    """size: bytes of a number of q and k. windows: bytes of bounds."""
    read = (M * H + S) * D * size + 4 * M * H + (4 * S if scales else 0) + windows
    return {"forward": dict(bytes_read=read, bytes_written=4 * M * S, operations=(2 * D + 3) * H * M * S)}


def cost(shape, dtype):
    M, S, H = shape
    return logits_cost(M, S, H, WIDTH, 1 if dtype == CODES else dtype.itemsize, 4 * M)


def inputs(shape, dtype, device):
    M, S, H = shape
    q, k = (torch.randn(*size, WIDTH, device=device).to(dtype) for size in ((M, H), (S,)))
    weights, k_scale = torch.randn(M, H, device=device), torch.rand(S, device=device) + 0.5
    end = torch.full((M,), S, dtype=torch.int32, device=device)
    return dict(q=q, k=k, weights=weights, k_scale=k_scale, end=end)


def eager(q, k, weights, k_scale, end):
    """All products of all heads are written, in 512 queries at a time."""
    parts = []
    if q.dtype == CODES:  # PyTorch multiplies them only with other scales
        q, k = q.bfloat16(), k.bfloat16()
    for some, w in zip(q.split(512), weights.split(512)):
        z = (some.flatten(0, 1) @ k.T).relu().view(*some.shape[:2], -1)
        parts.append(torch.einsum("mhn,mh->mn", z, w.to(z.dtype)).float() * k_scale)
    return torch.cat(parts)


def reference(q, k, weights, k_scale, end):
    from annotated_examples.attention.indexer import indexer_logits_reference

    return indexer_logits_reference(q, k, weights, k_scale, end=end)


# Three queries of two heads, six keys of two numbers. Of a second tile two keys are seen.
EXAMPLES = {LESSON: logits_cost(3, 6, 2, 2, 4, windows=12, scales=False)}
BENCH = dict(
    shapes=[(1024, 32768, 64), (64, 65536, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    reference=reference,
    variants={"codes": dict(dtypes=[CODES])},
    host_shape=(64, 1024, 64),
)
