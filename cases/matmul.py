"""Which calls of the matmul kernels are compared with the formulas of backprop_math/matmul.md."""

from academy.formulas.cases import case

#: With gradients. On a GPU the last two search for a configuration, which takes seconds for each shape: so in most of
#: their cases the launchers are given tile sizes.
ALL = ("classics.matmul", "tutorials.matmul_grouped", "tutorials.matmul_autotuned", "fast.matmul")
ACTIVATED = ("classics.matmul", "tutorials.matmul_autotuned", "fast.matmul")
SEVERAL_TILES = {"M": 37, "N": 19, "K": 41}


def through(derivative):
    """The gradients of a product with an activation, whose own derivative has this tag."""
    return {name: f"MM-{name}(nabla_C = {derivative})" for name in "XY"}


@case(modules="tutorials.matmul_blocked", returns="MM-Z", forward_only=True)
def product(module, X, Y):
    return module.matmul(X, Y)


@case(
    modules="tutorials.matmul_blocked",
    returns="MM-Z",
    sizes=SEVERAL_TILES,
    pytorch="matmul_reference",
    forward_only=True,
)
def product_of_several_tiles(module, X, Y):
    return module.matmul_forward(X, Y, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


@case(modules=ALL, returns="MM-Z", gradients={"X": "MM-X", "Y": "MM-Y"})
def matmul(module, X, Y):
    return module.matmul(X, Y)


@case(modules=("classics.matmul", "tutorials.matmul_grouped"), returns="MM-relu", gradients=through("MM-relu-Z"))
def relu(module, X, Y):
    return module.matmul(X, Y, "relu")


def column_major(nabla_C):
    return nabla_C.t().contiguous().t()


@case(
    modules=ACTIVATED,
    returns="MM-leaky",
    gradients=through("MM-leaky-Z"),
    upstream=column_major,
    sizes={"M": 9, "N": 261, "K": 5},
)
def leaky_relu(module, X, Y):
    return module.matmul(X, Y, "leaky_relu")


@case(modules="classics.matmul", returns="MM-gelu", gradients=through("MM-gelu-Z"))
def gelu(module, X, Y):
    return module.matmul(X, Y, "gelu")


@case(modules="classics.matmul", returns="MM-silu", gradients=through("MM-silu-Z"))
def silu(module, X, Y):
    return module.matmul(X, Y, "silu")


# ---------------------------------------------------------------- grouped: several tiles, several groups
@case(modules="tutorials.matmul_grouped", returns="MM-Z", gradients={"X": "MM-X", "Y": "MM-Y"}, sizes=SEVERAL_TILES)
def groups_of_two(module, X, Y, nabla_C):
    tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2, num_warps=4)
    dX, dY = module.matmul_backward(nabla_C, X, Y, **tiles)
    return module.matmul_forward(X, Y, **tiles), {"X": dX, "Y": dY}


@groups_of_two.pytorch
def _(X, Y):
    return X @ Y


@case(
    modules="tutorials.matmul_grouped",
    returns="MM-relu",
    gradients=through("MM-relu-Z"),
    sizes={"M": 37, "N": 19, "K": 53},
)
def two_launches(module, X, Y, nabla_C):
    tiles = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=3, num_warps=4)
    z = module.matmul_forward(X, Y, "relu", **tiles)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "relu", **tiles)
    return z, {"X": dX, "Y": dY}


@two_launches.pytorch
def _(X, Y):
    import torch

    return torch.relu(X @ Y)


# ---------------------------------------------------------------- with an activation: several tiles, no search
TILES = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 2, "num_warps": 4}


def silu_in_pytorch(X, Y):
    import torch

    return torch.nn.functional.silu(X @ Y)


@case(modules=ACTIVATED, returns="MM-relu", gradients=through("MM-relu-Z"), sizes=SEVERAL_TILES)
def relu_with_given_tiles(module, X, Y, nabla_C):
    c = module.matmul_forward(X, Y, "relu", **TILES)
    dX, dY = module.matmul_backward(nabla_C, X, Y, c, "relu", **TILES)
    return c, {"X": dX, "Y": dY}


@relu_with_given_tiles.pytorch
def _(X, Y):
    import torch

    return torch.relu(X @ Y)


@case(modules=ACTIVATED, returns="MM-gelu", gradients=through("MM-gelu-Z"), sizes=SEVERAL_TILES)
def gelu_with_given_tiles(module, X, Y, nabla_C):
    c, z = module.matmul_forward(X, Y, "gelu", save_z=True, **TILES)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "gelu", **TILES)
    return c, {"X": dX, "Y": dY}


@gelu_with_given_tiles.pytorch
def _(X, Y):
    import torch

    return torch.nn.functional.gelu(X @ Y)


@case(
    modules=ACTIVATED, returns="MM-silu", gradients=through("MM-silu-Z"), pytorch=silu_in_pytorch, sizes=SEVERAL_TILES
)
def silu_with_given_tiles(module, X, Y, nabla_C):
    c, z = module.matmul_forward(X, Y, "silu", save_z=True, **TILES)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "silu", **TILES)
    return c, {"X": dX, "Y": dY}


@case(
    modules="fast.matmul",
    returns="MM-silu",
    gradients=through("MM-silu-Z"),
    pytorch=silu_in_pytorch,
    sizes={"M": 88, "N": 40, "K": 24},
    dtypes=("float16",),
)
def persistent_with_descriptors(module, X, Y, nabla_C):
    tiles = dict(BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=2, num_stages=2, NUM_PROGRAMS=2, descriptors=True)
    c, z = module.matmul_forward(X, Y, "silu", save_z=True, **tiles)
    dX, dY = module.matmul_backward(nabla_C, X, Y, z, "silu", **tiles)
    return c, {"X": dX, "Y": dY}


@case(
    modules="fast.matmul",
    returns="MM-silu",
    pytorch=silu_in_pytorch,
    sizes={"M": 72, "N": 208, "K": 48},
    dtypes=("float16",),
    forward_only=True,
)
def interleaved(module, X, Y):
    return module.matmul_forward(X, Y, "silu", BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=3, interleaved=True)


# ---------------------------------------------------------------- below Triton: 16-bit factors only
@case(
    modules="gluon.matmul",
    returns="MM-Z",
    gradients={"X": "MM-X", "Y": "MM-Y"},
    sizes={"M": 72, "N": 40, "K": 50},
    dtypes=("float16", "bfloat16"),
)
def below_triton(module, X, Y):
    return module.matmul(X, Y)


@case(
    modules="gluon.matmul",
    returns="MM-Z",
    sizes={"M": 200, "N": 40, "K": 50},
    dtypes=("float16",),
    pytorch="matmul_reference",
    forward_only=True,
)
def in_turns(module, X, Y):
    tiles = dict(BLOCK_M=64, BLOCK_N=16, BLOCK_K=16, STAGES=2, HALVES=1)
    return module.matmul_forward(X, Y, PINGPONG=True, **tiles)


@case(
    modules="gluon.matmul",
    returns="MM-Z",
    sizes={"M": 100, "N": 40, "K": 50},
    dtypes=("float16",),
    pytorch="matmul_reference",
    forward_only=True,
)
def one_group_of_warps(module, X, Y):
    return module.matmul_tile(X, Y, BLOCK_M=64, BLOCK_N=32, BLOCK_K=16, STAGES=2, num_warps=4)


# ---------------------------------------------------------------- the rows of all ranks; here there is one
@case(modules="distributed.all_gather_matmul", returns="MM-Z", forward_only=True, dtypes=("float32", "float16"))
def gathered(module, X, Y):
    return module.all_gather_matmul(X, Y, module.symmetric_memory(max(1, X.numel()), X.dtype, programs=1), group=None)


@gathered.pytorch
def _(X, Y):
    return X @ Y
