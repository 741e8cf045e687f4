"""Attention below Triton: what is compared with formulas, and what is measured.

`shape` is as in flash_attention.py.
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations import flash_attention as dense
from operations._attention import BACKWARD_ALONE, BOTH_RESULTS, group, own_tokens, widened
from operations.flash_attention import AXES, cost, inputs  # noqa: F401  academy reads AXES

LESSON = "gluon.flash_attention"
FAST = None
BACKWARD = "gluon.flash_attention_backward"
FUNCTION = "flash_attention"
DERIVATION = "attention"
#: A sum of 23 weights has no inverse modulo 23. Heads are widened to 64 numbers.
WITHOUT_ROUNDING = {"sizes": {"": {"m": 19, "d": 16}}}

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public("flash_attention", {name: "1 1 tokens 64" for name in "qkv"}, at=(20,), dtypes=("float16", "bfloat16"))
]

# ---------------------------------------------------------------- below Triton
# Heads of 64 numbers. Two heads share the keys.
BELOW_TRITON = {"g": 2, "m": 70, "p": 0, "d": 64, "l": 71, "r": 1}


@case(modules=LESSON, **BOTH_RESULTS, dtypes=("float16",), sizes=BELOW_TRITON)
def below_triton(module, Q, K, V, s, m, d):
    q, k, v = own_tokens(Q, K, V, m, 64)
    o, lse = module.flash_attention(q, k, v, causal=True, scale=s, return_lse=True)
    return o[0, ..., :d], lse[0]


# Its backward pass alone, with the gradient of the log-sum-exp.
@case(modules=("gluon.flash_attention_backward",), **BACKWARD_ALONE, dtypes=("float16",), sizes=BELOW_TRITON)
def backward_below_triton(module, Q, K, V, s, m, d, nabla_O, nabla_L):
    q, k, v = own_tokens(Q, K, V, m, 64)
    do, dlse = widened(64, nabla_O)[0][None], nabla_L[None].float()
    options = module.contract(q, k, v, True, s, None, 0.0, None, True)
    saved = module.attention_forward(q, k, v, None, None, None, options)
    dq, dk, dv, _ = module.attention_backward(do, dlse, q, k, v, None, None, None, *saved, options)
    return dq[0, ..., :d], older(K, dk[0, 0, :, :d]), older(V, dv[0, 0, :, :d])


def older(all_keys, gradient):
    """Keys that no query sees, of which only the case of one element has any, have a gradient of 0."""
    return torch.nn.functional.pad(gradient, (0, 0, len(all_keys) - len(gradient), 0))


@backward_below_triton.pytorch
def _(module, Q, K, V, s, m, nabla_O, nabla_L):
    with torch.enable_grad():
        leaves = [value.detach().requires_grad_() for value in (Q, K, V)]
        q, k, v = group(leaves[0], leaves[1][-m:], leaves[2][-m:])
        o, lse = module.flash_attention_reference(q, k, v, scale=s, return_lse=True, causal=True)
        return torch.autograd.grad((o, lse), leaves, (nabla_O[None], nabla_L[None].to(lse.dtype)))


# ---------------------------------------------------------------- what is measured
def in_triton(causal):
    """The kernels in Triton. The public function would hand large calls to those that are measured here."""
    from annotated_examples.fast import flash_attention as fast

    def call(q, k, v):
        options = fast.checked(q, k, v, causal, None, None, 0.0, None, False)
        kernels = fast.attention_forward, fast.attention_backward
        return fast.attention(q, k, v, None, None, None, options, *kernels)[0]

    return call


def variant(causal):
    return dense.variant(causal) | dict(
        eager=dense.sdpa("CUDNN_ATTENTION", causal),
        peers={"Triton": functools.partial(in_triton, causal)},
    )


# 136 tokens of 16 numbers; query i sees i + 1 keys. The number of the next tile is written, too.
FORWARD = dense.attention_cost(136, 136, 16, 2, pairs=136 * 137 // 2)["forward"]
# Backward 40 queries see 136 keys. Sums for dQ are float32, written and read. A counter says whose turn it is, two
# which ticket is next.
BACKWARD_COST = dense.attention_cost(40, 136, 16, 2, pairs=40 * 136)["backward"]
EXAMPLES = {
    LESSON: {"forward": FORWARD | {"bytes_written": FORWARD["bytes_written"] + 4}},
    "gluon.flash_attention_backward": {
        "backward": BACKWARD_COST
        | {
            "bytes_written": BACKWARD_COST["bytes_written"] + 40 * 16 * 4 + 12,
            "bytes_read": BACKWARD_COST["bytes_read"] + 40 * 16 * 4,
        }
    },
}
BENCH = dict(
    shapes=[(4, 16, 16, 4096, 128), (4, 32, 8, 4096, 128), (1, 16, 16, 16384, 128), (4, 32, 32, 4096, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager_name="cuDNN (SDPA)",
    compile=False,
    passes=["forward", "backward"],
    differentiable=["q", "k", "v"],
    host_shape=(1, 2, 1, 128, 64),
    variants={"causal": variant(True), "full": variant(False)},
)
