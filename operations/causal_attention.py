"""Causal attention at its simplest: what is compared with formulas, and what is measured.

`shape` is (batch, heads, tokens, head dim).
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import DENSE, GRADIENTS, own_tokens, tame
from operations.flash_attention import attention_cost, sdpa
from operations.flash_attention import reference as of_heads

LESSON = "attention.causal_attention"
FAST = None
FUNCTION = "causal_attention"
AXES = ("batch", "heads", "tokens", "head dimension")
DERIVATION = "attention"
# A softmax of 23 tokens would have a denominator that 23 divides.
WITHOUT_ROUNDING = {"sizes": {"": {"m": 19}}}

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "causal_attention", {name: "batch 3 tokens width" for name in "qkv"}, at=(1, 40, 64), more=[dict(scale=0.2)],
        sizes={"width": (16, 64)}, without=DENSE, batch={"batch": ""},
    )
]  # fmt: skip

# ---------------------------------------------------------------- dense and causal
# One head, as many keys as queries: no older keys (p = 0), nothing too far back (l > m), and nothing later (r = 1).
CAUSAL = {"g": 1, "m": 37, "p": 0, "d": 16, "l": 40, "r": 1}


def without_gradient_of_lse(Q, K, V, s, nabla_L):
    """The function returns the output only."""
    return {**tame(Q, K, V, s), "nabla_L": torch.zeros_like(nabla_L)}


@case(
    modules=LESSON,
    returns="AT-O",
    gradients=GRADIENTS,
    values=without_gradient_of_lse,
    sizes=CAUSAL,
)
def causal_attention(module, Q, K, V, s, m, d):
    q, k, v = own_tokens(Q, K, V, m)
    return module.causal_attention(q, k, v, scale=s)[0, ..., :d]


@case(modules=LESSON, returns="AT-lse", values=tame, sizes=CAUSAL, forward_only=True)
def causal_log_sum_exp(module, Q, K, V, s, m):
    return module.causal_attention_forward(*own_tokens(Q, K, V, m), s, BLOCK_M=16, BLOCK_N=16)[1][0].float()


@causal_log_sum_exp.pytorch
def _(module, Q, K, V, s, m):
    scores = (Q @ K[-m:].mT * s).to(torch.promote_types(Q.dtype, torch.float32))
    return scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -float("inf")).logsumexp(-1)


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    B, H, T, D = shape
    return attention_cost(B * H * T, B * H * T, D, dtype.itemsize, B * H * T * T // 2)


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}


# Five tokens of two numbers; query i sees i + 1 keys.
EXAMPLES = {LESSON: attention_cost(5, 5, 2, 4, pairs=15)}
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
