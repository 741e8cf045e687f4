"""Writes new keys and values to the slots of a paged cache (vLLM's reshape_and_cache_flash). Slot -1 means padding."""

import torch
import triton
import triton.language as tl


@triton.jit
def _cache_kernel(
    k_ptr, v_ptr, kc_ptr, vc_ptr, slots_ptr, k_st, k_sh, v_st, v_sh, block_stride, page_stride, head_stride,
    dim, block_size, HEADS, BLOCK_D: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return
    d = tl.arange(0, BLOCK_D)
    dst = (slot // block_size) * block_stride + (slot % block_size) * page_stride + head * head_stride + d
    k = tl.load(k_ptr + token * k_st + head * k_sh + d, mask=d < dim)
    v = tl.load(v_ptr + token * v_st + head * v_sh + d, mask=d < dim)
    tl.store(kc_ptr + dst, k, mask=d < dim)
    tl.store(vc_ptr + dst, v, mask=d < dim)


def kv_cache_write_(key, value, key_cache, value_cache, slots):
    """key, value (tokens, heads, dim) → caches (blocks, block_size, heads, dim), at slots (tokens,), int64."""
    if key.ndim != 3 or value.shape != key.shape:
        raise ValueError("key and value must be (tokens, heads, dim)")
    if key_cache.ndim != 4 or key_cache.shape != value_cache.shape or key_cache.shape[2:] != key.shape[1:]:
        raise ValueError("the caches must be (blocks, block_size, heads, dim)")
    if slots.shape != key.shape[:1] or slots.dtype != torch.int64:
        raise ValueError("slots must be int64 of shape (tokens,)")
    if len({t.dtype for t in (key, value, key_cache, value_cache)}) != 1:
        raise ValueError("keys, values and caches must have one dtype")
    if not key_cache.is_contiguous() or not value_cache.is_contiguous():
        raise ValueError("the caches must be contiguous")
    if any(t.requires_grad for t in (key, value, key_cache, value_cache)):
        raise ValueError("writing to a cache has no backward pass")
    tokens, heads, dim = key.shape
    if heads > 65535:
        raise ValueError("at most 65535 heads")
    blocks, block_size = key_cache.shape[:2]
    if tokens and (int(slots.max()) >= blocks * block_size or int(slots.min()) < -1):
        raise ValueError("a slot is outside of the cache")
    used = slots[slots >= 0]
    if used.unique().numel() != used.numel():
        raise ValueError("two tokens have the same slot")
    if key.numel() == 0:
        return key_cache, value_cache
    key = key if key.stride(-1) == 1 else key.contiguous()
    value = value if value.stride(-1) == 1 else value.contiguous()
    _cache_kernel[(tokens, heads)](
        key, value, key_cache, value_cache, slots.contiguous(),
        key.stride(0), key.stride(1), value.stride(0), value.stride(1), *key_cache.stride()[:3],
        dim, block_size, heads, BLOCK_D=triton.next_power_of_2(dim),
    )  # fmt: skip
    return key_cache, value_cache


def kv_cache_write__inputs(tokens, heads, dim):
    block_size = 4
    blocks = tokens // block_size + 2
    slots = torch.randperm(blocks * block_size)[:tokens]
    slots[::3] = -1
    return {
        "key": torch.randn(tokens, heads, dim),
        "value": torch.randn(tokens, heads, dim),
        "key_cache": torch.randn(blocks, block_size, heads, dim),
        "value_cache": torch.randn(blocks, block_size, heads, dim),
        "slots": slots,
    }


def kv_cache_write__reference(key, value, key_cache, value_cache, slots):
    keep = slots >= 0
    key_cache.flatten(0, 1)[slots[keep]] = key[keep]
    value_cache.flatten(0, 1)[slots[keep]] = value[keep]
    return key_cache, value_cache
