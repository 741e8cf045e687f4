"""Which calls are compared with the formulas of backprop_math/vocab_parallel_cross_entropy.md.

The ranks are a list in one process: each makes its numbers, and the stack of them is what the gather would bring.
"""

from academy.formulas.cases import case

LOSS = "distributed.vocab_parallel_cross_entropy"
ENTROPY = "distributed.vocab_parallel_entropy"


def shards(module, R, n):
    return [module.Shard(rank * n, n, R * n) for rank in range(R)]


def ones(Z):
    import torch

    return torch.ones(len(Z))


def reference_of_rows(module, Z, d, c, n, varepsilon, zeta):
    options = dict(label_smoothing=varepsilon, z_loss=zeta, reduction="none")
    return module.vocab_parallel_cross_entropy_reference(Z.flatten(-2), d * n + c, **options)


MERGED = dict(
    modules=LOSS,
    returns="VP-merged",
    gradients={"Z": "VP-X"},
    rows=("Z", "d", "c", "nabla_ell"),
    pytorch=reference_of_rows,
)


@case(**MERGED, sizes={"R": 3, "n": 21})
def ranks_as_a_list(module, Z, d, c, varepsilon, zeta, R, n, nabla_ell):
    import torch

    labels, cut = d * n + c, shards(module, R, n)
    smoothing = float(varepsilon)
    stats = [module.shard_statistics(Z[:, r], labels, cut[r], smoothing, BLOCK_N=8) for r in range(R)]
    losses, *saved = module.merge_shards(torch.stack(stats), labels, R * n, float(zeta), BLOCK_M=2)
    options = dict(smoothing=smoothing, z_loss=float(zeta), BLOCK_N=8)
    gradients = [module.shard_backward(nabla_ell, Z[:, r], labels, *saved, cut[r], **options) for r in range(R)]
    return losses, {"Z": torch.stack(gradients, 1)}


@case(**MERGED)
def one_rank(module, Z, d, c, varepsilon, zeta, n):
    options = dict(label_smoothing=float(varepsilon), z_loss=float(zeta), reduction="none")
    return module.vocab_parallel_cross_entropy(Z.flatten(-2), d * n + c, **options)


def ones_of_x(x):
    return ones(x)


LAYER = {"x": "VP-input", "W": "VP-W"}


@case(modules=LOSS, returns="VP-linear", gradients=LAYER, rows=("x", "d", "c"), upstream=ones_of_x)
def with_the_layer_before(module, x, W, d, c, varepsilon, zeta, n):
    options = dict(label_smoothing=float(varepsilon), z_loss=float(zeta), reduction="none")
    return module.vocab_parallel_linear_cross_entropy(x, W.flatten(0, 1), d * n + c, **options)


@with_the_layer_before.pytorch
def _(module, x, W, d, c, varepsilon, zeta, n):
    options = dict(label_smoothing=varepsilon, z_loss=zeta, reduction="none")
    return module.vocab_parallel_cross_entropy_reference(x @ W.flatten(0, 1).T, d * n + c, **options)


@case(
    modules=LOSS,
    returns=("VP-m", "VP-s", "VP-a", "VP-b"),
    forward_only=True,
    sizes={"R": 2, "n": 13},
    pytorch=None,
    dtypes=("float32",),
)
def what_a_rank_sends(module, Z, d, c, varepsilon, R, n):
    import torch

    labels = (d * n + c)[None]
    cut = shards(module, R, n)
    stats = [module.shard_statistics(Z[r][None], labels, cut[r], float(varepsilon), BLOCK_N=8) for r in range(R)]
    return torch.cat(stats).unbind(-1)


@what_a_rank_sends.pytorch
def _(Z, d, c, varepsilon, R, n):
    import torch

    at_label = torch.zeros_like(Z)
    at_label[d, c] = 1
    target = (1 - varepsilon) * at_label + varepsilon / (R * n)
    largest = Z.amax(1, keepdim=True)
    return largest[:, 0], (Z - largest).exp().sum(1), (target * (Z - largest)).sum(1), target.sum(1)


def undecided(Z):
    """Where one logit towers above all others, the gradient is 0, and what PyTorch has of it in float64 is rounding."""
    return {"Z": Z / 1000} if Z.max() - Z.min() > 1000 else {}


GRADIENT = {"Z": "VP-H-Z"}


@case(
    modules=ENTROPY,
    returns="VP-H",
    gradients=GRADIENT,
    rows="Z",
    upstream=ones,
    values=undecided,
    sizes={"R": 3, "n": 21},
)
def entropy_over_a_list(module, Z, R, n):
    import torch

    cut = shards(module, R, n)
    stats = [module.shard_moments(Z[:, r], cut[r], BLOCK_N=8) for r in range(R)]
    entropies, *saved = module.merge_moments(torch.stack(stats), BLOCK_M=2)
    upstream = torch.ones_like(entropies)
    gradients = [module.entropy_backward(upstream, Z[:, r], *saved, cut[r], BLOCK_N=8) for r in range(R)]
    return entropies, {"Z": torch.stack(gradients, 1)}


@entropy_over_a_list.pytorch
def _(module, Z):
    return module.vocab_parallel_entropy_reference(Z.flatten(-2))


@case(modules=ENTROPY, returns="VP-H", gradients=GRADIENT, rows="Z", upstream=ones, values=undecided)
def entropy_of_one_rank(module, Z):
    return module.vocab_parallel_entropy(Z.flatten(-2))


@entropy_of_one_rank.pytorch
def _(module, Z):
    return module.vocab_parallel_entropy_reference(Z.flatten(-2))
