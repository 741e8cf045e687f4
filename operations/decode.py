"""Decode: what is compared with formulas, and what is measured.

`shape` is (batch, heads, heads of the cache, keys, head dim).
"""

import functools

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import WIDTH, capped, tame

LESSON = "attention.decode"
FAST = "fast.decode"
FUNCTION = "decode_attention"
AXES = ("batch", "heads", "key heads", "cached tokens", "head dimension")
DERIVATION = "attention"


# ---------------------------------------------------------------- public functions
def filled_cache(sequences, keys, width):
    lengths = torch.arange(sequences, dtype=torch.int32) * keys // max(sequences - 1, 1)
    caches = {name: torch.randn(sequences, keys, 2, width) for name in ("k_cache", "v_cache")}
    return {"q": torch.randn(sequences, 4, width), **caches, "lengths": lengths}


def in_pages():
    """Two sequences of 30 and 20 keys, in pages of 16."""
    caches = {name: torch.randn(4, 16, 2, 64).bfloat16() for name in ("k_cache", "v_cache")}
    whole = {"lengths": [30, 20], "block_table": [[3, 1], [0, 2]]}
    numbers = {name: torch.tensor(values, dtype=torch.int32) for name, values in whole.items()}
    return {"q": torch.randn(2, 4, 64).bfloat16(), **caches, **numbers, "sinks": torch.randn(4)}


PUBLIC = [
    Public(
        "decode_attention", filled_cache, at=(3, 300, 64), sizes=WIDTH, differentiable=False,
        batch={"sequences": "few sequences are split into more parts; with a num_splits that is given it holds"},
        more=[dict(inputs=in_pages, scale=0.2, window=9, softcap=5.0, num_splits=2)],
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
DECODE = (LESSON, FAST)


# ---------------------------------------------------------------- decode
# Each query is a sequence, and all have the same keys. So no query may see fewer than another: the windows are long.
def sequences(Q, K, V, m):
    caches = (x[None, :, None].expand(m, -1, 1, -1) for x in (K, V))
    return Q.transpose(0, 1), *caches, torch.full((m,), len(K), dtype=torch.int32, device=Q.device)


@case(modules=DECODE, returns="AT-parts", values=tame, sizes={"g": 3, "m": 16, "p": 16, "d": 6}, forward_only=True)
def decode_attention(module, Q, K, V, s, m):
    """Two parts: the older keys and the newer ones."""
    q, k, v, lengths = sequences(Q, K, V, m)
    return module.decode_attention(q, k, v, lengths, scale=s, num_splits=2).transpose(0, 1)


@case(
    modules=DECODE,
    returns="AT-sink-O",
    values=capped,
    sizes={"g": 3, "m": 6, "p": 7, "d": 6, "l": 13, "r": 6},
    forward_only=True,
)
def decode_with_options(module, Q, K, V, s, t, b, l, m):
    q, k, v, lengths = sequences(Q, K, V, m)
    return module.decode_attention(q, k, v, lengths, scale=s, softcap=t, sinks=b, window=l).transpose(0, 1)


@case(
    modules=DECODE,
    returns="AT-O",
    values=tame,
    sizes={"g": 3, "m": 6, "p": 7, "d": 6, "l": 13, "r": 6},
    forward_only=True,
)
def decode_from_pages(module, Q, K, V, s, l, m, n):
    """Pages of one key, in reverse order."""
    q, _, _, lengths = sequences(Q, K, V, m)
    pools = (x.flip(0)[:, None, None] for x in (K, V))
    table = torch.arange(n, dtype=torch.int32, device=Q.device).flip(0).expand(m, n)
    return module.decode_attention(q, *pools, lengths, block_table=table, scale=s, window=(l - 1, 0)).transpose(0, 1)


# ---------------------------------------------------------------- what is measured
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


def in_pages_of(PAGE, B, S):
    """What FlashInfer asks of caches whose sequences follow one another: first page of each, pages, last lengths."""
    first = torch.arange(B + 1, dtype=torch.int32) * (S // PAGE)
    return first, torch.arange(B * (S // PAGE), dtype=torch.int32), torch.full((B,), PAGE, dtype=torch.int32)


def flashinfer(inputs):
    """With tensor cores, as it advises where heads share keys. Its plan is made before the clock starts."""
    from flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper

    q, k_cache = inputs["q"], inputs["k_cache"]
    B, S, Hk, D = k_cache.shape
    room = torch.zeros(256 << 20, dtype=torch.uint8, device=q.device)
    wrapper = BatchDecodeWithPagedKVCacheWrapper(room, use_tensor_cores=True)
    wrapper.plan(*in_pages_of(64, B, S), q.shape[1], Hk, D, 64, q_data_type=q.dtype)
    pages = lambda cache: cache.view(-1, 64, Hk, D)  # noqa: E731
    return lambda q, k_cache, v_cache, lengths: wrapper.run(q, (pages(k_cache), pages(v_cache)))


def reference(q, k_cache, v_cache, lengths):
    from annotated_examples.attention.decode import decode_attention_reference

    return decode_attention_reference(q, k_cache, v_cache, lengths)


EXAMPLES = {
    # Two sequences of two heads; of the pool 8 keys and 1, four entries of the table.
    LESSON: decode_cost(4, 9, 2, 2, 4, table=4),
    # In 16 bits; of the pool 11 keys and 1, five entries of the table.
    FAST: decode_cost(4, 12, 2, 2, 2, table=5),
}
BENCH = dict(
    shapes=[(1, 32, 8, 32768, 128), (16, 32, 8, 8192, 128), (64, 32, 8, 4096, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=sdpa("FLASH_ATTENTION"),
    eager_name="flash-2 (SDPA)",
    reference=reference,
    compile=False,
    peers={"cuDNN (SDPA)": functools.partial(sdpa, "CUDNN_ATTENTION"), "FlashInfer": flashinfer},
    timing="graph",
    host_shape=(1, 4, 2, 128, 64),
)
