"""Case files are read without any kernel: every mistake is a problem at its place."""

from pathlib import Path

import pytest

from academy.book import facts
from academy.formulas import Page, cases
from academy.formulas.comparing import case_reader, coverage
from academy.formulas.project import Project
from tests import python
from tests.formulas.project import BY_PAGE, FAULTS, PROJECT

PAGE = Page(
    "page.md",
    """---
math:
  dims: [n]
  index: {i: n}
  given: {x: n, s: scalar, \\nabla_y: n}
  loss: {name: L, of: y, upstream: \\nabla_y}
---
$$y_i := s x_i \\tag{Y}$$

$$\\nabla_{x_i} = s \\nabla_{y_i} \\tag{Y-x}$$
""",
)

FILE = '''"""Scaling."""

from academy.formulas.cases import case

BOTH = ("tutorials.scale", "fast.scale")
ROWS = ("x", "nabla_y")


@case(modules=BOTH, returns="Y", gradients={"x": "Y-x"}, rows=ROWS, sizes={"n": 300})
def scale(module, x, s):
    return module.scale(x, s)


@case(modules=(*BOTH, "tutorials.other"), returns="Y", gradients={"x": "Y-x"}, dtypes="float16")
def by_launchers(module, x, s, nabla_y, n, rows, at_end):
    y = helper(module, module.scale_forward(at_end(x), s, BLOCK=16))
    return y, {"x": module.scale_backward(nabla_y, module.number(s), BLOCK=16)}


@by_launchers.pytorch
def _(x, s):
    return s * x


def helper(module, y):
    return module.identity(y)
'''
MODULES = ("tutorials.scale", "fast.scale", "tutorials.other")


def read(folder: Path, text: str):
    path = folder / "page.py"
    path.write_text(text, "utf-8")
    return case_reader.read(path, Path("operations/page.py"), PAGE, MODULES.__contains__)


def test_what_a_file_says(tmp_path):
    (first, second, *launchers), problems = read(tmp_path, FILE)
    assert not problems and [str(each) for each in (first, second)] == ["tutorials.scale: scale", "fast.scale: scale"]
    assert (first.function, first.call, first.rows, first.sizes) == (
        "scale",
        "scale(x, s)",
        ("x", "nabla_y"),
        {"n": 300},
    )
    assert first.dtypes == ("float32", "bfloat16") and not first.explicit and first.tags() == {"Y", "Y-x"}
    assert [each.module for each in launchers] == list(MODULES) and all(each.explicit for each in launchers)
    assert launchers[0].dtypes == ("float16",) and launchers[0].function == "scale_forward"
    assert launchers[0].call == "scale_forward(at_end(x), s, BLOCK=16); scale_backward(nabla_y, number(s), BLOCK=16)"
    called = {(call.function, call.positional, call.keywords) for call in launchers[0].calls}
    assert called == {
        ("scale_forward", 2, ("BLOCK",)),
        ("scale_backward", 2, ("BLOCK",)),
        ("number", 1, ()),
        ("identity", 1, ()),
    }
    loaded = cases.load(tmp_path / "page.py")
    assert list(loaded) == ["scale", "by_launchers"] and loaded["by_launchers"].said["pytorch"](2, 3) == 6


def test_the_same_call_again(tmp_path):
    again = '\n\nwide = scale.again(modules="fast.scale", sizes={"n": 5}, dtypes=("bfloat16",))\n'
    found, problems = read(tmp_path, FILE + again)
    assert not problems and [str(each) for each in found[:2]] == ["tutorials.scale: scale", "fast.scale: scale"]
    wide, scale = found[-1], found[1]
    assert str(wide) == "fast.scale: wide" and (wide.sizes, wide.dtypes) == ({"n": 5}, ("bfloat16",))
    assert (wide.calls, wide.returns, wide.rows, wide.gradients) == (
        scale.calls,
        scale.returns,
        scale.rows,
        scale.gradients,
    )
    assert (scale.sizes, scale.dtypes) == ({"n": 300}, ("float32", "bfloat16"))
    _, (problem,) = read(tmp_path, FILE + again.replace('"n"', '"q"'))
    assert problem.message.startswith("needs a length for a dim") and problem.source.strip().startswith("@case")


SCALE = '@case(modules=BOTH, returns="Y", gradients={"x": "Y-x"}, rows=ROWS, sizes={"n": 300})'


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ('"Y", gradients={"x": "Y-x"}, rows', '"Z", rows', '"Z"', "page.md has no tag 'Z'; it has Y, Y-x"),
        ('"Y-x"}, rows', '"Z"}, rows', '{"x"', "page.md has no tag 'Z'"),
        ('"Y-x"}, rows', '"Y-x(q = Y)"}, rows', '{"x"', "'Y-x(q = Y)': write TAG(symbol = TAG), with a symbol"),
        ('"Y-x"}, rows', '"Y-x(x)"}, rows', '{"x"', "'Y-x(x)': write TAG(symbol = TAG)"),
        ('"Y-x"}, rows', '"§"}, rows', '{"x"', "'§' is no tag"),
        ('"fast.scale"', '"fast.none"', "BOTH", "there is no module 'fast.none' under annotated_examples"),
        ('{"x": "Y-x"}, rows', '{"q": "Y-x"}, rows', '{"q"', "the page gives no symbol 'q'; it gives nabla_y, s, x"),
        ('ROWS = ("x", ', 'ROWS = ("q", ', "ROWS", "the page gives no symbol 'q'"),
        ('{"n": 300}', '{"q": 300}', '{"q"', "needs a length for a dim, or a positive one for `rows`, got q: 300"),
        ('{"n": 300}', '{"n": (3, 4)}', '{"n"', "needs a length"),
        ('sizes={"n": 300}', "colour=1", "case(", "case has no keyword colour; it has modules, returns"),
        ('"float16"', '"float8"', '"float8"', "'float8' is not among float32, float16, bfloat16"),
        ("sizes={", "forward_only=True, sizes={", "def scale", "a call that is forward only has no `gradients`"),
        (SCALE, "@case", "@case", "TypeError: case() takes 0 positional arguments but 1 was given"),
        (SCALE, '@case(modules=BOTH, gradients={"x": "Y-x"})', "case(", "the case scale needs the keyword returns"),
        (SCALE, '@case(returns="Y")', "case(", "there is no module None"),
        (SCALE, "@case(modules=BOTH, returns=None)", "def", "compares nothing: no result and no gradient has a tag"),
        (SCALE, '@case(modules=(), returns="Y")', "def", "names no module"),
        (SCALE, '@case(modules=SOME, returns="Y")', "@case", "NameError: name 'SOME' is not defined"),
        (SCALE, '@case(modules=BOTH, returns="Y", stable="Y")', '"Y")', "AttributeError: 'str' object has no"),
        ("scale(module, x, s):", "scale(module, x, q):", "case(", "the page gives no symbol 'q'"),
        ("return module.scale(x, s)", "return s * x", "def scale", "scale calls no function of `module`"),
        ("def _(x, s)", "def _(x, q)", "case(", "the page gives no symbol 'q'"),
        ("@by_launchers.pytorch", "@launchers.pytorch", "@", "NameError: name 'launchers' is not defined"),
        ("@by_launchers.pytorch", "@by_launchers.torch", "@", "AttributeError: 'Case' object has no attribute 'torch'"),
        ('"""Scaling."""', "import triton", "import", "import triton inside of the function that needs it"),
        ('"""Scaling."""', "from . import x", "from", "ImportError: attempted relative import with no known parent"),
        ("    return module.scale(x, s)", "    return module.scale(x,", "(x", "'(' was never closed"),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path, old, new, place, message):
    assert FILE.count(old) == 1
    _, (first, *_) = read(tmp_path, FILE.replace(old, new))
    assert first.message.startswith(message), first.message
    assert first.path == "operations/page.py" and first.source[first.col - 1 :].startswith(place), str(first)


def test_each_case_stands_at_the_top_under_a_name_of_its_own(tmp_path):
    twice = FILE.replace("def by_launchers", "def scale").replace("@by_launchers", "@scale")
    inside = (
        FILE + "def f():\n    @case(modules=BOTH, returns='Y')\n    def f(module, x):\n        return module.f(x)\n"
    )
    for text, name in ((twice, "scale"), (inside, "f")):
        _, (problem, *_) = read(tmp_path, text)
        assert problem.message == f"the case {name} stands at the top level, under a name of its own"


def test_a_file_without_a_case(tmp_path):
    _, (problem,) = read(tmp_path, '"""Nothing."""\n')
    assert str(problem).startswith("operations/page.py:1:1: holds no @case: nothing is compared")


def test_every_keyword_is_described():
    assert all(f"`{name}" in cases.__doc__ for name in cases.KEYWORDS)


# ---------------------------------------------------------------- the files of this project
def test_case_files_and_derivations():
    assert not FAULTS, "\n".join(map(str, FAULTS))
    assert {path.stem for path in BY_PAGE} == {facts.derivation(path) for path in PROJECT.case_files()}


def test_a_case_file_without_its_derivation(tmp_path):
    for folder in ("backprop_math", "annotated_examples", "operations"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "operations/none.py").write_text(FILE + '\n\nDERIVATION = "none"\n')
    _, (problem,) = coverage.declared(Project(tmp_path), [])
    assert str(problem).startswith("operations/none.py:29:1: there is no derivation backprop_math/none.md")


def test_cases_are_read_where_triton_is_missing():
    """So are derivations and what the site says of them: nothing of it imports a kernel."""
    code = """
import sys
sys.modules["triton"] = None
from academy.formulas import cases, reports
from academy.formulas.comparing import coverage, kernels
from academy.formulas.mutation import engine
from academy.formulas.project import Project
from tests.formulas.project import BY_PAGE, FAULTS, PROJECT
project = Project.here()
pages, _ = project.pages()
found, _ = coverage.declared(project, pages)
assert found and reports.sources("backprop_math/softmax.md", project.root)[1:]
for path in project.case_files():
    assert cases.load(path)
assert not [name for name in sys.modules if name.startswith("annotated_examples")]
"""
    python.run(["-c", code], PROJECT.root, timeout=120, check=True)
