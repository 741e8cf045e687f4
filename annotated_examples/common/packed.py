r"""
# The format of packed weights

What the low-bit products agree on: integers of `W_nbits` bits packed into int32 words along K, a scale and a zero point
for each group of `group_size` rows. [gemm](../gemlite/gemm.py) explains it; these are its rules, for every function
that takes such a weight.
"""

from academy.runtime import checks

from typing import NamedTuple

import torch

W_NBITS = (16, 8, 4, 2, 1)
METADATA_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


# What may change the speed of a product and never its result: the order of tiles, where in the loop A is loaded, what
# the cache is told about metadata, and whether the compiler is promised that columns are neighbours.
class Hints(NamedTuple):
    swizzled: bool
    A_load_order: int
    meta_evict_policy: str
    contiguous: bool


# Metadata is `(K // group_size, N)`, or `(1, N)` for one per column.
def per_group(metadata):
    """Metadata as kernels take it: `(pointer, stride from group to group, stride from column to column)`.

    The first stride is 0 if one row serves all groups. The pointer is None if there is no metadata, or one number.
    """
    if not isinstance(metadata, torch.Tensor):
        return None, 0, 0
    stride_g, stride_n = metadata.stride()
    return metadata, 0 if metadata.shape[0] == 1 else stride_g, stride_n


def used(scales, zeros, scales_a, W_group_mode, channel_scale_mode):
    """`(scales, zeros, scales_a)`, with None for what these modes don't use."""
    return (
        scales if W_group_mode >= 2 or channel_scale_mode in (1, 3) else None,
        zeros if W_group_mode in (1, 3, 4) else None,
        scales_a if channel_scale_mode >= 2 else None,
    )


def integer_matrix(name, value, allowed=(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)):
    checks.tensors(**{name: value})
    checks.dtypes(allowed, **{name: value})
    checks.dimensions(name, value, 2, "rows, N")


def group_rule(K, group_size, W_nbits):
    per_word = 32 // W_nbits if W_nbits < 16 else 1
    if isinstance(group_size, bool) or not isinstance(group_size, int):
        raise TypeError(f"group_size must be an int, got {type(group_size).__name__}")
    if group_size < 1 or group_size % per_word or K % group_size:
        raise ValueError(
            f"group_size must be a multiple of the {per_word} values in a word and divide K = {K}, got {group_size}"
        )


def _metadata(name, value, shapes):
    """Check metadata that a mode needs. shapes: each allowed shape, and what it means."""
    if value is None:
        raise TypeError(f"{name} must be a tensor in this mode, got None")
    checks.tensors(**{name: value})
    checks.dtypes(METADATA_DTYPES, **{name: value})
    if tuple(value.shape) not in shapes:
        allowed = " or ".join(f"{shape} ({meaning})" for shape, meaning in shapes.items())
        raise ValueError(f"{name} must have shape {allowed}, got {tuple(value.shape)}")


def contract(
    a, words, scales, zeros, W_nbits, group_size, W_group_mode, channel_scale_mode, scales_a, out_dtype,
    tile_order="swizzled", A_load_order=2, meta_evict_policy="", data_contiguous=True,
):  # fmt: skip
    """Raise on anything that breaks the format, naming the argument. What a mode doesn't use is ignored."""
    checks.choice("W_nbits", W_nbits, W_NBITS)
    checks.choice("W_group_mode", W_group_mode, (0, 1, 2, 3, 4))
    checks.choice("channel_scale_mode", channel_scale_mode, (0, 1, 2, 3))
    checks.choice("out_dtype", out_dtype, (None, *METADATA_DTYPES))
    checks.choice("tile_order", tile_order, ("swizzled", "linear"))
    checks.choice("A_load_order", A_load_order, (0, 1, 2, 3))
    checks.choice("meta_evict_policy", meta_evict_policy, ("", "evict_first", "evict_last"))
    checks.choice("data_contiguous", data_contiguous, (True, False))
    checks.tensors(a=a, words=words)
    checks.dtypes((torch.float16, torch.bfloat16), a=a)
    checks.dimensions("a", a, 2, "M, K")
    checks.dimensions("words", words, 2, "rows of words, N")
    K, N = a.shape[1], words.shape[1]
    if W_nbits == 16:
        checks.same_dtype(a=a, words=words)
        checks.shape("words", words, (K, N), "the weight itself, K from a")
    else:
        checks.dtypes((torch.int32,), words=words)
        if K % (32 // W_nbits):
            raise ValueError(f"a must have a multiple of {32 // W_nbits} columns for W_nbits={W_nbits}, got {K}")
        checks.shape("words", words, (K * W_nbits // 32, N), f"K * {W_nbits} / 32 with K = {K} from a")
    group_rule(K, group_size, W_nbits)
    per_column = channel_scale_mode in (1, 3)
    if per_column and W_group_mode > 1:
        raise ValueError(
            f"W_group_mode must be 0 or 1 when channel_scale_mode={channel_scale_mode} gives scales to the columns, "
            f"got {W_group_mode}"
        )
    grouped = {(K // group_size, N): f"K // group_size, N; group_size={group_size}", (1, N): "one per column"}
    if per_column:
        _metadata("scales", scales, {(1, N): f"one per column, for channel_scale_mode={channel_scale_mode}"})
    elif W_group_mode >= 2:
        _metadata("scales", scales, grouped)
    if W_group_mode not in (1, 3, 4):
        zeros = None
    elif isinstance(zeros, torch.Tensor):
        _metadata("zeros", zeros, grouped)
    else:
        checks.number("zeros", zeros)
        zeros = None
    if channel_scale_mode >= 2:
        checks.tensors(scales_a=scales_a)
        checks.dtypes(METADATA_DTYPES, scales_a=scales_a)
        checks.shape("scales_a", scales_a, (a.shape[0],), "one per row of a")
    checks.no_gradient(
        "low-bit matmul",
        a=a,
        words=words if W_nbits == 16 else None,
        scales=scales if per_column or W_group_mode >= 2 else None,
        zeros=zeros,
        scales_a=scales_a if channel_scale_mode >= 2 else None,
    )
