"""Every case is the same function as the formula, in every element, or listed with a reason why that isn't known."""

import ctypes
import importlib
import json
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from academy.formulas import cases, verify
from academy.formulas.comparing import both_sides, decided, exactly
from academy.formulas.reading.page import Page
from academy.judge.mutants import import_source
from tests.formulas.project import CASES, PAGES, PROJECT

pytestmark = pytest.mark.interpreted

#: What the formulas of a case give, for its other modules.
KNOWN: dict = {}
MOST_LISTED = 30
KEPT = json.loads((PROJECT.root / decided.FILE).read_text("utf-8"))
STALE = "python -m academy.formulas.comparing.decided writes what pages say of it"


@pytest.fixture(autouse=True)
def memory_given_back():
    """A long recurrence takes gigabytes, which the C library keeps when they are free. The judge's tests, later in this
    process, fork it for each trial, and that costs the more the larger it is."""
    yield
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc
        trim(0)


#: Of a long text, in ten seconds each; in `make test` compared with the formula in floats alone.
LONG = {"fast.gated_delta_rule: one_walk", "fast.kda: one_walk", "fast.linear_attention: one_walk"}
ALL = {str(each): each for each in CASES if not each.listed}
assert LONG <= set(ALL)
#: Of each file one case in `make test`; `academy check` takes all, and so does the night.
EVERY_TIME = {*{each.module: name for name, each in reversed(ALL.items()) if name not in LONG}.values()}


@pytest.mark.parametrize(
    "comparison",
    [pytest.param(each, marks=[pytest.mark.nightly] * (name not in EVERY_TIME), id=name) for name, each in ALL.items()],
)
def test_the_same_function(comparison):
    outcome = exactly.run(comparison, PROJECT.module(comparison.module), KNOWN)
    assert outcome.kind in ("exact", "up to atoms"), "\n".join(map(str, outcome.problems()))
    assert decided.case_as_kept(outcome) == KEPT["cases"].get(str(comparison)), STALE


def test_few_are_listed_and_each_for_a_reason():
    listed = [comparison for comparison in CASES if comparison.listed]
    assert len(listed) <= MOST_LISTED
    for comparison in listed:
        assert len(comparison.listed.split()) > 5
    for path in {comparison.path for comparison in CASES}:
        said, known = cases.without_rounding(path), {each.case for each in CASES if each.path == path}
        assert {*said["listed"], *said["sizes"]} <= {"", *known}, path


# ---------------------------------------------------------------- equations
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_both_sides_are_the_same_function(page):
    """Every `=` in every element: no list of exceptions is needed."""
    found = both_sides.compare(page)
    assert not both_sides.problems(page, found) and not both_sides.undecided(page, found)
    assert decided.page_as_kept(page, found) == KEPT["pages"].get(page.path.stem), STALE


def test_pages_name_nothing_that_is_gone_or_has_changed():
    assert set(KEPT["cases"]) == {str(each) for each in CASES if not each.listed}, STALE
    texts = {name: page["text"] for name, page in KEPT["pages"].items()}  # by day, too, where few pages are compared
    assert texts == {page.path.stem: decided.digest(page) for page in PAGES}, STALE


def test_a_page_that_has_changed_says_nothing_of_its_equations():
    (page,) = (page for page in PAGES if page.path.stem == "softmax")
    count, primes = decided.together(decided.of_steps(page, PROJECT.root).values())
    assert count > 100 and primes == (3, 7, 11, 23)
    assert not decided.of_steps(Page(page.path, page.text + "\n"), PROJECT.root)
    assert decided.said((1368, (3, 23))) == "all 1,368 elements, modulo powers of 3 and 23"


@pytest.fixture
def stale(tmp_path, monkeypatch):
    """The file, of a time before a page and a case were changed, and another case was taken away."""
    old = {kind: dict(entries) for kind, entries in KEPT.items()}
    old["pages"]["vector_add"] = {**old["pages"]["vector_add"], "text": "of another page"}
    old["cases"]["tutorials.vector_add: vector_add"] = [1, [3]]
    old["cases"]["tutorials.vector_add: gone"] = [1, [3]]
    monkeypatch.setattr(decided, "FILE", tmp_path / "decided.json")
    decided.FILE.write_text(json.dumps(old))
    return decided.FILE


def test_a_check_tells_that_what_pages_say_is_older(stale):
    (page,) = (page for page in PAGES if page.path.stem == "vector_add")
    mine = [each for each in CASES if each.page.path == page.path and not each.listed]
    for part, what in ((verify._equations, page), (verify._kernels, mine)):
        found = part(what, PROJECT)
        assert (
            not found.problems and found.notes == [decided.stale(page)] and "decided vector_add renews it" in str(found)
        )
    (other,) = (page for page in PAGES if page.path.stem == "tile_copy")
    assert not verify._equations(other, PROJECT).notes


def test_one_page_is_renewed_and_the_rest_stays(stale):
    with pytest.raises(ValueError, match="no derivation backprop_math/vectoradd.md"):
        decided.renew(["vectoradd"])
    decided.renew(["vector_add"])
    assert json.loads(stale.read_text()) == KEPT


SMALL = r"""---
math:
  dims: [n]
  index: {i: n, j: n}
  given: {x: n, s: scalar}
---
$$\operatorname{softmax}(x)_i := \frac{e^{x_i}}{\sum_j e^{x_j}}$$

$$LEFT = RIGHT$$
"""


@pytest.mark.parametrize(
    "left, right, said",
    [
        (r"\sum_i \operatorname{softmax}(x)_i", "1", ""),
        (r"\sum_i \operatorname{softmax}(x)_i", "1 + 0.0000000000001", "another function: element () differs"),
        (r"\cos(2 s)", r"1 - 2 \sin^2(s)", ""),
        (r"\frac{\partial}{\partial s}\left(\tanh(s)\right)", r"1 - 1.0000002 \tanh^2(s)", "another"),
        (r"\sqrt{9 (x_i^2 + 2)}", r"3 \sqrt{x_i^2 + 2}", ""),  # 3 is no square modulo 7
        (r"\sqrt{9 (x_i^2 + 2)}", r"-3 \sqrt{x_i^2 + 2}", "another"),
        (r"\sqrt{9 (x_i^2 + 2)} + s", r"3.0000002 \sqrt{x_i^2 + 2} + s", "another"),
        (r"\operatorname{erf}(s)", r"1.0000002 \operatorname{erf}(s)", "another"),
    ],
)
def test_a_side_that_differs_by_less_than_rounding_is_noticed(left, right, said):
    page = Page("small.md", SMALL.replace("LEFT", left).replace("RIGHT", right))
    found = both_sides.compare(page)
    problems = both_sides.problems(page, found)
    assert said in str(problems[0]) if said else not problems and not both_sides.undecided(page, found)
    assert not problems or problems[0].line == 9


def test_an_equation_that_nobody_can_tell_of_is_said_with_the_reason():
    page = Page("small.md", SMALL.replace("LEFT", r"\sqrt{17}").replace("RIGHT", r"\frac{17}{\sqrt{17}}"))
    (said,) = both_sides.undecided(page, both_sides.compare(page))
    assert "'=', compared without rounding: not decided: 0 of 1 elements" in said


# ---------------------------------------------------------------- what is noticed
def case(name):
    return next(each for each in CASES if str(each) == name)


def changed(module, **functions):
    return SimpleNamespace(**{**vars(module), **functions})


def test_a_term_too_small_for_floats_is_noticed():
    comparison = case("tutorials.softmax: softmax")
    module = PROJECT.module(comparison.module)

    def softmax(x):
        y = module.softmax(x)
        return y + 1e-12 * y * y

    assert exactly.run(comparison, module, {}).kind == "exact"
    (problem,) = exactly.run(comparison, changed(module, softmax=softmax), {}).problems()
    assert "compared without rounding: result 0: another function: element (0, 0) differs" in str(problem)


def test_a_copy_of_a_kernel_has_the_same_atoms():
    comparison = case("classics.geglu: geglu")
    text = PROJECT.module_path(comparison.module).read_text("utf-8")
    assert exactly.run(comparison, import_source(text, "copy"), {}).kind == "up to atoms"


def test_what_is_not_decided_is_said_with_the_operation_that_has_no_rule():
    comparison = case("tutorials.softmax: softmax")
    module = PROJECT.module(comparison.module)
    outcome = exactly.run(comparison, changed(module, softmax=lambda x: torch.i0(module.softmax(x))), {})
    (problem,) = outcome.problems()
    assert outcome.kind == "not decided" and "no rule for" in str(problem)


def test_an_error_of_the_kernel_is_said():
    comparison = case("tutorials.softmax: softmax")
    outcome = exactly.run(comparison, changed(PROJECT.module(comparison.module), softmax=lambda x: 1 / 0), {})
    assert "ZeroDivisionError" in str(outcome.problems()[0])


@pytest.mark.parametrize("value, near", [(0.3, 0.3125), (1.0, 1.0), (1e-5, 10 * 2.0**-20), (-1.45, -1.5), (0.0, 0.0)])
def test_numbers_are_made_short(value, near):
    assert exactly.short(value) == near


# ---------------------------------------------------------------- atoms
#: Atom -> where it is used, what it is taken for in float64, and how far from that it may be, relative (and absolute).
ATOMS = {
    "common.chunks.decay_of": (lambda: -torch.linspace(0, 80, 4001), [torch.exp], 3e-7),
    "common.chunks.round_to_tf32": (lambda: torch.randn(4096), [lambda x: x], 2.0**-11),
    "classics.geglu.weight_exact": (
        lambda: torch.linspace(-6, 9, 4001),
        [torch.special.ndtr, lambda x: torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5],
        4e-6,
    ),
}


def test_every_atom_has_a_bound():
    named = Counter(atom for path in PROJECT.case_files() for atom in cases.without_rounding(path)["atoms"])
    assert set(named) == set(ATOMS)


@pytest.mark.parametrize("atom", ATOMS)
def test_an_atom_is_near_what_it_is_taken_for(atom):
    from tests.exact.kernels import several

    inputs, functions, bound = ATOMS[atom]
    module, _, name = atom.rpartition(".")
    x = inputs().float()
    results = several(getattr(importlib.import_module(f"annotated_examples.{module}"), name), x, len(functions))
    for y, function in zip(results, functions, strict=True):
        exact = function(x.double())
        assert ((y.double() - exact).abs() / exact.abs()).max() < bound
