"""Coefficients of residual streams: what is compared with formulas, and what is measured.

`shape` is (tokens, streams, channels).
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "model.stream_coefficients"
FAST = None
FUNCTION = "stream_coefficients"
AXES = ("tokens", "streams", "channels")
DERIVATION = "hyper_connections"


# ---------------------------------------------------------------- public functions
def of_streams(tokens, streams, channels):
    columns = 2 * streams + streams**2
    return {
        "x": torch.randn(tokens, streams, channels),
        "phi": torch.randn(columns, streams * channels) / (streams * channels) ** 0.5,
        "alpha": torch.randn(3),
        "bias": torch.randn(columns),
    }


PUBLIC = [
    Public(
        "stream_coefficients", of_streams, at=(6, 4, 70), sizes={"streams": (1, 3, 4), "channels": (1, 5, 70)},
        options={"iterations": (20, 2), "eps": (1e-6, 1e-3)}, calls=[{}], more=[dict(iterations=3, eps=0.1)],
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
GRADIENTS = {"x": "HC-x", "Phi": "HC-phi", "alpha": "HC-alpha", "beta": "HC-bias"}
ROWS = dict(modules=LESSON, rows=("x", "nabla_C"), returns="HC-coefficients")


def near_zero(Z):
    """The printed exponentials have nothing subtracted."""
    return {"Z": Z - 4 * torch.round(Z / 4)}


def columns(each, n, dim=0):
    """As many as the function wants for n streams; those that the page hasn't are zeros."""
    missing = 2 * n + n * n - each.shape[dim]
    return torch.cat([each, each.new_zeros(*each.shape[:dim], missing, *each.shape[dim + 1 :])], dim)


@case(**ROWS, gradients=GRADIENTS, sizes={"n": 4, "q": 24, "d": 36})
def coefficients(module, x, Phi, alpha, beta, varepsilon, n):
    """Before the mixture's logits become a mixture."""
    streams, weights, bias = x.unflatten(-1, (n, -1)), columns(Phi, n), columns(beta, n)
    pre, post, logits = module.coefficients(streams, weights, alpha, bias, varepsilon)
    return torch.cat([pre, post, logits.flatten(-2)], -1)[..., : len(Phi)]


three_streams = coefficients.again(sizes={"n": 3, "q": 15, "d": 15})


@case(**ROWS, gradients=GRADIENTS, sizes={"n": 2, "q": 8, "d": 42, "rows": 9})
def in_small_blocks(module, x, Phi, alpha, beta, varepsilon, n, nabla_C):
    """Two programs share the tokens of each block of channels."""
    streams, size, q = x.unflatten(-1, (n, -1)), dict(BLOCK_M=2, BLOCK_K=16), len(Phi)
    given = streams, columns(Phi, n), alpha, columns(beta, n)
    pre, post, logits, mix, rstd = module.coefficients_forward(*given, varepsilon, keep=True, **size)
    upstream = columns(nabla_C.float(), n, 1).split([n, n, n * n], -1)
    dx, dPhi, dalpha, dbeta = module.coefficients_backward(
        *upstream, *given, pre, post, mix, rstd, num_programs=6, **size
    )
    outputs = torch.cat([pre, post, logits.flatten(-2)], -1)[..., :q]
    return outputs, {"x": dx.flatten(-2), "Phi": dPhi[:q], "alpha": dalpha, "beta": dbeta[:q]}


@case(modules=LESSON, rows=("x",), returns=("HC-mix", "HC-rstd"), sizes={"n": 3, "q": 15, "d": 15}, forward_only=True)
def saved_for_backward(module, x, Phi, alpha, beta, varepsilon, n):
    given = x.unflatten(-1, (n, -1)), columns(Phi, n), alpha, columns(beta, n)
    mix, rstd = module.coefficients_forward(*given, varepsilon, keep=True)[3:]
    return mix[:, : len(Phi)], rstd


@case(
    modules=LESSON,
    rows=("x",),
    returns=("HC-coefficients", "HC-H"),
    sizes={"n": 3, "q": 6, "d": 15},
    values=near_zero,
    forward_only=True,
)
def stream_coefficients(module, x, Phi, alpha, beta, varepsilon, n, T, Z):
    """Without a product, the mixture's logits are what is added to it: the formula's Z."""
    bias = torch.cat([columns(beta, n)[: 2 * n], Z.flatten()])
    pre, post, res = module.stream_coefficients(
        x.unflatten(-1, (n, -1)), columns(Phi, n), alpha, bias, iterations=T, eps=varepsilon
    )
    return torch.cat([pre, post], -1)[..., : len(Phi)], res


def product(x, Phi, varepsilon):
    wide = torch.promote_types(x.dtype, torch.float32)
    rstd = torch.rsqrt(x.to(wide).square().mean(-1) + varepsilon)
    return (x @ Phi.mT).to(wide) * rstd[..., None], rstd


@coefficients.pytorch
@three_streams.pytorch
@in_small_blocks.pytorch
def _(x, Phi, alpha, beta, varepsilon, n):
    mix, _ = product(x, Phi, varepsilon)
    scale = torch.cat([each.expand(count) for each, count in zip(alpha.to(mix.dtype), (n, n, n * n))])
    z = mix * scale[: len(Phi)] + beta.to(mix.dtype)
    return torch.cat([z[:, :n].sigmoid(), 2 * z[:, n : 2 * n].sigmoid(), z[:, 2 * n :]], -1)


@stream_coefficients.pytorch
def _(module, x, Phi, alpha, beta, varepsilon, n, T, Z):
    mix, _ = product(x, Phi, varepsilon)
    z = mix * alpha.to(mix.dtype)[:2].repeat_interleave(n)[: len(Phi)] + beta.to(mix.dtype)
    gates = torch.cat([z[:, :n].sigmoid(), 2 * z[:, n:].sigmoid()], -1)
    return gates, module.sinkhorn_reference(Z, T).expand(len(x), n, n)


@coefficients.upstream
@three_streams.upstream
@in_small_blocks.upstream
def _(nabla_C):
    return nabla_C


@saved_for_backward.pytorch
def _(x, Phi, varepsilon):
    return product(x, Phi, varepsilon)


# ---------------------------------------------------------------- what is measured
# Forward reads all streams once; backward reads them and writes their gradient, and reads the product, its coefficients
# and their gradients. The matrix is read once, and partial sums of its gradient aren't counted.
def cost(shape, dtype):
    tokens, n, C = shape
    columns, size = 2 * n + n * n, dtype.itemsize
    streams, matrix, others = tokens * n * C * size, columns * n * C * size, 4 * (3 + columns)
    product = 2 * tokens * n * C * columns
    return {
        "forward": dict(
            bytes_read=streams + matrix + others, bytes_written=4 * tokens * columns,
            operations=product + 2 * tokens * n * C,
        ),
        "backward": dict(
            bytes_read=streams + matrix + 12 + 4 * tokens * (2 * columns + 2 * n + 1), bytes_written=streams + matrix,
            operations=2 * product,
        ),
    }  # fmt: skip


# Forward also keeps the product and a number a token for backward; and two programs store sums for the matrix each.
def example():
    costs = cost((3, 2, 2), torch.float32)
    costs["forward"]["bytes_written"] += 4 * 3 * (8 + 1)
    costs["backward"]["bytes_written"] += 4 * 8 * 4
    return costs


def inputs(shape, dtype, device):
    made = {name: x.to(device) for name, x in of_streams(*shape).items()}
    return made | {name: made[name].to(dtype) for name in ("x", "phi")}


def eager(x, phi, alpha, bias):
    from annotated_examples.model.stream_coefficients import stream_coefficients_reference

    return stream_coefficients_reference(x, phi, alpha, bias)


EXAMPLES = {LESSON: example()}
BENCH = dict(
    shapes=[(8192, 4, 4096), (1024, 4, 4096)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward", "backward"],
    differentiable=["x", "phi", "alpha", "bias"],
)
