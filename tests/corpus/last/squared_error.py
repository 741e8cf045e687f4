import torch
import triton
import triton.language as tl

INPUTS = {"prediction": "rows cols", "target": "rows cols", "reduction": ("mean", "sum")}


@triton.jit
def squared_error_kernel(p_ptr, t_ptr, out_ptr, cols, sp_r, sp_c, st_r, st_c, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < cols
    p = tl.load(p_ptr + row * sp_r + c * sp_c, mask=inside, other=0.0).to(tl.float32)
    t = tl.load(t_ptr + row * st_r + c * st_c, mask=inside, other=0.0).to(tl.float32)
    part = tl.sum(tl.where(inside, (p - t) * (p - t), 0.0)) * scale
    tl.atomic_add(out_ptr, part.to(out_ptr.dtype.element_ty))


def squared_error(prediction, target, reduction="mean"):
    """Mean or sum of squared differences, added up by all programs."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction {reduction!r} is not supported")
    rows, cols = prediction.shape
    if prediction.numel() == 0:
        raise ValueError("nothing to compare")
    out = torch.zeros(
        (), dtype=torch.float16 if prediction.dtype == torch.float16 else torch.float32, device=prediction.device
    )
    scale = 1.0 / prediction.numel() if reduction == "mean" else 1.0
    block = min(16, triton.next_power_of_2(cols))
    squared_error_kernel[(rows, triton.cdiv(cols, block))](
        prediction, target, out, cols, *prediction.stride(), *target.stride(), scale, BLOCK=block
    )
    return out.to(prediction.dtype)


def squared_error_reference(prediction, target, reduction="mean"):
    squares = (prediction.float() - target.float()).pow(2)
    return (squares.mean() if reduction == "mean" else squares.sum()).to(prediction.dtype)
