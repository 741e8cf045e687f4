import torch
import triton
import triton.language as tl


def standardise_groups_inputs(batch, channels, space):
    return {
        "x": torch.randn(batch, 4 * channels, space) * (0.01 if torch.rand(()) < 0.5 else 1.0),
        "weight": torch.randn(4 * channels),
        "groups": 4,
        "eps": 1e-3,
    }


@triton.jit
def standardise_groups_kernel(x_ptr, w_ptr, y_ptr, channels, each, space, eps, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    size = each * space
    base = (batch * channels + group * each) * space
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lane
        total += tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
    mean = tl.sum(total) / size
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lane
        d = tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32) - mean
        squares += tl.where(at < size, d * d, 0.0)
    rstd = 1.0 / (tl.sqrt(tl.sum(squares) / size) + eps)
    for start in range(0, size, BLOCK):
        at = start + lane
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + group * each + at // space, mask=at < size, other=0.0).to(tl.float32)
        tl.store(y_ptr + base + at, (x - mean) * rstd * w, mask=at < size)


def standardise_groups(x, weight, groups=4, eps=1e-3):
    """Group norm without a bias."""
    x, weight = x.contiguous(), weight.contiguous()
    batch, channels, space = x.shape
    if channels % groups:
        raise ValueError("groups must divide the channels")
    y = torch.empty_like(x)
    if x.numel():
        standardise_groups_kernel[(batch, groups)](x, weight, y, channels, channels // groups, space, eps, BLOCK=64)
    return y


def standardise_groups_reference(x, weight, groups=4, eps=1e-3):
    if x.numel() == 0:
        return torch.zeros_like(x)
    batch, channels, space = x.shape
    wide = x.float().reshape(batch, groups, -1)
    d = wide - wide.mean(2, keepdim=True)
    y = d / torch.sqrt(d.pow(2).mean(2, keepdim=True) + eps)
    return (y.reshape(x.shape) * weight.float()[:, None]).to(x.dtype)
