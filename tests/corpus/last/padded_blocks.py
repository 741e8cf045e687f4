import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "group": (8, 32)}


@triton.jit
def padded_blocks_kernel(x_ptr, y_ptr, width, GROUP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = row * width + tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.cumsum(x, axis=0))


def padded_blocks(x, group):
    """Prefix sums within groups of columns. Rows are padded to whole groups; the result is a part of the padded one."""
    rows, cols = x.shape
    wide = torch.nn.functional.pad(x.float(), (0, -cols % group)).contiguous()
    out = torch.empty_like(wide)
    if wide.numel():
        padded_blocks_kernel[(rows, wide.shape[1] // group)](wide, out, wide.shape[1], GROUP=group)
    return out[:, :cols]


def padded_blocks_reference(x, group):
    rows, cols = x.shape
    parts = [torch.cumsum(p, 1) for p in torch.split(x.float(), group, 1)]
    return torch.cat(parts, 1)
