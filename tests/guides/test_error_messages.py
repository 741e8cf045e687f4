"""The page "Error messages": each text is what the installed Triton and PyTorch print, and what it advises works."""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
import torch
import triton

from academy.compiler import advice, available, errors, messages
from academy.site import error_page
from tests import python
from tests.kernels.harness import ROOT

ENTRIES = errors.entries()
#: What the review of the site asked for, and did not find.
ASKED = [
    "no allocator was set",
    "Block pointers have been removed",
    "AST node type: Break",
    "AST node type: Continue",
    "Cannot have `return` statements",
    "Cannot access global variable",
    "type fp8e4nv not supported",
    "power of 2",
    "cannot be accessed from Triton",
    "unsupported tensor index",
]
needs_compiler = pytest.mark.skipif(not available(), reason="Triton's compiler isn't installed")


def version(text):
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def names(entry):
    return error_page.anchor(entry)


@cache
def printed():
    return python.told(Path(__file__).with_name("printed_errors.py"), kept=True)


@needs_compiler
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.on != "real card"], ids=names)
def test_it_is_printed_and_the_mended_one_prints_nothing(entry):
    before, after = printed()[entry.says]
    assert after == ""
    now = version(triton.__version__)
    if entry.since and now < version(entry.since) or entry.until and now >= version(entry.until):
        assert before == "", "it is another version that refuses this"
    elif now == (3, 7) or entry.since:
        assert entry.says in " ".join(before.split())
    else:
        assert before, "nothing is wrong with it on this version"


@needs_compiler
@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.on == "real card"], ids=names)
def test_what_only_a_card_prints_stands_in_the_installed_library(entry):
    if version(triton.__version__) != (3, 7):
        pytest.skip("the text is that of Triton 3.7")
    library = Path(triton.__file__).parents[1] / entry.source
    text = re.sub(r'"\s*\n\s*"', "", library.read_text("utf-8"))
    assert entry.says in text


@pytest.mark.skipif(version(triton.__version__) >= (3, 9), reason="Triton has no block pointers any more")
def test_a_descriptor_gives_what_the_block_pointer_gave(tmp_path):
    """Both run, in Triton's interpreter, and the tails of their tiles too."""
    (entry,) = (entry for entry in ENTRIES if "make_block_ptr" in entry.before)
    found = []
    for code in (entry.before, entry.after):
        path = tmp_path / "example.py"
        path.write_text(f"{errors.HEAD}{code}\nprint(y[:60].tolist())\n".replace('"cuda"', '"cpu"'))
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        run = python.run([path], env=environment, timeout=100)
        assert run.returncode == 0, run.stderr[-2000:]
        found.append(json.loads(run.stdout))
    assert found[0] == found[1] == (torch.arange(60.0) * 2).tolist()


def test_forty_at_least_and_those_that_were_asked_for():
    assert len(ENTRIES) >= 40
    assert len({error_page.anchor(entry) for entry in ENTRIES}) == len(ENTRIES)
    for text in ASKED:
        assert any(text in entry.says for entry in ENTRIES), text


@pytest.mark.parametrize("entry", ENTRIES, ids=names)
def test_each_says_why_and_what_to_do(entry):
    assert entry.known_by in entry.says and len(entry.known_by) > 11
    assert len(entry.why.split()) >= 5 and not entry.advice().endswith(".")
    assert bool(entry.before) == bool(entry.after) or entry.on in ("host", "real card")


def test_the_compiler_gives_the_advice_of_the_page():
    said = "arange's range must be a power of 2"
    assert messages._with_advice(said) == (
        f"the compiler says: {said}. Round up with triton.next_power_of_2(n), and mask what is beyond n"
    )
    assert advice.of("a text that nobody knows") == ""
    assert all(advice.of(entry.says) for entry in ENTRIES if entry.instead)


def test_the_page_has_every_entry():
    page = "\n".join(error_page.markdown())
    for entry in ENTRIES:
        assert f"{{ #{error_page.anchor(entry)} }}" in page
        assert " ".join(entry.says.split()) in " ".join(page.split())
    linked = re.findall(
        r"error-messages\.md#([\w-]+)", "".join(p.read_text("utf-8") for p in (ROOT / "docs").rglob("*.md"))
    )
    assert set(linked) <= {error_page.anchor(entry) for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=names)
def test_a_text_that_another_page_quotes_is_the_one_that_is_printed(entry):
    for path in (ROOT / "docs").rglob("*.md"):
        for quoted in re.findall(r"(?<![*\w])\*([^*\n`][^*`]{10,}?)\*(?![*\w])", path.read_text("utf-8")):
            quoted = " ".join(quoted.split())
            if entry.known_by in quoted:
                assert quoted.strip(".… ") in " ".join(entry.says.split()), path
