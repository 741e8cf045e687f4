"""The product that gathers: what is compared with formulas, and what is measured.

On one rank, the product itself and a copy of its rows.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "distributed.all_gather_matmul"
FAST = None
FUNCTION = "all_gather_matmul"
AXES = ("M (rows)", "K (summed)", "N (columns)")
DERIVATION = "matmul"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("all_gather_matmul", {"x": "M K", "w": "K N"}, at=(96, 160, 64), differentiable=False)]

# ---------------------------------------------------------------- what is compared with formulas


# ---------------------------------------------------------------- the rows of all ranks; here there is one
@case(modules=LESSON, returns="MM-Z", forward_only=True, dtypes=("float32", "float16"))
def gathered(module, X, Y):
    return module.all_gather_matmul(X, Y, module.symmetric_memory(max(1, X.numel()), X.dtype, programs=1), group=None)


@gathered.pytorch
def _(X, Y):
    return X @ Y


# ---------------------------------------------------------------- what is measured
# The rows are copied into the buffer and from there behind one another, and read by the product.
def cost(shape, dtype):
    M, K, N = shape
    size = dtype.itemsize
    return {"forward": dict(bytes_read=(M * K + K * N) * size, bytes_written=M * N * size, operations=2 * M * N * K)}


# The kernel in the example has six rows of all ranks, and takes the flag of each of three.
def example():
    found = cost((6, 4, 4), torch.float32)["forward"]
    return {"forward": found | dict(bytes_written=found["bytes_written"] + 3 * 4)}


def inputs(shape, dtype, device):
    M, K, N = shape
    return {"x": torch.randn(M, K, dtype=dtype, device=device), "w": torch.randn(K, N, dtype=dtype, device=device)}


def alone(function):
    from annotated_examples.common.symmetric import symmetric_memory

    memory = symmetric_memory(2**26, torch.bfloat16)
    return lambda x, w: function(x, w, memory)


EXAMPLES = {LESSON: example()}
BENCH = dict(
    shapes=[(4096, 4096, 4096)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=alone,
    eager=lambda x, w: x @ w,
    compile=False,
    host_shape=(64, 64, 64),
)
