"""Every derivation holds, and every kernel computes what its derivation prints."""

import functools
from inspect import isfunction

import pytest

from academy.book import layout, syntax
from academy.formulas.comparing import coverage, equations, kernels
from academy.formulas.mutation import engine
from academy.formulas.project import Project
from academy.formulas.verify import declared

PROJECT = Project.here()
PAGES, ERRORS = PROJECT.pages()
BY_PAGE, FAULTS = declared(PROJECT, PAGES)
CASES = [comparison for found in BY_PAGE.values() for comparison in found]
#: What PyTorch gives for a case, for its other modules.
MEMO: dict = {}


def test_every_derivation_can_be_read():
    assert not ERRORS
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_equations_hold(page):
    tallies = equations.check(page)
    silent = [step.pos for at, step in enumerate(page.steps) if step.kind == "claim" and not tallies[at].points]
    assert not silent, "claims that were never compared"


def test_every_tag_is_compared_with_a_kernel():
    assert not FAULTS, "\n".join(map(str, FAULTS))


@pytest.mark.parametrize("path", PROJECT.kernels(), ids=PROJECT.module_name)
def test_every_public_function_is_compared_with_a_derivation(path):
    assert not coverage.uncovered_module(PROJECT, path, CASES)


@pytest.mark.parametrize("comparison", CASES, ids=str)
def test_kernel_computes_the_printed_formula(comparison):
    misses = kernels.run(comparison, PROJECT.module(comparison.module), memo=MEMO)
    assert not misses, "\n".join(map(str, misses))


@functools.cache
def imported():
    """The kernel files that each kernel file imports."""
    return {path: syntax.imported_kernels(path.read_text("utf-8"), PROJECT.root) for path in PROJECT.kernels()}


def users(path):
    """The module, and those that import it: what lessons share is launched by them."""
    return {PROJECT.module_name(other) for other, files in imported().items() if other == path or path in files}


#: Rungs of ladders are held by tests/kernels/test_ladders.py, against the float64 reference.
COMPARED = [path for path in PROJECT.kernels() if layout.group(PROJECT.root, path) != "ladders"]


@pytest.mark.parametrize("path", COMPARED, ids=PROJECT.module_name)
def test_every_kernel_is_launched_by_a_comparison(path, monkeypatch):
    """Compiled too, where other shapes and devices choose other kernels than in the interpreter."""
    module = PROJECT.module(PROJECT.module_name(path))
    jitted = [value for value in vars(module).values() if isfunction(getattr(value, "fn", None))]
    own = {function.fn.__name__ for function in jitted if function.fn.__module__ == module.__name__}
    exempt = {entry["kernel"] for entry in engine.entries(PROJECT, "exempt", PROJECT.shown(path))}
    missing = {name for name in own if name.endswith("_kernel")} - exempt
    launched = set()
    for kind in set(map(type, jitted)):

        def run(kernel, *args, original=kind.run, **kwargs):
            launched.add(kernel.fn.__name__)
            return original(kernel, *args, **kwargs)

        monkeypatch.setattr(kind, "run", run)
    using = [comparison for comparison in CASES if missing and comparison.module in users(path)]
    for inputs in kernels.HOSTILE:  # the first ones of each case launch nearly everything
        for comparison in using:
            if missing - launched and inputs.dtype in comparison.dtypes:
                kernels.called(comparison, PROJECT.module(comparison.module), inputs)
    names = ", ".join(sorted(missing - launched))
    assert not names, f"{PROJECT.shown(path)}: no case of cases launches {names}"
