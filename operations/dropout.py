"""Dropout: what is compared with formulas, and what is measured.

The mask of the formulas is computed here, in Python's own whole numbers.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "classics.dropout"
FAST = None
FUNCTION = "dropout"
AXES = ("rows", "columns")
DERIVATION = "dropout"

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("dropout", {"x": "rows n", "p": 0.3, "seed": 7}, at=(5, 300))]
HELPERS = {"dropout_mask": "shows what dropout does"}

# ---------------------------------------------------------------- what is compared with formulas
SEED = 2**35 + 11
ALL = ("float32", "bfloat16", "float16")


def philox(seed, counter):
    """Four random words of 32 bits."""
    low = 2**32 - 1
    c, key = [counter & low, counter >> 32, 0, 0], [seed & low, seed >> 32]
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [second >> 32 ^ c[1] ^ key[0], second & low, first >> 32 ^ c[3] ^ key[1], first & low]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return c


def words(n):
    """Read as signed numbers, from -2**31 on."""
    return [word - 2**32 * (word >= 2**31) for i in range(-(-n // 4)) for word in philox(SEED, i)][:n]


def mask(n, p):
    """Kept are the words that are at least p of the way from -2**31 to 2**31."""
    return torch.tensor([float(word >= round(p * 2**32) - 2**31) for word in words(n)])


def a_third(n):
    return {"p": 1 / 3, "M": mask(n, 1 / 3)}


def one_in_ten(n):
    return {"p": 0.1, "M": mask(n, 0.1), "R": torch.tensor([(word + 2**31) / 2**32 for word in words(n)])}


@case(modules=LESSON, returns="DO-y", gradients={"x": "DO-x"}, values=a_third, dtypes=ALL)
def dropout(module, x):
    return module.dropout(x, 1 / 3, SEED)


@case(modules=LESSON, returns="DO-y", gradients={"x": "DO-x"}, values=one_in_ten, sizes={"n": 301})
def with_a_seed_on_the_device(module, x):
    return module.dropout(x, 0.1, torch.tensor(SEED, device=x.device))


@case(modules=LESSON, returns="DO-y", gradients={"x": "DO-x"}, values=one_in_ten, sizes={"n": 301})
def in_small_blocks(module, x, nabla_y):
    y = module.dropout_forward(x, 0.1, SEED, BLOCK=16)
    return y, {"x": module.dropout_backward(nabla_y, 0.1, SEED, BLOCK=16)}


@in_small_blocks.pytorch
def _(module, x):
    return module.dropout_reference(x, 0.1, SEED)


@case(modules=LESSON, returns="DO-mask", forward_only=True, values=one_in_ten, sizes={"n": 301}, dtypes=("float32",))
def the_mask_itself(module, n):
    return module.dropout_mask((n,), 0.1, SEED, device=module.device.DEVICE).float()


# ---------------------------------------------------------------- what is measured
# Each pass reads an element and writes one, and reads the seed. A word of random bits takes about 15 operations.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    one = dict(bytes_read=n * dtype.itemsize + 8, bytes_written=n * dtype.itemsize, operations=20 * n)
    return {"forward": one, "backward": one}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


# PyTorch draws another mask each time, so the peers are only timed; that ours is right is for the tests to say. What
# they are compared with is our mask, made in PyTorch.
def reference(x):
    from annotated_examples.classics.dropout import dropout_reference

    return dropout_reference(x, 0.1, 7)


EXAMPLES = {LESSON: cost((20,), torch.float32)}
BENCH = dict(
    shapes=[(8192, 8192), (32768, 4096), (8192, 14336), (4096, 1024), (16384, 4097)],
    dtypes=[torch.bfloat16, torch.float32],
    inputs=inputs,
    call=lambda dropout: lambda x: dropout(x, 0.1, 7),
    eager=lambda x: torch.nn.functional.dropout(x, 0.1),
    reference=reference,
    passes=["forward", "backward"],
    differentiable=["x"],
)
