"""What is measured of RoPE, and against whom. A shape is (B, H, Hk, T, D): all features of a head are turned."""

import torch

from annotated_examples.classics.rope import rope_reference

LESSON = "classics.rope"
FAST = None
FUNCTION = "rope"
AXES = ("batch", "heads", "key heads", "tokens", "head dimension")


# Tables in float32, one for all sequences. Each element of q and k is read and written; backward does the same.
def cost(shape, dtype):
    B, H, Hk, T, D = shape
    numel, table = B * (H + Hk) * T * D, 2 * T * (D // 2) * 4
    each = dict(bytes_read=numel * dtype.itemsize + table, bytes_written=numel * dtype.itemsize, operations=3 * numel)
    return {"forward": each, "backward": each}


# Heads as a projection leaves them: those of one token are neighbours in memory.
def inputs(shape, dtype, device):
    B, H, Hk, T, D = shape
    heads = {
        name: torch.randn(B, T, n, D, dtype=dtype, device=device).transpose(1, 2) for name, n in dict(q=H, k=Hk).items()
    }
    angles = torch.arange(T, device=device)[:, None] / 10000 ** (torch.arange(D // 2, device=device) / (D // 2))
    return heads | dict(cos=angles.cos(), sin=angles.sin())


# Each head's tokens are neighbours.
def contiguous_inputs(shape, dtype, device):
    return {name: value.contiguous() for name, value in inputs(shape, dtype, device).items()}


# It turns q and k in place, in a table as wide as a head.
def liger(example):
    from liger_kernel.ops.rope import LigerRopeFunction

    wide = [torch.cat([example[name], example[name]], -1)[None].to(example["q"].dtype) for name in ("cos", "sin")]
    return lambda q, k, cos, sin: LigerRopeFunction.apply(q, k, *wide)


# One launch for each of the two tensors.
def quack(example, interleaved=False):
    from quack.rotary import apply_rotary_emb

    def both(q, k, cos, sin):
        turned = (apply_rotary_emb(x.transpose(1, 2), cos, sin, interleaved) for x in (q, k))
        return tuple(x.transpose(1, 2) for x in turned)

    return both


# The example turns 6 of 8 features.
def example_cost(shape, dtype):
    costs, T = cost(shape, dtype), shape[3]
    return {which: {**parts, "bytes_read": parts["bytes_read"] - 2 * T * 4} for which, parts in costs.items()}


EXAMPLES = {"classics.rope": example_cost((1, 3, 1, 2, 8), torch.float32)}
BENCH = dict(
    shapes=[(8, 32, 8, 4096, 128), (4, 32, 32, 4096, 128), (8, 12, 12, 4096, 64), (2, 16, 2, 8192, 256)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=rope_reference,
    peers={"liger-kernel": liger, "quack": quack},
    passes=["forward", "backward"],
    differentiable=["q", "k"],
    host_shape=(1, 4, 4, 16, 64),
    variants={
        "": {},
        "interleaved": dict(
            shapes=[(8, 32, 8, 4096, 128)],
            call=lambda rope: lambda **tensors: rope(**tensors, interleaved=True),
            eager=lambda **tensors: rope_reference(**tensors, interleaved=True),
            peers={"quack": lambda example: quack(example, interleaved=True)},
        ),
        "heads first": dict(shapes=[(8, 32, 8, 4096, 128)], inputs=contiguous_inputs, peers={}),
    },
)
