"""What is measured of flash attention, and against whom. `shape` is (batch, heads, heads of keys, tokens, head dim).

Triton's tutorial kernel is no peer: it comes with no package, and its text isn't ours to copy.
"""

import functools

import torch
import torch.nn.functional as F

LESSON = "attention.flash_attention"
FAST = "fast.flash_attention"
BACKWARD = "fast.flash_attention_backward"
FUNCTION = "flash_attention"
AXES = ("batch", "heads", "key heads", "tokens", "head dimension")


# Queries, keys and values are read once, the output and a log-sum-exp a row are written. Two products of 2·T·S·D
# operations forward, five backward. A causal mask is counted as half of them.
def attention_cost(queries, keys, D, size, pairs, gradient_of_lse=0):
    """queries, keys: rows of all heads together. pairs: of a query and a key, those that count."""
    q, k = queries * D * size, keys * D * size
    return {
        "forward": dict(bytes_read=q + 2 * k, bytes_written=q + 4 * queries, operations=4 * pairs * D),
        "backward": dict(
            bytes_read=3 * q + 2 * k + 4 * queries + gradient_of_lse,
            bytes_written=q + 2 * k,
            operations=10 * pairs * D,
        ),
    }


def cost(shape, dtype, part=1.0):
    B, H, Hk, N, D = shape
    return attention_cost(B * H * N, B * Hk * N, D, dtype.itemsize, int(part * B * H * N * N))


def inputs(shape, dtype, device):
    B, H, Hk, N, D = shape
    heads = dict(q=H, k=Hk, v=Hk)
    return {name: torch.randn(B, count, N, D, dtype=dtype, device=device) for name, count in heads.items()}


def sdpa(backend, causal):
    """PyTorch's `scaled_dot_product_attention` with one of its backends; with equal lengths its causal mask is ours."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    return call


def flex(inputs, causal):
    """Compiled flex attention, with the block mask made before the clock starts."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.compiler.reset()
    call, q, k = torch.compile(flex_attention, dynamic=False), inputs["q"], inputs["k"]
    mask = None
    if causal:
        rule = lambda b, h, i, j: i >= j  # noqa: E731
        mask = create_block_mask(rule, None, None, q.shape[2], k.shape[2], device=q.device)
    return lambda q, k, v: call(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


# A head at a time, and its scores computed again for the backward pass: all of them in float64 would fill the card.
def reference(q, k, v, causal):
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.attention.flash_attention import flash_attention_reference

    one = functools.partial(checkpoint, flash_attention_reference, causal=causal, use_reentrant=False)
    group = q.shape[1] // k.shape[1]
    batches = []
    for b in range(len(q)):
        alone = ((q[b, h], k[b, h // group], v[b, h // group]) for h in range(q.shape[1]))
        batches.append(torch.cat([one(*(x[None, None] for x in head)) for head in alone], dim=1))
    return torch.cat(batches)


def variant(causal):
    return dict(
        call=lambda function: lambda q, k, v: function(q, k, v, causal=causal),
        eager=sdpa("FLASH_ATTENTION", causal),
        reference=functools.partial(reference, causal=causal),
        peers={
            "cuDNN (SDPA)": lambda: sdpa("CUDNN_ATTENTION", causal),
            "flex, compiled": lambda inputs: flex(inputs, causal),
        },
        cost=functools.partial(cost, part=0.5 if causal else 1.0),
    )


EXAMPLES = {
    # Five queries, nine keys; no gradient of the log-sum-exp is a single zero.
    "attention.flash_attention": attention_cost(5, 9, 3, 4, pairs=45, gradient_of_lse=4),
    # Twelve of each, in 16 bits; query i sees the keys up to its own.
    "fast.flash_attention": dict(forward=attention_cost(12, 12, 8, 2, pairs=78)["forward"]),
    "fast.flash_attention_backward": dict(
        backward=attention_cost(12, 12, 8, 2, pairs=78, gradient_of_lse=4)["backward"]
    ),
}
BENCH = dict(
    shapes=[(4, 16, 16, 4096, 128), (4, 32, 8, 4096, 128), (1, 16, 16, 16384, 128)]
    + [(16, 16, 16, 1024, 64), (4, 32, 32, 4096, 64), (1, 16, 16, 16384, 64)]
    + [(16384 // N, 16, 16, N, D) for N in (512, 1024, 2048, 8192) for D in (64, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager_name="flash-2 (SDPA)",
    compile=False,
    passes=["forward", "backward"],
    differentiable=["q", "k", "v"],
    host_shape=(1, 2, 1, 128, 64),
    variants={"causal": variant(True), "full": variant(False)},
)
