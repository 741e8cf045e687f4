"""A tagged equation as a torch function: values, axes, batches, composed pieces, errors."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from academy.formulas import Page
from tests.formulas import tagged

PAGES = Path(__file__).resolve().parents[2] / "backprop_math"
DOUBLE = dict(dtype=torch.float64)

SMALL = r"""---
math:
  dims: [n, h, "d = 2 h"]
  index: {i: n, j: n, l: h}
  class: {c: n}
  given: {x: n, a: scalar, z: d, '\mathbf{1}': n ones, w: h}
---
$$y_i := a x_i \tag{Y}$$

$$y_c = a x_c \tag{Y-c}$$

$$\begin{aligned} u_{2l-1} &:= z_{2l} \\ u_{2l} &:= w_l \end{aligned} \tag{U}$$

$$y = a \, x \odot \mathbf{1} \tag{V}$$

$$y_i x_j = a x_i x_j \tag{M}$$

$$\sum_i y_i = a \sum_i x_i \tag{S}$$

$$y_i^2 = y_i \cdot a x_i \tag{Y2}$$
"""


@pytest.fixture
def page():
    return Page("small.md", SMALL)


def test_elementwise_and_whole_vector(page):
    x = torch.randn(5, **DOUBLE)
    for tag in ("Y", "V"):
        torch.testing.assert_close(tagged(page, tag)(x=x, a=3.0, w=torch.ones(2), z=torch.ones(4)), 3 * x)


def test_axes_follow_the_left_side(page):
    x = torch.randn(5, **DOUBLE)
    result = tagged(page, "M")(x=x, a=2.0, w=torch.ones(2))
    torch.testing.assert_close(result, 2 * x[:, None] * x[None, :])


def test_sum_is_a_scalar(page):
    x = torch.randn(5, **DOUBLE)
    torch.testing.assert_close(tagged(page, "S")(x=x, a=2.0, w=torch.ones(2)), 2 * x.sum())


def test_class_counts_from_zero_and_takes_a_batch(page):
    x, c = torch.randn(4, 5, **DOUBLE), torch.tensor([0, 4, 2, 2])
    result = tagged(page, "Y-c")(batch=("x", "c"), x=x, c=c, a=2.0, w=torch.ones(2))
    torch.testing.assert_close(result, 2 * x[torch.arange(4), c])


def test_batch_of_some_inputs_only(page):
    x, a = torch.randn(5, **DOUBLE), torch.tensor([1.0, -2.0], **DOUBLE)
    result = tagged(page, "Y")(batch=("a",), x=x, a=a, w=torch.ones(2))
    torch.testing.assert_close(result, a[:, None] * x)


def test_pieces_are_put_together(page):
    z, w = torch.arange(6, **DOUBLE), torch.tensor([10.0, 20.0, 30.0], **DOUBLE)
    assert tagged(page, "U")(z=z, w=w, x=torch.ones(2)).tolist() == [1, 10, 3, 20, 5, 30]


def test_a_defined_name_can_be_given(page):
    x = torch.randn(5, **DOUBLE)
    torch.testing.assert_close(tagged(page, "Y2")(x=x, a=2.0, y=x + 1, w=torch.ones(2)), (x + 1) * 2 * x)


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        (dict(q=1.0), TypeError, "Y has no input 'q'; the page gives x, a, z, ones, w, c"),
        (dict(x=torch.ones(2, 3), a=1.0), ValueError, r"x must have 1 axes, got shape \(2, 3\)"),
        (dict(x=torch.ones(3), a=1.0), ValueError, "the length of h is not known"),
        (dict(x=torch.ones(3), w=torch.ones(2), z=torch.ones(5), a=1.0), ValueError, "dimension d must be 4, got 5"),
        (dict(x=torch.ones(3), w=torch.ones(2)), ValueError, "a has no value here"),
    ],
    ids=["unknown", "rank", "length", "computed length", "missing"],
)
def test_bad_inputs(page, inputs, error, words):
    with pytest.raises(error, match=words):
        tagged(page, "Y")(**inputs)


def test_unknown_tag(page):
    with pytest.raises(KeyError, match="has no tag 'X'; it has Y, Y-c, U, V, M, S, Y2"):
        tagged(page, "X")


def test_layernorm_against_autograd_of_pytorch():
    page, (m, n) = Page(PAGES / "layernorm.md"), (6, 13)
    x, dy = (torch.randn(m, n, **DOUBLE) for _ in range(2))
    gamma, beta = (torch.randn(n, **DOUBLE) for _ in range(2))
    x.requires_grad_(), gamma.requires_grad_(), beta.requires_grad_()
    y = F.layer_norm(x, (n,), gamma, beta, 1e-5)
    expected = dict(zip(("LN-X", "LN-gamma", "LN-beta"), torch.autograd.grad(y, (x, gamma, beta), dy)))
    given = dict(X=x.detach(), gamma=gamma.detach(), beta=beta.detach(), nabla_Y=dy, varepsilon=1e-5)
    given |= dict(A=torch.ones(2), B=torch.ones(3))
    for tag, gradient in expected.items():
        torch.testing.assert_close(tagged(page, tag)(**given), gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("positions", [range(5), [7, 0, 3, 3, 1]])
def test_rope_over_a_batch_of_positions(positions):
    page, h = Page(PAGES / "rope.md"), 4
    q, dq = (torch.randn(5, 2 * h, **DOUBLE) for _ in range(2))
    q.requires_grad_()
    omega, m = torch.rand(h, **DOUBLE), torch.tensor(list(positions), **DOUBLE)
    turn = torch.polar(torch.ones(5, h, **DOUBLE), m[:, None] * omega)
    turned = torch.view_as_real(torch.view_as_complex(q.view(5, h, 2)) * turn).flatten(1)
    result = tagged(page, "RoPE-q")(batch=("q", "m"), q=q.detach(), m=m, omega=omega)
    torch.testing.assert_close(result, turned.detach())
    (expected,) = torch.autograd.grad(turned, q, dq)
    given = dict(q=q.detach(), k=q.detach(), m=m, n=m, omega=omega, nabla_u=dq, nabla_w=dq, x=q.detach(), nabla_v=dq)
    result = tagged(page, "RoPE-dq")(batch=("q", "k", "x", "m", "n", "nabla_u", "nabla_v", "nabla_w"), **given)
    torch.testing.assert_close(result, expected)
