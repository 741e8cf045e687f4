import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}
SIZES = {"rows": (1, 3, 8), "cols": (1, 50, 200)}

_counters = {}


@triton.jit
def folded_total_kernel(x_ptr, part_ptr, counter_ptr, out_ptr, n, programs, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(part_ptr + program, tl.sum(x))
    tl.debug_barrier()
    done = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
    if done % programs == programs - 1:
        p = tl.arange(0, PARTS)
        parts = tl.load(part_ptr + p, mask=p < programs, other=0.0, volatile=True)
        tl.store(out_ptr, tl.sum(parts))


def folded_total(x):
    """The sum of all numbers in one launch: the program that ends last adds the parts."""
    flat = x.contiguous().reshape(-1)
    out = torch.zeros(1, dtype=torch.float32, device=x.device)
    if x.numel():
        programs = triton.cdiv(x.numel(), 64)
        if x.device not in _counters:
            _counters[x.device] = torch.zeros(1, dtype=torch.int32, device=x.device)
        parts = torch.empty(programs, dtype=torch.float32, device=x.device)
        folded_total_kernel[(programs,)](
            flat,
            parts,
            _counters[x.device],
            out,
            x.numel(),
            programs,
            BLOCK=64,
            PARTS=triton.next_power_of_2(programs),
        )
    return out.reshape(())


def folded_total_reference(x):
    return x.float().sum()
