"""The snippets of the guides: each file runs, prints what its comments promise, and is shown in the guide whole."""

import json
import re
import runpy
import subprocess
import sys

import pytest
import torch

from academy.runtime import device
from tests import python
from tests.kernels.harness import ROOT

GUIDES = ROOT / "docs" / "guides"
SNIPPETS = sorted((GUIDES / "snippets").glob("*.py"))
EXPECTED = re.compile(r"# → (.*)$")
#: Shown by a guide, and in this file.
SECTION = re.compile(r"\[start:(\w+)\]")


#: It compiles more than the others together take.
LONG = "below_triton"


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * (path.stem == LONG)) for path in SNIPPETS]
)
def test_prints_what_the_comments_promise(path, capsys):
    if not device.INTERPRET and path.stem == "autotuning":
        pytest.skip("its pretended clock counts runs, which the GPU's own warm-up would change")
    promised = [found[1] for line in path.read_text("utf-8").splitlines() if (found := EXPECTED.search(line))]
    if "TRITON_INTERPRET" in path.read_text("utf-8"):  # it compiles; here Triton interprets
        printed = python.run([path], check=True).stdout
    else:
        runpy.run_path(str(path))
        printed = capsys.readouterr().out
    assert printed.splitlines() == promised
    assert len(promised) >= 5


@pytest.mark.nightly
def test_an_exported_model_is_packaged(tmp_path):
    """As the guide shows it; Inductor's C++ compiler takes half a minute."""
    shipping = runpy.run_path(str(GUIDES / "snippets/shipping.py"))
    model = shipping["packaged"](shipping["exported"], tmp_path)
    arguments = shipping["x"], shipping["scale"]
    assert torch.equal(model(*arguments), shipping["Model"]()(*arguments))


def test_every_section_is_shown_in_exactly_one_guide():
    shown = []
    for guide in sorted(GUIDES.glob("*.md")):
        shown += re.findall(r"docs/guides/snippets/(\w+\.py:\w+)", guide.read_text("utf-8"))
    written = [f"{path.name}:{name}" for path in SNIPPETS for name in SECTION.findall(path.read_text("utf-8"))]
    assert sorted(shown) == sorted(written)


def snippets_of(guide, text):
    """The Python of a guide as one file, includes filled in."""
    fences = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return "\n".join(re.sub(r'^--8<-- "([^:"]+)(?::(\w+))?"$', included, fence, flags=re.M) for fence in fences)


def included(found):
    text = (ROOT / found[1]).read_text("utf-8")
    if not found[2]:
        return text
    section = re.search(rf"\[start:{found[2]}\]\n(.*?)\n *# --8<-- \[end:{found[2]}\]", text, re.S)
    return section[1]


#: What a guide's sentences say of names that its snippets use, and that are of no interest there.
SAID = {
    "profiling": {"MODULES", "SHAPE", "CALLS", "COUNTED"},
    "what-a-call-costs": {"bfloat16", "compiled", "driver", "empty", "fixed", "stream"},
    "compile-and-export": {"torch", "device", "scale", "scale_rows_forward"},
}


def undefined(text, said=()):
    """Names that a file uses and doesn't define. The guides of Python that is typed by hand show pieces: `...`."""
    rules = ["--select", "F821", "--output-format", "json", "--no-cache", "--isolated", "-"]
    done = subprocess.run([sys.executable, "-m", "ruff", "check", *rules], input=text, capture_output=True, text=True)
    names = {re.search(r"`(\w+)`", found["message"])[1] for found in json.loads(done.stdout)}
    return sorted(names - set(said))


@pytest.mark.parametrize("guide", sorted(g.stem for g in GUIDES.glob("*.md") if '--8<-- "' in g.read_text("utf-8")))
def test_a_guides_snippets_have_their_imports_and_lead_to_their_file(guide):
    text = (GUIDES / f"{guide}.md").read_text("utf-8")
    assert undefined(snippets_of(guide, text), SAID.get(guide, ())) == []
    for path in dict.fromkeys(re.findall(r'--8<-- "([^:"]+):', text)):
        assert re.search(rf"\]\([./\w]*{re.escape(path.removeprefix('docs/guides/'))}\)", text), f"no link to {path}"


def test_a_missing_import_is_noticed():
    assert undefined("import torch\nx = torch.ones(triton.cdiv(3, 2))\n") == ["triton"]


def test_a_wrong_promise_is_noticed(tmp_path, capsys):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("print(1 + 1)  # → 3\n" + "print(0)  # → 0\n" * 5)
    with pytest.raises(AssertionError):
        test_prints_what_the_comments_promise(wrong, capsys)
