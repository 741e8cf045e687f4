import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "squared": (False, True)}


@triton.jit
def last_one_adds_kernel(
    x_ptr, part_ptr, ticket_ptr, out_ptr, n, SQUARED: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    at = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    if SQUARED:
        x = x * x
    tl.store(part_ptr + program, tl.sum(x))
    tl.debug_barrier()
    ticket = tl.atomic_add(ticket_ptr, 1, sem="acq_rel", scope="gpu")
    if ticket == programs - 1:
        p = tl.arange(0, PARTS)
        parts = tl.load(part_ptr + p, mask=p < programs, other=0.0, volatile=True)
        tl.store(out_ptr, tl.sum(parts))


def last_one_adds(x, squared=False):
    """The sum of all numbers in one launch; whichever program ends last adds up what the others left."""
    out = torch.zeros((), dtype=torch.float32, device=x.device)
    if x.numel():
        programs = triton.cdiv(x.numel(), 128)
        parts = torch.empty(programs, dtype=torch.float32, device=x.device)
        ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
        last_one_adds_kernel[(programs,)](
            x.contiguous(),
            parts,
            ticket,
            out,
            x.numel(),
            SQUARED=squared,
            BLOCK=128,
            PARTS=triton.next_power_of_2(programs),
        )
    return out


def last_one_adds_reference(x, squared=False):
    wide = x.float()
    return wide.pow(2).sum() if squared else wide.sum()
