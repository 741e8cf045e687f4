"""Hyper-connections: what is compared with formulas, and what is measured.

`shape` is (tokens, streams, channels).
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "model.hyper_connections"
FAST = None
FUNCTION = "expand_streams"
AXES = ("tokens", "streams", "channels")
DERIVATION = "hyper_connections"

# ---------------------------------------------------------------- public functions
USUAL = dict(at=(6, 4, 70), sizes={"streams": (1, 3, 4, 7)}, batch={"tokens": ""})


def in_float32(function):
    """Coefficients are float32 whatever the streams are."""

    def call(x, **others):
        wide = torch.promote_types(x.dtype, torch.float32)
        return function(x, **{name: value if name == "out" else value.to(wide) for name, value in others.items()})

    return call


PUBLIC = [
    Public(
        "collapse_streams", {"x": "tokens streams channels", "pre": "tokens streams"}, wrap=in_float32,
        float32=("pre",), calls=[dict(wrap=None)], **USUAL,
    ),
    Public(
        "expand_streams",
        {
            "x": "tokens streams channels", "out": "tokens channels", "res": "tokens streams streams",
            "post": "tokens streams",
        },
        wrap=in_float32, float32=("res", "post"), calls=[dict(wrap=None)], **USUAL,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
GRADIENTS = {"X": "HC-X", "y": "HC-y", "M": "HC-M", "v": "HC-v", "s": "HC-s"}
LAYER = dict(
    modules=LESSON, rows=("X", "y", "M", "v", "s", "nabla_u", "nabla_R"), returns=("HC-collapse", "HC-expand"),
    gradients=GRADIENTS,
)  # fmt: skip


@case(**LAYER, sizes={"n": 4, "h": 37})
def layer(module, X, y, M, v, s):
    return module.collapse_streams(X, v.float()), module.expand_streams(X, y, M.float(), s.float())


three_streams = layer.again(sizes={"n": 3, "h": 5})


@case(**LAYER, sizes={"n": 3, "h": 11, "rows": 2})
def in_small_blocks(module, X, y, M, v, s, nabla_u, nabla_R):
    given, size, dtype = (X, y, M.float(), s.float()), dict(BLOCK_C=4), X.dtype
    outputs = module.collapse_forward(X, v.float(), **size), module.expand_forward(*given, **size)
    read, dv = module.collapse_backward(nabla_u.to(dtype), X, v.float(), **size)
    mixed, dy, dM, ds = module.expand_backward(nabla_R.to(dtype), *given, **size)
    return outputs, {"X": read + mixed, "y": dy, "M": dM.to(dtype), "v": dv.to(dtype), "s": ds.to(dtype)}


@layer.pytorch
@three_streams.pytorch
@in_small_blocks.pytorch
def _(module, X, y, M, v, s):
    wide = torch.promote_types(X.dtype, torch.float32)
    v, M, s = (each.to(wide) for each in (v, M, s))
    return module.collapse_streams_reference(X, v), module.expand_streams_reference(X, y, M, s)


@layer.upstream
@three_streams.upstream
@in_small_blocks.upstream
def _(nabla_u, nabla_R):
    return nabla_u, nabla_R


# ---------------------------------------------------------------- what is measured
# Expanding reads all streams and one, and writes all. (Collapsing reads all, and writes one.)
def cost(shape, dtype):
    tokens, n, C = shape
    stream, numbers = tokens * C * dtype.itemsize, 4 * tokens * (n * n + n)
    pairs = tokens * C * n * n
    return {
        "forward": dict(
            bytes_read=(n + 1) * stream + numbers, bytes_written=n * stream, operations=2 * pairs + 2 * tokens * C * n
        ),
        "backward": dict(
            bytes_read=(2 * n + 1) * stream + numbers, bytes_written=(n + 1) * stream + numbers,
            operations=4 * pairs + 4 * tokens * C * n,
        ),
    }  # fmt: skip


def inputs(shape, dtype, device):
    tokens, n, C = shape
    return dict(
        x=torch.randn(shape, dtype=dtype, device=device),
        out=torch.randn(tokens, C, dtype=dtype, device=device),
        res=torch.rand(tokens, n, n, device=device),
        post=torch.rand(tokens, n, device=device),
    )


def eager(x, out, res, post):
    return (res.to(x.dtype) @ x + post.to(x.dtype)[..., None] * out[:, None]).contiguous()


EXAMPLES = {LESSON: cost((2, 3, 3), torch.float32)}
BENCH = dict(
    shapes=[(8192, 4, 4096), (1024, 4, 4096), (8192, 4, 7168)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward", "backward"],
    differentiable=["x", "out", "res", "post"],
)
