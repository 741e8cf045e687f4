import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows 4*groups", "signed": (True, False)}
SIZES = {"groups": (1, 4, 9)}


@triton.jit
def group_codes_kernel(x_ptr, q_ptr, s_ptr, cols, s_r, s_c, top, EPS: tl.constexpr, GROUP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    c = group * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + row * s_r + c * s_c).to(tl.float32)
    x = tl.where((x == x) & (tl.abs(x) < 1e30), x, 0.0)
    largest = tl.max(tl.abs(x))
    scale = largest / top
    q = x * (1.0 / scale)
    q = tl.minimum(tl.maximum(q, -top), top)
    tl.store(q_ptr + row * cols + c, q)
    tl.store(s_ptr + row * (cols // GROUP) + group, scale)


def group_codes(x, signed=True):
    """Numbers of each group of four, divided so that the largest becomes 448 (or 57344), with the divisors."""
    rows, cols = x.shape
    codes = torch.empty(rows, cols, dtype=torch.float32, device=x.device)
    scales = torch.empty(rows, cols // 4, dtype=torch.float32, device=x.device)
    if x.numel():
        group_codes_kernel[(rows, cols // 4)](
            x, codes, scales, cols, *x.stride(), 448.0 if signed else 57344.0, EPS=1e-10, GROUP=4
        )
    return codes, scales


def group_codes_reference(x, signed=True):
    rows, cols = x.shape
    top = 448.0 if signed else 57344.0
    wide = x.float().reshape(rows, cols // 4, 4)
    wide = torch.where(wide.isfinite() & (wide.abs() < 1e30), wide, torch.zeros_like(wide))
    scales = wide.abs().amax(2) / top
    divisor = torch.where(scales == 0, torch.ones_like(scales), scales)
    return (wide / divisor[:, :, None]).clamp(-top, top).reshape(rows, cols), scales
