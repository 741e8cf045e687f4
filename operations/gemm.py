"""The plain low-bit product: what is compared with formulas, and what is measured."""

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

LESSON = "gemlite.gemm"
FAST = None
FUNCTION = "gemm"
DERIVATION = "quantization"
WITHOUT_ROUNDING = {"listed": {"quantize": "the scale is rounded up to the next float, so that no code is too large"}}

# ---------------------------------------------------------------- public functions
PUBLIC = [Public("gemm", quantized, calls=[of_rows(24)], **WORDS)]
HELPERS = dict.fromkeys(("pack", "unpack", "quantize"), "runs before a model is compiled")

# ---------------------------------------------------------------- what is compared with formulas
SMALL = lengths(5, 19, 3, 2, 8)


def one_bit_scaled_by_rows(A, N, G, W, P):
    return {"t": torch.ones(N, dtype=A.dtype), **zeros_and_ones(A, N, G, W, P)}


# ---------------------------------------------------------------- helpers of gemm
@case(**FORWARD, modules=LESSON, returns="QM-mode0", sizes=SMALL)
def pack_and_unpack(module, Q):
    return module.unpack(module.pack(columns(Q).long(), 4), 4).reshape(Q.shape).to(Q.dtype)


@pack_and_unpack.pytorch
def _(Q):
    return Q + 0


@case(**FORWARD, modules=LESSON, returns="QM-scale", sizes=SMALL)
def quantize(module, X, W, P):
    return module.quantize(columns(X), 4, W * P)[1]


@quantize.pytorch
def _(X):
    return (X.amax((1, 2)).clamp(min=0) - X.amin((1, 2)).clamp(max=0)) / 15


# ---------------------------------------------------------------- gemm, by mode
@case(**FORWARD, modules=LESSON, returns="QM-C(B = QM-mode0)", sizes=SMALL)
def mode0(module, A, Q, W, P):
    words = packed(module, Q)
    return module.gemm(
        column_major(rows(A)), words, None, None, W_nbits=4, group_size=W * P, W_group_mode=0, A_load_order=0
    )


@case(**FORWARD, modules=LESSON, returns="QM-C(B = QM-mode1)", sizes=SMALL)
def mode1(module, A, Q, Z, W, P):
    words = packed(module, Q)
    return module.gemm(
        column_major(rows(A)), words, None, Z, W_nbits=4, group_size=W * P, W_group_mode=1, A_load_order=1
    )


@case(**FORWARD, modules=LESSON, returns="QM-C(B = QM-mode2)", sizes=SMALL)
def mode2(module, A, Q, S, W, P):
    return module.gemm(rows(A), packed(module, Q), S, None, W_nbits=4, group_size=W * P, W_group_mode=2)


@case(**FORWARD, modules=LESSON, returns="QM-C(B = QM-mode3)", sizes=SMALL)
def mode3(module, A, Q, S, Z, W, P):
    return module.gemm(rows(A), packed(module, Q), S, Z, W_nbits=4, group_size=W * P, W_group_mode=3)


@case(**FORWARD, modules=LESSON, returns="QM-C(B = QM-mode4)", sizes=SMALL)
def mode4(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.gemm(column_major(rows(A)), words, S, Z, W_nbits=4, group_size=W * P, W_group_mode=4, A_load_order=3)


@case(**FORWARD, modules=LESSON, returns="QM-C(B = QM-mode0)", sizes=lengths(5, 19, 3, 4, 8))
def nothing_packed(module, A, Q, W, P):
    return module.gemm(rows(A), columns(Q), None, None, W_nbits=16, group_size=W * P, W_group_mode=0)


@case(**FORWARD, modules=LESSON, returns="QM-channel(B = QM-mode0)", sizes=SMALL)
def scaled_by_rows_and_columns(module, A, Q, s, t, W, P):
    return module.gemm(
        rows(A),
        packed(module, Q),
        t[None],
        None,
        W_nbits=4,
        group_size=W * P,
        W_group_mode=0,
        channel_scale_mode=3,
        scales_a=s.contiguous(),
    )


# ---------------------------------------------------------------- gemm, by tiles
@case(
    **PRODUCT,
    modules=LESSON,
    returns="QM-channel(B = QM-mode0)",
    values=scaled_by_columns,
    sizes=lengths(37, 69, 3, 2, 8),
)
def linear_order(module, A, Q, t, W, P):
    return module.gemm_forward(
        rows(A),
        packed(module, Q),
        t[None],
        None,
        W_nbits=4,
        group_size=W * P,
        W_group_mode=0,
        channel_scale_mode=1,
        tile_order="linear",
        BLOCK_M=16,
        BLOCK_N=32,
        BLOCK_K=16,
    )


@case(
    **PRODUCT,
    modules=LESSON,
    returns="QM-channel(B = QM-mode0)",
    values=one_bit_scaled_by_rows,
    sizes=lengths(5, 19, 3, 1, 32),
)
def one_bit(module, A, Q, s, W, P):
    return module.gemm_forward(
        rows(A),
        packed(module, Q, 1),
        None,
        None,
        W_nbits=1,
        group_size=W * P,
        W_group_mode=0,
        channel_scale_mode=2,
        scales_a=s.contiguous(),
        BLOCK_M=16,
        BLOCK_N=16,
        BLOCK_K=16,
    )


@case(
    **IN_FLOAT16, modules=LESSON, returns="QM-C(B = QM-mode3)", values=float32_metadata, sizes=lengths(69, 69, 3, 2, 8)
)
def several_tiles(module, A, Q, S, Z, W, P, at_end):
    return module.gemm_forward(
        column_major(rows(A)),
        at_end(packed(module, Q)),
        S,
        Z,
        W_nbits=4,
        group_size=W * P,
        W_group_mode=3,
        BLOCK_M=16,
        BLOCK_N=32,
        BLOCK_K=16,
        GROUP_M=2,
    )


@case(**PRODUCT, modules=LESSON, returns="QM-C(B = QM-mode4)", sizes=lengths(5, 19, 3, 4, 8))
def two_blocks_a_group(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.gemm_forward(
        rows(A), words, S, Z, W_nbits=4, group_size=W * P, W_group_mode=4, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16
    )


@case(**IN_FLOAT16, modules=LESSON, returns="QM-C(B = QM-mode3)", sizes=lengths(257, 5, 2, 1, 8))
def more_tiles_than_columns(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.gemm_forward(
        rows(A), words, S, Z, W_nbits=4, group_size=W * P, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2
    )


# ---------------------------------------------------------------- what is measured
EXAMPLES = {LESSON: cost((3, 7, 24), torch.float16, group_size=8)}
BENCH = dict(**COMMON, shapes=[(M, 8192, 8192) for M in (16, 512)], host_shape=(16, 128, 128))
