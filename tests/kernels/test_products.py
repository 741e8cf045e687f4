"""What matrix products share: slopes at zero, TF32, what the autograd frame keeps and computes, torch.compile.

That values and gradients are right, the formulas and the judge show through every product. The frame is handed its
launchers, so it is tested with launchers in plain PyTorch.
"""

import contextlib

import torch

from annotated_examples.common import activations, products
from annotated_examples.tutorials import matmul_blocked
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn
from tests.kernels.matmul_cases import ACTIVATIONS

# ---------------------------------------------------------------- activations


def slopes_at_zero(module):
    """Random numbers don't meet it."""
    for name in ("relu", "leaky_relu"):
        z = harness.leaf(torch.zeros(4, 4, device=DEVICE))
        (wanted,) = torch.autograd.grad(activations.activation_reference(z, name).sum(), z)
        assert torch.equal(module.activation_backward(torch.ones_like(z), z.detach(), name), wanted), name


def test_slopes_at_zero():
    slopes_at_zero(activations)


SLOPES = [
    Mutant("relu slope at zero", "tl.where(saved <= 0, 0.0, dc)", "tl.where(saved < 0, 0.0, dc)"),
    Mutant("leaky relu slope at zero", "tl.where(saved > 0, dc,", "tl.where(saved >= 0, dc,"),
]
test_mutant_of_an_activation_is_caught = harness.mutant_test(activations, SLOPES, slopes_at_zero)


# ---------------------------------------------------------------- TF32


@contextlib.contextmanager
def allowed(name="allow_tf32", value=True):
    """`monkeypatch` can't put these settings back, and later tests would have them."""
    before = getattr(torch.backends.cuda.matmul, name)
    setattr(torch.backends.cuda.matmul, name, value)
    try:
        yield
    finally:
        setattr(torch.backends.cuda.matmul, name, before)


def test_tf32_only_where_torch_allows_it():
    """With the newer setting reading `allow_tf32` raises: products in bfloat16 failed, too."""
    assert products.input_precision() == "ieee"
    with allowed():
        assert products.input_precision() == "tf32"
    with allowed("fp32_precision", "tf32"):
        assert products.input_precision() == "tf32"
        a = randn(20, 20, dtype=torch.bfloat16)
        torch.testing.assert_close(matmul_blocked.matmul(a, a), a @ a, rtol=2e-2, atol=2e-2)
    assert products.input_precision() == "ieee"


def test_tf32_in_a_compiled_model():
    """No graph break, and compiled again when the setting changes."""
    torch.compiler.reset()
    scaled = lambda x: x * (2 if products.input_precision() == "tf32" else 3)  # noqa: E731
    function = torch.compile(scaled, fullgraph=True, backend="eager")
    assert function(torch.ones(1)) == 3
    with allowed():
        assert function(torch.ones(1)) == 2


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


def what_is_kept(module):
    """ReLU keeps the result itself, which costs no memory; GELU one matrix more; nothing else is kept."""
    for activation in ACTIVATIONS:
        a, b = randn(4, 3).requires_grad_(), randn(3, 5).requires_grad_()
        c = public(module)(a, b, activation)
        first, second, saved = c.grad_fn.saved_tensors
        assert first is a and second is b and (saved is None) == (activation is None)
        if activation is not None:
            assert (saved.data_ptr() == c.data_ptr()) == (activation in ("relu", "leaky_relu"))


def test_what_is_kept():
    what_is_kept(products)


NOT_KEPT = [Mutant("Z not saved", "c, saved = launch_forward(", "saved, _ = c, _ = launch_forward(")]
test_mutant_of_the_frame_is_caught = harness.mutant_test(products, NOT_KEPT, what_is_kept)


def test_only_what_is_needed_is_computed():
    calls = []

    def counting(a, b, activation=None, **options):
        calls.append(activation)
        return forward(a, b, activation, **options)

    a, b = randn(4, 3).requires_grad_(), randn(3, 5)
    public(products, counting)(a, b, None).sum().backward()
    assert len(calls) == 2 and b.grad is None
