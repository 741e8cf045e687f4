"""What matrix products share: activations, the float32 sums, the checks, the autograd frame, torch.compile.

The frame is handed its launchers, so it is tested with launchers in plain PyTorch.
"""

import pytest
import torch
import triton
import triton.language as tl

from academy.judge import accuracy
from annotated_examples.common import activations, products
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn
from tests.kernels.matmul_cases import ACTIVATIONS

# ---------------------------------------------------------------- activations


@triton.jit
def apply_kernel(z_ptr, c_ptr, N, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    z = tl.load(z_ptr + offsets, mask=offsets < N, other=0.0).to(tl.float32)
    tl.store(c_ptr + offsets, ACTIVATION(z), mask=offsets < N)


def check_activations(module):
    """Values and slopes, at zero and far out too, and with an upstream gradient of any strides."""
    for values in (torch.cat([randn(50), torch.zeros(3, device=DEVICE)]), randn(53, scale=1e4)):
        check_activations_of(module, values)


def check_activations_of(module, z):
    for name in ACTIVATIONS:
        reference = activations.activation_reference
        c = torch.empty_like(z)
        apply_kernel[(1,)](z, c, len(z), module.ACTIVATIONS[name], BLOCK=64)
        accuracy.check(str(name), c, reference(z, name), reference(z.double(), name))
        if name is None:
            continue
        matrix, result = z.expand(9, -1).contiguous(), c.expand(9, -1).contiguous()
        saved = {"c": result, "z": matrix}[module.SAVED[name]]
        for dc in (randn(len(z), 9).T, torch.ones((), device=DEVICE).expand(matrix.shape)):
            leaf, exact = matrix.requires_grad_(), matrix.detach().double().requires_grad_()
            wanted = torch.autograd.grad(reference(leaf, name), leaf, dc)[0]
            double = torch.autograd.grad(reference(exact, name), exact, dc.double())[0]
            with harness.unchanged(dc=dc, saved=saved), harness.fenced_allocations():
                dz = module.activation_backward(dc, saved.detach(), name)
            accuracy.check(f"gradient of {name}", dz, wanted, double)


def test_activations():
    check_activations(activations)


@pytest.mark.parametrize(
    "mutant",
    harness.mutant_parameters(
        [
            Mutant("relu keeps negatives", "tl.where(z < 0, 0.0, z)", "tl.where(z < 0, z, z)"),
            Mutant("leaky slope wrong", "tl.where(z < 0, 0.01 * z, z)", "tl.where(z < 0, 0.1 * z, z)"),
            Mutant(
                "gelu by tanh",
                "1.0 + tl.erf(z * 0.7071067811865476)",
                "2.0 * tl.sigmoid(1.5957691216 * (z + 0.044715 * z * z * z))",
            ),
            Mutant("gelu slope without the bell", "saved * 0.3989422804014327", "saved * 0.0"),
            Mutant("silu slope sign", "1.0 + saved * (1.0 - sigmoid)", "1.0 - saved * (1.0 - sigmoid)"),
            Mutant("relu slope at zero", "tl.where(saved <= 0, 0.0, dc)", "tl.where(saved < 0, 0.0, dc)"),
            Mutant("leaky relu slope at zero", "tl.where(saved > 0, dc,", "tl.where(saved >= 0, dc,"),
            Mutant("saves the result where Z is needed", '"gelu": "z"', '"gelu": "c"'),
            Mutant("upstream strides ignored", "* stride_dcm + offs_n[None, :] * stride_dcn", "* N + offs_n[None, :]"),
            Mutant("store not masked", "BACKWARD(dc, saved), mask=mask)", "BACKWARD(dc, saved))"),
        ]
    ),
)
def test_mutant_of_an_activation_is_caught(mutant, tmp_path):
    harness.assert_caught(activations, mutant, check_activations, tmp_path)


# ---------------------------------------------------------------- float32 sums


@triton.jit
def product_kernel(x_ptr, y_ptr, z_ptr, K, MULTIPLY_ADD: tl.constexpr, INPUT_PRECISION: tl.constexpr):
    offs = tl.arange(0, 16)
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(0, K, 16):
        x = tl.load(x_ptr + offs[:, None] * K + k + offs[None, :])
        y = tl.load(y_ptr + (k + offs[:, None]) * 16 + offs[None, :])
        acc = MULTIPLY_ADD(x, y, acc, INPUT_PRECISION)
    tl.store(z_ptr + offs[:, None] * 16 + offs[None, :], acc)


def check_sums(module):
    for K, dtype in ((64, torch.float32), (4096, torch.float32), (64, torch.float16)):
        x, y = randn(16, K, dtype=dtype), randn(K, 16, dtype=dtype)
        z = torch.empty(16, 16, dtype=dtype, device=DEVICE)
        product_kernel[(1,)](x, y, z, K, module.multiply_add, module.input_precision())
        accuracy.check(f"K = {K}", z, x @ y, x.double() @ y.double())


def test_sums():
    check_sums(products)


def test_tf32_only_where_torch_allows_it():
    assert products.input_precision() == "ieee"
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert products.input_precision() == "tf32"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_tf32_by_the_newer_setting():
    """With it, reading `allow_tf32` raises: products in bfloat16 failed, too."""
    from annotated_examples.tutorials import matmul_blocked

    owner = torch.backends.cuda.matmul
    before, owner.fp32_precision = owner.fp32_precision, "tf32"
    try:
        assert products.input_precision() == "tf32"
        a = randn(20, 20, dtype=torch.bfloat16)
        torch.testing.assert_close(matmul_blocked.matmul(a, a), a @ a, rtol=2e-2, atol=2e-2)
    finally:
        owner.fp32_precision = before
    assert products.input_precision() == "ieee"


def test_tf32_in_a_compiled_model():
    """No graph break, and compiled again when the setting changes."""
    torch.compiler.reset()
    scaled = lambda x: x * (2 if products.input_precision() == "tf32" else 3)  # noqa: E731
    function = torch.compile(scaled, fullgraph=True, backend="eager")
    assert function(torch.ones(1)) == 3
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert function(torch.ones(1)) == 2
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize(
    "mutant",
    harness.mutant_parameters(
        [
            Mutant("sum starts anew", "total = tl.dot(a, b, acc,", "total = tl.dot(a, b,"),
            Mutant(
                "one chain of float32 sums",
                "tl.fma(tl.dot(a, b, input_precision=INPUT_PRECISION), 1.0, acc)",
                "acc + tl.dot(a, b, input_precision=INPUT_PRECISION)",
                gpu=True,
            ),
            Mutant("always tf32", 'if device.tf32_allowed() else "ieee"', 'if True else "ieee"', gpu=True),
        ]
    ),
)
def test_mutant_of_the_sums_is_caught(mutant, tmp_path):
    harness.assert_caught(products, mutant, check_sums, tmp_path)


# ---------------------------------------------------------------- the frame


def forward(a, b, activation=None, *, save_z=False):
    """A launcher in PyTorch."""
    with torch.no_grad():
        z = a @ b
        c = activations.activation_reference(z, activation).clone()
    return (c, z) if save_z else c


def public(module, launch_forward=forward):
    def backward(dc, a, b, saved, activation, *, needs):
        return module.product_gradients(launch_forward, dc, a, b, saved, activation, needs=needs)

    return lambda a, b, activation: module.Product.apply(a, b, activation, launch_forward, backward)


def assert_gradients(multiply, activation):
    harness.assert_right(
        lambda a, b: multiply(a, b, activation),
        lambda a, b: activations.activation_reference(a @ b, activation),
        dict(a=randn(9, 6), b=randn(6, 7)),
        randn(9, 7),
    )


def check_frame(module):
    for activation in ACTIVATIONS:
        assert_gradients(public(module), activation)
    inputs = dict(a=randn(9, 5), b=randn(5, 4))
    harness.assert_gradient_penalty_raises(lambda a, b: public(module)(a, b, "silu"), inputs)
    try:
        module.contract(x=randn(3, 4), y=randn(5, 2))
    except ValueError as error:
        assert str(error) == "y must have as many rows as x has columns, 4, got shapes (3, 4) and (5, 2)"
    else:
        raise AssertionError("a product of matrices that don't fit")


def test_frame():
    check_frame(products)


def test_what_is_kept():
    """ReLU keeps the result itself, which costs no memory; GELU one matrix more; nothing else is kept."""
    for activation in ACTIVATIONS:
        a, b = randn(4, 3).requires_grad_(), randn(3, 5).requires_grad_()
        c = public(products)(a, b, activation)
        saved = c.grad_fn.saved_tensors
        assert saved[0] is a and saved[1] is b
        if activation is None:
            assert saved[2] is None
        else:
            assert (saved[2].data_ptr() == c.data_ptr()) == (activation in ("relu", "leaky_relu"))


def test_only_what_is_needed_is_computed():
    calls = []

    def counting(a, b, activation=None, **options):
        calls.append(activation)
        return forward(a, b, activation, **options)

    a, b = randn(4, 3).requires_grad_(), randn(3, 5)
    public(products, counting)(a, b, None).sum().backward()
    assert len(calls) == 2 and b.grad is None


@pytest.mark.parametrize(
    "mutant",
    harness.mutant_parameters(
        [
            Mutant("mismatched K unchecked", "if a.shape[1] != b.shape[0]:", "if False:"),
            Mutant("Z not saved", "c, saved = launch_forward(", "saved, _ = c, _ = launch_forward("),
            Mutant(
                "da without the transpose", "launch_forward(dz, b.T,", "launch_forward(dz, b.reshape(b.shape[::-1]),"
            ),
            Mutant("slope forgotten", "dz = dc if activation is None else", "dz = dc if True else"),
            Mutant("second derivative lost", "    @autograd.once_differentiable\n", ""),
            Mutant("gradient penalty lost", "@autograd.once_diff", "@torch.autograd.function.once_diff"),
        ]
    ),
)
def test_mutant_of_the_frame_is_caught(mutant, tmp_path):
    harness.assert_caught(products, mutant, check_frame, tmp_path)


# ---------------------------------------------------------------- torch.compile


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_opaque_launcher_in_a_compiled_model(activation):
    """Without a graph break, forward, backward and without a gradient; the launcher itself isn't traced."""
    traced = []

    def launch(a, b, activation=None, *, save_z=False):
        traced.append(torch.compiler.is_compiling())
        return forward(a, b, activation, save_z=save_z)

    launch.__name__ = f"launch_{activation}"
    torch.compiler.reset()
    multiply = public(products, products.opaque(launch))
    compiled = torch.compile(lambda a, b: multiply(a, b, activation), fullgraph=True, backend="aot_eager")
    a, b, upstream = randn(9, 6).requires_grad_(), randn(6, 7).requires_grad_(), randn(9, 7)
    c, expected = compiled(a, b), activations.activation_reference(a @ b, activation)
    torch.testing.assert_close(c, expected)
    torch.testing.assert_close(
        torch.autograd.grad(c, (a, b), upstream), torch.autograd.grad(expected, (a, b), upstream), rtol=1e-4, atol=1e-5
    )
    with torch.no_grad():
        torch.testing.assert_close(compiled(a, b), expected)
    assert traced and not any(traced)
