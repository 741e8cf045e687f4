"""Every derivation holds, and every kernel computes what its derivation prints."""

import contextlib
import functools
from inspect import isfunction
from itertools import product

import pytest

from academy.book import layout, syntax
from academy.formulas import cases
from academy.formulas.comparing import coverage, equations, kernels
from academy.formulas.mutation import engine
from tests.formulas.project import CASES, ERRORS, PAGES, PROJECT

#: What PyTorch gives for a case, for its other modules.
MEMO: dict = {}


def test_every_derivation_can_be_read():
    assert not ERRORS
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_equations_hold(page):
    points = equations.checked(page)
    silent = [step.pos for at, step in enumerate(page.steps) if step.kind == "claim" and not points[at]]
    assert not silent, "claims that were never compared"


@pytest.mark.parametrize("path", PROJECT.kernels(), ids=PROJECT.module_name)
def test_every_public_function_is_compared_with_a_derivation(path):
    assert not coverage.uncovered_module(PROJECT, path, CASES)


#: What the comparisons of this process have launched, by name: nothing is run again to ask only that.
LAUNCHED: dict[str, set[str]] = {}


@contextlib.contextmanager
def launches(module, run=True):
    """The names of the kernels that are launched while the block runs, of the kinds that a module has. run: or they are
    only noted, and write nothing."""
    names: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for kind in set(map(type, jitted(module))):

            def launched(kernel, *args, original=kind.run, **kwargs):
                names.add(kernel.fn.__name__)
                return original(kernel, *args, **kwargs) if run else None

            patch.setattr(kind, "run", launched)
        yield names


def jitted(module):
    return [value for value in vars(module).values() if isfunction(getattr(value, "fn", None))]


def chosen(comparison, every):
    """The hostile inputs of a case: in `make test` one, another one for each case of an operation; at night all, as in
    `academy check`."""
    fitting = [inputs for inputs in kernels.HOSTILE if inputs.dtype in comparison.dtypes]
    return fitting if every else [fitting[CASES.index(comparison) % len(fitting)]]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["one input", "all"])
@pytest.mark.parametrize("comparison", CASES, ids=str)
def test_kernel_computes_the_printed_formula(comparison, every):
    module = PROJECT.module(comparison.module)
    with launches(module) as names:
        misses = kernels.run(comparison, module, memo=MEMO, inputs=chosen(comparison, every))
    assert not misses, "\n".join(map(str, misses))
    LAUNCHED[str(comparison)] = names


def test_every_case_finds_pytorchs_operation_by_itself():
    """Not only where another module's case ran before it in this process."""
    missing = [
        str(each)
        for each in CASES
        if not cases.load(each.path)[each.case].said["pytorch"]
        and not hasattr(PROJECT.module(each.module), f"{each.function}_reference")
    ]
    assert not missing


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
def test_every_kernel_is_launched_by_a_comparison(path):
    """Compiled too, where other shapes and devices choose other kernels than in the interpreter."""
    module = PROJECT.module(PROJECT.module_name(path))
    own = {function.fn.__name__ for function in jitted(module) if function.fn.__module__ == module.__name__}
    exempt = {entry["kernel"] for entry in engine.entries(PROJECT, "exempt", PROJECT.shown(path))}
    missing = {name for name in own if name.endswith("_kernel")} - exempt
    modules = users(path) if missing else set()
    using = [comparison for comparison in CASES if comparison.module in modules]
    launched = {name for comparison in using for name in LAUNCHED.get(str(comparison), ())}
    for run, inputs in product((False, True), kernels.HOSTILE):  # without results, the first inputs launch nearly all
        for comparison in using:
            if missing - launched and inputs.dtype in comparison.dtypes:
                other = PROJECT.module(comparison.module)
                with launches(other, run) as names, contextlib.suppress(*[Exception] * (not run)):
                    kernels.called(comparison, other, inputs)
                launched |= names
    names = ", ".join(sorted(missing - launched))
    assert not names, f"{PROJECT.shown(path)}: no case of cases launches {names}"
