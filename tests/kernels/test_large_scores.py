"""Backward kernels compute weights a second time. In float32 those of large scores must not lose digits then."""

import pytest
import torch

from academy.runtime import device
from annotated_examples.attention.causal_attention import causal_attention
from annotated_examples.attention.flash_attention import flash_attention
from annotated_examples.attention.mla import mla_attention
from annotated_examples.attention.sparse_mla import sparse_attention

T, D = 24, 16


def of_latents(q, k, v):
    """Keys whose last numbers are queried, and whose first are the values."""
    rows, nobody = torch.cat([v, k], dim=1), torch.zeros_like(q)
    seen = torch.arange(T, dtype=torch.int32, device=q.device).expand(T, T)
    seen = seen.masked_fill(seen > seen.T, -1).contiguous()
    return sparse_attention(torch.cat([nobody, q], dim=1)[:, None], rows, seen, rank=D, scale=1.0)[:, 0]


WAYS = {
    "causal": lambda q, k, v: causal_attention(q[None, None], k[None, None], v[None, None], scale=1.0),
    "flash": lambda q, k, v: flash_attention(q[None, None], k[None, None], v[None, None], causal=True, scale=1.0),
    "latent": lambda q, k, v: mla_attention(
        q[None, None], q[None, None, :, :0], k[None, None], k[None, :, :0], v[None, None], scale=1.0
    ),
    "selected": of_latents,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [300.3, 5000.7])
def test_weights_of_equal_scores(way, size):
    """Query i gives each of its i + 1 keys, which are all equal, the same weight; then a value's gradient is known."""
    q = torch.full((T, D), size / D, device=device.DEVICE)
    k = torch.ones(T, D, device=device.DEVICE)
    v = torch.ones(T, D, device=device.DEVICE, requires_grad=True)
    WAYS[way](q, k, v).sum().backward()
    weights = 1 / torch.arange(1, T + 1, dtype=torch.float64)
    wanted = weights.flip(0).cumsum(0).flip(0)[:, None].expand(T, D)
    assert ((v.grad.cpu().double() - wanted) / wanted).abs().max() < 5e-7
