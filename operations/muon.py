"""Muon: what is compared with formulas, and what is measured.

`shape` is (matrices, rows, columns), of which the rows are the shorter edge.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "optimizers.muon"
FAST = "fast.muon"
BOTH = (LESSON, FAST)
FUNCTION = "orthogonalize"
AXES = ("matrices", "rows", "columns")
DERIVATION = "muon"


# ---------------------------------------------------------------- public functions
def with_a_symmetric_matrix(product):
    """Any square matrix and its transpose make a symmetric one."""

    def call(a, square, **options):
        return product(a, d=square + square.mT, **options)

    return call


def alone():
    return {"a": torch.randn(2, 37, 50).bfloat16()}


#: Three rounds of Polar Express.
THREE = ((8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.5250))
PUBLIC = [
    Public(
        "symmetric_product",
        {"a": "batch rows cols", "square": "batch rows rows", "alpha": (1.0, -0.7), "beta": (0.0, 1.3)},
        at=(2, 37, 50), wrap=with_a_symmetric_matrix, differentiable=False, batch={"batch": ""},
        calls=[dict(alpha=0.7, beta=1.3), dict(inputs=alone, wrap=None)],
    ),
    Public(
        "orthogonalize", {"x": "batch rows cols"}, at=(2, 37, 50), differentiable=False, batch={"batch": ""},
        calls=[{}, dict(coefficients=THREE, safety=1.01)],
    ),
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
@case(modules=BOTH, returns="MU-C", rows=("G", "E"), forward_only=True, dtypes=("float32", "float16", "bfloat16"))
def symmetric_product(module, G, E, alpha, beta):
    return module.symmetric_product(G, alpha=alpha, d=E + E.mT, beta=beta)


@case(modules=LESSON, returns="MU-C", forward_only=True, sizes={"m": 37})
def in_small_tiles(module, G, E, alpha, beta, at_end):
    """Five rows of tiles."""
    return module.symmetric_forward(at_end(G)[None], at_end(E + E.mT)[None], alpha, beta, BLOCK=8, BLOCK_K=16)[0]


@case(modules=FAST, returns="MU-C", forward_only=True, sizes={"m": 40}, dtypes=("float16", "bfloat16"))
def by_descriptors(module, G, E, alpha, beta):
    """Rows begin at multiples of 16 bytes, but the last tile ends outside."""
    return module.symmetric_forward(G[None], (E + E.mT)[None].contiguous(), alpha, beta, BLOCK=16, BLOCK_K=32)[0]


@symmetric_product.pytorch
@in_small_tiles.pytorch
@by_descriptors.pytorch
def _(G, E, alpha, beta):
    return alpha * G @ G.mT + beta * (E + E.mT)


def known(x, y, s):
    """The page's matrices, of their singular values."""
    U, V = (
        torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
        - 2 * z[..., :, None] * z[..., None, :] / z.square().sum(-1)[..., None, None]
        for z in (x, y)
    )
    return (U * s[..., None, :]) @ V[..., : s.shape[-1]].mT


KELLER = dict(a=3.4445, b=-4.775, c=2.0315)
ROUND = dict(
    modules=BOTH, rows=("x", "y", "s"), forward_only=True, dtypes=("float32",),
    values=KELLER | {"kappa": 1.25, "varepsilon": 0.5},
)  # fmt: skip


@case(**ROUND, returns="MU-step")
def one_round(module, x, y, s, kappa, varepsilon, a, b, c):
    return module.orthogonalize(known(x, y, s), ((a, b, c),), safety=kappa, eps=varepsilon)


@case(**ROUND, returns="MU-step")
def of_a_tall_matrix(module, x, y, s, kappa, varepsilon, a, b, c):
    return module.orthogonalize(known(x, y, s).mT, ((a, b, c),), safety=kappa, eps=varepsilon).mT


@case(**ROUND, returns="MU-step", sizes={"m": 19, "rows": 2})
def a_round_in_small_tiles(module, x, y, s, kappa, varepsilon, a, b, c):
    tiles = dict(BLOCK=8, BLOCK_K=16)
    return module.orthogonalize_forward(known(x, y, s), ((a, b, c),), kappa, varepsilon, **tiles)


@one_round.pytorch
@of_a_tall_matrix.pytorch
@a_round_in_small_tiles.pytorch
def _(module, x, y, s, kappa, varepsilon, a, b, c):
    return module.orthogonalize_reference(known(x, y, s), ((a, b, c),), safety=kappa, eps=varepsilon)


a_round_by_descriptors = a_round_in_small_tiles.again(modules=FAST, sizes={"m": 24, "rows": 2})


def in_float32(x, y, s, kappa, varepsilon, b, c):
    """B and X, which no kernel has rounded to 16 bits."""
    M = known(x, y, s)
    X = M / torch.clamp(kappa * torch.linalg.matrix_norm(M, keepdim=True), min=varepsilon)
    A = X @ X.mT
    return b * A + c * A @ A, X


@case(**ROUND, returns="MU-step")
def third_product(module, x, y, s, kappa, varepsilon, a, b, c):
    return module.step_forward(*in_float32(x, y, s, kappa, varepsilon, b, c), a)


@third_product.pytorch
def _(x, y, s, kappa, varepsilon, a, b, c):
    B, X = in_float32(x, y, s, kappa, varepsilon, b, c)
    return a * X + B @ X


@case(**ROUND | dict(modules=LESSON), returns="MU-norm", sizes={"m": 37})
def a_norm_in_strips(module, x, y, s, kappa, varepsilon):
    return module.normalized(known(x, y, s), kappa, varepsilon, BLOCK_M=4, BLOCK_N=8)


@case(**ROUND | dict(modules=LESSON), returns="MU-norm")
def a_norm_below_the_smallest(module, x, y, s, kappa, varepsilon):
    return module.normalized(known(x, y, s), kappa, varepsilon)


@a_norm_below_the_smallest.values
def _(s):
    return {"s": s / 1e6, "kappa": 1.25, "varepsilon": 0.5}


@a_norm_in_strips.pytorch
@a_norm_below_the_smallest.pytorch
def _(module, x, y, s, kappa, varepsilon):
    return module.orthogonalize_reference(known(x, y, s), (), safety=kappa, eps=varepsilon)


@case(**ROUND | dict(modules=LESSON), returns="MU-gram")
def gram(module, x, y, s, kappa, varepsilon):
    return module.symmetric_forward(module.normalized(known(x, y, s), kappa, varepsilon), None, 1.0, 0.0)


@gram.pytorch
def _(module, x, y, s, kappa, varepsilon):
    X = module.orthogonalize_reference(known(x, y, s), (), safety=kappa, eps=varepsilon)
    return module.symmetric_product_reference(X)


@case(**ROUND | dict(modules=LESSON), returns="MU-poly")
def polynomial(module, x, y, s, kappa, varepsilon, b, c):
    X = module.normalized(known(x, y, s), kappa, varepsilon)
    A = module.symmetric_forward(X, None, 1.0, 0.0)
    return module.symmetric_forward(A, A, c, b)


@polynomial.pytorch
def _(module, x, y, s, kappa, varepsilon, b, c):
    X = module.orthogonalize_reference(known(x, y, s), (), safety=kappa, eps=varepsilon)
    A = module.symmetric_product_reference(X)
    return module.symmetric_product_reference(A, alpha=c, d=A, beta=b)


@case(modules=LESSON, returns=("MU-average", "MU-update"), rows=("g",), forward_only=True, dtypes=("float32",))
def averages(module, g, mu):
    """Each row is an element of a weight, and each column a step."""
    weight = torch.nn.Parameter(torch.zeros(1, len(g), device=g.device))
    optimizer, seen = module.Muon([weight], momentum=mu), []
    for grad in g.unbind(1):
        weight.grad = grad[None].clone()
        update = optimizer.averaged([weight], optimizer.param_groups[0])
        seen.append((optimizer.state[weight]["momentum_buffer"][0].clone(), update[0, 0]))
    return tuple(torch.stack(each, 1) for each in zip(*seen))


@averages.pytorch
def _(g, mu):
    average, seen = torch.zeros_like(g[:, 0]), []
    for grad in g.unbind(1):
        average = average + (1 - mu) * (grad - average)
        seen.append((average, grad + mu * (average - grad)))
    return tuple(torch.stack(each, 1) for each in zip(*seen))


# ---------------------------------------------------------------- what is measured
# Five rounds of three products, two of them by half.
def cost(shape, dtype):
    batch, m, n = shape
    numbers = batch * m * n
    return {
        "forward": dict(
            bytes_read=numbers * dtype.itemsize, bytes_written=2 * numbers,
            operations=5 * batch * (3 * m * m * n + m**3),
        )
    }  # fmt: skip


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def eager(x):
    """PyTorch's, one matrix after the other."""
    from torch.optim._muon import _zeropower_via_newtonschulz

    return torch.stack([_zeropower_via_newtonschulz(each, (3.4445, -4.7750, 2.0315), 5, 1e-7) for each in x])


def batched(x):
    """The same with batched products."""
    y = x.bfloat16()
    y = y / y.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), y, beta=3.4445)
    return y


# A product of 5 by 6 with itself, by half; of 40 by 16.
EXAMPLES = {
    LESSON: {"forward": dict(bytes_read=4 * 30, bytes_written=4 * 25, operations=5 * 5 * 6)},
    FAST: {"forward": dict(bytes_read=2 * 640, bytes_written=2 * 1600, operations=40 * 40 * 16)},
}
BENCH = dict(
    shapes=[(1, 4096, 4096), (1, 2048, 2048), (1, 2048, 8192), (24, 1024, 1024), (4, 4096, 4096)],
    dtypes=[torch.float32],
    inputs=inputs,
    eager=eager,
    peers={"batched": lambda inputs: batched},
)
