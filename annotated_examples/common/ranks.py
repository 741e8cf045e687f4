r"""
# One process a card

A *rank* is the number of a process, and each process has a card. What the functions for several cards share: which rank
this is and of how many, which columns of a matrix lie here, and the two collectives that they need. The *collectives*
themselves, functions that all ranks call together, are `torch.distributed`'s: NCCL between cards, gloo between
processes on CPUs. Without a process group there is one rank, and nothing travels.
"""

from academy.runtime import autograd, checks, device  # noqa: F401  before anything imports triton

from dataclasses import dataclass
from typing import Any

import torch


def place_in(group=None):
    """`(rank, world)` of this process in the group; None: in the default one."""
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        if group is not None:
            raise ValueError("group needs torch.distributed.init_process_group, which has not been called")
        return 0, 1
    rank = distributed.get_rank(group)
    if rank < 0:
        raise ValueError("group must be one that this process belongs to")
    return rank, distributed.get_world_size(group)


# ## What every rank needs, and what has to be summed
#
# The results are stacked in the order of the ranks, the same on each. So whoever merges them in that order gets the
# same bits everywhere.
def gathered(values, group=None):
    """(world, *values.shape): the same on every rank. `values` must have the same shape on all of them."""
    _, world = place_in(group)
    if world == 1:
        return values[None]
    # gloo wants the ranks' parts concatenated, not stacked along a new dimension.
    everyones = values.new_empty(world * values.numel())
    distributed = torch.distributed
    gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)  # its name from 2.13 on
    gather(everyones, values.contiguous().view(-1), group=group)
    return everyones.view(world, *values.shape)


def summed(values, group=None):
    """The sum over the ranks in a new tensor, the same on every rank."""
    total = values.clone(memory_format=torch.contiguous_format)
    if place_in(group)[1] > 1:
        torch.distributed.all_reduce(total, group=group)
    return total


# ## Columns in shards
#
# The *shards* of a matrix are its columns `cuts[r]` to `cuts[r + 1]`, one shard a rank. They may differ in width, and
# be empty. PyTorch cuts into pieces of one width, of which the last ones may be narrower: `torch.chunk` does, and so
# does a `DTensor` with the placement `Shard(-1)`.
def even_cuts(columns, world):
    width = -(-columns // world)
    return tuple(min(rank * width, columns) for rank in range(world + 1))


@dataclass(frozen=True)
class Shard:
    """Where the columns at hand lie: they begin at `first`, the first `width` of them count, and `vocab` count in all.

    What lies past `vocab` is padding, which makes the widths equal, and is no entry of the vocabulary.
    """

    first: int
    width: int
    vocab: int
    group: Any = None


def shard_of(name, x, group=None, vocab=None, cuts=None):
    """The `Shard` that the columns of `x` are.

    Args:
        name: what the caller calls x.
        x: (..., columns) of this rank.
        group: process group; None: the default one, or this process alone.
        vocab: columns that count, of all ranks. Default: the last of `cuts`.
        cuts: world + 1 column numbers, from 0, the same on every rank. Default: `vocab` columns cut evenly.

    Raises:
        TypeError, ValueError: vocab or cuts are missing, malformed, or don't fit `x` and the number of ranks.
    """
    rank, world = place_in(group)
    if vocab is not None:
        checks.whole_number("vocab", vocab, at_least=1, at_most=2**31 - 1)
    if cuts is None:
        if vocab is None and world > 1:
            raise ValueError(f"vocab or cuts must be given: {name} holds the columns of one of {world} ranks only")
        cuts = even_cuts(x.shape[-1] if vocab is None else vocab, world)
    if not isinstance(cuts, tuple | list):
        raise TypeError(f"cuts must be a tuple of ints, got {type(cuts).__name__}")
    cuts = tuple(cuts)
    for cut in cuts:
        checks.whole_number("cuts", cut, at_least=0, at_most=2**31 - 1)
    if len(cuts) != world + 1 or cuts[0] != 0 or list(cuts) != sorted(cuts):
        raise ValueError(f"cuts must be {world + 1} numbers that begin with 0 and never fall, got {cuts}")
    vocab = cuts[-1] if vocab is None else vocab
    if not vocab and x.shape[:-1].numel():
        raise ValueError(f"{name} must have at least one column in all, got shape {tuple(x.shape)}")
    if vocab > cuts[-1]:
        raise ValueError(f"vocab must be at most {cuts[-1]}, the last of cuts, got {vocab}")
    first, end = cuts[rank], cuts[rank + 1]
    if x.shape[-1] != end - first:
        where = f"columns {first} to {end} for rank {rank} of {world}"
        raise ValueError(f"{name} must have {end - first} columns ({where}), got shape {tuple(x.shape)}")
    return Shard(first, max(0, min(end, vocab) - first), vocab, group)


# ## Tensors that know how they are cut
#
# A `DTensor` is a tensor whose parts lie on the ranks of a *mesh*, with one *placement* for each dimension of the mesh:
# cut (`Shard`), the same everywhere (`Replicate`), or terms of a sum (`Partial`).
def is_dtensor(x):
    tensor = getattr(getattr(torch, "distributed", None), "tensor", None)
    return tensor is not None and isinstance(x, tensor.DTensor)


def columns_of_dtensor(name, x):
    """`(local part, group, cuts, wrap)` of a DTensor with cut columns.

    `wrap(tensor)` makes a tensor that is the same on every rank a DTensor of the same mesh.

    Raises:
        ValueError: x isn't cut along its last dimension, or cut along another one, or a sum that is still to be made.
    """
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor import Shard as Cut

    last = x.dim() - 1
    cut = [d for d, each in enumerate(x.placements) if isinstance(each, Cut) and each.dim % x.dim() == last]
    rest = [each for d, each in enumerate(x.placements) if d not in cut]
    if len(cut) != 1 or not all(isinstance(each, Replicate) for each in rest):
        raise ValueError(
            f"{name} must be cut along its last dimension, Shard(-1), on one dimension of the mesh and be the same on "
            f"the others, got {x.placements}: call {name}.redistribute first"
        )
    mesh, group = x.device_mesh, x.device_mesh.get_group(cut[0])
    replicated = [Replicate()] * mesh.ndim
    wrap = lambda tensor: DTensor.from_local(tensor, mesh, replicated, run_check=False)  # noqa: E731
    return x.to_local(), group, even_cuts(x.shape[-1], mesh.size(cut[0])), wrap


# ## Before and after a layer that is cut
#
# A layer whose outputs are cut over the ranks takes the same input on each of them. So forward there is nothing to do.
# But each rank's backward pass finds only what its own outputs say about the input, and the gradient is the sum. A
# layer whose *inputs* are cut is the mirror image: each rank has a term of the output, and the gradient needs nothing.
# Megatron calls the two *f* and *g*. `torch.distributed.all_reduce` alone happens to give the right gradient of *g*: it
# has no backward pass, so autograd hands the upstream gradient through, with a warning that this will end. PyTorch's
# functional collectives have one. It sums once more: with a loss that all R ranks compute, that is R times too much.
class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group, ctx.dependence = group, autograd.dependence(x)
        return x.view_as(x)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return summed(dy, ctx.group), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.dependence = autograd.dependence(x)
        return summed(x, group)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return dy, None


def copied_to_ranks(x, group=None):
    """x, which is the same on every rank; its gradient is summed over the ranks. At the entry of a cut layer."""
    return _Copied.apply(x, group) if autograd.needs_frame(x) and place_in(group)[1] > 1 else x


def summed_over_ranks(x, group=None):
    """The sum of the ranks' x; its gradient goes to each of them. At the exit of a layer whose inputs are cut."""
    if place_in(group)[1] == 1:
        return x
    return _Summed.apply(x, group) if autograd.needs_frame(x) else summed(x, group)
