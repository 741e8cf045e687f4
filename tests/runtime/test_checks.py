"""academy/runtime/checks: every error names the argument, what came, and what is allowed."""

import pytest
import torch

from academy.runtime import checks, device

x = torch.ones(2, 3, device=device.DEVICE)
nested = torch.nested.nested_tensor([x, x])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: checks.tensors(x=3), TypeError, "x must be a torch.Tensor, got int"),
        (lambda: checks.tensors(x=None), TypeError, "x must be a torch.Tensor, got NoneType"),
        (lambda: checks.tensors(x=x, y=torch.ones(1, device="meta")), ValueError, "y is on meta"),
        (lambda: checks.tensors(x=x.to_sparse()), TypeError, "x must be a dense"),
        (lambda: checks.tensors(x=(x + 1j * x).conj().imag), ValueError, r"x must not be .* pass x.resolve_neg\(\)"),
        (lambda: checks.dtypes(w=x.long()), TypeError, "w must be one of float32, float16, bfloat16, got int64"),
        (lambda: checks.same_dtype(x=x, y=x.half()), TypeError, "y must have the dtype of x, float32, got float16"),
        (lambda: checks.same_shape(x=x, y=x.T), ValueError, r"y must have the shape of x, \(2, 3\), got \(3, 2\)"),
        (
            lambda: checks.shape("w", x, (3,), "x's last"),
            ValueError,
            r"w must have shape \(3,\) \(x's last\), got \(2, 3\)",
        ),
        (lambda: checks.dimensions("a", x, 1), ValueError, r"a must have 1 dimensions, got shape \(2, 3\)"),
        (lambda: checks.dimensions("a", x, range(3, 9)), ValueError, "a must have at least 3 dimensions"),
        (lambda: checks.choice("mode", "c", ("a", "b")), ValueError, "mode must be one of 'a', 'b', got 'c'"),
        (lambda: checks.choice("mode", True, (0, 1)), ValueError, "mode must be one of 0, 1, got True"),
        (lambda: checks.choice("mode", 1.0, (0, 1)), ValueError, "mode must be one of 0, 1, got 1.0"),
        (lambda: checks.choice("mode", x, (0, 1)), ValueError, "mode must be one of 0, 1, got tensor"),
        (lambda: checks.number("eps", 1e39), ValueError, "eps must fit into float32, got 1e\\+39"),
        (lambda: checks.number("eps", "1"), TypeError, "eps must be a number, got str"),
        (lambda: checks.number("eps", True), TypeError, "eps must be a number, got bool"),
        (lambda: checks.number("eps", float("nan")), ValueError, "eps must be finite, got nan"),
        (lambda: checks.number("eps", -1.0, at_least=0), ValueError, "eps must be at least 0, got -1.0"),
        (lambda: checks.number("eps", 0, above=0), ValueError, "eps must be above 0, got 0"),
        (lambda: checks.power_of_two(BLOCK=6), ValueError, "BLOCK must be a power of two, got 6"),
        (lambda: checks.power_of_two(BLOCK=4.0), TypeError, "BLOCK must be an int, got float"),
        (lambda: checks.positive(GROUP=0), ValueError, "GROUP must be at least 1, got 0"),
        (lambda: checks.positive(GROUP=True), TypeError, "GROUP must be an int, got bool"),
        (lambda: checks.positive(GROUP=None), TypeError, "GROUP must be an int, got NoneType"),
        (lambda: checks.positive(GROUP=2**31), ValueError, "GROUP must be at most 2147483647, got 2147483648"),
        (lambda: checks.power_of_two(BLOCK=2**70), ValueError, "BLOCK must be at most 1048576, got"),
        (lambda: checks.whole_number("label", -(2**63) - 1), ValueError, "label must be at least -9223372036854775808"),
        (lambda: checks.whole_number("label", 2**63), ValueError, "label must be at most 9223372036854775807, got"),
        (lambda: checks.number("eps", 2**70), ValueError, "eps must fit into 64 bits, or be a float, got 118059162"),
        (lambda: checks.number("eps", 1e-45), ValueError, "eps must be 0 or at least 1.18e-38 in size, got 1e-45"),
        (
            lambda: checks.number("scale", -1e-45),
            ValueError,
            "scale must be 0 or at least 1.18e-38 in size, got -1e-45",
        ),
        (lambda: checks.tensors(x=nested), TypeError, r"x must be a dense \(strided\) tensor, got a nested tensor"),
        (
            lambda: checks.number_tensor("n", x),
            ValueError,
            r"n must be a number or a 0-d tensor of one, got .* \(2, 3\)",
        ),
        (lambda: checks.number_tensor("n", x[0, 0].to("meta")), ValueError, "n must be .* on meta, which holds none"),
        (lambda: checks.number_tensor("n", nested), TypeError, "n must be a dense .* got a nested tensor"),
        (
            lambda: checks.no_gradient("f", x=x.clone().requires_grad_()),
            ValueError,
            "x requires a gradient, but f has no",
        ),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: checks.number("eps", 0),
        lambda: checks.number("eps", 2.0**70),
        lambda: checks.number("eps", 2**62),
        lambda: checks.number("eps", 0, at_least=0),
        lambda: checks.whole_number("label", -(2**63)),
        lambda: checks.number_tensor("n", x.sum()),
        lambda: checks.tensors(x=x),
        lambda: checks.tensors(x=(x + 1j * x).conj().imag.resolve_neg()),
        lambda: checks.optional_tensors(x=x, bias=None),
        lambda: checks.dtypes(x=x, bias=None),
        lambda: checks.same_dtype(x=x, y=x, bias=None),
        lambda: checks.same_shape(x=x, y=x),
        lambda: checks.shape("x", x, (2, 3)),
        lambda: checks.shape("bias", None, (3,)),
        lambda: checks.dimensions("x", x, range(1, 9)),
        lambda: checks.choice("mode", None, (None, "relu")),
        lambda: checks.choice("dtype", torch.float16, (None, torch.float16)),
        lambda: checks.power_of_two(BLOCK=1, other=None),
        lambda: checks.positive(GROUP=1, OTHER=3),
        torch.no_grad()(lambda: checks.no_gradient("f", x=x.clone().requires_grad_())),
    ],
)
def test_what_is_right_passes(call):
    call()


@pytest.mark.skipif(device.INTERPRET, reason="about CPU tensors on a GPU run")
def test_cpu_tensor_on_a_gpu_run():
    with pytest.raises(ValueError, match="x is on cpu, but kernels are compiled for the GPU here"):
        checks.tensors(x=torch.ones(1))
