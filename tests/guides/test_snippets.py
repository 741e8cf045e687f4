"""The snippets of the guides: each file runs, prints what its comments promise, and is shown in the guide whole."""

import re
import runpy

import pytest

from academy import device
from tests.kernels.harness import ROOT

GUIDES = ROOT / "docs" / "guides"
SNIPPETS = sorted((GUIDES / "snippets").glob("*.py"))
EXPECTED = re.compile(r"# → (.*)$")
#: Shown by a guide, and in this file.
SECTION = re.compile(r"\[start:(\w+)\]")


@pytest.mark.parametrize("path", SNIPPETS, ids=lambda path: path.stem)
def test_prints_what_the_comments_promise(path, capsys):
    if not device.INTERPRET and path.stem == "autotuning":
        pytest.skip("its pretended clock counts runs, which the GPU's own warm-up would change")
    runpy.run_path(str(path))
    promised = [found[1] for line in path.read_text("utf-8").splitlines() if (found := EXPECTED.search(line))]
    assert capsys.readouterr().out.splitlines() == promised
    assert len(promised) >= 5


def test_every_section_is_shown_in_exactly_one_guide():
    shown = []
    for guide in sorted(GUIDES.glob("*.md")):
        shown += re.findall(r"docs/guides/snippets/(\w+\.py:\w+)", guide.read_text("utf-8"))
    written = [f"{path.name}:{name}" for path in SNIPPETS for name in SECTION.findall(path.read_text("utf-8"))]
    assert sorted(shown) == sorted(written)


def test_a_wrong_promise_is_noticed(tmp_path, capsys):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("print(1 + 1)  # → 3\n" + "print(0)  # → 0\n" * 5)
    with pytest.raises(AssertionError):
        test_prints_what_the_comments_promise(wrong, capsys)
