# Exercise: attention/merge_halves

import math

import torch


def merge(o_a, lse_a, o_b, lse_b):
    large, small = torch.maximum(lse_a, lse_b), torch.minimum(lse_a, lse_b)
    lse = large + torch.log1p(torch.exp(torch.where(small == -math.inf, small, small - large)))
    lse = torch.where(lse == -math.inf, torch.zeros_like(lse), lse)  # nothing in both: −∞ minus −∞ would be NaN
    return torch.exp(lse_a - lse)[:, None] * o_a + torch.exp(lse_b - lse)[:, None] * o_b
