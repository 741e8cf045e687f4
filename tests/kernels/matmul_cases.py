"""What every matrix product with a fused activation has to stand: `activation(a @ b)`.

`ProductTests` holds the tests, each of which takes a `module`. A test file defines that fixture and inherits from it.
The functions are for its mutants.
"""

import functools

import pytest
import torch
import triton
import triton.language as tl

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.common.products import Product
from tests.kernels import addresses, harness
from tests.kernels.harness import randn

ACTIVATIONS = (None, "relu", "leaky_relu", "gelu", "silu")

#: small tiles: several programs, groups and loop steps even for small matrices (tensor cores want at least 16)
TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=3, num_warps=4)


def tiled(module, **tiles):
    """`matmul(a, b, activation)` with its gradients, by the launchers of `module` with these tiles."""
    forward, backward = (functools.partial(f, **tiles) for f in (module.matmul_forward, module.matmul_backward))
    return lambda a, b, activation=None: Product.apply(a, b, activation, forward, backward)


@triton.jit
def store_order_kernel(out_ptr, num_pid_m, num_pid_n, ORDER: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    pid_m, pid_n = ORDER(pid, num_pid_m, num_pid_n, GROUP_M)
    tl.store(out_ptr + 2 * pid, pid_m)
    tl.store(out_ptr + 2 * pid + 1, pid_n)


def program_order(grouped_order, num_pid_m, num_pid_n, group):
    """The tile of each program, in the order of their ids, as the kernels' own function says."""
    out = torch.empty(num_pid_m * num_pid_n, 2, dtype=torch.int32, device=harness.DEVICE)
    store_order_kernel[(len(out),)](out, num_pid_m, num_pid_n, grouped_order, GROUP_M=group)
    return [tuple(pair) for pair in out.tolist()]


# ---------------------------------------------------------------- checks that mutants have to get past


def right(module, function, inputs, activation=None, upstream=None):
    """`function(a, b, activation)` and its gradients obey the 2x rule."""
    harness.assert_right(
        lambda a, b: function(a, b, activation),
        lambda a, b: module.matmul_reference(a, b, activation),
        inputs,
        upstream,
    )


def reads_inside(module, tiles=TILES):
    """No lane that isn't masked reads outside of the tensors; only the interpreter can be asked for the addresses."""
    for K in (16, 18) if device.INTERPRET else ():  # with and without a rest
        a, b = randn(20, K), randn(K, 20)
        with addresses.loads_inside(a, b):
            module.matmul_forward(a, b, **tiles)


def long_sums_right(multiply, K):
    """float32 sums of K terms. Compiled, and added one after the other, they are far less accurate than PyTorch's."""
    x, y = randn(70, K), randn(K, 50)
    accuracy.check(f"K = {K}", multiply(x, y), x @ y, x.double() @ y.double())


# ---------------------------------------------------------------- tests

BAD = dict(
    type=([1.0], torch.ones(1, 1), None, TypeError, "a must be a torch.Tensor, got list"),
    dtype=(torch.ones(2, 2).long(), torch.ones(2, 2).long(), None, TypeError, "a must be one of float32, float16"),
    mixed=(torch.ones(2, 2), torch.ones(2, 2).half(), None, TypeError, "b must have the dtype of a, float32, got fl"),
    vector=(torch.ones(2), torch.ones(2, 2), None, ValueError, r"a must have 2 dimensions \(M, K\), got shape \(2,\)"),
    batch=(torch.ones(2, 2), torch.ones(1, 2, 2), None, ValueError, r"b must have 2 dimensions \(K, N\), got shape"),
    inner_sizes=(torch.ones(2, 3), torch.ones(2, 3), None, ValueError, "b must have as many rows as a has columns, 3"),
    activation=(torch.ones(2, 2), torch.ones(2, 2), "tanh", ValueError, "activation must be one of None, 'relu'"),
    device=(torch.ones(2, 2, device="meta"), torch.ones(2, 2), None, ValueError, "a is on meta"),
)


class ProductTests:
    """`product(module)` is the function that most tests call. A file whose public function searches for configurations
    on a GPU returns one with fixed tiles there, as `tiled` gives it.
    """

    def product(self, module):
        return module.matmul

    def test_check_passes(self, module):
        reads_inside(module)

    # ------------------------------------------------------------ values and gradients

    def test_float16_sums_are_formed_in_float32(self, module):
        """4096 ones: a float16 sum would stop at 2048."""
        ones = torch.ones(16, 4096, dtype=torch.float16, device=harness.DEVICE)
        assert (self.product(module)(ones, ones.T) == 4096).all()

    @pytest.mark.parametrize("K", [1025, 8192])
    def test_float32_sums_of_many_terms(self, module, K):
        assert not torch.backends.cuda.matmul.allow_tf32  # its error would be 1000 times as large
        long_sums_right(self.product(module), K)

    # ------------------------------------------------------------ layouts

    def test_transposed_views_are_not_copied(self, module, monkeypatch):
        """The kernel gets the caller's memory: no `.contiguous()` on the way."""
        monkeypatch.setattr(torch.Tensor, "contiguous", lambda self: pytest.fail("made a copy"))
        a, b = randn(24, 40).T, randn(16, 24).T
        torch.testing.assert_close(self.product(module)(a, b), a @ b, rtol=1e-4, atol=1e-4)

    # ------------------------------------------------------------ bad arguments

    @pytest.mark.parametrize(("a", "b", "activation", "error", "words"), BAD.values(), ids=BAD)
    def test_bad_arguments(self, module, a, b, activation, error, words):
        with pytest.raises(error, match=words):
            module.matmul(harness.on_device(a), harness.on_device(b), activation)

    def test_bad_launcher_arguments(self, module):
        with pytest.raises(ValueError, match="BLOCK_N must be a power of two, got 24"):
            module.matmul_forward(randn(5, 5), randn(5, 5), **{**TILES, "BLOCK_N": 24})
        with pytest.raises(ValueError, match="GROUP_M must be at least 1, got 0"):
            module.matmul_forward(randn(5, 5), randn(5, 5), **{**TILES, "GROUP_M": 0})

    # ------------------------------------------------------------ on a GPU
