"""Every small change of a formula or a kernel is noticed, or is on the reviewed list with its reason."""

from pathlib import Path

import pytest

from academy import device
from academy.formulas import kernel_mutants, kernel_mutate, mutants, mutate
from academy.formulas.check import declared
from academy.formulas.kernel_mutants import KernelMutant
from academy.formulas.project import Project

PROJECT = Project.here(Path(__file__))
PAGES, _ = PROJECT.pages()
CASES = [comparison for found in declared(PROJECT, PAGES)[0].values() for comparison in found]
VECTOR_ADD = [comparison for comparison in CASES if comparison.module == "tutorials.vector_add"]
KERNELS = [path for path in PROJECT.kernels() if kernel_mutants.of_source(path.read_text("utf-8"))]


def nightly(values, quick):
    """All values as parameters: the quick one runs in `make test`, the others at night (`pytest -m nightly`)."""
    return [pytest.param(v, marks=[] if quick(v) else [pytest.mark.nightly]) for v in values]


@pytest.mark.parametrize(
    "page", nightly(PAGES, lambda page: page.path.stem == "softmax"), ids=lambda page: page.path.stem
)
def test_no_change_of_a_formula_goes_unnoticed(page):
    score, problems = mutate.score_page(PROJECT, PROJECT.root / page.path)
    assert not problems, "\n".join(map(str, problems))
    assert score.total


@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
@pytest.mark.parametrize("path", nightly(KERNELS, lambda path: path.stem == "vector_add"), ids=PROJECT.module_name)
def test_no_change_of_a_kernel_goes_unnoticed(path):
    score, problems = kernel_mutate.score_module(PROJECT, path, CASES)
    assert not problems, "\n".join(map(str, problems))
    assert score.caught


# ---------------------------------------------------------------- the mutators themselves
PAGE = r"""---
math:
  dims: [n, m]
  index: {i: n, j: n, k: m}
  class: {c: n}
  given: {x: n, y: n, A: "n, m", s: scalar}
---
$$FORMULA$$
"""


def changes(formula: str) -> dict[str, set[str]]:
    from academy.formulas import Page

    page = Page("page.md", PAGE.replace("FORMULA", formula))
    found: dict[str, set[str]] = {}
    for mutant in mutants.of_page(page):
        found.setdefault(mutant.operator, set()).add(mutant.name)
    return found


@pytest.mark.parametrize(
    ("formula", "operator", "mutant"),
    [
        (r"x_i + y_i = y_i + x_i", "sign", r"x_i - y_i = y_i + x_i"),
        (r"x_i + y_i = y_i + x_i", "sign", r"-x_i + y_i = y_i + x_i"),
        (r"x_i + y_i = y_i + x_i", "drop term", r"x_i = y_i + x_i"),
        (r"2 x_i = x_i + x_i", "coefficient", r"3 x_i = x_i + x_i"),
        (r"2 x_i = x_i + x_i", "index", r"2 x_j = x_i + x_i"),
        (r"0.5 s = \frac{s}{2}", "coefficient", r"0.6 s = \frac{s}{2}"),
        (r"0.5 s = \frac{s}{2}", "turned fraction", r"0.5 s = \frac{2}{s}"),
        (r"0.5 s = \frac{s}{2}", "drop factor", r"0.5 s = {s}"),
        (r"s^2 = s s", "exponent", r"s = s s"),
        (r"x^\top y = y^\top x", "transpose", r"x y = y^\top x"),
        (r"A_{ik} = A_{ik} + 0", "index", r"A_{k i} = A_{ik} + 0"),
        (r"\sum_{i=1}^n x_i = \sum_j x_j", "sum range", r"\sum_{i=1}^{m} x_i = \sum_j x_j"),
        (r"\sum_{i=1}^n x_i = \sum_j x_j", "drop sum", r"x_i = \sum_j x_j"),
        (r"s \cdot x_i = x_i \cdot s", "drop factor", r"s = x_i \cdot s"),
        (
            r"\mathbf{1}_{i = c} x_i = x_c \mathbf{1}_{i = c}",
            "condition",
            r"\mathbf{1}_{i \ne c} x_i = x_c \mathbf{1}_{i = c}",
        ),
        (r"x_i = y_i + 0 \quad \text{if } i = c", "condition", r"x_i = y_i + 0 \quad \text{if } i \ne c"),
        (r"\exp(s) = e^s", "function", r"\log(s) = e^s"),
        (r"\sin(s) = -\sin(-s)", "function", r"\cos(s) = -\sin(-s)"),
        (r"\max(s, 0) = -\min(-s, 0)", "function", r"\min(s, 0) = -\min(-s, 0)"),
        (r"\tanh(s) = -\tanh(-s)", "function", r"\operatorname{erf}(s) = -\tanh(-s)"),
        (r"x_i + y_i = y_i + x_i", "symbol", r"y _i + y_i = y_i + x_i"),
    ],
)
def test_mutator(formula, operator, mutant):
    assert mutant in changes(formula).get(operator, set()), changes(formula)


def test_a_sign_in_front_of_zero_is_no_change():
    assert not any(name.startswith("-") for name in changes(r"x_i - x_i = 0").get("sign", ()))


KERNEL = """import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < n) & (offs >= 0)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    width: tl.constexpr = n & -n
    offs = tl.max_contiguous(offs, width)
    total = 0.0
    total += tl.sum(tl.where(mask, -x, 1.0), 0)
    tl.store(y_ptr + offs, tl.exp(total), mask=mask)

def launcher(x):
    return x + 1
"""


def test_kernel_mutators():
    found: dict[str, set[str]] = {}
    for mutant in kernel_mutants.of_source(KERNEL):
        compile(mutant.apply(KERNEL), "mutant", "exec")
        found.setdefault(mutant.operator, set()).add(f"{mutant.old} -> {mutant.new}")
    expected = {
        "operator": "* -> +",
        "comparison": "< -> <=",
        "drop mask term": "(offs < n) & (offs >= 0) -> offs < n",
        "narrow cast": "tl.float32 -> tl.float16",
        "drop mask": "mask -> None",
        "drop other": "0.0 -> None",
        "pointer": "x_ptr -> y_ptr",
        "function": "exp -> log",
        "swap": "-x, 1.0 -> 1.0, -x",
        "sign": "-x -> x",
        "constant": "1.0 -> 2.0",
        "forget": "total += tl.sum(tl.where(mask, -x, 1.0), 0) -> total = tl.sum(tl.where(mask, -x, 1.0), 0)",
        "drop statement": "total += tl.sum(tl.where(mask, -x, 1.0), 0) -> pass",
    }
    for operator, change in expected.items():
        assert change in found[operator], (operator, found[operator])
    everything = {change for changes_ in found.values() for change in changes_}
    assert not any("x + 1" in change for change in everything), "a launcher is no kernel"
    assert not any(change.startswith("-n") for change in everything), "a hint to the compiler computes nothing"


def test_a_swap_of_equal_arguments_is_no_mutant():
    source = "@triton.jit\ndef k(x_ptr, n):\n    other(x_ptr, n, n)\n"
    assert [mutant.apply(source) for mutant in kernel_mutants.of_source(source)] == [
        source.replace("(x_ptr, n, n)", "(n, x_ptr, n)")
    ]


def test_a_listed_mutant_that_is_none_any_more_is_reported():
    everything = kernel_mutants.of_source(KERNEL)
    listed = {name: {"reason": "-"} for name in (everything[0].name, "gone")}
    problems = kernel_mutate._about_list(Path("k.py"), listed, set(), everything[1:], everything)
    assert [problem.message for problem in problems if "no mutant any more" in problem.message] == [
        "k.py: listed, but caught or no mutant any more: gone"
    ]


def test_sample_is_spread_and_stable():
    everything = kernel_mutants.of_source(KERNEL)
    some = kernel_mutants.sample(everything, 12)
    assert some == kernel_mutants.sample(everything, 12) and len(some) == 12
    assert {mutant.operator for mutant in some} == {mutant.operator for mutant in kernel_mutants.sample(everything, 12)}
    assert len({mutant.operator for mutant in some}) > 9
    assert sorted(map(str, kernel_mutants.sample(everything, 10**6))) == sorted(map(str, everything))


@pytest.mark.parametrize(("new", "verdict"), [("x + y", "survived"), ("x - y", "value"), ("x +* y", "error")])
def test_a_mutant_of_a_kernel_is_judged(new, verdict):
    path = PROJECT.module_path("tutorials.vector_add")
    source, old = path.read_text("utf-8"), "out = x + y\n"
    start = source.index(old) + len("out = ")
    mutant = KernelMutant("test", "vector_add_kernel", 1, start, start + len("x + y"), new, "x + y")
    assert kernel_mutate.try_mutant(mutant, source, VECTOR_ADD, {}) == verdict


def test_a_write_behind_the_end_is_seen():
    source = PROJECT.module_path("tutorials.vector_add").read_text("utf-8")
    (mutant,) = [m for m in kernel_mutants.of_source(source) if m.operator == "comparison"]
    assert kernel_mutate.try_mutant(mutant, source, VECTOR_ADD, {}) == "value"


@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
def test_a_mutant_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(kernel_mutate, "PATIENCE", 2)
    source = PROJECT.module_path("tutorials.vector_add").read_text("utf-8")
    start = source.index("out = x + y\n")
    changes = {"": "survived", "while True: pass\n    ": "hang", "mask = None\n    ": "crash", "x = y\n    ": "value"}
    mutants_ = [KernelMutant("test", "vector_add_kernel", 1, start, start, new, "") for new in changes]
    verdicts = kernel_mutate._verdicts(mutants_, source, VECTOR_ADD, {}, None)
    assert {mutant.new: verdict for mutant, verdict in verdicts} == changes
