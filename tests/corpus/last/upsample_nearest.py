import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch height width", "out_height": (3, 7), "out_width": (16, 32)}
SIZES = {"width": (1, 5, 14, 28, 30)}


@triton.jit
def upsample_nearest_kernel(
    x_ptr, out_ptr, height, width, out_height, out_width, s_b, s_h, s_w, factor, BLOCK: tl.constexpr
):
    batch = tl.program_id(0).to(tl.int64)
    y = tl.program_id(1)
    columns = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < out_width
    source_y = y * height // out_height
    source_x = (columns.to(tl.float32) / factor).to(tl.int32)
    pixels = x_ptr + batch * s_b + source_y * s_h + source_x * s_w
    tl.store(out_ptr + (batch * out_height + y) * out_width + columns, tl.load(pixels, mask=mask), mask=mask)


def upsample_nearest(x, out_height, out_width):
    """Nearest pixel: row y of the result is row floor(y * height / out_height) of the image, columns alike."""
    batch, height, width = x.shape
    out = torch.empty(batch, out_height, out_width, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        if out.numel():
            raise ValueError("an image without pixels cannot be enlarged")
        return out
    block = 32
    upsample_nearest_kernel[(batch, out_height, triton.cdiv(out_width, block))](
        x, out, height, width, out_height, out_width, *x.stride(), out_width / width, BLOCK=block
    )
    return out


def upsample_nearest_reference(x, out_height, out_width):
    batch, height, width = x.shape
    if x.numel() == 0:
        return torch.zeros(batch, out_height, out_width, dtype=x.dtype, device=x.device)
    rows = torch.arange(out_height, device=x.device) * height // out_height
    columns = torch.arange(out_width, device=x.device) * width // out_width
    return x[:, rows][:, :, columns]
