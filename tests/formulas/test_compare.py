"""The comparison with printed formulas notices each kind of mistake. Here plain functions stand for kernels."""

from types import ModuleType

import pytest
import torch

from academy.formulas import Page, compare
from academy.formulas.fences import Fences
from academy.formulas.kernels import comparisons

PAGE = r"""---
kernel:
  - module: none
    call: f(x, y, s)
    returns: OUT
    gradients: {x: OUT-x, y: OUT-y}
math:
  dims: [n]
  index: {i: n}
  given: {x: n, y: n, s: scalar, \nabla_z: n}
  loss: {name: L, of: z, upstream: \nabla_z}
---
$$z_i := s x_i y_i \tag{OUT}$$

$$\frac{\partial L}{\partial x_i} = \nabla_{z_i} s y_i \tag{OUT-x}$$

$$\frac{\partial L}{\partial y_i} = \nabla_{z_i} s x_i \tag{OUT-y}$$
"""

ROWS = r"""---
kernel:
  - module: none
    call: f(x)
    rows: [x]
    returns: SM
STABLEmath:
  dims: [n]
  index: {i: n, j: n, k: n}
  given: {x: n}
---
$$y_i := \frac{e^{x_i}}{\sum_j e^{x_j}} \tag{SM}$$

$$y_i = \frac{e^{x_i - \max_k x_k}}{\sum_j e^{x_j - \max_k x_k}} \tag{SM-stable}$$
"""


def module(f, reference=lambda x, y, s: s * x * y) -> ModuleType:
    made = ModuleType("none")
    made.f, made.f_reference = f, reference
    return made


def messages(f, page: str = PAGE, **kinds) -> list[str]:
    (entry,) = comparisons(Page("page.md", page))
    return [miss.message for miss in compare.run(entry, module(f, **kinds))]


def test_a_right_function_passes():
    assert not messages(lambda x, y, s: s * x * y)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x, y, s: s * x * y * 1.00001, "the result is not what OUT prints: RMS error"),
        (lambda x, y, s: (s * x * y).double(), "dtype torch.float64 instead of torch.float32"),
        (lambda x, y, s: (s * x * y)[:-1], "Mismatch in shape"),
        (lambda x, y, s: s * x * y.detach(), "it gives no gradient of y"),
        (lambda x, y, s: s * x.detach() * y + x - x.detach(), "the gradient of x is not what OUT-x prints"),
        (lambda x, y, s: (s * x * y, x), "it returns 2 values, and `returns` names 1"),
        (lambda x, y, s: undefined, "NameError"),  # noqa: F821
        (lambda x, y, s: s * x * y + 0 * x.detach().zero_(), "the call wrote to its input x"),
    ],
    ids=["value", "dtype", "shape", "no gradient", "wrong gradient", "two results", "raises", "writes"],
)
def test_a_wrong_function_is_noticed(f, words):
    assert any(words in message for message in messages(f))


def test_a_gradient_without_a_tag():
    page = PAGE.replace("gradients: {x: OUT-x, y: OUT-y}", "gradients: {x: OUT-x}")
    found = messages(lambda x, y, s: s * x * y, page)
    assert found and all("gives a gradient of y, and `gradients` names no tag" in message for message in found)


def test_a_gradient_of_shared_values_is_summed_over_rows():
    page = PAGE.replace("    returns: OUT\n", "    rows: [x, nabla_z]\n    returns: OUT\n")
    assert not messages(lambda x, y, s: s * x * y, page)


def test_a_formula_that_overflows_needs_a_stable_form():
    softmax = lambda x: torch.softmax(x, -1)  # noqa: E731
    missing = messages(softmax, ROWS.replace("STABLE", "    gradients: {x: SM}\n"), reference=softmax)
    assert any("the printed form overflows: print a stable one too" in message for message in missing)
    page = ROWS.replace("STABLE", "    forward_only: true\n    stable: {SM: SM-stable}\n")
    assert not messages(softmax, page, reference=softmax)
    wrong = page.replace(r"$$y_i = \frac{e^{x_i - \max_k x_k}}", r"$$y_i = 2 \frac{e^{x_i - \max_k x_k}}")
    found = messages(softmax, wrong, reference=softmax)
    assert any("the stable form SM-stable differs from SM" in message for message in found)


def test_composed_tags_replace_a_symbol():
    page = PAGE.replace("gradients: {x: OUT-x, y: OUT-y}", "gradients: {x: OUT-x(y = OUT), y: OUT-y}")
    found = messages(lambda x, y, s: s * x * y, page)
    assert found and all("OUT-x(y = OUT)" in message for message in found)


def test_patched_functions_come_back():
    page = PAGE.replace("    returns: OUT\n", '    patch: {tile: "lambda n: 3"}\n    returns: OUT\n')
    seen = []
    made = module(lambda x, y, s: (seen.append(made.tile(1)), s * x * y)[1])
    made.tile = original = lambda n: n
    (entry,) = comparisons(Page("page.md", page))
    assert not compare.run(entry, made)
    assert set(seen) == {3} and made.tile is original


def test_fences_show_writes_outside_and_what_nobody_wrote():
    with Fences() as fences:
        x, y = torch.empty(4), torch.zeros(3, 3)
        z = torch.ones(5).clone()
    assert x.isnan().all() and (y == 0).all() and (z == 1).all() and not fences.broken()
    x.as_strided((5,), (1,))[4] = 1.0
    assert fences.broken()
