"""What the operations of attention share."""

import torch

# ---------------------------------------------------------------- public functions
#: Of a head, where the sizes of trials are confined.
WIDTH = {"width": (16, 40)}
DENSE = {"non-finite": "PyTorch's dense products make NaN where terms of weight 0 are left out"}

# ---------------------------------------------------------------- cases
GRADIENTS = {"Q": "AT-dQ", "K": "AT-dK", "V": "AT-dV"}


def tame(Q, K, V, s):
    """Scores of a few units. Around ±10⁴ each softmax has a single key, and nothing is compared but its choice."""
    return {"Q": torch.sin(Q), "K": torch.sin(K), "V": torch.sin(V), "s": 1.5}


def capped(Q, K, V, s, b):
    return {**tame(Q, K, V, s), "b": torch.sin(b), "t": 1.25}


BACKWARD_ALONE = dict(returns=tuple(GRADIENTS.values()), values=tame, forward_only=True)
BOTH_RESULTS = dict(returns=("AT-O", "AT-lse"), gradients=GRADIENTS, values=tame)


def group(Q, K, V):
    return Q[None], K[None, None], V[None, None]


# Of older keys, which only the case of one element has, the query sees none; and a head has `width` columns at least.
def own_tokens(Q, K, V, m, width=16):
    return group(*(x if x.shape[-1] == width else widened(width, x)[0] for x in (Q, K[-m:], V[-m:])))


def widened(n, *tensors):
    """As many columns as there are keys."""
    return [torch.nn.functional.pad(x, (0, max(n - x.shape[-1], 0))) for x in tensors]


# ---------------------------------------------------------------- what is measured
def flex(q, k, causal, **options):
    """Compiled flex attention for such queries and keys, with the block mask made before the clock starts."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.compiler.reset()
    mask, rule = None, lambda b, h, i, j: i >= j
    if causal:
        mask = create_block_mask(rule, None, None, q.shape[2], k.shape[2], device=q.device)
    call = torch.compile(flex_attention, dynamic=False)
    options |= dict(block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
    return lambda q, k, v: call(q, k, v, **options)  # which has other names for them
