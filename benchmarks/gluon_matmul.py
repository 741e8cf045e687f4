"""What is measured of the product below Triton, and against whom: cuBLAS, and our fast version in Triton."""

import torch

from benchmarks._products import AXES, matrices, product_cost  # noqa: F401  academy reads AXES

LESSON = "gluon.matmul"
FAST = None
FUNCTION = "matmul"
cost = product_cost


def in_triton():
    from annotated_examples.fast.matmul import matmul

    return matmul


EXAMPLES = {"gluon.matmul": {"forward": cost((70, 72, 40), torch.float16)["forward"]}}
BENCH = dict(
    shapes=[(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)],
    dtypes=[torch.bfloat16],
    inputs=matrices("a", "b"),
    eager=lambda a, b: a @ b,
    eager_name="cuBLAS",
    compile=False,
    differentiable=["a", "b"],
    peers={"Triton": in_triton},
    host_shape=(64, 64, 64),
)
