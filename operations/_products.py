"""What the benchmarks of all matrix products share. `shape` is (M, N, K)."""

import torch

#: The axes of `shape`.
AXES = ("M (rows)", "N (columns)", "K (summed)")


def product_cost(shape, dtype, saved=0, saved_apart=0):
    """Every matrix moves once. saved: matrices of the result's size that backward reads beside the upstream gradient.
    saved_apart: how many of them forward writes beside the result."""
    M, N, K = shape
    inputs, output, size = M * K + K * N, M * N, dtype.itemsize
    written = (1 + saved_apart) * output
    return {
        "forward": dict(bytes_read=inputs * size, bytes_written=written * size, operations=2 * M * N * K),
        "backward": dict(
            bytes_read=(inputs + (1 + saved) * output) * size, bytes_written=inputs * size, operations=4 * M * N * K
        ),
    }


def forward_cost(shape, dtype):
    return {"forward": product_cost(shape, dtype)["forward"]}


def matrices(first, second):
    """`inputs` of a product whose arguments have these names."""

    def inputs(shape, dtype, device):
        M, N, K = shape
        left, right = torch.randn(M, K, dtype=dtype, device=device), torch.randn(K, N, dtype=dtype, device=device)
        return {first: left, second: right}

    return inputs


# ---------------------------------------------------------------- cases
SEVERAL_TILES = {"M": 37, "N": 19, "K": 41}


def through(derivative):
    """The gradients of a product with an activation, whose own derivative has this tag."""
    return {name: f"MM-{name}(nabla_C = {derivative})" for name in "XY"}


def silu_in_pytorch(X, Y):
    return torch.nn.functional.silu(X @ Y)
