import torch
import triton
import triton.language as tl


def packed_weights_inputs(groups, cols):
    return {
        "words": torch.randint(-(2**31), 2**31, (groups * 4, cols), dtype=torch.int64).to(torch.int32),
        "zeros": torch.randint(-(2**31), 2**31, (groups, cols), dtype=torch.int64).to(torch.int32),
        "scales": torch.randn(groups, 8 * cols),
    }


@triton.jit
def packed_weights_kernel(words_ptr, zeros_ptr, scales_ptr, w_ptr, cols, group, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < cols * 8
    shift = (c % 8) * 4
    which = row // group
    word = tl.load(words_ptr + row * cols + c // 8, mask=mask, other=0)
    zero = tl.load(zeros_ptr + which * cols + c // 8, mask=mask, other=0)
    code = (word >> shift) & 15
    zero = ((zero >> shift) + 1) & 15
    scale = tl.load(scales_ptr + which * cols * 8 + c, mask=mask, other=0.0).to(tl.float32)
    tl.store(w_ptr + row * cols * 8 + c, (code - zero).to(tl.float32) * scale, mask=mask)


def packed_weights(words, zeros, scales):
    """Weights from codes of four bits, eight in a word. Zero points are stored less one: 0 to 15 stand for 1 to 16."""
    words, zeros, scales = words.contiguous(), zeros.contiguous(), scales.contiguous()
    rows, cols = words.shape
    w = torch.empty(rows, 8 * cols, dtype=scales.dtype, device=words.device)
    if w.numel():
        grid = (rows, triton.cdiv(8 * cols, 64))
        packed_weights_kernel[grid](words, zeros, scales, w, cols, rows // zeros.shape[0], BLOCK=64)
    return w


def packed_weights_reference(words, zeros, scales):
    shifts = torch.arange(0, 32, 4, device=words.device)

    def unpack(t):
        return ((t.long()[..., None] >> shifts) & 15).flatten(1)

    group = words.shape[0] // max(zeros.shape[0], 1)
    zero = (unpack(zeros) + 1).repeat_interleave(group, 0)
    scale = scales.double().repeat_interleave(group, 0)
    return ((unpack(words) - zero).double() * scale).to(scales.dtype)
