"""Groups of 32 along a row to float8 e4m3, a float32 scale a group; a row's last group may be short, and a group of zeros
gets the scale that its eps gives."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "eps": 1e-10}
GROUP = 32


@triton.jit
def _quant(X, Q, S, sx, cols, groups, eps, FMAX: tl.constexpr, GROUP: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    g = tl.program_id(1)
    c = g * GROUP + tl.arange(0, GROUP)
    x = tl.load(X + r * sx + c, mask=c < cols, other=0.0).to(tl.float32)
    amax = tl.maximum(tl.max(tl.abs(x), axis=0), eps)
    s = amax / FMAX
    q = tl.minimum(tl.maximum(x / s, -FMAX), FMAX)
    tl.store(Q + r * cols + c, q.to(Q.dtype.element_ty), mask=c < cols)
    tl.store(S + r * groups + g, s)


def group_quant_fp8(x, eps):
    if x.dim() != 2:
        raise ValueError("x: (rows, cols)")
    if torch.is_grad_enabled() and x.requires_grad:
        raise RuntimeError("no gradient")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("finite numbers only")
    if x.stride(1) != 1:
        x = x.contiguous()
    rows, cols = x.shape
    groups = triton.cdiv(cols, GROUP)
    q = torch.empty((rows, cols), dtype=torch.float8_e4m3fn, device=x.device)
    s = torch.empty((rows, groups), dtype=torch.float32, device=x.device)
    if rows and groups:
        _quant[(rows, groups)](x, q, s, x.stride(0), cols, groups, eps, FMAX=448.0, GROUP=GROUP)
    return q, s


def group_quant_fp8_reference(x, eps):
    if not bool(torch.isfinite(x).all()):
        raise ValueError("finite numbers only")
    rows, cols = x.shape
    pad = torch.nn.functional.pad(x.float(), (0, -cols % GROUP)).view(rows, -(-cols // GROUP), GROUP)
    s = pad.abs().amax(-1).clamp(min=eps) / 448.0 if pad.numel() else pad.new_empty(pad.shape[:2])
    q = (pad / s[..., None]).clamp(-448.0, 448.0).flatten(1)[:, :cols].to(torch.float8_e4m3fn)
    return q, s
