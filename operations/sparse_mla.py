"""Attention to selected keys: what is compared with formulas, and what is measured.

`shape` is (queries, heads, keys, selected keys); a latent has 512 numbers and 64 rotated ones.
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.mla_decode import OPTIONS, RANK, ROTATED

LESSON = "attention.sparse_mla"
FAST = "fast.sparse_mla"
PARTS = ["gluon.sparse_mla"]
FUNCTION = "sparse_attention"
AXES = ("queries", "heads", "keys", "selected keys")
DERIVATION = "sparse_mla"


# ---------------------------------------------------------------- public functions
def some_lists(queries, keys):
    """Nine numbers for each query: some are none, some name a key twice, the second list has no key."""
    at = torch.arange(queries * 9).view(queries, 9)
    lists = torch.where(at % 7 == 3, -1, at * 5 % max(keys, 1)) if keys else torch.full_like(at, -1)
    lists[1:2] = -1
    return lists.int()


def selected(tokens, keys, width):
    return {
        "q": torch.randn(tokens, 4, width), "kv": torch.randn(keys, width), "indices": some_lists(tokens, keys),
    }  # fmt: skip


def with_sinks():
    return {name: x.bfloat16() if x.is_floating_point() else x for name, x in selected(9, 40, 40).items()} | {
        "sinks": torch.randn(4)
    }


CALL = dict(rank=12, scale=0.2)
PUBLIC = [
    Public(
        "sparse_attention", selected, at=(9, 40, 40), options=CALL, sizes={"width": (16, 40)}, calls=[CALL],
        batch={"tokens": {FAST: "large calls go to another kernel on a Hopper card"}},
        more=[CALL | dict(deterministic=False), CALL | dict(inputs=with_sinks, return_lse=True)],
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def tame(Q, C, s, b, beta):
    """Scores of a few units, and no sinks. Around ±10⁴ each softmax has a single key."""
    return {name: torch.sin(x) for name, x in dict(Q=Q, C=C, b=b).items()} | {"s": 0.75, "beta": 0 * beta}


def with_a_sink(Q, C, s, b, beta):
    return tame(Q, C, s, b, beta) | {"beta": torch.ones_like(b)}


def lists(J, Omega):
    """Each query's list: in the order of its own, with gaps, and before it a tile of 16 without a key."""
    named = [[key for key, n in enumerate(row) for _ in range(int(n))] for row in (J + Omega).tolist()]
    named = [[-1] * 16 * (i % 2) + row[i % 5 :] + [-1] * 3 + row[: i % 5] for i, row in enumerate(named)]
    longest = max(map(len, named))
    return torch.tensor([row + [-1] * (longest - len(row)) for row in named], dtype=torch.int32, device=J.device)


def by_query(*tensors):
    """(g, m, d) as (m, g, d), and back."""
    return [x.transpose(0, 1) for x in tensors]


USUAL = dict(modules=(LESSON, FAST), values=tame, sizes={"g": 3, "m": 7, "n": 21, "r": 6, "t": 3})
GRADIENTS = {"Q": "SP-dQ", "C": "SP-dC"}


@case(returns=("SP-O", "SP-lse"), gradients=GRADIENTS, **USUAL)
def sparse_attention(module, Q, C, J, Omega, s, r):
    indices = lists(J, Omega)
    return tuple(by_query(*module.sparse_attention(Q.transpose(0, 1), C, indices, rank=r, scale=s, return_lse=True)))


@case(
    returns=("SP-O", "SP-lse"), gradients=GRADIENTS | {"b": "SP-dsink"}, **USUAL | dict(values=with_a_sink)
)  # fmt: skip
def with_sinks_and_atomics(module, Q, C, J, Omega, s, r, b):
    options = dict(rank=r, scale=s, sinks=b, return_lse=True, deterministic=False)
    return tuple(by_query(*module.sparse_attention(Q.transpose(0, 1), C, lists(J, Omega), **options)))


SMALL = dict(BLOCK_M=16, BLOCK_N=16)


@case(
    returns=("SP-O", "SP-lse"), gradients=GRADIENTS, modules=(LESSON, FAST), values=tame, dtypes=("float32",),
    sizes={"g": 19, "m": 7, "n": 21, "r": 6, "t": 3},
)  # fmt: skip
def in_small_tiles(module, Q, C, J, Omega, s, r, nabla_O, nabla_L):
    """More heads than a tile has, and three queries in a launch."""
    q, arguments = Q.transpose(0, 1), (C, lists(J, Omega), None)
    o, lse = module.sparse_attention_forward(q, *arguments, r, s, **SMALL)
    do, dlse = by_query(nabla_O, nabla_L.float())
    dq, dkv, _ = module.sparse_attention_backward(
        do, dlse, q, *arguments, o, lse, r, s, True, **SMALL, queries=3
    )  # fmt: skip
    return tuple(by_query(o, lse.float())), {"Q": dq.transpose(0, 1), "C": dkv}


@in_small_tiles.pytorch
def _(module, Q, C, J, Omega, s, r):
    options = dict(rank=r, scale=s, return_lse=True)
    return tuple(by_query(*module.sparse_attention_reference(Q.transpose(0, 1), C, lists(J, Omega), **options)))


# Heads for two programs, tiles of 32 keys, and latents as wide as the kernel takes them.
@case(
    modules=PARTS[0], returns=("SP-O", "SP-lse"), values=with_a_sink, forward_only=True, dtypes=("float16", "bfloat16"),
    sizes={"g": 70, "m": 2, "n": 21, "r": 64, "t": 16},
)  # fmt: skip
def below_triton(module, Q, C, J, Omega, s, r, b):
    arguments = Q.transpose(0, 1), C, lists(J, Omega), b, r, s
    return tuple(by_query(*module.sparse_attention_forward(*arguments, BLOCK_N=32)))


@below_triton.pytorch
def _(module, Q, C, J, Omega, s, r, b):
    options = dict(rank=r, scale=s, sinks=b, return_lse=True)
    return tuple(by_query(*module.sparse_attention_reference(Q.transpose(0, 1), C, lists(J, Omega), **options)))


# ---------------------------------------------------------------- what is never returned
def identity(Q, C, s, b, beta):
    """Latents that are the rows of an identity: then outputs are probabilities, and a query's gradient is that of its
    scores."""
    return tame(Q, C, s, b, beta) | {"C": torch.eye(*C.shape, dtype=C.dtype), "s": 1.0}


IDENTITY = dict(modules=(LESSON, FAST), values=identity, sizes={"g": 2, "m": 5, "n": 9, "r": 9, "t": 1})
IDENTITY |= dict(forward_only=True)


@case(returns="SP-P", **IDENTITY)
def probabilities(module, Q, C, J, Omega, s, r, n):
    return module.sparse_attention(Q.transpose(0, 1), C, lists(J, Omega), rank=r, scale=s).transpose(0, 1)[..., :n]


@case(returns=("SP-dS", "SP-S"), **IDENTITY)
def gradient_of_scores(module, Q, C, J, Omega, nabla_O, nabla_L, n, r):
    """And the scores themselves: the log-sum-exp of a list of one key."""
    q, arguments = Q.transpose(0, 1), (C, lists(J, Omega), None)
    o, lse = module.sparse_attention_forward(q, *arguments, r, 1.0)
    do, dlse = by_query(nabla_O, nabla_L.float())
    dq, *_ = module.sparse_attention_backward(do, dlse, q, *arguments, o, lse, r, 1.0, True)
    return dq.transpose(0, 1)[..., :n], torch.stack(
        [of_one_key(module.sparse_attention, q, C, j, r) for j in range(n)], -1
    )


@gradient_of_scores.pytorch
def _(module, Q, C, J, Omega, nabla_O, nabla_L, n, r):
    q, reference = Q.transpose(0, 1).detach().requires_grad_(), module.sparse_attention_reference
    o, lse = reference(q, C, lists(J, Omega), rank=r, scale=1.0, return_lse=True)
    do, dlse = by_query(nabla_O, nabla_L.to(lse.dtype))
    (dq,) = torch.autograd.grad((o, lse), q, (do, dlse))
    return dq.transpose(0, 1)[..., :n], torch.stack([of_one_key(reference, q, C, j, r) for j in range(n)], -1)


def of_one_key(function, q, C, j, r):
    indices = torch.full((len(q), 1), j, dtype=torch.int32, device=q.device)
    return function(q.detach(), C, indices, rank=r, scale=1.0, return_lse=True)[1].T


# ---------------------------------------------------------------- what is measured
def sparse_cost(T, H, S, K, rank, rotated, size):
    """A key is read once from memory, and for each pair from the L2 cache. Rows are float32, written and read."""
    W, pairs = rank + rotated, T * K
    inputs, o, rows = (T * H + S) * W * size + 4 * pairs, T * H * rank * size, 4 * pairs * W
    return {
        "forward": dict(bytes_read=inputs, bytes_written=o + 4 * T * H, operations=2 * pairs * H * (W + rank)),
        "backward": dict(
            bytes_read=inputs + 2 * o + 12 * T * H + rows, bytes_written=(T * H + S) * W * size + rows + 4 * T * H,
            operations=2 * pairs * H * (4 * W + 3 * rank),
        ),
    }  # fmt: skip


def cost(shape, dtype):
    T, H, S, K = shape
    return sparse_cost(T, H, S, K, RANK, ROTATED, dtype.itemsize)


def inputs(shape, dtype, device):
    T, H, S, K = shape
    q, kv = (torch.randn(*size, RANK + ROTATED, dtype=dtype, device=device) for size in ((T, H), (S,)))
    return dict(q=q, kv=kv, indices=torch.rand(T, S, device=device).topk(K, sorted=False).indices.int())


def gathered(q, kv, indices):
    """A copy of the keys of a few queries at a time: of all at once it would take 9.7 GB."""
    outputs = []
    for queries, lists in zip(q.split(256), indices.split(256)):
        rows = kv[lists.long()]
        p = torch.softmax(queries @ rows.mT * OPTIONS["scale"], dim=-1)
        outputs.append(p @ rows[..., :RANK])
    return torch.cat(outputs)


# Two queries of two heads, four keys, all of them in a list, and lists of four, with five numbers of keys. Backward
# also reads two results and their gradients, the sorted places of these five, where those of each key begin, and what
# the keys had, in float64.
READ = 12 * 4 + 12 * 4 + 8 * 4
EXAMPLE = {
    "forward": dict(bytes_read=READ, bytes_written=32 + 32, operations=0),
    "backward": dict(bytes_read=READ + 2 * 32 + 32 + 16 + 5 * 8 + 5 * 4 + 96, bytes_written=48 + 96, operations=0),
}  # fmt: skip
# Below Triton a query has three heads, its list of 70 names 36 keys, and these have 80 numbers in 16 bits.
EXAMPLES = {
    LESSON: EXAMPLE,
    FAST: EXAMPLE,
    PARTS[0]: {"forward": sparse_cost(1, 3, 36, 70, 64, 16, 2)["forward"]},
}

BENCH = dict(
    shapes=[(4096, 128, 8192, 2048), (4096, 64, 8192, 2048)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=lambda function: functools.partial(function, **OPTIONS),
    eager=gathered,
    eager_name="PyTorch, keys gathered",
    compile=False,
    passes=["forward", "backward"],
    differentiable=["q", "kv"],
    host_shape=(16, 16, 256, 64),
)
