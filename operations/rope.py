"""RoPE: what is compared with formulas, and what is measured.

A shape is (B, H, Hk, T, D): all features of a head are turned.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "classics.rope"
FAST = None
FUNCTION = "rope"
AXES = ("batch", "heads", "key heads", "tokens", "head dimension")
DERIVATION = "rope"


# ---------------------------------------------------------------- public functions
def turned_by_tables(rope):
    """By angles of at most 24 features, and the tables get no gradient."""

    def call(q, k, **options):
        tokens, half = q.shape[-2], min(q.shape[-1] // 2, 12)
        wide = torch.promote_types(q.dtype, torch.float32)
        angles = torch.arange(tokens * half, device=q.device, dtype=wide).view(tokens, half) / 10
        return rope(q, k, angles.cos(), angles.sin(), **options)

    return call


PUBLIC = [
    Public(
        "rope", {"q": "batch 4 tokens width", "k": "batch 2 tokens width", "interleaved": (False, True)}, at=(2, 6, 32),
        sizes={"width": (16, 38)}, wrap=turned_by_tables, batch={"batch": ""},
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = ("RoPE-q", "RoPE-k")
GRADIENTS = {"q": "RoPE-dq", "k": "RoPE-dk"}
ROWS = ("q", "k", "nabla_u", "nabla_w")


def tables(position, omega, x):
    """Cosine and sine for tokens that all stand at one position. The angles are float32, whatever `x` is."""
    omega = omega.detach().to(torch.promote_types(omega.dtype, torch.float32))
    angles = (position * omega).expand(x.shape[0], -1)
    return angles.cos(), angles.sin()


def one_head(x):
    return x[None, None]


def of_queries_and_keys(nabla_u, nabla_w):
    return nabla_u, nabla_w


def of_half_split(nabla_v):
    return nabla_v


def turned(x, position, omega, interleaved):
    """In plain PyTorch, with numbers of the dtype of `x`."""
    cos, sin = (table.to(x.dtype) for table in tables(position, omega, x))
    R = 2 * cos.shape[-1]
    a, b = (x[:, 0:R:2], x[:, 1:R:2]) if interleaved else (x[:, : R // 2], x[:, R // 2 : R])
    pairs = [a * cos - b * sin, a * sin + b * cos]
    rotated = torch.stack(pairs, -1).flatten(1) if interleaved else torch.cat(pairs, 1)
    return torch.cat([rotated, x[:, R:]], 1)


def interleaved_pairs(q, k, omega, m, n):
    return turned(q, m, omega, True), turned(k, n, omega, True)


def half_split_pairs(x, omega, m):
    return turned(x, m, omega, False)


OF_HALF_SPLIT = dict(
    modules=LESSON,
    returns="RoPE-half",
    gradients={"x": "RoPE-half-dx"},
    rows=("x", "nabla_v"),
    upstream=of_half_split,
    pytorch=half_split_pairs,
)


@case(
    modules=LESSON,
    returns=BOTH,
    gradients=GRADIENTS,
    rows=ROWS,
    upstream=of_queries_and_keys,
    pytorch=interleaved_pairs,
    values={"m": 3.0, "n": 5.0},
)
def interleaved(module, q, k, omega, m, n):
    cos, sin = tables(m, omega, q)
    u, _ = module.rope(one_head(q), one_head(k), cos, sin, interleaved=True)
    cos, sin = tables(n, omega, q)
    _, w = module.rope(one_head(q), one_head(k), cos, sin, interleaved=True)
    return u[0, 0], w[0, 0]


@case(**OF_HALF_SPLIT, values={"m": 3.0})
def half_split(module, x, omega, m):
    """Each row is a sequence of one token, with a table of its own."""
    cos, sin = (table[:, None] for table in tables(m, omega, x))
    x = x[:, None, None]
    return module.rope(x, x, cos, sin)[0][:, 0, 0]


@case(**OF_HALF_SPLIT, values={"m": -2.0}, sizes={"h": 5})
def beside_features_that_are_not_turned(module, x, nabla_v, omega, m):
    """The rows are heads of one token, two for each program."""
    d, (cos, sin) = x.shape[1], (table[:1] for table in tables(m, omega, x))
    x, nabla_v = (torch.cat([values, values[:, :3]], 1)[None, :, None] for values in (x, nabla_v))
    _, v = module.rope_forward(x, x, cos, sin, BLOCK_H=2)
    _, dx = module.rope_backward(nabla_v, nabla_v, cos, sin, BLOCK_H=2)
    return v[0, :, 0, :d], {"x": dx[0, :, 0, :d]}


# ---------------------------------------------------------------- what is measured
# Tables in float32, one for all sequences. Each element of q and k is read and written; backward does the same.
def cost(shape, dtype):
    B, H, Hk, T, D = shape
    numel, table = B * (H + Hk) * T * D, 2 * T * (D // 2) * 4
    each = dict(bytes_read=numel * dtype.itemsize + table, bytes_written=numel * dtype.itemsize, operations=3 * numel)
    return {"forward": each, "backward": each}


# Heads as a projection leaves them: those of one token are neighbours in memory.
def inputs(shape, dtype, device):
    B, H, Hk, T, D = shape
    heads = {
        name: torch.randn(B, T, n, D, dtype=dtype, device=device).transpose(1, 2) for name, n in dict(q=H, k=Hk).items()
    }
    angles = torch.arange(T, device=device)[:, None] / 10000 ** (torch.arange(D // 2, device=device) / (D // 2))
    return heads | dict(cos=angles.cos(), sin=angles.sin())


# Each head's tokens are neighbours.
def contiguous_inputs(shape, dtype, device):
    return {name: value.contiguous() for name, value in inputs(shape, dtype, device).items()}


# It turns q and k in place, in a table as wide as a head.
def liger(example):
    from liger_kernel.ops.rope import LigerRopeFunction

    wide = [torch.cat([example[name], example[name]], -1)[None].to(example["q"].dtype) for name in ("cos", "sin")]
    return lambda q, k, cos, sin: LigerRopeFunction.apply(q, k, *wide)


# One launch for each of the two tensors.
def quack(example, interleaved=False):
    from quack.rotary import apply_rotary_emb

    def both(q, k, cos, sin):
        turned = (apply_rotary_emb(x.transpose(1, 2), cos, sin, interleaved) for x in (q, k))
        return tuple(x.transpose(1, 2) for x in turned)

    return both


def reference(q, k, cos, sin, interleaved=False):
    from annotated_examples.classics.rope import rope_reference

    return rope_reference(q, k, cos, sin, interleaved=interleaved)


# The example turns 6 of 8 features.
def example_cost(shape, dtype):
    costs, T = cost(shape, dtype), shape[3]
    return {which: {**parts, "bytes_read": parts["bytes_read"] - 2 * T * 4} for which, parts in costs.items()}


EXAMPLES = {LESSON: example_cost((1, 3, 1, 2, 8), torch.float32)}
BENCH = dict(
    shapes=[(8, 32, 8, 4096, 128), (4, 32, 32, 4096, 128), (8, 12, 12, 4096, 64), (2, 16, 2, 8192, 256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=reference,
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward", "backward"],
    differentiable=["q", "k"],
    host_shape=(1, 4, 4, 16, 64),
    variants={
        "": {},
        "interleaved": dict(
            shapes=[(8, 32, 8, 4096, 128)],
            call=lambda rope: lambda **tensors: rope(**tensors, interleaved=True),
            eager=lambda **tensors: reference(**tensors, interleaved=True),
            peers={"quack": lambda example: quack(example, interleaved=True)},
        ),
        "heads first": dict(shapes=[(8, 32, 8, 4096, 128)], inputs=contiguous_inputs, peers={}),
    },
)
