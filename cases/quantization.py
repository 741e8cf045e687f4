"""Which calls of the low-bit kernels are compared with the formulas of backprop_math/quantization.md.

The page splits K into groups g, words w and places j in a word. The kernels get the same numbers as matrices.
"""

from academy.formulas.cases import case

GEMM = "gemlite.gemm"
SPLIT_K = "gemlite.gemm_splitK"
PLANES = "fast.low_bit.planes"
DESCRIPTORS = "fast.low_bit.descriptors"
MANY_ROWS = "fast.low_bit.many_rows"
LOW_BIT = ("gemlite.gemm_splitK", "fast.low_bit")
HALF = ("float16", "bfloat16")
#: The kernels have no backward pass. Most are compared with the reference of the file that they are in.
FORWARD = dict(dtypes=HALF, forward_only=True)
PRODUCT = dict(pytorch="gemm_reference", **FORWARD)
IN_FLOAT16 = PRODUCT | dict(dtypes=("float16",))


def lengths(M, N, G, W, P):
    return dict(M=M, N=N, G=G, W=W, P=P)


SMALL = lengths(5, 19, 3, 2, 8)


def rows(A):
    """Activations, (M, K)."""
    return A.flatten(1)


def columns(Q):
    """Weights, (K, N)."""
    return Q.flatten(0, 2)


def column_major(matrix):
    return matrix.t().contiguous().t()


def packed(module, Q, W_nbits=4):
    return module.pack(columns(Q).long(), W_nbits)


def by_definition(A, Q, S, Z):
    """Weights of mode 3 in the dtype of A, then PyTorch's product."""
    weight = (Q.float() - Z.float()[:, None, None]) * S.float()[:, None, None]
    return rows(A) @ columns(weight).to(A.dtype)


# ---------------------------------------------------------------- inputs that are not random
def zeros_and_ones(A, N, G, W, P):
    """Weights of one bit."""
    import torch

    return {"Q": (torch.arange(G * W * P * N).reshape(G, W, P, N) * 37 % 11 % 2).to(A.dtype)}


def one_bit_scaled_by_rows(A, N, G, W, P):
    import torch

    return {"t": torch.ones(N, dtype=A.dtype), **zeros_and_ones(A, N, G, W, P)}


def float32_metadata(N, G, at_end):
    import torch

    scales, zeros = torch.linspace(0.1, 0.9, G * N), torch.linspace(3.1, 4.9, G * N)
    return {"S": at_end(scales.reshape(G, N)), "Z": at_end(zeros.reshape(G, N))}


def eight_bits_scaled_by_rows(A, N, G, W, P, at_end):
    import torch

    weights = torch.arange(G * W * P * N).reshape(G, W, P, N) * 37 % 256
    return {**float32_metadata(N, G, at_end), "t": torch.ones(N, dtype=A.dtype), "Q": weights.to(A.dtype)}


def scaled_by_columns(A, M):
    import torch

    return {"s": torch.ones(M, dtype=A.dtype)}


# ---------------------------------------------------------------- helpers of gemm
@case(**FORWARD, modules=GEMM, returns="QM-mode0", sizes=SMALL)
def pack_and_unpack(module, Q):
    return module.unpack(module.pack(columns(Q).long(), 4), 4).reshape(Q.shape).to(Q.dtype)


@pack_and_unpack.pytorch
def _(Q):
    return Q + 0


@case(**FORWARD, modules=GEMM, returns="QM-scale", sizes=SMALL)
def quantize(module, X, W, P):
    return module.quantize(columns(X), 4, W * P)[1]


@quantize.pytorch
def _(X):
    return (X.amax((1, 2)).clamp(min=0) - X.amin((1, 2)).clamp(max=0)) / 15


# ---------------------------------------------------------------- gemm, by mode
@case(**FORWARD, modules=GEMM, returns="QM-C(B = QM-mode0)", sizes=SMALL)
def mode0(module, A, Q, W, P):
    words = packed(module, Q)
    return module.gemm(
        column_major(rows(A)), words, None, None, W_nbits=4, group_size=W * P, W_group_mode=0, A_load_order=0
    )


@case(**FORWARD, modules=GEMM, returns="QM-C(B = QM-mode1)", sizes=SMALL)
def mode1(module, A, Q, Z, W, P):
    words = packed(module, Q)
    return module.gemm(
        column_major(rows(A)), words, None, Z, W_nbits=4, group_size=W * P, W_group_mode=1, A_load_order=1
    )


@case(**FORWARD, modules=GEMM, returns="QM-C(B = QM-mode2)", sizes=SMALL)
def mode2(module, A, Q, S, W, P):
    return module.gemm(rows(A), packed(module, Q), S, None, W_nbits=4, group_size=W * P, W_group_mode=2)


@case(**FORWARD, modules=GEMM, returns="QM-C(B = QM-mode3)", sizes=SMALL)
def mode3(module, A, Q, S, Z, W, P):
    return module.gemm(rows(A), packed(module, Q), S, Z, W_nbits=4, group_size=W * P, W_group_mode=3)


@case(**FORWARD, modules=GEMM, returns="QM-C(B = QM-mode4)", sizes=SMALL)
def mode4(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.gemm(column_major(rows(A)), words, S, Z, W_nbits=4, group_size=W * P, W_group_mode=4, A_load_order=3)


@case(**FORWARD, modules=GEMM, returns="QM-C(B = QM-mode0)", sizes=lengths(5, 19, 3, 4, 8))
def nothing_packed(module, A, Q, W, P):
    return module.gemm(rows(A), columns(Q), None, None, W_nbits=16, group_size=W * P, W_group_mode=0)


@case(**FORWARD, modules=GEMM, returns="QM-channel(B = QM-mode0)", sizes=SMALL)
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
    modules=GEMM,
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
    modules=GEMM,
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


@case(**IN_FLOAT16, modules=GEMM, returns="QM-C(B = QM-mode3)", values=float32_metadata, sizes=lengths(69, 69, 3, 2, 8))
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


@case(**PRODUCT, modules=GEMM, returns="QM-C(B = QM-mode4)", sizes=lengths(5, 19, 3, 4, 8))
def two_blocks_a_group(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.gemm_forward(
        rows(A), words, S, Z, W_nbits=4, group_size=W * P, W_group_mode=4, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16
    )


@case(**IN_FLOAT16, modules=GEMM, returns="QM-C(B = QM-mode3)", sizes=lengths(257, 5, 2, 1, 8))
def more_tiles_than_columns(module, A, Q, S, Z, W, P):
    words = packed(module, Q)
    return module.gemm_forward(
        rows(A), words, S, Z, W_nbits=4, group_size=W * P, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2
    )


# ---------------------------------------------------------------- gemm_splitK
@case(**PRODUCT, modules=SPLIT_K, returns="QM-split(B = QM-mode3)", sizes=lengths(5, 19, 3, 4, 8))
def searched(module, A, Q, S, Z, W, P):
    return module.gemm_splitK(rows(A), packed(module, Q), S, Z, W_nbits=4, group_size=W * P)


@case(
    **PRODUCT,
    modules=SPLIT_K,
    returns="QM-channel(B = QM-mode1)",
    values=eight_bits_scaled_by_rows,
    sizes=lengths(129, 13, 3, 8, 4),
)
def eight_bits(module, A, Q, S, Z, s, W, P):
    """More tiles of rows than a tile has columns."""
    words, modes = packed(module, Q, 8), dict(W_nbits=8, group_size=W * P, W_group_mode=1, channel_scale_mode=2)
    tiles = dict(split_k=2, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=2)
    return module.gemm_splitK_forward(rows(A), words, S, Z, **modes, scales_a=s.contiguous(), **tiles)


@case(**PRODUCT, modules=SPLIT_K, returns="QM-C(B = QM-mode2)", values=float32_metadata, sizes=lengths(20, 69, 5, 4, 8))
def split_in_linear_order(module, A, Q, S, W, P, at_end):
    words, modes = at_end(packed(module, Q)), dict(W_nbits=4, group_size=W * P, W_group_mode=2)
    options = dict(tile_order="linear", A_load_order=0, split_k=2, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64)
    return module.gemm_splitK_forward(column_major(rows(A)), words, S, None, **modes, **options)


@case(
    **PRODUCT,
    modules=SPLIT_K,
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
