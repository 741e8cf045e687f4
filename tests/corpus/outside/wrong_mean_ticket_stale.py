# kind: stale scratch; fault: the counter is kept from call to call and nobody sets it back to 0 (line 29)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "n"}
_counters: dict = {}


@triton.jit
def _mean_kernel(x_ptr, parts_ptr, counter_ptr, out_ptr, n, stride, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride, mask=i < n, other=0.0).to(tl.float32)
    tl.store(parts_ptr + pid, tl.sum(x, axis=0))
    tl.debug_barrier()
    ticket = tl.atomic_add(counter_ptr, 1)
    if ticket == tl.num_programs(0) - 1:
        p = tl.arange(0, PARTS)
        parts = tl.load(parts_ptr + p, mask=p < tl.num_programs(0), other=0.0, volatile=True)
        tl.store(out_ptr, tl.sum(parts, axis=0) / n)


def _counter(device):
    if device not in _counters:
        _counters[device] = torch.zeros(1, dtype=torch.int32, device=device)
    return _counters[device]


def mean(x):
    if x.dim() != 1 or x.numel() == 0:
        raise ValueError("x must be a vector with at least one element")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("no backward pass")
    if x.numel() > 8192 * 1024:
        raise ValueError("at most 8192 * 1024 elements")
    programs = triton.cdiv(x.numel(), 1024)
    parts = torch.empty(programs, dtype=torch.float32, device=x.device)
    out = torch.empty((), dtype=torch.float32, device=x.device)
    _mean_kernel[(programs,)](
        x, parts, _counter(x.device), out, x.numel(), x.stride(0), PARTS=triton.next_power_of_2(programs), BLOCK=1024
    )
    return out.to(x.dtype)


def mean_reference(x):
    return x.mean()
