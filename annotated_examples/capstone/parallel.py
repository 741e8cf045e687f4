r"""
# The GPT on many cards: three ways to cut it

One model, [the GPT of these kernels](gpt.py), and three ways to train it with several processes, one for each card:

| way | what a rank has | what travels in a step |
|---|---|---|
| `ddp` | all weights, some of the sequences | the gradients of all weights, once |
| `fsdp` | a part of every weight, some of the sequences | the blocks' weights twice, the rest once, gradients once |
| `tp` | some heads, hidden units and columns of the vocabulary, and all sequences | activations, four times a layer |

The first two are PyTorch's, around a model that knows nothing of them. The third changes the model: this file cuts it.
All three compute what one process computes, and that is what the script shows: it trains both, and compares.

    torchrun --nproc-per-node 2 annotated_examples/capstone/parallel.py --way tp

Without a GPU, the processes talk through gloo and their kernels are interpreted; with one GPU a process, the same
command uses NCCL. How many bytes travel, and when that binds, is in [Many cards](../../docs/guides/many-cards.md).
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python

import dataclasses
import itertools
import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F

from annotated_examples.capstone import gpt
from annotated_examples.common.ranks import copied_to_ranks, even_cuts, place_in, summed_over_ranks
from annotated_examples.distributed.vocab_parallel_cross_entropy import vocab_parallel_linear_cross_entropy


# ## Every option in one place
#
# Dropout is off: ranks with different sequences wouldn't drop the elements that one process does, and nothing could be
# compared. (For a run of your own, pass the model a `step`, of which its dropout makes the seeds: in `ddp` and `fsdp`
# another number on each rank, such as `step * world + rank`, in `tp` the same on all.)
@dataclasses.dataclass(frozen=True)
class Options:
    """`sequences` a step, of all ranks together. A multiple of the ranks must be `sequences` for `ddp` and `fsdp`, and
    `heads`, `key_heads` and `hidden` for `tp`."""

    way: str = "tp"
    steps: int = 3
    sequences: int = 4
    learning_rate: float = 3e-3
    seed: int = 0
    model: gpt.Config = gpt.Config(layers=1, heads=4, key_heads=4, width=32, hidden=40, context=8, p=0.0)
    operations: gpt.Operations = gpt.OURS

    def check(self, world):
        """ValueError if the model can't be cut for `world` ranks."""
        if self.way not in WAYS:
            raise ValueError(f"way must be one of {', '.join(WAYS)}, got {self.way!r}")
        if type(self.model) is not gpt.Config:  # experts' losses are no mean of those of parts of a batch
            raise ValueError(f"model must be a gpt.Config, without options, got {type(self.model).__qualname__}")
        named = dict(sequences=self.sequences)
        if self.way == "tp":
            named = {name: getattr(self.model, name) for name in ("heads", "key_heads", "hidden")}
        for name, number in named.items():
            if number % world:
                raise ValueError(f"{name} must be a multiple of the {world} ranks for {self.way}, got {number}")


# ## Tensor parallelism: cut every weight once
#
# Two products come in a row: into heads and out of them, into hidden units and out of them. The first is cut by its
# outputs, so each rank has whole heads, and can go on alone. The second is cut by its inputs, which are what the rank
# has. Its result is a term of a sum. So there is one all-reduce after every *pair* of products, and, backward, one
# before it.
#
# [[figure: ranks/layer]]
#
# A parameter remembers how it is cut. `copied_to_ranks` and `summed_over_ranks` are all that is added to the model.
OUTPUTS, INPUTS = "outputs", "inputs"


def cut_operations(operations, group=None):
    def linear(x, weight):
        if weight.cut == OUTPUTS:
            return operations.linear(copied_to_ranks(x, group), weight)
        return summed_over_ranks(operations.linear(x, weight), group)

    def loss(x, weight, labels):
        return vocab_parallel_linear_cross_entropy(x, weight, labels, group=group, vocab=weight.whole_rows)

    return dataclasses.replace(operations, linear=linear, loss=loss)


def parameter(values, cut):
    made = torch.nn.Parameter(values.detach().clone())
    made.cut = cut
    return made


# Queries, keys and values are rows of one weight, and so are the two halves of the gated unit: each of these parts is
# cut by itself. (Cut as a whole, rank 0 would have mostly queries.)
def rows_of(weight, rank, world, parts):
    return torch.cat([part.chunk(world)[rank] for part in weight.split(parts)])


class CutGPT(gpt.GPT):
    """A GPT of which this rank has a part; made from a whole one, with the same weights on all ranks."""

    def __init__(self, whole, group=None):
        torch.nn.Module.__init__(self)
        rank, world = place_in(group)
        c, self.group = whole.config, group
        self.config, self.dtype = c, whole.dtype
        self.operations = cut_operations(whole.operations, group)
        self.blocks, self.norm = whole.blocks, whole.norm
        self.cos, self.sin = whole.cos, whole.sin
        head = c.width // c.heads
        mine = dict(heads=c.heads // world, key_heads=c.key_heads // world, width=c.width // world)
        for block in self.blocks:
            attention, unit = block.mixer, block.feed_forward
            attention.config = dataclasses.replace(c, **mine)
            parts = [c.heads * head, c.key_heads * head, c.key_heads * head]
            attention.qkv = parameter(rows_of(attention.qkv, rank, world, parts), OUTPUTS)
            attention.out = parameter(attention.out.chunk(world, 1)[rank], INPUTS)
            unit.gate_up = parameter(rows_of(unit.gate_up, rank, world, [c.hidden, c.hidden]), OUTPUTS)
            unit.down = parameter(unit.down.chunk(world, 1)[rank], INPUTS)
        self.first, end = even_cuts(c.vocabulary, world)[rank : rank + 2]
        self.embedding = parameter(whole.embedding[self.first : end], OUTPUTS)
        self.embedding.whole_rows = c.vocabulary

    # The embedding is the matrix of the last product, so it is cut like that one, by entries of the vocabulary. A rank
    # looks up the tokens that it has. For the others it adds zero.
    def embed(self, tokens):
        rows = tokens - self.first
        here = (rows >= 0) & (rows < len(self.embedding))
        found = F.embedding(torch.where(here, rows, 0), self.embedding)
        return summed_over_ranks(torch.where(here[:, None], found, 0.0), self.group)


# ## Data parallelism: the model stays whole
#
# `ddp` sums the gradients while the backward pass is still running. `fsdp` (`fully_shard`) keeps a part of every
# weight, gathers a block's weights just before they are needed, and drops them after. Both take the *mean* over the
# ranks, and that is the mean over all tokens only because every rank has equally many.
def ddp(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def fsdp(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(torch.device(device.DEVICE).type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


WAYS = {"ddp": ddp, "fsdp": fsdp, "tp": CutGPT}


# ## Training
def whole_model(options):
    torch.manual_seed(options.seed)
    return gpt.GPT(options.model, options.operations).to(device.DEVICE)


# In `tp` all ranks see all sequences; otherwise each has its part of them.
def batches(options, rank=0, world=1):
    own = slice(None) if options.way == "tp" else slice(rank, None, world)
    for tokens, labels in gpt.batches(options.model, options.sequences, options.seed):
        yield tokens[own].contiguous(), labels[own].contiguous()


def trained(model, data, options):
    """The loss of each step, as a tensor, and the gradients of the first, by the parameter's name."""
    optimizer, losses, gradients = gpt.adamw(model, options.learning_rate), [], {}
    for tokens, labels in itertools.islice(data, options.steps):
        loss = model(tokens, labels)
        loss.backward()
        gradients = gradients or {name: whole_tensor(value.grad) for name, value in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses), gradients


def whole_tensor(gradient):
    return (gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient).clone()


def train_in_parallel(options):
    """Losses and first gradients, as `trained`, by the way of `options`; every rank calls this."""
    rank, world = place_in()
    options.check(world)
    model = WAYS[options.way](whole_model(options))
    losses, gradients = trained(model, batches(options, rank, world), options)
    if options.way != "tp":  # each rank has the mean of its own sequences
        dist.all_reduce(losses)
        losses /= world
    return losses, {name.removeprefix("module."): value for name, value in gradients.items()}


def train_alone(options):
    """The same in this process, with the whole model and all sequences."""
    return trained(whole_model(options), batches(options), options)


# ## One command
#
# `torchrun` starts the processes and tells each its rank. NCCL moves what is on cards, gloo what is on CPUs.
def start():
    if device.INTERPRET:
        dist.init_process_group("gloo")
    else:
        mine = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(mine)
        dist.init_process_group("nccl", device_id=mine)


if __name__ == "__main__":
    defaults = Options()
    asked = script.arguments(
        __doc__, way=dict(choices=tuple(WAYS), default=defaults.way), steps=dict(type=int, default=defaults.steps)
    )
    if "RANK" not in os.environ:
        sys.exit("start it with torchrun --nproc-per-node 2 annotated_examples/capstone/parallel.py")
    start()
    options = dataclasses.replace(defaults, way=asked.way, steps=asked.steps)
    losses, _ = train_in_parallel(options)
    alone, _ = train_alone(options)
    if dist.get_rank() == 0:
        for step, (mine, one) in enumerate(zip(losses.tolist(), alone.tolist())):
            print(f"step {step:3}: {options.way} on {dist.get_world_size()} ranks {mine:.5f}, one process {one:.5f}")
    dist.destroy_process_group()
    sys.exit(int((losses - alone).abs().max() > 1e-3))
