"""What is measured of the ladder of flash attention: causal, forward. `shape` is (batch, heads, tokens, head dim)."""

import torch

from operations.causal_attention import AXES, cost, inputs  # noqa: F401  academy reads these

FUNCTION = "flash_attention"
LADDER = dict(
    shapes=[(4, 16, 4096, 128)],
    dtypes=[torch.bfloat16],
    inputs=lambda shape, dtype, device: inputs(shape, dtype, device) | dict(causal=True),
    eager=lambda q, k, v, causal: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
)
