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


# What a case may say in a function of its own: here always the values.
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
PLAIN = CHOSEN.replace("KEYWORDS", "")
BOTH = LAUNCHERS.replace('return z, {"x": dx, "y": dy}', 'both = {"x": dx, "y": dy}\n    return z, both')
STABLE = SOFTMAX.replace("KEYWORDS", 'forward_only=True, stable={"SM": "SM-stable"}')
UNSTABLE = SOFTMAX.replace("KEYWORDS", 'gradients={"x": "SM"}')
TWICE = ROWS.replace(r"$$y_i = \frac{e^{x_i - \max_k x_k}}", r"$$y_i = 2 \frac{e^{x_i - \max_k x_k}}")
SUMMED = PRODUCT.replace('returns="OUT"', 'returns=None, upstream=1.0, values={"nabla_z": 1.0}')
OF_A_SUM = PAGE.replace("nabla_z: n", "nabla_z: scalar").replace(r"\nabla_{z_i} s", r"\nabla_z s")
THREE = PRODUCT.replace('returns="OUT"', 'returns="OUT", values={"s": 3.0}')
RIGHT = module(lambda x, y, s: s * x * y)
BLOCKED = module(
    lambda x, y, s, BLOCK: s * x * y
)  # the reference gets the same arguments, without the size of the tiles
ROWWISE = module(lambda x: torch.softmax(x, -1), reference=lambda x: torch.softmax(x, -1))
ADDED_UP = module(*[lambda x, y, s: (s * x * y).sum()] * 2)
FORWARD, BACKWARD = lambda x, y, s, BLOCK: s * x * y, lambda up, x, y, s, BLOCK: (up * s * y, up * s * x)
#: A case file, a page, functions, and words of what is found; "" where nothing is.
FOUND = {
    "right": (PRODUCT, PAGE, RIGHT, ""),
    "value": (
        PRODUCT,
        PAGE,
        module(lambda x, y, s: s * x * y * 1.00001),
        "the result is not what OUT prints: RMS error",
    ),
    "dtype": (
        PRODUCT,
        PAGE,
        module(lambda x, y, s: (s * x * y).double()),
        "dtype torch.float64 instead of torch.float32",
    ),
    "shape": (PRODUCT, PAGE, module(lambda x, y, s: (s * x * y)[:-1]), "Mismatch in shape"),
    "no gradient": (PRODUCT, PAGE, module(lambda x, y, s: s * x * y.detach()), "it gives no gradient of y"),
    "wrong gradient": (
        PRODUCT,
        PAGE,
        module(lambda x, y, s: s * x.detach() * y + x - x.detach()),
        "the gradient of x is not what OUT-x prints",
    ),
    "two results": (
        PRODUCT,
        PAGE,
        module(lambda x, y, s: (s * x * y, x)),
        "it returns 2 values, and `returns` names 1",
    ),
    "raises": (PRODUCT, PAGE, module(lambda x, y, s: undefined), "NameError"),  # noqa: F821
    "writes": (
        PRODUCT,
        PAGE,
        module(lambda x, y, s: s * x * y + 0 * x.detach().zero_()),
        "the call wrote to its input x",
    ),
    "no tag": (
        PRODUCT.replace(', "y": "OUT-y"', ""),
        PAGE,
        RIGHT,
        "gives a gradient of y, and `gradients` names no tag",
    ),
    "composed tags": (PRODUCT.replace('"OUT-x"', '"OUT-x(y = OUT)"'), PAGE, RIGHT, "OUT-x(y = OUT)"),
    "launchers": (LAUNCHERS, PAGE, module(forward=FORWARD, backward=BACKWARD), ""),
    "their result": (
        LAUNCHERS,
        PAGE,
        module(forward=lambda x, y, s, BLOCK: x * y, backward=BACKWARD),
        "the result is not what OUT",
    ),
    "their gradient": (
        LAUNCHERS,
        PAGE,
        module(forward=FORWARD, backward=lambda up, x, y, s, BLOCK: (up * y, up * s * x)),
        "the gradient of x is not",
    ),
    "none": (
        LAUNCHERS,
        PAGE,
        module(forward=FORWARD, backward=lambda up, x, y, s, BLOCK: (up * s * y, None)),
        "AttributeError",
    ),
    "they write": (
        LAUNCHERS,
        PAGE,
        module(forward=FORWARD, backward=lambda up, x, y, s, BLOCK: (up * s * y, y.mul_(s * x))),
        "wrote to its input y",
    ),
    "gradients that the reader could not see": (
        BOTH,
        PAGE,
        module(forward=FORWARD, backward=lambda up, *_, BLOCK: (up, up)),
        "a mapping that stands in the return statement itself",
    ),
    "overflows": (UNSTABLE, ROWS, ROWWISE, "the printed form overflows: print a stable one too"),
    "a stable form": (STABLE, ROWS, ROWWISE, ""),
    "another stable form": (STABLE, TWICE, ROWWISE, "the stable form SM-stable differs from SM"),
    "own values": (PLAIN, PAGE, BLOCKED, ""),
    "a value of no symbol": (
        PLAIN.replace('"s": 3.0', '"s": 3.0, "q": 1.0'),
        PAGE,
        BLOCKED,
        "`values` gives q, which isn't a symbol of page.md",
    ),
    "values by keyword": (THREE, PAGE, module(lambda x, y, s: x * y * (3.0 if s == 3.0 else 0.0)), ""),
    "another reference": (
        CHOSEN.replace("KEYWORDS", ', pytorch="other"'),
        PAGE,
        module(vars(BLOCKED)["f"], None, other=vars(RIGHT)["f"]),
        "",
    ),
    "no reference": (
        PLAIN,
        PAGE,
        module(vars(BLOCKED)["f"], None),
        "the module has no f_reference: name PyTorch's own operation with `pytorch`",
    ),
    "a reference of its own": (
        PLAIN + "@product.pytorch\ndef _(x, y, s):\n    return s * x * y\n",
        PAGE,
        module(vars(BLOCKED)["f"], None),
        "",
    ),
    "a wrong one": (
        PLAIN + "@product.pytorch\ndef _(x, y):\n    return x * y\n",
        PAGE,
        BLOCKED,
        "the result of PyTorch in float64 is not what OUT prints",
    ),
    "an upstream gradient": (PLAIN + "@product.upstream\ndef _(nabla_z):\n    return nabla_z + 0\n", PAGE, BLOCKED, ""),
    "another one": (
        PLAIN + "@product.upstream\ndef _(nabla_z):\n    return 2 * nabla_z\n",
        PAGE,
        BLOCKED,
        "the gradient of x of PyTorch in float64 is not what OUT-x prints",
    ),
    "of a sum": (SUMMED, OF_A_SUM, ADDED_UP, ""),
    "another one of a sum": (SUMMED.replace("upstream=1.0", "upstream=2.0"), OF_A_SUM, ADDED_UP, "gradient"),
}


@pytest.mark.parametrize("text, page, made, words", FOUND.values(), ids=FOUND)
def test_what_is_found(messages, text, page, made, words):
    found = messages(text, page, made)
    assert any(words in message for message in found) if words else not found, found


def test_a_gradient_of_shared_values_is_summed_over_rows(messages):
    text = PRODUCT.replace('modules="none"', 'modules="none", rows=("x", "nabla_z")')
    assert not messages(text, PAGE, module(lambda x, y, s: s * x * y))
    two_axes = text.replace('modules="none"', 'modules="none", sizes={"rows": (2, 3), "n": 7}')
    shapes = set()
    summed = module(lambda x, y, s: (shapes.add(tuple(x.shape)), s * x * y)[1])
    assert "Mismatch" not in str(messages(two_axes, PAGE, summed)) and (2, 3, 7) in shapes


# ---------------------------------------------------------------- what a case may say in a function of its own


def test_fences_show_writes_outside_and_what_nobody_wrote():
    with Fences() as fences:
        x, y = torch.empty(4), torch.zeros(3, 3)
        z = torch.ones(5).clone()
    assert x.isnan().all() and (y == 0).all() and (z == 1).all() and not fences.broken()
    x.as_strided((5,), (1,))[4] = 1.0
    assert fences.broken()
