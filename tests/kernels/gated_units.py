"""What every gated unit has to stand: `activation(gate) * up`, separate or packed. A test class per activation inherits
from `GatedUnitTests` and names its functions.
"""

import functools

import pytest
import torch

from tests.kernels import harness
from tests.kernels.harness import DTYPES, randn

SPECIAL = [float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1.0, -1.0, 1e4, -1e4, 100.0, -100.0]


def packed(gate, up):
    return torch.cat([gate, up], dim=-1)


def special_pairs(dtype):
    """Every special gate with every special `up`."""
    values = torch.tensor(SPECIAL, device=harness.DEVICE).to(dtype)
    gate, up = torch.meshgrid(values, values, indexing="ij")
    return gate.contiguous(), up.contiguous()


def _named(ending):
    return property(lambda tests: functools.partial(getattr(tests.lesson, tests.name + ending), **tests.options))


class GatedUnitTests:
    """lesson: the module. name: of its function of `gate` and `up`, with which all others begin."""

    lesson, name, options = None, "", {}
    function, packed_function = _named(""), _named("_packed")
    reference, packed_reference = _named("_reference"), _named("_packed_reference")
    forward, backward, packed_backward = _named("_forward"), _named("_backward"), _named("_packed_backward")

    def right(self, gate, up, upstream=None):
        harness.assert_right(self.function, self.reference, dict(gate=gate, up=up), upstream)

    def right_packed(self, x, upstream=None):
        harness.assert_right(self.packed_function, self.packed_reference, dict(x=x), upstream)

    def test_scalars(self):
        self.right(randn(), randn(), randn())

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_overflow_where_pytorch_overflows(self, dtype):
        """In float16 the product of upstream gradient and `up` overflows; times a slope of 0 that is NaN."""
        gate, up, upstream = (randn(9, 40, scale=1e4).to(dtype) for _ in range(3))
        self.right(gate, up, upstream)

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_large_negative_gates_alone(self, dtype):
        """Nothing but the tail, so that no larger value hides its error."""
        gate = (-3 - 2 * torch.rand(4, 50, device=harness.DEVICE)).to(dtype)
        self.right(gate, randn(4, 50, dtype=dtype), randn(4, 50, dtype=dtype))

    def test_output_is_new_and_contiguous(self):
        gate = harness.transposed(randn(4, 6))
        out = self.function(gate, gate)
        assert out.is_contiguous() and out.data_ptr() != gate.data_ptr()

    @pytest.mark.parametrize(
        ("gate", "up", "error", "words"),
        [
            ([1.0], torch.ones(1), TypeError, "gate must be a torch.Tensor, got list"),
            (torch.ones(1), None, TypeError, "up must be a torch.Tensor, got NoneType"),
            (torch.ones(2), torch.ones(3), ValueError, r"up must have the shape of gate, \(2,\), got \(3,\)"),
            (torch.ones(2, 3), torch.ones(3), ValueError, r"up must have the shape of gate, \(2, 3\), got \(3,\)"),
            (torch.ones(2), torch.ones(2).half(), TypeError, "up must have the dtype of gate, float32, got float16"),
            (torch.ones(2).double(), torch.ones(2).double(), TypeError, "gate must be one of float32, .*, got float64"),
            (torch.ones(2, device="meta"), torch.ones(2), ValueError, "gate is on meta"),
        ],
        ids=["type", "none", "shape", "broadcast", "mixed dtypes", "dtype", "device"],
    )
    def test_bad_arguments(self, gate, up, error, words):
        with pytest.raises(error, match=words):
            self.function(harness.on_device(gate), harness.on_device(up))

    @pytest.mark.parametrize(
        ("x", "error", "words"),
        [
            ([1.0, 2.0], TypeError, "x must be a torch.Tensor, got list"),
            (None, TypeError, "x must be a torch.Tensor, got NoneType"),
            (torch.ones(4, 3), ValueError, r"x must have an even last dimension .* got shape \(4, 3\)"),
            (torch.ones(()), ValueError, r"x must have at least 1 dimensions .* got shape \(\)"),
            (torch.ones(4).long(), TypeError, "x must be one of float32, float16, bfloat16, got int64"),
            (torch.ones(2, device="meta"), ValueError, "x is on meta"),
        ],
        ids=["type", "none", "odd", "scalar", "dtype", "device"],
    )
    def test_bad_packed_arguments(self, x, error, words):
        with pytest.raises(error, match=words):
            self.packed_function(harness.on_device(x))

    def test_small_tiles_are_the_same(self):
        """Several blocks a row, given by keyword, against one block."""
        gate, up, dout = randn(3, 37), randn(3, 74)[:, :37], randn(3, 37)
        small, large = (
            (
                self.forward(gate, up, BLOCK_N=block),
                *self.backward(dout, gate, up, BLOCK_N=block),
                self.packed_backward(dout, packed(gate, up), BLOCK_N=block),
            )
            for block in (8, None)
        )
        assert all(torch.equal(a, b) for a, b in zip(small, large))
        assert torch.equal(large[3], packed(*large[1:3]))

    def test_bad_tile_size(self):
        with pytest.raises(ValueError, match="BLOCK_N must be a power of two, got 100"):
            self.forward(randn(5), randn(5), BLOCK_N=100)
