"""The guide for authors: each of its examples does what the guide says."""

import re
from pathlib import Path

import pytest

from academy.formulas import Page, PageError
from academy.formulas.comparing.equations import check

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/guides/writing-derivations.md").read_text("utf-8")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.S | re.M)
SYMBOLS = next(body for kind, body in FENCES if kind == "yaml" and body.startswith("math:"))
GOOD = [formula.strip() for kind, body in FENCES if kind == "latex" for formula in body.split("\n\n")]
BAD = [case.strip().split("\n    ") for kind, body in FENCES if kind == "text" for case in body.split("\n\n")]
DEFINED = "$$u := x \\odot y$$\n\n"


def test_whole_page():
    (page,) = (body for kind, body in FENCES if kind == "markdown")
    read = Page("squared_error.md", page)
    check(read)
    assert list(read.tags()) == ["SE", "SE-x"]


def test_good_examples_hold_together():
    text = f"---\n{SYMBOLS}---\n" + "".join(f"\n$${formula}$$\n" for formula in GOOD)
    assert len(GOOD) > 40
    check(Page("guide.md", text))


@pytest.mark.parametrize(("formula", "message"), BAD, ids=[formula for formula, _ in BAD])
def test_bad_example_gives_this_message(formula, message):
    with pytest.raises(PageError) as caught:
        check(Page("guide.md", f"---\n{SYMBOLS}---\n{DEFINED}$${formula}$$\n"))
    assert caught.value.message.startswith(message), caught.value.message
    assert caught.value.problem.line == len(SYMBOLS.split("\n")) + 4


def test_cases_are_the_real_ones():
    examples = [body for kind, body in FENCES if kind == "python"]
    files = [path.read_text("utf-8") for path in (ROOT / "operations").glob("*.py")]
    assert len(examples) == 3
    for example in examples:
        assert any(example in text for text in files), example


def test_every_key_of_the_front_matter_is_described():
    from academy.formulas.reading.declarations import MATH_KEYS

    assert all(f"| `{key}` |" in GUIDE for key in MATH_KEYS)


def test_the_guide_and_the_help_say_how_many_mutants_are_tried(capsys):
    from academy import cli

    with pytest.raises(SystemExit):
        cli.main(["mutate", "--help"])
    assert f"so many of a kernel file (default: {cli.SAMPLE})" in " ".join(capsys.readouterr().out.split())
    assert f"By default {cli.SAMPLE} mutants of each file are tried" in " ".join(GUIDE.split())
