"""Which calls of the SwiGLU kernels are compared with the formulas of backprop_math/swiglu.md."""

from academy.formulas.cases import case

MODULE = "classics.swiglu"
ROWS = ("g", "u", "nabla_y")
GRADIENTS = {"g": "SwiGLU-gate", "u": "SwiGLU-up"}


@case(modules=MODULE, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS, dtypes=("float32", "bfloat16", "float16"))
def swiglu(module, g, u):
    return module.swiglu(g, u)


@case(modules=MODULE, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS)
def packed(module, g, u):
    import torch

    return module.swiglu_packed(torch.cat([g, u]))


@case(modules=MODULE, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS, sizes={"rows": 150}, dtypes=("float32",))
def packed_in_rows(module, g, u):
    import torch

    return module.swiglu_packed(torch.stack([g, u], 1))[:, 0]


@case(modules=MODULE, returns="SwiGLU", gradients=GRADIENTS, rows=ROWS, sizes={"rows": (3, 150)})
def several_tiles(module, g, u, nabla_y):
    y = module.swiglu_forward(g, u, BLOCK_N=16)
    dg, du = module.swiglu_backward(nabla_y, g, u, BLOCK_N=16)
    return y, {"g": dg, "u": du}


@several_tiles.pytorch
def _(g, u):
    import torch

    return torch.nn.functional.silu(g) * u


def ones(x):
    import torch

    return torch.ones_like(x)


@case(modules=MODULE, returns=None, gradients={"x": "SiLU"}, rows=("x",), upstream=ones)
def derivative(module, x):
    return module.swiglu(x, ones(x))
