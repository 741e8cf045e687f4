import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "length": (4, 9), "periodic": (True, False)}

_windows = {}


@triton.jit
def window_kernel(out_ptr, length, period, BLOCK: tl.constexpr):
    t = tl.arange(0, BLOCK)
    w = 0.5 - 0.5 * tl.cos(6.283185307179586 * t.to(tl.float32) / period)
    tl.store(out_ptr + t, w, mask=t < length)


@triton.jit
def kept_window_kernel(x_ptr, w_ptr, y_ptr, cols, length, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(w_ptr + c % length)
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + c, x * w, mask=c < cols)


def window(length, periodic, device):
    key = (length, periodic, str(device))
    if key not in _windows:
        out = torch.empty(length, dtype=torch.float32, device=device)
        window_kernel[(1,)](
            out, length, float(length if periodic else length - 1), BLOCK=triton.next_power_of_2(length)
        )
        _windows[key] = out
    return _windows[key]


def kept_window(x, length, periodic=True):
    """x times a Hann window that is repeated along the columns; windows are kept from call to call."""
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    if x.numel():
        block = min(32, triton.next_power_of_2(cols))
        kept_window_kernel[(rows, triton.cdiv(cols, block))](
            x, window(length, periodic, x.device), y, cols, length, *x.stride(), BLOCK=block
        )
    return y


def kept_window_reference(x, length, periodic=True):
    t = torch.arange(x.shape[1], device=x.device) % length
    w = 0.5 - 0.5 * torch.cos(6.283185307179586 * t.float() / (length if periodic else length - 1))
    return (x.float() * w).to(x.dtype)
