"""What `make test` takes of the tests names what exists, and takes a part of everything."""

import re
from itertools import product
from types import SimpleNamespace

import pytest

from academy.book.layout import ROOT
from academy.judge import public
from academy.judge.mutants import Mutant
from tests import daily

TESTS = ROOT / "tests"


def exists(name, beside=""):
    """Whether a file or a test that begins like this is there. beside: the file of a test that names none."""
    file, _, test = name.rpartition("::") if "::" in name or "/" in name else (beside, "", name)
    if not file:
        return any(TESTS.glob(f"{name}*"))
    return re.search(rf"^(def )?{test.partition('[')[0]}\w*(\(| = )", (TESTS / file).read_text("utf-8"), re.M)


@pytest.mark.parametrize("name", [*daily.WHOLE, *daily.A_THIRD, *daily.AT_NIGHT])
def test_what_is_named_exists(name):
    assert exists(name)
    quicker = daily.AT_NIGHT.get(name, "")
    assert " " in quicker or not quicker or exists(quicker, name.partition("::")[0])
    assert quicker not in daily.AT_NIGHT


def cases(*values):
    cases = [SimpleNamespace(callspec=SimpleNamespace(params=dict(enumerate(each)))) for each in product(*values)]
    for each in cases:
        each.get_closest_marker = lambda name: None
    return cases


def kept(name, several, main=frozenset()):
    out = daily.left_out(name, several, main)
    return [list(each.callspec.params.values()) for each in several if each not in out]


@pytest.mark.skipif(daily.ONLY_MUTANTS, reason="nothing else is left out here")
def test_a_part_of_everything_is_taken():
    for test, sizes in product(("test_a", "test_b", "test_c"), ((3, 3, 3), (2, 2, 2), (3, 2), (2, 3), (4,))):
        found = kept(f"kernels/test_x.py::{test}", cases(*map(range, sizes)))
        assert abs(len(found) - len(cases(*map(range, sizes))) / 3) <= 1 and found
        if len(sizes) > 2:
            assert [set(each) for each in zip(*found)] == [set(range(size)) for size in sizes], (test, sizes, found)
    assert len(kept("kernels/test_x.py::test_pair", cases(range(2)))) == 2
    assert len(kept("kernels/test_x.py::test_check", cases([exists, cases, kept]))) == 3
    assert len(kept("site/test_x.py::test_page", cases(range(9)))) == 9
    assert len(kept(daily.WHOLE[1], cases(range(9)))) == 9
    mutants = [Mutant("", str(number), "") for number in range(4)]
    assert kept("kernels/test_x.py::test_mutant", cases(mutants)) == [[mutants[0]]]
    main = daily.main(public.calls())
    walked = [each for (each,) in kept("judge/test_public.py::test_x", cases(public.functions()), main)]
    lessons = {each.module for each in public.functions() if not each.module.startswith("fast.")}
    assert {each.module for each in walked} == lessons and len(walked) == len(lessons)
    walked = [each for (each,) in kept("kernels/test_x.py::test_y", cases(public.calls()), main)]
    assert {each.module for each in walked} == lessons
    fast = [each for each in public.functions() if each.module.startswith("fast.")]
    assert kept("kernels/test_x.py::test_y", cases(fast), main) == [[fast[0]]]
