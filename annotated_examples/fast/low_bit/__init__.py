r"""
# Low-bit matmul, fast

[gemm](../../gemlite/gemm.py) loads each packed word once for every number in it, and
[split-K](../../gemlite/gemm_splitK.py) only spreads that work over more programs. From there it is a long way to the
limit of the memory, which a few rows can reach, and to the library's speed with many. Three pages go that way:

[[eq: QM-C]]

1. [Planes](planes.py). Each word is loaded once, and the product is summed number by number: all first numbers of the
   words, all second ones, and so on. The integers need no conversion to floats. With 16 rows, that went from
   [[bench: gemm/ladder/gemm/forward_ms]] to [[bench: gemm/ladder/split-K, every mode/forward_ms]].
2. [A handful of rows](descriptors.py). The TMA unit fetches the tiles, and a masked word goes to the tensor cores as
   it is. With one row, that went from [[bench: gemm_splitK/ladder/planes/1_row_ms]] to
   [[bench: gemm_splitK/ladder/odd planes left in place/1_row_ms]].
3. [Many rows](many_rows.py). A is put in order once, before the product. With 64 rows it takes
   [[bench: gemm_splitK/ladder/parts by descriptor/64_rows_ms]]. For hundreds of rows the weight is unpacked once, and
   multiplied by cuBLAS.

These times are for `N = K = 8192` and four bits. This page has what ties them together: one function, and which kernel
it picks.

[[figure: layout/word]]

**What it costs.** The words are read once for each tile of rows, and each part of the sum, `4 * M * N` bytes, is
written and read once. With one row `low_bit_matmul` takes [[bench: gemm_splitK/1x8192x8192/forward/ms]], cuBLAS with
the weight in sixteen bits [[bench: gemm_splitK/1x8192x8192/forward/cuBLAS.ms]]. With 64 rows it is
[[bench: gemm_splitK/64x8192x8192/forward/ms]] against [[bench: gemm_splitK/64x8192x8192/forward/cuBLAS.ms]].

**Contract.** As [gemm](../../gemlite/gemm.py), except that `a` has to be finite: the zero point is subtracted from the
sum, not from each weight, and an infinity in a row of `a` may make that row of the result NaN. The parts are added in a
fixed order: the same call gives the same bits.

**Where it falls behind.** From 65 rows on, cuBLAS with a weight in sixteen bits is faster. With 128 rows it takes
[[bench: gemm_splitK/ladder/cuBLAS/128_rows_ms]], with one [[bench: gemm_splitK/ladder/cuBLAS/1_row_ms]]: it reads the
weight meanwhile. The packed weight takes [[bench: gemm_splitK/ladder/parts by descriptor/128_rows_ms]]. It is read in a
quarter of the time, but it has to be unpacked, once for each tile of rows. Dequantizing can't win there either: it
writes the whole weight and reads it again before the library begins. With thousands of rows that is little beside the
product: at 4096 rows the faster of the two changed from run to run, with the card's clock.

**What was tried.** Below Triton, two groups of warps that unpack into registers, a step ahead of the tensor cores, in
tiles of 128 x 128: 256 rows took [[bench: gemm_splitK/ladder/below Triton/256_rows_ms]] and 512
[[bench: gemm_splitK/ladder/below Triton/512_rows_ms]], where this page's kernels took
[[bench: gemm_splitK/ladder/in use, later/256_rows_ms]] and [[bench: gemm_splitK/ladder/in use, later/512_rows_ms]] and
cuBLAS [[bench: gemm_splitK/ladder/cuBLAS, later/256_rows_ms]] and
[[bench: gemm_splitK/ladder/cuBLAS, later/512_rows_ms]]. It isn't built in yet.

The others are times of a CUDA graph. A call from Python costs the CPU more time than a small product takes on the GPU.
That is why a model that generates token by token is captured in a graph.
"""

from academy.runtime import device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import functools

import torch

from annotated_examples.common.custom_operator import opaque_product
from annotated_examples.common.packed import contract, used
from annotated_examples.fast.low_bit.descriptors import descriptor_forward, words_in_block
from annotated_examples.fast.low_bit.many_rows import dequantized_forward, plane_order_forward
from annotated_examples.fast.low_bit.planes import planes_forward
from annotated_examples.gemlite.gemm import gemm_forward, gemm_reference, pack, quantize  # noqa: F401  for callers: pack


# ## What a descriptor can describe
#
# The tensor memory accelerator wants rows that are contiguous, that don't overlap, and that begin at multiples of 16
# bytes. Hopper was the first to have one. The interpreter counts as a GPU with one.
@functools.cache
def has_tma(device_index):
    return device.INTERPRET or torch.cuda.get_device_capability(device_index)[0] >= 9


def describable(x):
    stride_m, stride_n = x.stride()
    aligned = stride_m * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0
    return aligned and stride_n == 1 and stride_m >= x.shape[1]


# ## Which kernel?
#
# With few rows, the time goes into moving the words: by descriptors, if the format and the addresses allow it. With
# many rows it pays to unpack the weight to memory, once. In four bits, writing it and reading it back moves eight times
# the bytes of the words, however many rows there are, while the work of unpacking grows with each tile of rows. The two
# meet between 256 and 384 rows: with 256 the packed weight took
# [[bench: gemm_splitK/ladder/parts by descriptor/256_rows_ms]], the dequantized one
# [[bench: gemm_splitK/ladder/dequantized, then cuBLAS/256_rows_ms]]. Rows or columns that are scaled in float32, or
# another `out_dtype`, are then left to `gemm`: the library would round first.
#
# What about a kernel for a single row, in float32 and without tensor cores? They process eight rows at a time, of which
# seven are wasted here. It was indeed faster than planes once, with
# [[bench: gemm_splitK/ladder/ordinary units/1_row_ms]]. With descriptors the tensor cores are ahead all the same:
# [[bench: gemm_splitK/ladder/every mode, with descriptors/1_row_ms]].
def kernel_for(a, words, scales, W_nbits, group_size, W_group_mode, channel_scale_mode, out_dtype, tma=None):
    """The launcher that suits checked arguments. `tma`: whether the GPU has a TMA; None: find out."""
    (M, K), N = a.shape, words.shape[1]
    packed = W_nbits < 8 or (W_nbits == 8 and a.dtype == torch.float16)  # bfloat16 has seven bits for the integer
    by_descriptors = packed and words_in_block(W_nbits, group_size) and describable(a) and describable(words)
    # The parts, N numbers of four bytes in a row, have to be describable, too.
    if by_descriptors and N % 4 == 0 and (has_tma(words.device.index) if tma is None else tma):
        one_row_a_group = W_group_mode < 2 or (scales.shape[0] * group_size == K and describable(scales))
        if 16 < M <= 256 and one_row_a_group:
            return plane_order_forward
        if M <= 64:
            return descriptor_forward
    if M <= 64:
        return planes_forward
    return dequantized_forward if channel_scale_mode == 0 and out_dtype in (None, a.dtype) else gemm_forward


# ## One function for all shapes
#
# `torch.compile` can look into none of these launches, so inside a compiled model the whole choice is one operator.
@opaque_product(hints="")
def low_bit_forward(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None, out_dtype=None
):
    modes = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode)
    modes |= dict(channel_scale_mode=channel_scale_mode, out_dtype=out_dtype)
    return kernel_for(a, words, scales, **modes)(a, words, scales, zeros, scales_a=scales_a, **modes)


@replayed
def low_bit_matmul(
    a, words, scales, zeros, *, W_nbits, group_size, W_group_mode=3, channel_scale_mode=0, scales_a=None,
    out_dtype=None,
):  # fmt: skip
    """`a @ dequantize(words)` by whichever kernel suits the shape. Forward only, the same bits each time.

    Up to 64 rows the weight stays packed. What an infinity in `a`, `scales` or `zeros` reaches is then infinite or NaN,
    not always which of the two it is in PyTorch. Kernels with tensor descriptors do the product, on
    Hopper or later, for 1, 2, 4 and (in float16) 8 bits, if a group is a multiple of 8 words and the rows of `a` and
    `words` are contiguous and aligned to 16 bytes. If that holds for `scales`, too, and each group has a row of them,
    the weight stays packed up to 256 rows.

    For more rows the weight is dequantized and `torch.matmul` called: a (K, N) matrix in a's dtype exists during the
    call. With channel scales or another out_dtype `gemm` runs instead.

    Args: as `gemm`, without its orders and hints.

    Returns:
        (M, N) in out_dtype.

    Raises:
        TypeError, ValueError: naming the argument and the rule that it breaks, before anything is launched.

    Source: as `gemm` and `gemm_splitK`; float16 made of an integer's bits as in Kim et al., 2022, "Who Says Elephants
    Can't Run: Bringing Large Scale MoE Models into Cloud Scale Production".
    """
    options = dict(W_nbits=W_nbits, group_size=group_size, W_group_mode=W_group_mode)
    options |= dict(channel_scale_mode=channel_scale_mode, scales_a=scales_a, out_dtype=out_dtype)
    contract(a, words, scales, zeros, **options)
    if not (a.numel() and words.numel()):
        return torch.zeros(a.shape[0], words.shape[1], dtype=out_dtype or a.dtype, device=a.device)
    scales, zeros, options["scales_a"] = used(scales, zeros, scales_a, W_group_mode, channel_scale_mode)
    return low_bit_forward(a, words, scales, zeros, **options)


if __name__ == "__main__":
    script.main(low_bit_matmul, gemm_reference)
