"""What the benchmarks of both low-bit products share: int4 weights in groups of 128. `shape` is (M, N, K)."""

import torch

#: The axes of `shape`.
AXES = ("M (rows)", "N (columns)", "K (summed)")
OPTIONS = dict(W_nbits=4, group_size=128)


# The words weigh `W_nbits / 8` bytes a value, the metadata two numbers a group.
def cost(shape, dtype, W_nbits=4, group_size=128, c_bytes=None):
    M, N, K = shape
    c_bytes = c_bytes or dtype.itemsize
    metadata = 2 * (K // group_size) * N * dtype.itemsize
    read = M * K * dtype.itemsize + K * N * W_nbits // 8 + metadata
    return {"forward": dict(bytes_read=read, bytes_written=M * N * c_bytes, operations=2 * M * N * K)}


# The library gets the same weight in sixteen bits, `w`, and so four times the bytes. What is right is the product
# with the dequantized words in float64, not with the weight that somebody made them from.
def inputs(shape, dtype, device):
    from annotated_examples.gemlite.gemm import dequantize_reference

    M, N, K = shape
    a = torch.randn(M, K, dtype=dtype, device=device)
    words = torch.randint(-(2**31), 2**31, (K // 8, N), dtype=torch.int32, device=device)
    scales = (0.01 * torch.rand(K // 128, N, device=device) + 0.005).to(dtype)
    zeros = torch.randint(0, 16, (K // 128, N), device=device).to(dtype)
    w = dequantize_reference(words, scales, zeros, **OPTIONS, dtype=dtype)
    return dict(a=a, words=words, scales=scales, zeros=zeros, w=w)


def reference(a, words, scales, zeros, w):
    from annotated_examples.gemlite.gemm import gemm_reference

    return gemm_reference(a, words, scales, zeros, **OPTIONS, dtype=torch.float64)


def call(function):
    return lambda a, words, scales, zeros, w: function(a, words, scales, zeros, **OPTIONS)


COMMON = dict(
    dtypes=[torch.float16],
    inputs=inputs,
    call=call,
    eager=lambda a, words, scales, zeros, w: a @ w,
    eager_name="cuBLAS",
    reference=reference,
    compile=False,
    timing="graph",
)


# ---------------------------------------------------------------- public functions
def quantized(rows, columns):
    from academy.runtime.device import DEVICE
    from annotated_examples.gemlite import gemm

    words, scales, zeros = gemm.quantize(torch.randn(256, columns).half().to(DEVICE), 4, 128)
    return {"a": torch.randn(rows, 256), "words": words, "scales": scales, "zeros": zeros}


def of_rows(count):
    """A call with so many rows."""
    return OPTIONS | dict(inputs={"a": f"{count} 256: float16"})


WORDS = dict(
    at=(24, 256), options=OPTIONS, sizes={"columns": (32, 96)}, dtypes=("float16", "bfloat16"), differentiable=False
)


# ---------------------------------------------------------------- cases
HALF = ("float16", "bfloat16")
#: The kernels have no backward pass. Most are compared with the reference of the file that they are in.
FORWARD = dict(dtypes=HALF, forward_only=True)
PRODUCT = dict(pytorch="gemm_reference", **FORWARD)
IN_FLOAT16 = PRODUCT | dict(dtypes=("float16",))


def lengths(M, N, G, W, P):
    return dict(M=M, N=N, G=G, W=W, P=P)


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


# ---------------------------------------------------------------- inputs that are not random
def zeros_and_ones(A, N, G, W, P):
    """Weights of one bit."""
    return {"Q": (torch.arange(G * W * P * N).reshape(G, W, P, N) * 37 % 11 % 2).to(A.dtype)}


def float32_metadata(N, G, at_end):
    scales, zeros = torch.linspace(0.1, 0.9, G * N), torch.linspace(3.1, 4.9, G * N)
    return {"S": at_end(scales.reshape(G, N)), "Z": at_end(zeros.reshape(G, N))}


def scaled_by_columns(A, M):
    return {"s": torch.ones(M, dtype=A.dtype)}
