import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "seed": (1, 12345), "p": (0.5, 0.1)}


@triton.jit
def mixed(counter, seed):
    h = counter * 1103 + seed
    for _ in tl.static_range(3):
        h = ((h * 4093 + 907) % 1048573 * 251 + 17) % 1048573
    return h


@triton.jit
def seeded_dropout_kernel(x_ptr, y_ptr, cols, s_r, s_c, seed, p, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    c = block * BLOCK + lane
    counter = row * cols + lane
    kept = mixed(counter % 1048573, seed % 1048573).to(tl.float32) / 1048573.0 >= p
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + c, tl.where(kept, x / (1.0 - p), 0.0), mask=c < cols)


def seeded_dropout(x, seed, p):
    """Dropout that a seed and an element's place decide, so that it can be repeated."""
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    if x.numel():
        seeded_dropout_kernel[(rows, triton.cdiv(cols, 32))](x, y, cols, *x.stride(), seed, p, BLOCK=32)
    return y


def seeded_dropout_reference(x, seed, p):
    rows, cols = x.shape
    h = (torch.arange(rows * cols, device=x.device) % 1048573 * 1103 + seed % 1048573).reshape(rows, cols)
    for _ in range(3):
        h = ((h * 4093 + 907) % 1048573 * 251 + 17) % 1048573
    kept = h.to(torch.float32) / 1048573 >= p
    return torch.where(kept, x.float() / (1 - p), torch.zeros((), device=x.device)).to(x.dtype)
