"""The eight-bit linear layer: what is compared with formulas, and what is measured.

What rounding did to each operand is given to the formulas: it is computed here, by the quantizer in PyTorch.
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._products import AXES  # noqa: F401  academy reads it

LESSON = "fp8.linear"
FAST = None
FUNCTION = "float8_linear"
DERIVATION = "float8_linear"
# A share of 1/p of all products has no inverse, which the formula asks for: a short sum has some chance of none.
WITHOUT_ROUNDING = {"sizes": {"": {"M": 5, "N": 5, "K": 4}}}


# ---------------------------------------------------------------- public functions
def under_older_scales(linear):
    """A layer that has seen one step."""
    from academy.runtime.device import DEVICE
    from annotated_examples.fp8.linear import DelayedScaling

    state = DelayedScaling.of_a_layer(4)
    for scaling in state:
        scaling.scale()
        scaling.record(torch.full((), 3.0, device=DEVICE))
        scaling.step()
    return functools.partial(linear, state=state)


LAYER = {"x": "rows inner", "weight": "cols inner", "bias": "cols"}
PUBLIC = [
    Public(
        "float8_linear", LAYER | {"recipe": ("tensor", "row", "block")}, at=(6, 160, 12), codes=True,
        more=[dict(recipe=each, power_of_two=True, grad_seed=3) for each in ("tensor", "row", "row_gw_hp", "block")],
    ),
    Public(
        "float8_linear_delayed", LAYER, at=(6, 160, 12), wrap=under_older_scales, codes=True,
        batch={"rows": "up to 64 rows have a kernel of their own"},
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
SIZES = {"M": 13, "N": 9, "K": 21}


def errors(x, granularity, gradient=False, tensor=False):
    """What rounding did to each element, relative to itself."""
    from annotated_examples.fp8 import quantize

    dtype = torch.float8_e5m2 if gradient and tensor else torch.float8_e4m3fn
    powers = granularity == "row"
    decoded = quantize.dequantize_fp8_reference(
        *quantize.quantize_fp8_reference(x, granularity, dtype=dtype, power_of_two=powers), torch.float32
    )
    x = x.double()
    return torch.where(x == 0, 0.0, decoded.double() / torch.where(x == 0, 1.0, x) - 1)


def of(kinds):
    """The six errors, of which each is that of a matrix whose columns the product sums."""

    def values(X, W, G):
        (a, b), (c, d), (e, f) = kinds
        one = kinds[0][0] == "tensor"
        return {
            "a": errors(X, a), "b": errors(W, b), "c": errors(G, c, True, one), "d": errors(W.t(), d).t(),
            "r": errors(G.t(), e, True, one).t(), "s": errors(X.t(), f).t(),
        }  # fmt: skip

    return values


def given(G):
    return G


COMMON = dict(
    modules=LESSON,
    returns="FL-Y",
    gradients={"X": "FL-dX", "W": "FL-dW", "beta": "FL-db"},
    sizes=SIZES,
    upstream=given,
    pytorch="float8_linear_reference",
    dtypes=("float32", "bfloat16"),
)
TENSOR = of((("tensor", "tensor"),) * 3)
ROW = of((("row", "row"),) * 3)
BLOCK = of((("1x128", "128x128"), ("1x128", "128x128"), ("1x128", "1x128")))


@case(**COMMON, values=TENSOR)
def one_scale_each(module, X, W, beta):
    return module.float8_linear(X, W, beta)


@case(**COMMON, values=ROW)
def scales_of_rows(module, X, W, beta):
    return module.float8_linear(x=X, weight=W, bias=beta, recipe="row", power_of_two=None, grad_seed=None)


@case(**COMMON, values=BLOCK)
def scales_of_blocks(module, X, W, beta):
    return module.float8_linear(X, W, beta, recipe="block")


# ---------------------------------------------------------------- scales of earlier steps
def after_a_step(module, largest, device):
    """The state of a layer that has seen one step, with these largest magnitudes."""
    state = module.DelayedScaling.of_a_layer(4, device=device)
    for scaling, amax in zip(state, largest):
        scaling.scale()
        scaling.record(torch.full((), amax, device=device))
        scaling.step()
    return state


#: Less than what comes: some of each tensor saturates.
SEEN = (1.5, 1.25, 1.0)


def under_old_scales(X, W, G):
    """What rounding and saturating did to each element."""
    from annotated_examples.fp8 import quantize

    found = []
    for x, amax, dtype in zip((X, W, G), SEEN, (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float8_e5m2)):
        scale = torch.tensor(amax) / quantize.LARGEST[dtype]
        codes, _ = quantize.quantize_fp8_delayed_reference(x, scale, dtype=dtype)
        x, decoded = x.double(), codes.double() * scale.double()
        found.append(torch.where(x == 0, 0.0, decoded / torch.where(x == 0, 1.0, x) - 1))
    a, b, c = found
    return {"a": a, "b": b, "c": c, "d": b, "r": c, "s": a}


@case(**COMMON | dict(pytorch=None), values=under_old_scales)
def scales_of_an_earlier_step(module, X, W, beta):
    return module.float8_linear_delayed(x=X, weight=W, state=after_a_step(module, SEEN, X.device), bias=beta)


@scales_of_an_earlier_step.pytorch
def _(module, X, W, beta):
    return module.float8_linear_delayed_reference(X, W, after_a_step(module, SEEN, X.device), beta)


@case(modules=LESSON, returns="FL-amax", sizes=SIZES, dtypes=("float32", "bfloat16"), forward_only=True)
def what_a_layer_records(module, X, W, beta):
    state = module.DelayedScaling.of_a_layer(device=X.device)
    module.float8_linear_delayed(X.detach().requires_grad_(), W, state, beta)
    return state[0].history[0]


@what_a_layer_records.pytorch
def _(X):
    return X.float().abs().max()


def e4m3_and_a_margin():
    return {"L": 448.0, "mu": 1.0}


@case(
    modules=LESSON, returns=("FL-history", "FL-scale"), values=e4m3_and_a_margin, sizes={"M": 3, "K": 5, "T": 6},
    dtypes=("float32",), forward_only=True,
)  # fmt: skip
def the_next_scale(module, X, H, mu):
    scaling = module.DelayedScaling(len(H) + 1, int(mu), device=X.device)
    for amax in [*H, X.abs().max()]:
        scaling.scale()
        scaling.record(amax)
        largest = scaling.history.max().clone()
        scaling.step()
    return largest, scaling.scale()


@the_next_scale.pytorch
def _(X, H, L, mu):
    largest = torch.maximum(X.abs().max(), H.max())
    return largest, 2**mu * largest / L


# ---------------------------------------------------------------- what is measured
# Three products. Each operand is read once and its codes are written, then the product reads these; the result is
# written in the layer's dtype. Scales are left out: there are at least a hundred elements for each.
def cost(shape, dtype):
    M, N, K = shape
    x, weight, y, size = M * K, N * K, M * N, dtype.itemsize
    forward = dict(bytes_read=(x + weight) * (size + 1), bytes_written=x + weight + y * size, operations=2 * M * N * K)
    backward = dict(
        bytes_read=2 * y * (size + 1) + (x + weight) * (size + 1),
        bytes_written=2 * y + (x + weight) * (1 + size),
        operations=4 * M * N * K,
    )
    return {"forward": forward, "backward": backward}


def inputs(shape, dtype, device):
    M, N, K = shape
    return dict(x=torch.randn(M, K, dtype=dtype, device=device), weight=torch.randn(N, K, dtype=dtype, device=device))


def reference(recipe):
    def of(x, weight):
        from annotated_examples.fp8.linear import float8_linear_reference

        return float8_linear_reference(x, weight, recipe=recipe)

    return of


# The example's one kernel: 6 x 7 float32 numbers, their codes and scales along rows and along columns, in squares of 4.
EXAMPLES = {
    LESSON: {"forward": dict(bytes_read=6 * 7 * 4, bytes_written=2 * 6 * 7 + 4 * (6 * 2 + 7 * 2), operations=0)}
}
BENCH = dict(
    shapes=[(8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096), (1000, 3000, 5000)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x, weight: torch.nn.functional.linear(x, weight),
    eager_name="bfloat16",
    reference=reference("tensor"),
    passes=["forward+backward"],
    differentiable=["x", "weight"],
    variants={
        name: dict(call=lambda linear, name=name: functools.partial(linear, recipe=name), reference=reference(name))
        for name in ("row", "block")
    },
)
