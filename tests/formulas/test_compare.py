"""The comparison with printed formulas notices each kind of mistake. Here plain functions stand for kernels."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from academy.formulas import Page
from academy.formulas.comparing import case_reader
from academy.formulas.comparing import kernels as compare
from academy.judge.fences import Fences

PAGE = r"""---
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

PRODUCT = """from academy.formulas.cases import case

@case(modules="none", returns="OUT", gradients={"x": "OUT-x", "y": "OUT-y"})
def product(module, x, y, s):
    return module.f(x, y, s)
"""

LAUNCHERS = """from academy.formulas.cases import case

@case(modules="none", returns="OUT", gradients={"x": "OUT-x", "y": "OUT-y"})
def product(module, x, y, s, nabla_z):
    z = module.forward(x, y, s, BLOCK=16)
    dx, dy = module.backward(nabla_z, x, y, s, BLOCK=16)
    return z, {"x": dx, "y": dy}

@product.pytorch
def _(x, y, s):
    return s * x * y
"""

ROWS = r"""---
math:
  dims: [n]
  index: {i: n, j: n, k: n}
  given: {x: n}
---
$$y_i := \frac{e^{x_i}}{\sum_j e^{x_j}} \tag{SM}$$

$$y_i = \frac{e^{x_i - \max_k x_k}}{\sum_j e^{x_j - \max_k x_k}} \tag{SM-stable}$$
"""


SOFTMAX = """from academy.formulas.cases import case

@case(modules="none", rows="x", returns="SM", KEYWORDS)
def softmax(module, x):
    return module.f(x)
"""


def module(f=None, reference=lambda x, y, s: s * x * y, **functions) -> ModuleType:
    made = ModuleType("none")
    vars(made).update(functions, f=f, f_reference=reference)
    return made


@pytest.fixture
def messages(tmp_path):
    """What `compare` finds: `messages(case file, page, module)`."""

    def found(text: str, page: str, made: ModuleType) -> list[str]:
        path = tmp_path / "page.py"
        path.write_text(text, "utf-8")
        (comparison,), problems = case_reader.read(path, Path("page.py"), Page("page.md", page), lambda name: True)
        assert not problems
        return [miss.message for miss in compare.run(comparison, made)]

    return found


def test_a_right_function_passes(messages):
    assert not messages(PRODUCT, PAGE, module(lambda x, y, s: s * x * y))


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
def test_a_wrong_function_is_noticed(messages, f, words):
    assert any(words in message for message in messages(PRODUCT, PAGE, module(f)))


def test_a_gradient_without_a_tag(messages):
    text = PRODUCT.replace(', "y": "OUT-y"', "")
    found = messages(text, PAGE, module(lambda x, y, s: s * x * y))
    assert found and all("gives a gradient of y, and `gradients` names no tag" in message for message in found)


def test_a_gradient_of_shared_values_is_summed_over_rows(messages):
    text = PRODUCT.replace('modules="none"', 'modules="none", rows=("x", "nabla_z")')
    assert not messages(text, PAGE, module(lambda x, y, s: s * x * y))
    two_axes = text.replace('modules="none"', 'modules="none", sizes={"rows": (2, 3), "n": 7}')
    shapes = set()
    summed = module(lambda x, y, s: (shapes.add(tuple(x.shape)), s * x * y)[1])
    assert "Mismatch" not in str(messages(two_axes, PAGE, summed)) and (2, 3, 7) in shapes


@pytest.mark.parametrize(
    ("forward", "backward", "words"),
    [
        (lambda x, y, s, BLOCK: s * x * y, lambda up, x, y, s, BLOCK: (up * s * y, up * s * x), None),
        (
            lambda x, y, s, BLOCK: x * y,
            lambda up, x, y, s, BLOCK: (up * s * y, up * s * x),
            "the result is not what OUT",
        ),
        (lambda x, y, s, BLOCK: s * x * y, lambda up, x, y, s, BLOCK: (up * y, up * s * x), "the gradient of x is not"),
        (lambda x, y, s, BLOCK: s * x * y, lambda up, x, y, s, BLOCK: (up * s * y, None), "AttributeError"),
        (
            lambda x, y, s, BLOCK: s * x * y,
            lambda up, x, y, s, BLOCK: (up * s * y, y.mul_(s * x)),
            "wrote to its input y",
        ),
    ],
    ids=["right", "result", "gradient", "no gradient", "writes"],
)
def test_launchers_return_their_gradients(messages, forward, backward, words):
    found = messages(LAUNCHERS, PAGE, module(forward=forward, backward=backward))
    assert any(words in message for message in found) if words else not found


def test_gradients_that_the_reader_could_not_see(messages):
    text = LAUNCHERS.replace('return z, {"x": dx, "y": dy}', 'both = {"x": dx, "y": dy}\n    return z, both')
    made = module(forward=lambda x, y, s, BLOCK: x * y * s, backward=lambda up, x, y, s, BLOCK: (up, up))
    assert any(
        "a mapping that stands in the return statement itself" in message for message in messages(text, PAGE, made)
    )


def test_a_formula_that_overflows_needs_a_stable_form(messages):
    made = module(lambda x: torch.softmax(x, -1), reference=lambda x: torch.softmax(x, -1))
    missing = messages(SOFTMAX.replace("KEYWORDS", 'gradients={"x": "SM"}'), ROWS, made)
    assert any("the printed form overflows: print a stable one too" in message for message in missing)
    text = SOFTMAX.replace("KEYWORDS", 'forward_only=True, stable={"SM": "SM-stable"}')
    assert not messages(text, ROWS, made)
    wrong = ROWS.replace(r"$$y_i = \frac{e^{x_i - \max_k x_k}}", r"$$y_i = 2 \frac{e^{x_i - \max_k x_k}}")
    assert any("the stable form SM-stable differs from SM" in message for message in messages(text, wrong, made))


def test_composed_tags_replace_a_symbol(messages):
    text = PRODUCT.replace('"OUT-x"', '"OUT-x(y = OUT)"')
    found = messages(text, PAGE, module(lambda x, y, s: s * x * y))
    assert found and all("OUT-x(y = OUT)" in message for message in found)


# ---------------------------------------------------------------- what a case may say in a function of its own
CHOSEN = """from academy.formulas.cases import case

@case(modules="none", returns="OUT", gradients={"x": "OUT-x", "y": "OUT-y"}KEYWORDS)
def product(module, x, y, s, n, rows, at_end):
    assert (len(x), s) == (n, 3.0) and rows and bool((at_end(x) == x.round()).all())
    return module.f(x, y, s, BLOCK=8)

@product.values
def _(x, n):
    assert len(x) == n
    return {"x": x.round().clamp(-4, 4), "s": 3.0}
"""


def chosen(keywords: str = "", more: str = "") -> str:
    return CHOSEN.replace("KEYWORDS", keywords) + more


def test_a_case_chooses_its_values(messages):
    """The reference gets the same arguments, without the size of the tiles."""
    made = module(lambda x, y, s, BLOCK: s * x * y)
    assert not messages(chosen(), PAGE, made)
    found = messages(chosen().replace('"s": 3.0', '"s": 3.0, "q": 1.0'), PAGE, made)
    assert any("`values` gives q, which isn't a symbol of page.md" in message for message in found)
    by_keyword = PRODUCT.replace('returns="OUT"', 'returns="OUT", values={"s": 3.0}')
    seen = set()
    assert not messages(by_keyword, PAGE, module(lambda x, y, s: (seen.add(s), s * x * y)[1])) and seen == {3.0}


def test_a_case_chooses_what_judges_it(messages):
    made = module(lambda x, y, s, BLOCK: s * x * y, other=lambda x, y, s: s * x * y, reference=None)
    assert not messages(chosen(', pytorch="other"'), PAGE, made)
    wanted = "the module has no f_reference: name PyTorch's own operation with `pytorch`"
    assert any(wanted in message for message in messages(chosen(), PAGE, made))
    assert not messages(chosen(more="@product.pytorch\ndef _(x, y, s):\n    return s * x * y\n"), PAGE, made)
    wrong = messages(chosen(more="@product.pytorch\ndef _(x, y):\n    return x * y\n"), PAGE, made)
    assert any("the result of PyTorch in float64 is not what OUT prints" in message for message in wrong)


def test_a_case_chooses_the_upstream_gradient(messages):
    made = module(lambda x, y, s, BLOCK: s * x * y)
    assert not messages(chosen(more="@product.upstream\ndef _(nabla_z):\n    return nabla_z + 0\n"), PAGE, made)
    wrong = messages(chosen(more="@product.upstream\ndef _(nabla_z):\n    return 2 * nabla_z\n"), PAGE, made)
    assert any("the gradient of x of PyTorch in float64 is not what OUT-x prints" in message for message in wrong)
    one = PRODUCT.replace('returns="OUT"', 'returns=None, upstream=1.0, values={"nabla_z": 1.0}')
    page = PAGE.replace("nabla_z: n", "nabla_z: scalar").replace(r"\nabla_{z_i} s", r"\nabla_z s")
    assert not messages(one, page, module(summed, summed))
    assert messages(one.replace("upstream=1.0", "upstream=2.0"), page, module(summed, summed))


def summed(x, y, s):
    return (s * x * y).sum()


def test_fences_show_writes_outside_and_what_nobody_wrote():
    with Fences() as fences:
        x, y = torch.empty(4), torch.zeros(3, 3)
        z = torch.ones(5).clone()
    assert x.isnan().all() and (y == 0).all() and (z == 1).all() and not fences.broken()
    x.as_strided((5,), (1,))[4] = 1.0
    assert fences.broken()
