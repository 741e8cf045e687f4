import torch
import triton
import triton.language as tl

SIZES = {"outer": (1, 4, 7), "inner": (8, 24, 40, 70), "group": (8, 16, 32)}


def nibble_weights_inputs(outer, inner, group):
    groups = -(-inner // group)
    return {
        "packed": torch.randint(0, 256, (outer, inner // 2)).to(torch.uint8),
        "scales": torch.rand(outer, groups) + 0.1,
        "zeros": torch.randint(0, 16, (outer, groups)).to(torch.uint8),
        "group": group,
    }


@triton.jit
def nibble_weights_kernel(q_ptr, s_ptr, z_ptr, w_ptr, half, groups, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    byte = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = byte < half
    q = tl.load(q_ptr + row * half + byte, mask=mask, other=0).to(tl.int32)
    group = row * groups + byte // GROUP
    scale = tl.load(s_ptr + group, mask=mask, other=0.0).to(tl.float32)
    zero = tl.load(z_ptr + group, mask=mask, other=0).to(tl.int32)
    target = w_ptr + row * half * 2 + byte * 2
    tl.store(target, ((q & 15) - zero).to(tl.float32) * scale, mask=mask)
    tl.store(target + 1, ((q >> 4) - zero).to(tl.float32) * scale, mask=mask)


def nibble_weights(packed, scales, zeros, group):
    """Weights out of two codes in a byte (the lower half first), with a scale and a zero for each `group` of them."""
    packed, scales, zeros = packed.contiguous(), scales.contiguous(), zeros.contiguous()
    outer, half = packed.shape
    weight = torch.empty(outer, half * 2, dtype=scales.dtype, device=packed.device)
    if weight.numel():
        block = 32
        nibble_weights_kernel[(outer, triton.cdiv(half, block))](
            packed, scales, zeros, weight, half, scales.shape[1], GROUP=group, BLOCK=block
        )
    return weight


def nibble_weights_reference(packed, scales, zeros, group):
    codes = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1).float()
    which = torch.arange(codes.shape[1], device=packed.device) // group
    return ((codes - zeros.float()[:, which]) * scales.float()[:, which]).to(scales.dtype)
