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


X, ROWS, ONES = torch.linspace(-1, 2, 5, **DOUBLE), torch.linspace(-3, 3, 20, **DOUBLE).view(4, 5), torch.ones(2)
CLASSES, EVEN = torch.tensor([0, 4, 2, 2]), torch.tensor([10.0, 20.0, 30.0], **DOUBLE)
FACTORS = torch.tensor([1.0, -2.0], **DOUBLE)


@pytest.mark.parametrize(
    ("tag", "inputs", "expected"),
    [
        ("Y", dict(x=X, a=3.0, w=ONES, z=torch.ones(4)), 3 * X),
        ("V", dict(x=X, a=3.0, w=ONES, z=torch.ones(4)), 3 * X),
        ("M", dict(x=X, a=2.0, w=ONES), 2 * X[:, None] * X[None, :]),  # axes follow the left side
        ("S", dict(x=X, a=2.0, w=ONES), 2 * X.sum()),
        ("Y-c", dict(batch=("x", "c"), x=ROWS, c=CLASSES, a=2.0, w=ONES), 2 * ROWS[torch.arange(4), CLASSES]),
        ("Y", dict(batch=("a",), x=X, a=FACTORS, w=ONES), FACTORS[:, None] * X),
        ("U", dict(z=torch.arange(6, **DOUBLE), w=EVEN, x=ONES), torch.tensor([1.0, 10, 3, 20, 5, 30], **DOUBLE)),
        ("Y2", dict(x=X, a=2.0, y=X + 1, w=ONES), (X + 1) * 2 * X),  # a defined name may be given
    ],
)
def test_values(page, tag, inputs, expected):
    torch.testing.assert_close(tagged(page, tag)(**inputs), expected)


def test_unknown_tag(page):
    with pytest.raises(KeyError, match="has no tag 'X'; it has Y, Y-c, U, V, M, S, Y2"):
        tagged(page, "X")


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
