"""Block-sparse (BSR) matrix times a dense one: blocks of 16 by 16, as in xformers' and triton's blocksparse."""

import torch
import triton
import triton.language as tl


@triton.jit
def bsr_dense(crow_ptr, col_ptr, val_ptr, x_ptr, y_ptr, N, x_sk, x_sn, B: tl.constexpr, BN: tl.constexpr):
    block_row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    i = tl.arange(0, B)
    acc = tl.zeros((B, BN), tl.float32)
    start = tl.load(crow_ptr + block_row)
    stop = tl.load(crow_ptr + block_row + 1)
    for j in range(start, stop):
        block_col = tl.load(col_ptr + j).to(tl.int64)
        a = tl.load(val_ptr + tl.cast(j, tl.int64) * B * B + i[:, None] * B + i[None, :])
        k = block_col * B + i
        x = tl.load(x_ptr + k[:, None] * x_sk + n[None, :] * x_sn, mask=n[None, :] < N, other=0.0)
        acc = tl.dot(a, x, acc, input_precision="ieee")
    tl.store(y_ptr + (block_row * B + i)[:, None] * N + n[None, :], acc, mask=n[None, :] < N)


def bsr_matmul(crow, col, values, x):
    """crow int32 (block_rows + 1), col int32 (nnz), values (nnz, 16, 16), x (16 * block_cols, n)."""
    if crow.dim() != 1 or crow.shape[0] < 1 or col.dim() != 1 or values.shape != (col.shape[0], 16, 16):
        raise ValueError("crow and col must be vectors, values (nnz, 16, 16)")
    if crow.dtype != torch.int32 or col.dtype != torch.int32:
        raise ValueError("crow and col must be int32")
    if x.dim() != 2 or x.shape[0] % 16:
        raise ValueError("x must be a matrix with a multiple of 16 rows")
    if values.dtype != x.dtype or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("values and x must both be float16, bfloat16 or float32")
    if values.requires_grad or x.requires_grad:
        raise ValueError("bsr_matmul has no backward pass")
    nnz = col.shape[0]
    if int(crow[0]) != 0 or int(crow[-1]) != nnz or bool((crow[1:] < crow[:-1]).any()):
        raise ValueError("crow must rise from 0 to nnz")
    if nnz and (int(col.min()) < 0 or int(col.max()) >= x.shape[0] // 16):
        raise ValueError("a column is outside of x")
    block_rows, n = crow.shape[0] - 1, x.shape[1]
    if n > 32 * 65535:
        raise ValueError("x has too many columns")
    y = torch.empty((block_rows * 16, n), dtype=x.dtype, device=x.device)
    if y.numel():
        bsr_dense[(block_rows, triton.cdiv(n, 32))](
            crow.contiguous(), col.contiguous(), values.contiguous(), x, y, n, x.stride(0), x.stride(1), B=16, BN=32
        )
    return y


def bsr_matmul_inputs(block_rows, block_cols, n):
    layout = torch.rand(block_rows, block_cols) < 0.5
    crow = torch.cat([torch.zeros(1), layout.sum(1).cumsum(0)]).to(torch.int32)
    col = layout.nonzero()[:, 1].to(torch.int32)
    return {
        "crow": crow,
        "col": col,
        "values": torch.randn(col.shape[0], 16, 16),
        "x": torch.randn(16 * block_cols, n),
    }


def bsr_matmul_reference(crow, col, values, x):
    rows = torch.repeat_interleave(torch.arange(len(crow) - 1, device=x.device), crow.diff().long())
    y = x.new_zeros(len(crow) - 1, 16, x.shape[1])
    blocks = x.reshape(x.shape[0] // 16, 16, x.shape[1])
    return y.index_add(0, rows, values @ blocks[col.long()]).reshape((len(crow) - 1) * 16, x.shape[1])
