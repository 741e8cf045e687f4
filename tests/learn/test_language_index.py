"""The index of `triton.language`: complete, with the page that teaches each name, and true where it can be tried."""

import re

import pytest

from academy.book.learning_path import LearningPath
from academy.compiler import cards as compiled_for
from academy.site import language_index, taught_before_used
from academy.site.library import Library
from tests import python

ROOT = taught_before_used.ROOT
PATH = LearningPath.read(ROOT / "docs").pages
GROUPS = language_index.entries((ROOT / "docs" / language_index.PAGE).read_text("utf-8"))
ENTRIES = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def test_what_is_used_is_there_and_nothing_else():
    assert language_index.unexplained(ROOT) == []
    assert set(ENTRIES) <= set(language_index.used(ROOT)), "in the index, and nothing uses it"
    assert len(ENTRIES) > 50 and sum(map(len, GROUPS.values())) == len(ENTRIES)


def test_a_name_that_is_missing_is_noticed():
    assert language_index.names("x = tl.flip(y, 0) + tl.bfloat16\ntriton.compile()") == {"tl.flip", "tl.float32"}


def test_the_page_that_is_named_explains_it_and_none_before_does():
    taught = taught_before_used.taught(ROOT, PATH, set(ENTRIES))
    assert set(taught) == set(ENTRIES)
    assert taught["tl.dot"] == "learn/tiles_and_pointers.py" and taught["tl.load"] == "learn/first_kernel.py"
    assert taught["tl.erf"] == "kernels/classics/matmul.md" and taught["tl.log"] == "learn/softmax.py"
    assert taught_before_used.taught(ROOT, PATH[:1], {"tl.dot", "tl.store"}) == {"tl.store": PATH[0]}


def test_each_entry_is_a_sentence_and_leads_somewhere():
    shown = "\n".join(language_index.markdown(Library.read(ROOT)))
    for name, entry in ENTRIES.items():
        assert entry["does"].endswith(".") and (not entry["mind"] or entry["mind"][-1] in ".*"), name
        line = re.search(rf"^`{re.escape(name)}` \{{ #[\w-]+ \}}\n:   (.*)", shown, re.M)[1]
        assert "Taught in [" in line


TRIED = {
    "tl.exp": "fp16 refused",
    "tl.erf": "fp16 refused",
    "tl.sqrt": "approx",
    "tl.rsqrt": "approx",
    "tl.exp, in PTX": "one instruction",
    "tl.log, in PTX": "a polynomial",
    "tl.log2, in PTX": "a polynomial",
    "atomic bf16 80": "cas",
    "atomic bf16 90": "add.noftz.bf16",
    "tf32": 64,
    "tf32x3": 192,
    "ieee": 0,
    # What the page on cards says of 16-bit products.
    80: "mma.sync",
    86: "mma.sync",
    89: "mma.sync",
    90: "wgmma",
    100: "tcgen05.mma",
    120: "mma.sync",
    # Whether Hopper's fp8 instruction is used, and whether sums are moved into float32 registers between its runs.
    "fp8, None": (True, False),
    "fp8, 32": (True, True),
    "fp8, 0": (False, False),
}


def test_dtypes_and_cards_are_as_the_compiler_has_them():
    pytest.importorskip("triton")
    run = python.run([ROOT / "tests/learn/language_without_gpu.py"])
    assert run.returncode == 0, run.stderr[-2000:]
    found = eval(run.stdout.splitlines()[-1])
    assert found == TRIED
    cards = (ROOT / "docs/guides/cards.md").read_text("utf-8")
    rows = {row[0]: row[1:] for row in (line.strip("| ").split(" | ") for line in cards.splitlines() if "|" in line)}
    capabilities = [int(float(each) * 10) for each in rows["compute capability"]]
    assert [each.strip("`") for each in rows["`tl.dot` in 16 bits becomes"]] == [
        found[each].removesuffix(".sync") for each in capabilities
    ]
    known = [compiled_for.CARDS[each] for each in capabilities]
    assert rows["shared memory of a program, at most"] == [f"{card.shared // 1024} KB" for card in known]
    assert rows["SMs"] == [str(card.sms) for card in known]
    assert rows["warps an SM can hold"] == [str(card.threads // 32) for card in known]


def test_what_other_releases_have_is_as_the_installed_one_has_it():
    triton = pytest.importorskip("triton")
    found = {}
    for how in ("compiled", "interpreted"):
        run = python.run([ROOT / "tests/learn/newer_language.py", how])
        assert run.returncode == 0, run.stderr[-2000:]
        found |= eval(run.stdout.splitlines()[-1])
    page = (ROOT / "docs" / language_index.PAGE).read_text("utf-8").partition("## What other releases have")[2]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| .* \| (from|until) ", line)]
    here, said = version(triton.__version__), {}
    for names, when, _ in rows:
        word, release = when.split()
        of = names.removesuffix(" in the interpreter").split(" and ")
        said |= {
            name.strip("`"): (here >= version(release)) if word == "from" else (here <= version(release)) for name in of
        }
    assert found == said


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))
