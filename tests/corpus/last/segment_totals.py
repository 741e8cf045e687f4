import torch
import triton
import triton.language as tl

SIZES = {"segments": (1, 3, 6), "width": (1, 8, 20)}


def segment_totals_inputs(segments, width):
    n = int(torch.randint(0, 60, ()))
    ids = torch.sort(torch.randint(0, segments, (n,))).values
    return {"x": torch.randn(n, width), "ids": ids, "segments": segments}


@triton.jit
def segment_totals_kernel(x_ptr, id_ptr, out_ptr, n, width, s_n, s_d, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * ROWS
    d = tl.arange(0, BLOCK)
    mask = d < width
    last = tl.minimum(first + ROWS, n)
    current = tl.load(id_ptr + first)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(first, last):
        segment = tl.load(id_ptr + at)
        if segment != current:
            tl.atomic_add(out_ptr + current * width + d, total, mask=mask)
            total = tl.zeros((BLOCK,), dtype=tl.float32)
            current = segment
        total += tl.load(x_ptr + at * s_n + d * s_d, mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + current * width + d, total, mask=mask)


def segment_totals(x, ids, segments):
    """Sums of the rows of each segment; ids are sorted, so that most sums stay in one program."""
    n, width = x.shape
    out = torch.zeros(segments, width, dtype=torch.float32, device=x.device)
    if n:
        segment_totals_kernel[(triton.cdiv(n, 8),)](
            x, ids.contiguous(), out, n, width, *x.stride(), ROWS=8, BLOCK=triton.next_power_of_2(width)
        )
    return out.to(x.dtype)


def segment_totals_reference(x, ids, segments):
    out = torch.zeros(segments, x.shape[1], device=x.device, dtype=torch.float32)
    return out.index_add(0, ids, x.float()).to(x.dtype)
