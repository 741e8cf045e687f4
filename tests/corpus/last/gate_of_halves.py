import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch time 2*cols", "limit": (7.0, 1.5)}


@triton.jit
def gate_of_halves_kernel(x_ptr, out_ptr, cols, row_stride, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < cols
    gate = tl.load(x_ptr + row * row_stride + c, mask=mask).to(tl.float32)
    up = tl.load(x_ptr + row * row_stride + cols + c, mask=mask).to(tl.float32)
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * cols + c, y, mask=mask)


def gate_of_halves(x, limit=7.0):
    """SwiGLU whose halves lie side by side, clamped; slices of a wider projection are read where they are."""
    batch, time, width = x.shape
    out = torch.empty(batch, time, width // 2, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    if x.stride(2) != 1:
        x = x.contiguous()
    block = min(128, triton.next_power_of_2(width // 2))
    grid = (batch * time, triton.cdiv(width // 2, block))
    gate_of_halves_kernel[grid](x, out, width // 2, x.stride(1), limit, BLOCK=block)
    return out


def gate_of_halves_reference(x, limit=7.0):
    gate, up = x.float().chunk(2, -1)
    gate = torch.where(gate > limit, torch.full_like(gate, limit), gate)
    up = torch.clamp(up, -limit, limit)
    return (gate / (1 + torch.exp(-gate)) * up).to(x.dtype)
