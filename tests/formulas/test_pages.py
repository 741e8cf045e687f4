"""Every derivation holds, and every kernel computes what its derivation prints."""

from inspect import isfunction

import pytest

from academy.formulas import compare, coverage, verify
from academy.formulas.check import declared
from academy.formulas.project import Project

PROJECT = Project.here()
PAGES, ERRORS = PROJECT.pages()
BY_PAGE, FAULTS = declared(PAGES)
#: Kernels that compute no formula (the exempt functions of backprop_math/equivalent_mutants.toml).
NO_FORMULA = {"store_blocks_kernel"}
ENTRIES = [entry for entries in BY_PAGE.values() for entry in entries]


def test_every_derivation_can_be_read():
    assert not ERRORS
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_equations_hold(page):
    tallies = verify.check(page)
    silent = [step.pos for at, step in enumerate(page.steps) if step.kind == "claim" and not tallies[at].points]
    assert not silent, "claims that were never compared"
    assert page.summary()["prose"] == 0


def test_every_tag_is_compared_with_a_kernel():
    assert not FAULTS, "\n".join(map(str, FAULTS))


@pytest.mark.parametrize("path", PROJECT.kernels(), ids=PROJECT.module_name)
def test_every_public_function_is_compared_with_a_derivation(path):
    assert not coverage.uncovered_module(path, PROJECT.shown(path), PROJECT.module_name(path), ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_kernel_computes_the_printed_formula(entry):
    misses = compare.run(entry, PROJECT.module(entry.module))
    assert not misses, "\n".join(f"{miss.target}: {miss.message}" for miss in misses)


@pytest.mark.parametrize("path", PROJECT.kernels(), ids=PROJECT.module_name)
def test_every_kernel_is_launched_by_a_comparison(path, monkeypatch):
    """Compiled too, where other shapes and devices choose other kernels than in the interpreter."""
    name = PROJECT.module_name(path)
    module, entries = PROJECT.module(name), [entry for entry in ENTRIES if entry.module == name]
    jitted = [value for value in vars(module).values() if isfunction(getattr(value, "fn", None))]
    kernels = {function.fn.__name__ for function in jitted if function.fn.__name__.endswith("_kernel")}
    launched = set()
    for kind in set(map(type, jitted)):

        def run(kernel, *args, original=kind.run, **kwargs):
            launched.add(kernel.fn.__name__)
            return original(kernel, *args, **kwargs)

        monkeypatch.setattr(kind, "run", run)
    missing = kernels - NO_FORMULA
    for entry in entries:
        if missing - launched:
            compare.run(entry, module)
    assert not missing - launched
