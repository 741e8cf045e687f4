r"""# One pass

**What was slow?** Every score is computed twice.

**What changes?** The weighted sum of the values is a sum over exponentials, like the denominator. When a larger score
turns up, both are scaled down by one factor, [[tag: AT-merge]]. So one pass is enough. This is [the
lesson](../../attention/causal_attention.py).

**Predict:** two products instead of three, and half of the loads of keys.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import math

from annotated_examples.attention.causal_attention import causal_attention_forward


def flash_attention(q, k, v, *, causal=True):
    """Causal attention of (B, H, T, D), D a power of two."""
    return causal_attention_forward(q, k, v, 1 / math.sqrt(q.shape[-1]))[0]
