import torch
import triton
import triton.language as tl

INPUTS = {"x": "channels height width", "radius": (0, 1, 2)}


@triton.jit
def local_mean_kernel(x_ptr, y_ptr, height, width, n, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    col = at % width
    row = at // width % height
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in tl.static_range(-RADIUS, RADIUS + 1):
        for j in tl.static_range(-RADIUS, RADIUS + 1):
            there = (row + i >= 0) & (row + i < height) & (col + j >= 0) & (col + j < width) & (at < n)
            total += tl.load(x_ptr + at + i * width + j, mask=there, other=0.0).to(tl.float32)
            count += 1.0
    tl.store(y_ptr + at, total / count, mask=at < n)


def local_mean(x, radius):
    """The mean of the numbers up to `radius` rows and columns away, of those that there are."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        grid = (triton.cdiv(x.numel(), 128),)
        local_mean_kernel[grid](x, y, x.shape[1], x.shape[2], x.numel(), RADIUS=radius, BLOCK=128)
    return y


def local_mean_reference(x, radius):
    if x.numel() == 0:
        return torch.empty_like(x)
    size = 2 * radius + 1
    pool = torch.nn.functional.avg_pool2d
    return pool(x.double()[:, None], size, 1, radius, count_include_pad=False)[:, 0].to(x.dtype)
