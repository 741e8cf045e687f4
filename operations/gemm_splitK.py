"""The low-bit product that is chosen by shape: what is compared with formulas, and what is measured."""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._low_bit import (  # noqa: F401  academy reads AXES
    AXES,
    COMMON,
    FORWARD,
    IN_FLOAT16,
    PRODUCT,
    WORDS,
    column_major,
    columns,
    cost,
    float32_metadata,
    lengths,
    of_rows,
    packed,
    quantized,
    rows,
    scaled_by_columns,
    zeros_and_ones,
)

LESSON = "gemlite.gemm_splitK"
FAST = "fast.low_bit"
PARTS = ["fast.low_bit.planes", "fast.low_bit.descriptors", "fast.low_bit.many_rows"]
FUNCTION = "low_bit_matmul"
DERIVATION = "quantization"

# ---------------------------------------------------------------- public functions
ATOMIC = "parts of a sum are added atomically, in any order"
BY_SHAPE = dict(calls=[of_rows(1), of_rows(64)], reference="gemlite.gemm.gemm_reference") | WORDS
PUBLIC = [
    Public(
        "gemm_splitK", quantized, modules=(LESSON,),
        batch={"rows": ATOMIC}, without={"repeats": ATOMIC},
        **BY_SHAPE | dict(calls=[of_rows(4)]),
    ),
    Public("low_bit_matmul", quantized, modules=(LESSON,), **BY_SHAPE),
    Public(
        "low_bit_matmul", quantized, modules=(FAST,), **BY_SHAPE,
        without={"non-finite": "in a product plane by plane infinities meet that cancel"},
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
PLANES = "fast.low_bit.planes"
DESCRIPTORS = "fast.low_bit.descriptors"
MANY_ROWS = "fast.low_bit.many_rows"
LOW_BIT = (LESSON, FAST)


def by_definition(A, Q, S, Z):
    """Weights of mode 3 in the dtype of A, then PyTorch's product."""
    weight = (Q.float() - Z.float()[:, None, None]) * S.float()[:, None, None]
    return rows(A) @ columns(weight).to(A.dtype)


def eight_bits_scaled_by_rows(A, N, G, W, P, at_end):
    weights = torch.arange(G * W * P * N).reshape(G, W, P, N) * 37 % 256
    return {**float32_metadata(N, G, at_end), "t": torch.ones(N, dtype=A.dtype), "Q": weights.to(A.dtype)}


# ---------------------------------------------------------------- gemm_splitK
@case(**PRODUCT, modules=LESSON, returns="QM-split(B = QM-mode3)", sizes=lengths(5, 19, 3, 4, 8))
def searched(module, A, Q, S, Z, W, P):
    return module.gemm_splitK(rows(A), packed(module, Q), S, Z, W_nbits=4, group_size=W * P)


@case(
    **PRODUCT,
    modules=LESSON,
    returns="QM-channel(B = QM-mode1)",
    values=eight_bits_scaled_by_rows,
    sizes=lengths(129, 13, 3, 8, 4),
)
def eight_bits(module, A, Q, S, Z, s, W, P):
    """More tiles of rows than a tile has columns."""
    words, modes = packed(module, Q, 8), dict(W_nbits=8, group_size=W * P, W_group_mode=1, channel_scale_mode=2)
    tiles = dict(split_k=2, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2)
    return module.gemm_splitK_forward(rows(A), words, S, Z, **modes, scales_a=s.contiguous(), **tiles)


@case(**PRODUCT, modules=LESSON, returns="QM-C(B = QM-mode2)", values=float32_metadata, sizes=lengths(20, 69, 5, 4, 8))
def split_in_linear_order(module, A, Q, S, W, P, at_end):
    words, modes = at_end(packed(module, Q)), dict(W_nbits=4, group_size=W * P, W_group_mode=2)
    options = dict(tile_order="linear", A_load_order=0, split_k=2, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64)
    return module.gemm_splitK_forward(column_major(rows(A)), words, S, None, **modes, **options)


@case(
    **PRODUCT,
    modules=LESSON,
    returns="QM-channel(B = QM-mode0)",
    values=scaled_by_columns,
    sizes=lengths(5, 19, 3, 4, 8),
)
def split_with_nothing_packed(module, A, Q, t, W, P):
    modes = dict(W_nbits=16, group_size=W * P, W_group_mode=0, channel_scale_mode=1)
    options = dict(A_load_order=1, split_k=2, atomic_mode="release")
    return module.gemm_splitK(rows(A), columns(Q), t[None], None, **modes, **options)


# ---------------------------------------------------------------- the fast package: planes, which take every format
@case(**FORWARD, modules=PLANES, returns="QM-regroup", pytorch=by_definition, sizes=lengths(5, 19, 3, 16, 8))
def by_group(module, A, Q, S, Z, W, P):
    words, modes = packed(module, Q), dict(W_nbits=4, group_size=W * P)
    return module.planes_forward(rows(A), words, S, Z, **modes, split_k=2)


@case(
    **FORWARD, modules=PLANES, returns="QM-planes(B = QM-mode3)", pytorch=by_definition, sizes=lengths(5, 69, 9, 2, 8)
)
def by_plane(module, A, Q, S, Z, W, P):
    words, modes = packed(module, Q), dict(W_nbits=4, group_size=W * P)
    return module.planes_forward(column_major(rows(A)), words, S, Z, **modes, split_k=2, BLOCK_N=32)


@case(**PRODUCT, modules=PLANES, returns="QM-C(B = QM-mode4)", values=float32_metadata, sizes=lengths(37, 19, 3, 4, 8))
def planes_in_mode4(module, A, Q, S, Z, W, P, at_end):
    words = at_end(packed(module, Q))
    return module.planes_forward(rows(A), words, S, Z, W_nbits=4, group_size=W * P, W_group_mode=4)


@case(**PRODUCT, modules=PLANES, returns="QM-C(B = QM-mode2)", sizes=lengths(5, 19, 3, 4, 8))
def planes_with_nothing_packed(module, A, Q, S, W, P):
    return module.planes_forward(rows(A), columns(Q), S, None, W_nbits=16, group_size=W * P, W_group_mode=2)


# ---------------------------------------------------------------- low_bit_matmul: the kernel by the shape
@case(**IN_FLOAT16, modules=LOW_BIT, returns="QM-C(B = QM-mode3)", sizes=lengths(3, 20, 2, 8, 8))
def few_rows(module, A, Q, S, Z, W, P):
    return module.low_bit_matmul(rows(A), packed(module, Q), S, Z, W_nbits=4, group_size=W * P)


@case(
    **PRODUCT,
    modules=DESCRIPTORS,
    returns="QM-channel(B = QM-mode1)",
    values=zeros_and_ones,
    sizes=lengths(5, 20, 2, 8, 32),
)
def few_rows_of_one_bit(module, A, Q, Z, s, t, W, P):
    return module.descriptor_forward(
        rows(A),
        packed(module, Q, 1),
        t[None],
        Z,
        W_nbits=1,
        group_size=W * P,
        W_group_mode=1,
        channel_scale_mode=3,
        scales_a=s.contiguous(),
    )


@case(
    **PRODUCT | dict(dtypes=("bfloat16",)),
    modules=MANY_ROWS,
    returns="QM-channel(B = QM-mode1)",
    values=zeros_and_ones,
    sizes=lengths(18, 24, 2, 8, 32),
)
def more_rows_of_one_bit(module, A, Q, Z, s, t, W, P):
    return module.plane_order_forward(
        rows(A),
        packed(module, Q, 1),
        t[None],
        Z,
        W_nbits=1,
        group_size=W * P,
        W_group_mode=1,
        channel_scale_mode=3,
        scales_a=s.contiguous(),
    )


@case(**PRODUCT, modules=MANY_ROWS, returns="QM-C(B = QM-mode4)", sizes=lengths(18, 24, 2, 8, 8))
def more_rows_in_mode4(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.plane_order_forward(rows(A), words, S.contiguous(), Z, W_nbits=4, group_size=W * P, W_group_mode=4)


@case(**PRODUCT, modules=MANY_ROWS, returns="QM-C(B = QM-mode2)", sizes=lengths(18, 24, 2, 8, 8))
def more_rows_in_mode2(module, A, Q, S, W, P):
    words = packed(module, Q)
    return module.plane_order_forward(rows(A), words, S.contiguous(), None, W_nbits=4, group_size=W * P, W_group_mode=2)


# More than one tile of rows and of columns, three parts.
@case(**PRODUCT, modules=DESCRIPTORS, returns="QM-split(B = QM-mode2)", sizes=lengths(20, 68, 7, 8, 8))
def three_parts(module, A, Q, S, W, P):
    return module.descriptor_forward(rows(A), packed(module, Q), S, None, W_nbits=4, group_size=W * P, W_group_mode=2)


# More than one chunk of blocks to a part.
@case(**IN_FLOAT16, modules=MANY_ROWS, returns="QM-zeros", sizes=lengths(20, 24, 36, 8, 8))
def many_groups(module, A, Q, S, Z, W, P):
    return module.plane_order_forward(rows(A), packed(module, Q), S.contiguous(), Z, W_nbits=4, group_size=W * P)


# More than one tile of rows and of columns.
@case(**IN_FLOAT16, modules=MANY_ROWS, returns="QM-split(B = QM-mode3)", sizes=lengths(68, 136, 3, 8, 8))
def tiles_both_ways(module, A, Q, S, Z, W, P):
    return module.plane_order_forward(rows(A), packed(module, Q), S.contiguous(), Z, W_nbits=4, group_size=W * P)


@case(**PRODUCT, modules=LOW_BIT, returns="QM-C(B = QM-mode3)", sizes=lengths(65, 261, 5, 2, 8))
def many_rows(module, A, Q, S, Z, W, P, at_end):
    return module.low_bit_matmul(rows(A), at_end(packed(module, Q)), S, Z, W_nbits=4, group_size=W * P)


@case(**PRODUCT, modules=MANY_ROWS, returns="QM-C(B = QM-mode1)", sizes=lengths(65, 19, 3, 8, 8))
def many_rows_in_mode1(module, A, Q, Z, W, P):
    return module.dequantized_forward(rows(A), packed(module, Q), None, Z, W_nbits=4, group_size=W * P, W_group_mode=1)


@case(**PRODUCT, modules=MANY_ROWS, returns="QM-C(B = QM-mode2)", sizes=lengths(65, 19, 3, 4, 8))
def many_rows_with_nothing_packed(module, A, Q, S, W, P):
    words = column_major(columns(Q))
    return module.dequantized_forward(rows(A), words, S, None, W_nbits=16, group_size=W * P, W_group_mode=2)


# ---------------------------------------------------------------- what is measured
def gemlite(inputs):
    """gemlite's own kernels with its widest search, on the same integers."""
    from unittest import mock

    import triton
    from gemlite.core import DType, GemLiteLinear, set_autotune

    from annotated_examples.gemlite.gemm import unpack

    set_autotune("max")
    words, (K, N) = inputs["words"], inputs["w"].shape
    q = unpack(words, 4).T.contiguous()
    dtypes = dict(input_dtype=DType.FP16, output_dtype=DType.FP16)
    layer = GemLiteLinear(4, group_size=128, in_features=K, out_features=N, **dtypes)
    layer.pack(q, inputs["scales"].T.contiguous(), inputs["zeros"].T.contiguous(), bias=None)
    # It tries up to 1240 configurations; Triton would time each for 0.1 s.
    with mock.patch("triton.testing.do_bench", functools.partial(triton.testing.do_bench, warmup=2, rep=10)):
        layer(inputs["a"])
    return lambda a, words, scales, zeros, w: layer(a)


EXAMPLES = {
    # Split-K adds into float32, and PyTorch rounds the sums afterwards.
    LESSON: cost((3, 7, 40), torch.float16, group_size=8, c_bytes=4),
    "fast.low_bit.planes": cost((3, 7, 48), torch.float16, group_size=16),
    "fast.low_bit.descriptors": cost((3, 24, 192), torch.float16, group_size=64),
    "fast.low_bit.many_rows": cost((5, 24, 192), torch.float16, group_size=64),
}
BENCH = dict(
    **COMMON,
    shapes=[(M, 8192, 8192) for M in (1, 16, 64, 512, 4096)],
    peers={"gemlite": gemlite},
    host_shape=(1, 128, 128),
)
