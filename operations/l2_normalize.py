"""The L2 normalisation: what is compared with formulas, and what is measured.

`shape` is (batch, tokens, heads, head dimension).
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "recurrences.l2_normalize"
FAST = None
FUNCTION = "l2_normalize"
AXES = ("batch", "tokens", "heads", "head dimension")
DERIVATION = "l2_normalize"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("l2_normalize", {"x": "rows cols"}, at=(6, 100), more=[dict(eps=1e-3)], batch={"rows": ""})]

# ---------------------------------------------------------------- what is compared with formulas


def reference(X, varepsilon):
    return X * (X.pow(2).sum(1, keepdim=True) + varepsilon).rsqrt()


def of_rows(nabla_Y):
    return nabla_Y


@case(modules=LESSON, returns="L2-Y", gradients={"X": "L2-X"}, pytorch=reference, upstream=of_rows)
def l2_normalize(module, X, varepsilon):
    return module.l2_normalize(X, varepsilon)


@case(modules=LESSON, returns="L2-Y", gradients={"X": "L2-X"}, pytorch=reference, upstream=of_rows)
def in_chunks(module, X, varepsilon, nabla_Y):
    size = dict(BLOCK_M=2, BLOCK_N=4)
    y, inv_norm = module.l2_normalize_forward(X, varepsilon, **size)
    return y, {"X": module.l2_normalize_backward(nabla_Y.to(X.dtype), X, inv_norm, varepsilon, **size)}


@case(modules=LESSON, returns=None, gradients={"X": "L2-one"}, pytorch=reference, upstream=of_rows, sizes={"n": 1})
def one_number(module, X, varepsilon):
    return module.l2_normalize(X, varepsilon)


@case(modules=LESSON, returns="L2-norm", dtypes=("float32",), forward_only=True)
def saved_for_backward(module, X, varepsilon):
    return module.l2_normalize_forward(X, varepsilon)[1]


@saved_for_backward.pytorch
def _(X, varepsilon):
    return (X.pow(2).sum(1) + varepsilon).rsqrt()


# ---------------------------------------------------------------- what is measured
# Forward reads x and writes y, and one over the length of each row, 4 bytes; backward reads dy, x and that.
def cost(shape, dtype):
    numel, N = torch.Size(shape).numel(), shape[-1]
    size, lengths = dtype.itemsize, 4 * (numel // N)
    return {
        "forward": dict(bytes_read=numel * size, bytes_written=numel * size + lengths, operations=3 * numel),
        "backward": dict(bytes_read=2 * numel * size + lengths, bytes_written=numel * size, operations=7 * numel),
    }


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def eager(x):
    return (x.float() * torch.rsqrt(x.float().pow(2).sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def fla(inputs):
    from fla.modules.l2norm import l2_norm

    return lambda x: l2_norm(x, eps=1e-6)


EXAMPLES = {LESSON: cost((3, 3), torch.float32)}
BENCH = dict(
    shapes=[(8, 4096, 16, 128), (1, 65536, 16, 128), (8, 4096, 32, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    peers={"fla": fla},
    passes=["forward", "backward"],
    differentiable=["x"],
)
