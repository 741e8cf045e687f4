"""What `academy judge` says of what it has found: its place, its cause, and the page that explains it."""

import re

import pytest
from markdown.extensions.toc import slugify
from rich.console import Console

from academy.judge import causes, report
from academy.judge.session import File, Judged, Report, Session
from academy.judge.trials import GROUPS, Trial
from academy.judge.trying import Outcome
from tests.judge.test_faults import KERNELS
from tests.kernels.harness import ROOT


def outcome(group, message, line=None, name="odd sizes", state="wrong"):
    return Outcome(Trial(group, name, (("n", 5),)), state, message, line)


def headings(path):
    text = re.sub(r"^```.*?^```", "", (ROOT / "docs" / path).read_text("utf-8"), flags=re.M | re.S)
    return {slugify(title, "-") for title in re.findall(r"^#+ (.+?)(?: \{.*\})?$", text, re.M)}


@pytest.mark.parametrize("cause", [*causes.CAUSES, causes.AT_EVERY_SIZE], ids=lambda cause: cause.pattern)
def test_the_page_of_a_cause_exists(cause):
    page, anchor = cause.page.split("/#")
    assert anchor in headings(f"{page}.md")


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_has_a_cause(group):
    assert re.search(causes.of(f"{group}: odd sizes", "out[0] is 1, should be 2").pattern, f"{group}: odd sizes: ")


@pytest.mark.parametrize(
    ("group", "name", "message", "anchor"),
    [
        ("magnitudes", "values around 10⁴ that differ by about 1", "out[0] is 1, should be 2", "cancellation"),
        ("magnitudes", "values around ±10⁴", "out[0] is nan, should be 0", "softmax-without-overflow-in-one-pass"),
        ("layouts", "sliced upstream gradient", "the gradient of x[1, 0] is 3", "14-one-number-shown-many-times"),
        ("layouts", "transposed inputs", "out[1, 0] is nan", "5-the-view-taken-for-a-copy"),
        ("sizes", "129 n", "the process died with SIGSEGV", "2-the-store-past-the-end"),
        ("sizes", "129 n", "out[128] was never written", "1-the-tail-that-nobody-owns"),
        ("programs", "touches", "k reads x[0], which nobody has written", "10-adding-to-what-was-there"),
        ("programs", "programs reversed", "the programs reversed give other bits", "9-two-writers-one-element"),
        ("memcheck", "odd sizes", "memcheck: Invalid __global__ read of size 4 bytes", "2-the-store-past-the-end"),
        ("gsan", "odd sizes", "gsan: Read after write race detected", "9-two-writers-one-element"),
        ("dtypes", "bfloat16, long n", "out[0] is 2048, should be 3000", "a-sum-that-stops-growing"),
        ("calls", "a second backward pass", "the gradient of x[0] is 3", "13-the-recycled-gradient"),
    ],
)  # fmt: skip
def test_what_a_finding_mostly_comes_of(group, name, message, anchor):
    assert causes.of(outcome(group, message, name=name).trial, message).page.endswith(f"/#{anchor}")


def judged(*outcomes):
    one = Judged("f", "none", [each.trial for each in outcomes], list(outcomes))
    return Report("mine.py", "CPU", [one], complete=True)


def shown(found):
    console = Console(width=100, file=None, record=True, quiet=False)
    with console.capture() as said:
        report.show(found, console)
    return said.get()


def test_what_has_a_line_comes_first(monkeypatch):
    monkeypatch.setattr(report, "recorded", lambda *_: (None, ""))
    found = judged(
        outcome("sizes", "out[0] is 1, should be 2", name="129 n"),
        outcome("layouts", "out[1] is 1, should be 2"),
        outcome("lanes", "out[2] is 1, should be 2"),
        outcome("programs", "the programs reversed give other bits"),
        outcome("programs", "program 0 stores out[0] and program 1, too", 12, name="what each program touches"),
    )
    monkeypatch.setenv("SITE_URL", "https://somewhere.org/academy/")
    for said in (shown(found), report.html(found, ROOT / "mine.py")):
        assert re.search(r"(mine\.py:|line )12: program 0 stores", said), said
        assert said.index("12: program 0 stores") < said.index("out[0] is 1") < said.index("out[1] is 1")
        assert "https://somewhere.org/academy/guides/debugging/#9-two-writers-one-element" in said
        assert "A size is no multiple of the block" in said
    monkeypatch.delenv("SITE_URL")
    assert "See guides/debugging/#9-two-writers-one-element" in shown(found)


def test_what_the_plainest_inputs_show_is_not_blamed_on_a_layout(monkeypatch):
    """A wrong head is wrong in every layout and dtype: then these groups have no cause of their own to offer."""
    monkeypatch.setattr(report, "recorded", lambda *_: (None, ""))
    message = "out[0] is 1, should be 2"
    plainest = [outcome("sizes", message), outcome("sizes", message, name="whole blocks")]
    others = [outcome("layouts", message), outcome("dtypes", message), outcome("programs", "a race", 12)]
    for said in (shown(judged(*plainest, *others)), report.html(judged(*plainest, *others), ROOT / "mine.py")):
        assert "wrong at every size" in said and "view is taken for a copy" not in said and "a race" in said
        assert "wrong too: layouts, dtypes. Mend the above first" in said
    right_in_blocks = [plainest[0], outcome("sizes", "", name="whole blocks", state="right"), *others]
    assert "A size is no multiple of the block" in shown(judged(*right_in_blocks))
    assert "view is taken for a copy" in shown(judged(*others)), "here the plainest inputs are right"


def test_json_has_the_cause():
    (first, right) = (outcome("sizes", "out[0] is 1"), outcome("sizes", "", state="right"))
    found = judged(first, right).as_json()["functions"][0]["outcomes"]
    assert found[0]["page"] == "guides/debugging/#1-the-tail-that-nobody-owns" and found[0]["cause"]
    assert "cause" not in found[1]


@pytest.mark.parametrize(("mutants", "count"), [(None, 0), (2, 2)])
def test_only_some_groups_means_only_these(mutants, count):
    found = Session(File(KERNELS / "rows.py"), ["repeats"], mutants).run()
    assert found.right and len(found.mutants) == count


LOST = """
import torch
from torch.autograd.function import once_differentiable

INPUTS = {"x": "n"}


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * x * x * dy


def cube(x):
    return Cube.apply(x)


def cube_reference(x):
    return x**3
"""


def test_a_gradient_penalty_is_not_advised_what_is_there(tmp_path):
    """PyTorch's own decorator does not raise where the upstream gradient is a constant."""
    advice = {}
    for name, source in (("with", LOST), ("without", LOST.replace("    @once_differentiable\n", "").replace(
            "from torch.autograd.function import once_differentiable\n", "").replace(
            "return 3 * x * x * dy", "return 3 * (x * x).detach() * dy"))):  # fmt: skip
        (tmp_path / "mine.py").write_text(source)
        found = Session(File(tmp_path / "mine.py"), ["derivatives"]).run()
        advice[name] = [each.message for one in found.judged for each in one.outcomes if "penalty" in each.message]
    assert advice["with"] and all("PyTorch's once_differentiable is passed by" in said for said in advice["with"])
    assert advice["without"] and all("raise an error there" in said for said in advice["without"])
