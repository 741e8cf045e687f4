"""The loss that trains an indexer: what is compared with formulas, and what is measured.

`shape` is (queries, keys, selected keys, heads); a key has 128 numbers.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "attention.indexer_loss"
FAST = None
FUNCTION = "indexer_loss"
AXES = ("queries", "keys", "selected keys", "heads")
DERIVATION = "indexer"


# ---------------------------------------------------------------- public functions
def some_lists(q, k):
    """Ten keys for each query, some of them missing, and a target for each."""
    M, S = len(q), len(k)
    at = torch.arange(M * 10, device=q.device).view(M, 10)
    indices = torch.where(at % 7 == 3, -1, at * 5 % max(S, 1)) if S else torch.full_like(at, -1)
    target = torch.where((at % 3 == 0) | (indices < 0), 0.0, 0.25 + at % 5 / 8)
    return indices.int(), target


def taught(loss):
    """The target isn't learnt."""

    def call(q, k, weights):
        indices, target = some_lists(q, k)
        return loss(q, k, weights, indices, target.to(weights.dtype))

    return call


PUBLIC = [
    Public(
        "indexer_loss", {"q": "queries 4 width", "k": "keys width", "weights": "queries 4: float32"}, at=(9, 40, 40),
        float32=("weights",), sizes={"width": (16, 40)}, wrap=taught,
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def tame(x, y, omega, S):
    """Scores of a few units. Around ±10⁴ each softmax has a single key."""
    return {name: torch.sin(value) for name, value in dict(x=x, y=y, omega=omega, S=S).items()}


USUAL = dict(modules=LESSON, values=tame, sizes={"g": 2, "m": 6, "n": 21, "f": 3, "w": 5})
GRADIENTS = {"x": "IX-dq", "y": "IX-dk", "omega": "IX-dw"}


def lists(S):
    """All keys, in an order of its own for each query, and attention's probabilities of them."""
    p = torch.softmax(S.to(torch.promote_types(S.dtype, torch.float32)), -1).mean(0)
    at = torch.arange(p.numel(), device=p.device).view(p.shape)
    order = torch.argsort((at * 7919 % 1009).float(), dim=1)
    return order.to(torch.int32), p.gather(1, order)


@case(returns="IX-KL", gradients=GRADIENTS, **USUAL)
def indexer_loss(module, x, y, omega, S):
    indices, target = lists(S)
    return module.indexer_loss(x, y, omega.float(), indices, target)


@case(returns="IX-KL", gradients=GRADIENTS, **USUAL)
def in_small_tiles(module, x, y, omega, S):
    """Tiles of 16 keys, and four queries in a launch. The upstream gradient is 2, and the gradients are halved."""
    arguments = x, y, omega.float(), *lists(S)
    loss, sums = module.indexer_loss_forward(*arguments, BLOCK_N=16)
    dq, dk, dw = module.indexer_loss_backward(2 * torch.ones_like(loss), *arguments, sums, BLOCK_N=16, queries=4)
    return loss, {"x": dq / 2, "y": dk / 2, "omega": (dw / 2).to(omega.dtype)}


@in_small_tiles.pytorch
def _(module, x, y, omega, S):
    return module.indexer_loss_reference(x, y, omega.float(), *lists(S))


# ---------------------------------------------------------------- what is never returned
def identity_keys(x, y, omega, S):
    """One head of weight 1, and keys that are the rows of an identity: a query's gradient is that of its scores."""
    one = torch.ones_like(omega)
    return {"x": torch.sin(x).abs() + 0.125, "y": torch.eye(len(y), dtype=y.dtype), "omega": one, "S": torch.sin(S)}


IDENTITY = {"g": 2, "m": 5, "n": 9, "f": 1, "w": 9}


@case(modules=LESSON, returns="IX-dI", values=identity_keys, sizes=IDENTITY, forward_only=True)
def gradient_of_scores(module, x, y, omega, S):
    arguments = x, y, omega.float(), *lists(S)
    loss, sums = module.indexer_loss_forward(*arguments)
    return module.indexer_loss_backward(torch.ones_like(loss), *arguments, sums)[0][:, 0]


@gradient_of_scores.pytorch
def _(module, x, y, omega, S):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(module.indexer_loss_reference(x, y, omega.float(), *lists(S)), x)[0][:, 0]


# ---------------------------------------------------------------- what is measured
WIDTH = 128


def loss_cost(M, S, K, H, D, size):
    """size: bytes of a number of q and k. A key is read once from memory, and for each pair from the L2 cache."""
    inputs, lists, each = (M * H + S) * D * size + 4 * M * H, 8 * M * K, M * K * H
    rows = 4 * M * K * D
    return {
        "forward": dict(bytes_read=inputs + lists, bytes_written=16 * M, operations=(2 * D + 3) * each),
        "backward": dict(
            bytes_read=inputs + lists + rows + 8 * M * K, bytes_written=inputs + rows, operations=(8 * D + 10) * each
        ),
    }  # fmt: skip


def cost(shape, dtype):
    M, S, K, H = shape
    return loss_cost(M, S, K, H, WIDTH, dtype.itemsize)


def inputs(shape, dtype, device):
    M, S, K, H = shape
    q, k = (torch.randn(*size, WIDTH, dtype=dtype, device=device) for size in ((M, H), (S,)))
    indices = torch.rand(M, S, device=device).topk(K, sorted=False).indices.int()
    target = torch.softmax(torch.randn(M, K, device=device), -1)
    return dict(q=q, k=k, weights=torch.randn(M, H, device=device) / H, indices=indices, target=target)


def reference(q, k, weights, indices, target):
    from annotated_examples.attention.indexer_loss import indexer_loss_reference

    return indexer_loss_reference(q, k, weights, indices, target)


# Two queries of two heads, three keys of two numbers, of which one is in no list, two indices each, one of them none.
# Backward also reads the upstream gradient, the three sums of each query, the order of the rows, where those of each
# key begin, and what the keys had, in float64.
READ = 8 * 4 + 4 * 4 + 4 * 4 + 4 * 4 + 3 * 4
EXAMPLES = {
    LESSON: {
        "forward": dict(bytes_read=READ, bytes_written=8 + 24, operations=0),
        "backward": dict(bytes_read=READ + 4 + 24 + 3 * 8 + 4 * 4 + 48, bytes_written=32 + 16 + 48, operations=0),
    }
}
BENCH = dict(
    shapes=[(1024, 8192, 2048, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=reference,
    eager_name="PyTorch, keys gathered",
    passes=["forward", "backward"],
    differentiable=["q", "k", "weights"],
    host_shape=(16, 256, 64, 64),
)
