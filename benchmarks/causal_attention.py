"""What is measured of causal attention at its simplest. `shape` is (batch, heads, tokens, head dim)."""

import functools

import torch

from benchmarks.flash_attention import attention_cost, sdpa
from benchmarks.flash_attention import reference as of_heads

LESSON = "attention.causal_attention"
FAST = None
FUNCTION = "causal_attention"
AXES = ("batch", "heads", "tokens", "head dimension")


def cost(shape, dtype):
    B, H, T, D = shape
    return attention_cost(B * H * T, B * H * T, D, dtype.itemsize, B * H * T * T // 2)


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}


# Five tokens of two numbers; query i sees i + 1 keys.
EXAMPLES = {"attention.causal_attention": attention_cost(5, 5, 2, 4, pairs=15)}
BENCH = dict(
    shapes=[(4, 16, 4096, 128), (4, 32, 4096, 64), (1, 16, 16384, 128), (16, 16, 1024, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=sdpa("FLASH_ATTENTION", True),
    eager_name="flash-2 (SDPA)",
    reference=functools.partial(of_heads, causal=True),
    compile=False,
    passes=["forward", "backward"],
    differentiable=["q", "k", "v"],
    host_shape=(1, 2, 128, 64),
)
