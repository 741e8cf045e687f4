"""The second verdict on a right answer: is it the same function as the exercise's formula, without rounding?

A text that has passed all checks may still lack a term too small to see, or have a digit of a constant wrong. So its
smallest cases are run once more in `academy.exact`. What that says is told and never refused: a reader may approximate
a function on purpose. What can't be decided is not mentioned. It needs PyTorch itself and the interpreter: in the
browser, where torch is written in numpy, and compiled on a GPU there is no second verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from academy.runtime import device
from academy.command import trouble
from academy.judge import elements

if TYPE_CHECKING:
    from academy.exact import Verdict
    from academy.exercises.questions import Questions

#: Of each function so many cases are tried, whose arguments have at least and at most so many numbers.
CASES, LEAST, NUMBERS = 4, 12, 1500
#: No larger numbers: where an exp overflows or ends as a subnormal number, a right function may follow its floats.
LARGEST = 20.0
#: What takes numbers out of tensors: a formula that goes through these has no residues.
_BY_NUMBERS = {"tolist", "item", "numpy", "float"}
SAME = "Without rounding, too, it is the same function"
ANOTHER = (
    "One remark, which refuses nothing: without rounding it is another function than the formula ({}). A term is "
    "missing that is too small to see, or a digit of a constant is wrong; or you approximate on purpose"
)


def verdict(questions: Questions, in_browser: bool) -> str:
    """A sentence, or "" where nothing was decided."""
    if in_browser or not device.INTERPRET or questions.simulated or not questions.kernels:
        return ""
    found = [_of_function(questions, function, cases) for function, cases in questions.posed().items()]
    wrong = [each for each in found if each]
    if wrong:
        return ANOTHER.format("; ".join(wrong))
    return SAME if found and None not in found else ""


def _of_function(questions: Questions, function: str, cases: list[tuple[str, tuple, dict[str, Any]]]) -> str | None:
    """Where it differs, "" where all elements are the same in a case, None if it isn't decided."""
    size = lambda case: sum(value.numel() for value in case[1] if isinstance(value, torch.Tensor))  # noqa: E731
    small = sorted((each for each in cases if LEAST <= size(each) <= NUMBERS), key=size)
    for case, arguments, options in small[:CASES]:
        code = getattr(options["want"], "__code__", None)
        of_tensors = code is None or not _BY_NUMBERS & set(code.co_names)
        if options["exact"] or not options["kernel"] or not of_tensors or not all(map(_ordinary, arguments)):
            continue
        try:
            verdicts = _compared(questions, function, arguments, options["want"], options["name"].split(", "))
        except Exception as error:  # of a rule that isn't there, and no business of the reader's
            trouble.let_through(error)
            return None
        for name, each in verdicts.items():
            if each.same is False:
                return f"{case}: {name}, {each}"
        if verdicts and all(each.same and each.decided == each.elements for each in verdicts.values()):
            return ""
    return None


def _ordinary(value: Any) -> bool:
    if isinstance(value, float):
        return abs(value) <= LARGEST
    return not elements.floating(value) or bool((value.abs() <= LARGEST).all())


def _compared(questions: Questions, function: str, arguments: tuple, want: Any, names: list[str]) -> dict[str, Verdict]:
    from academy.exact import without_rounding

    doubles = elements.in_float64(dict(enumerate(arguments)), codes=True).values()
    tuples = lambda value: value if isinstance(value, tuple) else (value,)  # noqa: E731
    call = lambda: dict(zip(names, tuples(questions.answer.call(function, arguments))))  # noqa: E731
    with without_rounding() as session:
        ours, theirs = call(), dict(zip(names, tuples(want(*doubles))))
        ours = {name: a for name, a in ours.items() if elements.floating(a) and a.shape == theirs[name].shape}
        return session.compare_each(ours, {name: session.numbers(theirs[name]) for name in ours}, again=call)
