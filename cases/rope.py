"""Which calls of the RoPE kernels are compared with the formulas of backprop_math/rope.md."""

from academy.formulas.cases import case

MODULE = "classics.rope"
BOTH = ("RoPE-q", "RoPE-k")
GRADIENTS = {"q": "RoPE-dq", "k": "RoPE-dk"}
ROWS = ("q", "k", "nabla_u", "nabla_w")


def tables(position, omega, x):
    """Cosine and sine for tokens that all stand at one position. The angles are float32, whatever `x` is."""
    import torch

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
    import torch

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
    modules=MODULE,
    returns="RoPE-half",
    gradients={"x": "RoPE-half-dx"},
    rows=("x", "nabla_v"),
    upstream=of_half_split,
    pytorch=half_split_pairs,
)


@case(
    modules=MODULE,
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
    cos, sin = tables(m, omega, x)
    return module.rope(one_head(x), one_head(x), cos, sin)[0][0, 0]


@case(**OF_HALF_SPLIT, values={"m": -2.0}, sizes={"h": 5})
def beside_features_that_are_not_turned(module, x, nabla_v, omega, m):
    import torch

    d, (cos, sin) = x.shape[1], tables(m, omega, x)
    x, nabla_v = (one_head(torch.cat([values, values[:, :3]], 1)) for values in (x, nabla_v))
    _, v = module.rope_forward(x, x, cos, sin, BLOCK_H=2)
    _, dx = module.rope_backward(nabla_v, nabla_v, cos, sin, BLOCK_H=2)
    return v[0, 0, :, :d], {"x": dx[0, 0, :, :d]}
