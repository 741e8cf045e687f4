"""The scaled copy below Triton: what is compared with formulas, and what is measured.

The ring, one tile a program, and one without the copy unit.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "gluon.tile_copy"
FAST = None
FUNCTION = "copy"
AXES = ("rows", "columns")
DERIVATION = "tile_copy"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("copy", {"x": "rows cols"}, at=(20, 70))]

# ---------------------------------------------------------------- what is compared with formulas


@case(modules=LESSON, returns="CP", gradients={"X": "CP-X"}, sizes={"m": 70, "n": 150})
def copy(module, X, s):
    return module.copy(X, float(s))


@case(modules=LESSON, returns="CP", forward_only=True, sizes={"m": 50, "n": 70}, pytorch="copy_reference")
def one_tile_a_program(module, X, s):
    return module.copy_tile(X, float(s), ROWS=16)


@case(modules=LESSON, returns="CP", forward_only=True, sizes={"m": 50, "n": 70}, pytorch="copy_reference")
def through_registers(module, X, s):
    return module.copy_lanes(X, float(s), ROWS=16)


# ---------------------------------------------------------------- what is measured
# The backward pass is the same kernel.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    one = dict(bytes_read=n * dtype.itemsize, bytes_written=n * dtype.itemsize, operations=n)
    return {"forward": one, "backward": one}


def inputs(shape, dtype, device):
    return {"x": torch.randn(shape, dtype=dtype, device=device)}


def kernel(name):
    def factory():
        from annotated_examples.gluon import tile_copy

        return getattr(tile_copy, name)

    return factory


EXAMPLES = {LESSON: {"forward": cost((30, 136), torch.float16)["forward"]}}
BENCH = dict(
    shapes=[(1024, 8192), (16384, 8192)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=lambda x: x * 1.0,
    compile=False,
    peers={"one tile a program": kernel("copy_tile"), "through registers": kernel("copy_lanes")},
    host_shape=(64, 64),
)
