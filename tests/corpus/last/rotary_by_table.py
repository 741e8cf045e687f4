import torch
import triton
import triton.language as tl

INPUTS = {"x": "time heads 2*half", "base": (10000.0, 500.0)}

_tables = {}


@triton.jit
def rotary_table_kernel(cos_ptr, sin_ptr, half, log_base, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    angle = t * tl.exp(-log_base * d / half)
    tl.store(cos_ptr + t * half + d, tl.cos(angle), mask=d < half)
    tl.store(sin_ptr + t * half + d, tl.sin(angle), mask=d < half)


@triton.jit
def rotary_by_table_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, half, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    t, head = pid // heads, pid % heads
    d = tl.arange(0, BLOCK)
    mask = d < half
    cos = tl.load(cos_ptr + t * half + d, mask=mask)
    sin = tl.load(sin_ptr + t * half + d, mask=mask)
    at = (t * heads + head) * 2 * half + d
    a = tl.load(x_ptr + at, mask=mask).to(tl.float32)
    b = tl.load(x_ptr + at + half, mask=mask).to(tl.float32)
    tl.store(y_ptr + at, a * cos - b * sin, mask=mask)
    tl.store(y_ptr + at + half, b * cos + a * sin, mask=mask)


def table_of(time, half, base, device):
    key = (half, device)
    if key not in _tables or _tables[key][0].shape[0] < time:
        cos = torch.empty(time, half, dtype=torch.float32, device=device)
        sin = torch.empty_like(cos)
        log_base = torch.log(torch.tensor(base)).item()
        rotary_table_kernel[(time,)](cos, sin, half, log_base, BLOCK=triton.next_power_of_2(half))
        _tables[key] = cos, sin
    return _tables[key]


def rotary_by_table(x, base=10000.0):
    """Rotary embedding; cosines and sines are kept, and computed anew only for longer texts."""
    x = x.contiguous()
    time, heads, width = x.shape
    y = torch.empty_like(x)
    if x.numel():
        cos, sin = table_of(time, width // 2, base, x.device)
        rotary_by_table_kernel[(time * heads,)](
            x, cos, sin, y, heads, width // 2, BLOCK=triton.next_power_of_2(width // 2)
        )
    return y


def rotary_by_table_reference(x, base=10000.0):
    time, heads, width = x.shape
    half = width // 2
    d = torch.arange(half, device=x.device, dtype=torch.float32)
    angle = torch.arange(time, device=x.device, dtype=torch.float32)[:, None] * base ** (-d / max(half, 1))
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
