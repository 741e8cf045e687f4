"""The keys that an indexer's scores select: what is compared with formulas, and what is measured.

A set is compared as a mask of ones and zeros. Scores are whole numbers, so that many are equal.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "attention.select_keys"
FAST = "fast.select_keys"
FUNCTION = "select_keys"
AXES = ("queries", "keys")
DERIVATION = "indexer"


# ---------------------------------------------------------------- public functions
WINDOWS = {"start": "queries: int32 below 3", "end": "queries: int32 below keys"}


def long_row():
    """Of few long rows each is shared by many programs of the fast version."""
    return {"logits": torch.randn(1, 2**14)}


PUBLIC = [
    Public(
        "select_keys",
        {"logits": "queries keys", "k": (3, 40)} | WINDOWS,
        at=(9, 300), differentiable=False, calls=[dict(k=20), dict(k=30, inputs=long_row)], batch={"queries": ""},
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def windows(m, n):
    """Windows of several lengths, one of a single key and one of all."""
    first = torch.arange(m) * 3 % 5
    last = torch.where(torch.arange(m) == 1, first + 1, n - torch.arange(m) * 2 % 7)
    at = torch.arange(n)
    return {"J": ((at >= first[:, None]) & (at < last[:, None])).double(), "r": 6}


USUAL = dict(modules=(LESSON, FAST), returns="IX-keep", values=windows, sizes={"m": 5, "n": 37}, forward_only=True)


def mask_of(keys, like):
    """1 at each key that is listed."""
    mask = torch.zeros(len(like), like.shape[1] + 1, dtype=like.dtype, device=like.device)
    return mask.scatter(1, torch.where(keys == -1, like.shape[1], keys).long(), 1.0)[:, :-1]


def bounds(J):
    """Where each window begins and ends."""
    first = J.argmax(1).to(torch.int32)
    return first, first + J.sum(1).to(torch.int32)


@case(**USUAL, dtypes=("float32", "float16", "bfloat16"))
def select_keys(module, Lambda, J, r):
    start, end = bounds(J)
    return mask_of(module.select_keys(Lambda, int(r), start=start, end=end), Lambda)


@select_keys.pytorch
def _(module, Lambda, J, r):
    start, end = bounds(J)
    return mask_of(module.select_keys_reference(Lambda, int(r), start=start, end=end), Lambda)


@case(**USUAL | dict(modules=LESSON))
def in_small_chunks(module, Lambda, J, r):
    return mask_of(module.select_keys_forward(Lambda, int(r), *bounds(J), BLOCK_V=8, BITS=1), Lambda)


@case(**USUAL | dict(modules=FAST, sizes={"m": 5, "n": 97}))
def with_a_guess(module, Lambda, J, r):
    tiles = dict(WARPS=1, THREADS=1, SAMPLE=16)
    return mask_of(module.select_keys_forward(Lambda, int(r), *bounds(J), **tiles), Lambda)


@case(**USUAL | dict(modules=FAST, sizes={"m": 5, "n": 97}))
def in_parts(module, Lambda, J, r):
    tiles = dict(WARPS=1, THREADS=1, SAMPLE=16, PART=32)
    return mask_of(module.select_keys_forward(Lambda, int(r), *bounds(J), **tiles), Lambda)


for each in (in_small_chunks, with_a_guess, in_parts):
    each.pytorch(select_keys.said["pytorch"])


def many(m, n):
    """More places than float16 has whole numbers without a gap, and no two scores that are equal."""
    return {"J": torch.ones(m, n), "r": n - n // 44, "Lambda": (torch.arange(n) * 1009 % n + 1.0).expand(m, n)}


many_keys = select_keys.again(values=many, sizes={"m": 1, "n": 2100}, dtypes=("float32",))
# The formula asks of each pair of keys which comes first. A mask is exact in floats, too, where all keys are.
WITHOUT_ROUNDING = {"sizes": {"many_keys": {"n": 100}}}


# ---------------------------------------------------------------- what is measured
MANY = 2048


# Memory sees a row once, and the positions; what is read again comes from the L2 cache. Each reading takes a dozen
# operations for the key of a score, and one comparison. What the search does with the list isn't counted.
def cost(shape, dtype, k=MANY):
    rows, keys = shape
    read = rows * keys * dtype.itemsize
    return {"forward": dict(bytes_read=read, bytes_written=4 * rows * k, operations=26 * rows * keys)}


def inputs(shape, dtype, device):
    """Scores of which an indexer's ReLU has left some 0."""
    return dict(logits=torch.randn(shape, dtype=dtype, device=device).relu())


def reference(logits):
    from annotated_examples.attention.select_keys import select_keys_reference

    return select_keys_reference(logits, MANY)


def flashinfer():
    """Equal scores as ours: the lower position wins. Its positions are in no order."""
    from flashinfer.topk import TopKTieBreak, top_k

    return lambda logits: top_k(logits, MANY, tie_break=TopKTieBreak.SMALL)[1]


# Windows of four and of five scores, four bounds, six positions; and room for lists, filled from both ends.
EXAMPLES = {
    LESSON: {"forward": dict(bytes_read=9 * 4 + 16 + 12 * 8, bytes_written=2 * 3 * 4 + 12 * 8, operations=0)},
    FAST: {"forward": dict(bytes_read=96 * 4 + 64 * 8, bytes_written=3 * 4 + 96 * 8, operations=0)},
}
BENCH = dict(
    shapes=[(4096, 65536), (64, 65536)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=lambda function: lambda logits: function(logits, MANY),
    eager=lambda logits: torch.topk(logits, MANY, sorted=False).indices,
    eager_name="torch.topk",
    reference=reference,
    peers={"FlashInfer": flashinfer},
    host_shape=(64, 4096),
)
