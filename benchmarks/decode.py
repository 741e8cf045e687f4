"""What is measured of decode, and against whom. `shape` is (batch, heads, heads of the cache, keys, head dim)."""

import functools

import torch
import torch.nn.functional as F

LESSON = "attention.decode"
FAST = "fast.decode"
FUNCTION = "decode_attention"
AXES = ("batch", "heads", "key heads", "cached tokens", "head dimension")


# Every key and value is read once, and one length a sequence; the queries and the output are a handful of rows.
def decode_cost(heads, keys, lengths, D, size, table=0):
    """heads: of queries, of all sequences together. keys: rows of the cache that count, times its heads."""
    return {
        "forward": dict(
            bytes_read=heads * D * size + 2 * keys * D * size + 4 * lengths + 4 * table,
            bytes_written=heads * D * size,
            operations=4 * keys * D,
        )
    }


def cost(shape, dtype):
    B, H, Hk, S, D = shape
    costs = decode_cost(B * H, B * Hk * S, B, D, dtype.itemsize)
    costs["forward"]["operations"] *= H // Hk
    return costs


def inputs(shape, dtype, device):
    B, H, Hk, S, D = shape
    caches = {name: torch.randn(B, S, Hk, D, dtype=dtype, device=device) for name in ("k_cache", "v_cache")}
    lengths = torch.full((B,), S, dtype=torch.int32, device=device)
    return dict(q=torch.randn(B, H, D, dtype=dtype, device=device), **caches, lengths=lengths)


def sdpa(backend):
    """PyTorch's `scaled_dot_product_attention`, which takes heads before keys; all sequences have the full length."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(q, k_cache, v_cache, lengths):
        k, v = k_cache.transpose(1, 2), v_cache.transpose(1, 2)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=q.shape[1] != k.shape[1])[:, :, 0]

    return call


def reference(q, k_cache, v_cache, lengths):
    from annotated_examples.attention.decode import decode_attention_reference

    return decode_attention_reference(q, k_cache, v_cache, lengths)


EXAMPLES = {
    # Two sequences of two heads; of the pool 8 keys and 1, four entries of the table.
    "attention.decode": decode_cost(4, 9, 2, 2, 4, table=4),
    # In 16 bits; of the pool 11 keys and 1, five entries of the table.
    "fast.decode": decode_cost(4, 12, 2, 2, 2, table=5),
}
BENCH = dict(
    shapes=[(1, 32, 8, 32768, 128), (16, 32, 8, 8192, 128), (64, 32, 8, 4096, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=sdpa("FLASH_ATTENTION"),
    eager_name="flash-2 (SDPA)",
    reference=reference,
    compile=False,
    peers={"cuDNN (SDPA)": functools.partial(sdpa, "CUDNN_ATTENTION")},
    timing="graph",
    host_shape=(1, 4, 2, 128, 64),
)
