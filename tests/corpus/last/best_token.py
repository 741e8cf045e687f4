import torch
import triton
import triton.language as tl

INPUTS = {"logits": "rows vocabulary", "temperature": (1.0, 0.5)}
SIZES = {"vocabulary": (1, 20, 300, 700)}


@triton.jit
def best_of_block_kernel(x_ptr, value_ptr, index_ptr, vocabulary, blocks, s_r, s_v, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    v = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * s_r + v * s_v, mask=v < vocabulary, other=-float("inf")).to(tl.float32)
    x = tl.where((v < vocabulary) & (x != x), float("inf"), x)
    best = tl.max(x)
    at = tl.min(tl.where((x == best) & (v < vocabulary), v, vocabulary))
    tl.store(value_ptr + row * blocks + block, best)
    tl.store(index_ptr + row * blocks + block, at)


@triton.jit
def best_of_row_kernel(value_ptr, index_ptr, out_ptr, top_ptr, blocks, inverse, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, BLOCK)
    value = tl.load(value_ptr + row * blocks + b, mask=b < blocks, other=-float("inf")).to(tl.float32)
    index = tl.load(index_ptr + row * blocks + b, mask=b < blocks, other=2147483647).to(tl.int64)
    best = tl.max(value)
    tl.store(out_ptr + row, tl.min(tl.where((value == best) & (b < blocks), index, 2147483647)))
    tl.store(top_ptr + row, best * inverse)


def best_token(logits, temperature=1.0):
    """Greedy choice in two steps: the best of each block, then the best of these (the first of equals)."""
    rows, vocabulary = logits.shape
    if vocabulary == 0:
        raise ValueError("no tokens to choose from")
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    top = torch.empty(rows, dtype=torch.float32, device=logits.device)
    blocks = triton.cdiv(vocabulary, 64)
    value = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device)
    index = torch.empty(rows, blocks, dtype=logits.dtype, device=logits.device)
    if rows:
        best_of_block_kernel[(rows, blocks)](logits, value, index, vocabulary, blocks, *logits.stride(), BLOCK=64)
        best_of_row_kernel[(rows,)](
            value, index, out, top, blocks, 1.0 / temperature, BLOCK=triton.next_power_of_2(blocks)
        )
    return out, top


def best_token_reference(logits, temperature=1.0):
    wide = torch.where(torch.isnan(logits), torch.full_like(logits, float("inf")), logits)
    best = wide.amax(1, keepdim=True)
    first = (wide == best).to(torch.int64).argmax(1)
    return first, (best.squeeze(1) / temperature).float()
