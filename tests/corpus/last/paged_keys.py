import torch
import triton
import triton.language as tl

SIZES = {"sequences": (1, 2, 3, 5), "width": (8, 16, 33)}


def paged_keys_inputs(sequences, width):
    page, most = 4, 6
    lengths = torch.randint(0, page * most + 1, (sequences,), dtype=torch.int32)
    table = torch.randperm(sequences * most + 3)[: sequences * most].reshape(sequences, most).to(torch.int32)
    longest = int(lengths.max())
    return {
        "cache": torch.randn(sequences * most + 3, page, width),
        "table": table,
        "lengths": lengths,
        "longest": longest,
    }


@triton.jit
def paged_keys_kernel(
    cache_ptr, table_ptr, lengths_ptr, out_ptr, longest, pages, width, PAGE: tl.constexpr, BLOCK: tl.constexpr
):
    sequence = tl.program_id(0)
    position = tl.program_id(1)
    length = tl.load(lengths_ptr + sequence)
    d = tl.arange(0, BLOCK)
    target = out_ptr + (sequence.to(tl.int64) * longest + position) * width + d
    if position < length:
        block = tl.load(table_ptr + sequence * pages + position // PAGE).to(tl.int64)
        row = block * PAGE + position % PAGE
        tl.store(target, tl.load(cache_ptr + row * width + d, mask=d < width), mask=d < width)
    else:
        tl.store(target, tl.zeros((BLOCK,), dtype=tl.float32), mask=d < width)


def paged_keys(cache, table, lengths, longest):
    """Copies the keys of each sequence out of their pages, padded with zeros to the longest sequence."""
    cache, table, lengths = cache.contiguous(), table.contiguous(), lengths.contiguous()
    page, width = cache.shape[1:]
    out = torch.empty(table.shape[0], longest, width, dtype=cache.dtype, device=cache.device)
    if out.numel():
        paged_keys_kernel[(table.shape[0], longest)](
            cache,
            table,
            lengths,
            out,
            longest,
            triton.cdiv(longest, page),
            width,
            PAGE=page,
            BLOCK=triton.next_power_of_2(width),
        )
    return out


def paged_keys_reference(cache, table, lengths, longest):
    out = torch.zeros(table.shape[0], longest, cache.shape[2], dtype=cache.dtype, device=cache.device)
    for s in range(table.shape[0]):
        n = int(lengths[s])
        keys = cache[table[s].long()].reshape(-1, cache.shape[2])
        out[s, :n] = keys[:n]
    return out
