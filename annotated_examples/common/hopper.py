r"""
# Tiles for the TMA unit

Hopper's TMA unit moves whole tiles between global and shared memory. It is told where a matrix lies by a
*descriptor*. It asks that every row begins at a multiple of 16 bytes. What several Gluon kernels need for that stands
here.
"""

from academy.runtime import device  # before anything imports triton

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import async_copy, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Triton 3.8 calls them `async_load` and `async_store`, and 3.9 has removed the names of 3.6 and 3.7.
if hasattr(tma, "async_load"):
    tma_load, tma_store = tma.async_load, tma.async_store
else:
    tma_load, tma_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global

# The copies that threads ask for, 16 bytes each, are renamed alike.
cp_async = async_copy.async_load if hasattr(async_copy, "async_load") else async_copy.async_copy_global_to_shared

DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}


# A descriptor says where a matrix lies, and how large the tiles are that will be asked for. The layout belongs to it:
# the TMA unit writes a tile into shared memory *swizzled*, in an order that spreads each column over the 32 banks, and
# the tensor cores read it so. `get_default_for` takes the widest swizzle that fits the tile's rows.
def described(x, block):
    layout = gl.NVMMASharedLayout.get_default_for(block, DTYPES[x.dtype])
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block, layout)


# A buffer of attention has the two dimensions of sequence and head in front, both of length 1. `matrix` is the same
# bytes as a matrix.
@gluon.jit
def matrix(buf):
    ROWS: gl.constexpr = buf.type.shape[2]
    COLUMNS: gl.constexpr = buf.type.shape[3]
    return buf.reshape([ROWS, COLUMNS])


# Whether the TMA unit can read a matrix where it lies: neighbours in a row lie side by side, and every row begins at a
# multiple of 16 bytes.
def is_aligned(x):
    row = x.stride(0) * x.element_size()
    return x.stride(1) == 1 and row % 16 == 0 and row >= x.shape[1] * x.element_size() and x.data_ptr() % 16 == 0


# An uninitialised matrix whose rows are that far apart. (What lies past a row's end is never written, because the
# descriptor knows where the matrix ends.)
def aligned_empty(M, N, dtype, device):
    per_16_bytes = 16 // dtype.itemsize
    wide = -(-N // per_16_bytes) * per_16_bytes
    return torch.empty(M, wide, dtype=dtype, device=device)[:, :N]


# The matrix itself, or a copy that the unit can read.
def aligned(x):
    return x if is_aligned(x) else aligned_empty(*x.shape, x.dtype, x.device).copy_(x)


# A persistent kernel has one program for each SM. The simulator has none; four programs are enough there
# to see several tiles in each.
def programs(tiles, index):
    if device.INTERPRET or index is None:
        return min(tiles, 4)
    return min(tiles, torch.cuda.get_device_properties(index).multi_processor_count)
