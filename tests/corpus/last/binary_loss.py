import torch
import triton
import triton.language as tl

INPUTS = {"logits": "rows cols", "target": "rows cols: bool", "positive_weight": (1.0, 3.0)}


@triton.jit
def binary_loss_kernel(x_ptr, t_ptr, out_ptr, n, weight, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    t = tl.load(t_ptr + at, mask=mask, other=0) != 0
    p = 1.0 / (1.0 + tl.exp(-x))
    loss = tl.where(t, -weight * tl.log(p), -tl.log(1.0 - p))
    tl.store(out_ptr + at, loss, mask=mask)


def binary_loss(logits, target, positive_weight=1.0):
    """Cross entropy with two classes, one for each logit."""
    logits, bits = logits.contiguous(), target.contiguous().view(torch.uint8)
    out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    if out.numel():
        block = 128
        binary_loss_kernel[(triton.cdiv(out.numel(), block),)](
            logits, bits, out, out.numel(), positive_weight, BLOCK=block
        )
    return out


def binary_loss_reference(logits, target, positive_weight=1.0):
    x = logits.float()
    return torch.where(
        target, -positive_weight * torch.nn.functional.logsigmoid(x), -torch.nn.functional.logsigmoid(-x)
    )
