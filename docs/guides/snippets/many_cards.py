"""The snippets of the guide "Many cards". A test runs this file and compares what it prints."""

# --8<-- [start:imports]

import torch

from academy.bench.collectives import ring_bytes
from annotated_examples.capstone.gpt import GPT, GPT_124M, PLAIN

# --8<-- [end:imports]


# --8<-- [start:weights]
def weights(config):
    """(all weights, those of the layers)."""
    with torch.device("meta"):
        sizes = {name: value.numel() for name, value in GPT(config, PLAIN).named_parameters()}
    return sum(sizes.values()), sum(size for name, size in sizes.items() if name.startswith("blocks"))


def bytes_of_a_step(config, way, sequences, world, itemsize):
    """Payload of each collective of one training step; `sequences` are those of all ranks together."""
    everything, layers = weights(config)
    tokens = sequences * config.context
    if way == "ddp":
        return {"all_reduce": everything * itemsize}
    if way == "fsdp":  # a layer's weights are dropped after the forward pass, and gathered again for the backward pass
        return {"all_gather": (everything + layers) * itemsize, "reduce_scatter": everything * itemsize}
    activations = tokens * config.width * itemsize  # two pairs of products a layer, the embedding and the loss
    return {"all_reduce": (4 * config.layers + 2) * activations, "all_gather": 16 * tokens * world}


def megabytes_sent(way, sequences=64, world=8):
    """By each rank, if every collective goes round a ring, in bfloat16."""
    found = bytes_of_a_step(GPT_124M, way, sequences, world, itemsize=2)
    return round(sum(ring_bytes(kind, payload, world) for kind, payload in found.items()) / 1e6)


print(*(f"{way} {megabytes_sent(way)}" for way in ("ddp", "fsdp", "tp")))  # → ddp 436 fsdp 566 tp 8815
# --8<-- [end:weights]


# --8<-- [start:ring]
def ring_all_reduce(values):
    """The sums on every rank of a list, and the bytes that each rank has sent."""
    world, sent = len(values), [0] * len(values)
    parts = [list(value.chunk(world)) for value in values]

    def round_the_ring(first, take):
        for step in range(world - 1):
            moving = [(rank, (rank + first - step) % world) for rank in range(world)]
            messages = [parts[rank][part].clone() for rank, part in moving]
            for (rank, part), message in zip(moving, messages):
                neighbour = (rank + 1) % world
                parts[neighbour][part] = take(parts[neighbour][part], message)
                sent[rank] += message.nbytes

    round_the_ring(0, lambda mine, message: mine + message)  # now rank r has the sum of part r + 1
    round_the_ring(1, lambda mine, message: message)  # and hands it on
    return [torch.cat(each) for each in parts], sent


values = [torch.arange(12.0) * 10**rank for rank in range(4)]
sums, sent = ring_all_reduce(values)
print([torch.equal(each, sum(values)) for each in sums])  # → [True, True, True, True]
print(sent, ring_bytes("all_reduce", values[0].nbytes, world=4))  # → [72, 72, 72, 72] 72.0
# --8<-- [end:ring]


# --8<-- [start:time]
LATENCY, BANDWIDTH = 1e-6, 300e9  # assumed: seconds a step, bytes a second and direction


def ring_time(payload, world):
    return 2 * (world - 1) * LATENCY + ring_bytes("all_reduce", payload, world) / BANDWIDTH


def one_shot_time(payload, world):
    return LATENCY + (world - 1) * payload / BANDWIDTH


def crossing(world):
    """The payload from which on the ring is faster."""
    payload = 1024
    while one_shot_time(payload, world) < ring_time(payload, world):
        payload += 1024
    return payload


print(*(f"{world} ranks: {crossing(world) // 1024} KB" for world in (4, 8)))  # → 4 ranks: 977 KB 8 ranks: 726 KB
# --8<-- [end:time]


# --8<-- [start:binds]
OPERATIONS = 400e12  # assumed: operations a second that the products really reach


TRAVELS = {
    "ddp": {"backward": ["all_reduce"]},
    "fsdp": {"forward": ["all_gather"], "backward": ["all_gather", "reduce_scatter"]},
}


def tokens_to_hide(way, world):
    """Tokens a rank and step from which on what travels in each pass takes no longer than the pass computes.

    A weight takes 2 bytes, as does its gradient, and a token 2 operations forward and 4 backward for each weight. So the
    number of weights cancels.
    """
    found = []
    for direction, kinds in TRAVELS[way].items():
        seconds = sum(ring_bytes(kind, 2, world) for kind in kinds) / BANDWIDTH
        found.append(seconds / ({"forward": 2, "backward": 4}[direction] / OPERATIONS))
    return max(found)


print(*(f"{way} {tokens_to_hide(way, world=8):.0f}" for way in TRAVELS))  # → ddp 1167 fsdp 1167
# --8<-- [end:binds]


# --8<-- [start:statistics]
def statistics_megabytes(rows, world):
    """What the vocabulary-parallel loss gathers, and what the whole logits in bfloat16 would be."""
    return 16 * rows * world / 1e6, 2 * rows * 128256 / 1e6


print(*statistics_megabytes(rows=8192, world=8))  # → 1.048576 2101.346304
# --8<-- [end:statistics]
