"""The one-shot all-reduce: what is compared with formulas, and what is measured.

On one rank, what the kernel itself costs.

Between cards it costs what the links cost; that takes a machine with several.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "distributed.all_reduce"
FAST = None
FUNCTION = "all_reduce"
AXES = ("elements",)
DERIVATION = "all_reduce"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("all_reduce", {"x": "batch 3 classes"}, at=(5, 100), differentiable=False)]

# ---------------------------------------------------------------- what is compared with formulas
ALL = ("float32", "bfloat16", "float16")


@case(modules=LESSON, returns="AR", forward_only=True, sizes={"R": 3, "n": 21}, dtypes=ALL)
def one_shot(module, X):
    memories = module.symmetric_list(list(X), programs=2)
    return [module.all_reduce_forward(x, memory, BLOCK=8) for x, memory in zip(X, memories)][-1]


@one_shot.pytorch
def _(X):
    return X.sum(0)


@case(modules=LESSON, returns="AR", forward_only=True, sizes={"R": 1}, dtypes=ALL)
def alone(module, X):
    return module.all_reduce(X[0], module.symmetric_memory(X.shape[1], X.dtype, programs=2))


@alone.pytorch
def _(X):
    return X.sum(0)


# ---------------------------------------------------------------- what is measured
# x goes into the buffer, every rank's is read and added to a sum that begins with zero, and the sum is written.
def cost(shape, dtype, world=1, signals=0):
    n = torch.Size(shape).numel()
    read, written = n * dtype.itemsize * (1 + world), 2 * n * dtype.itemsize + 4 * signals
    return {"forward": dict(bytes_read=read, bytes_written=written, operations=world * n)}


def inputs(shape, dtype, device):
    return {"x": torch.randn(shape, dtype=dtype, device=device)}


def on_one_rank(function):
    from annotated_examples.common.symmetric import symmetric_memory

    memory = symmetric_memory(2**24, torch.bfloat16)
    return lambda x: function(x, memory)


# The first call is rank 0's. In each of two meetings it sets a signal on two pads, and takes back two, one its own.
EXAMPLES = {LESSON: cost((6,), torch.float32, world=2, signals=2 * 3)}
BENCH = dict(
    shapes=[(2**16,), (2**24,)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=on_one_rank,
    eager=lambda x: x.clone(),
    compile=False,
    host_shape=(64,),
)
