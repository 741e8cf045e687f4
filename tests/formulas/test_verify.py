"""`academy check` finds what was changed by hand, at the right line, in any clone; and equations typed twice."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from academy import cli
from academy.book import syntax
from academy.files import cache, dependencies
from academy.formulas import Page, PageError, verify
from academy.formulas.comparing import citations, coverage, equations, kernels
from academy.formulas.mutation import equations as mutants
from academy.formulas.project import Project
from academy.formulas.reading.tree import bound_indices, free_indices
from academy.judge.process import context as process_context
from academy.traces import faults as traces
from tests.formulas.project import PAGES, PROJECT

KINDS = ("sign", "coefficient", "turned fraction", "index", "exponent", "drop term")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_a_change_by_hand_is_reported_at_its_line(page):
    """One change of each kind in a claim: the error points into the display that was changed."""
    claims = {step.pos: step for step in page.steps if step.kind == "claim" and step.block.display}
    chosen = {}
    for mutant in mutants.of_page(page):
        pos = max(block.pos for block in page.blocks if block.pos <= mutant.start)
        if mutant.operator in KINDS and pos in claims:
            chosen.setdefault((mutant.operator, len(chosen) % 2), (pos, mutant))
    names = {
        name
        for step in claims.values()
        for name in {**free_indices(step.equation.sides), **bound_indices(step.equation.sides)}
    }
    indexed = len(names) > 1  # one alone can't be taken for another
    assert {kind for kind, _ in chosen} >= ({"sign", "index"} if indexed else {"sign"})
    silent = 0
    for pos, mutant in chosen.values():
        try:
            equations.check(Page(page.path, mutant.apply(page.text)), start=pos)
        except PageError as error:
            first = page.text.count("\n", 0, pos) + 1
            last = first + page.text[pos : page.text.index("$$", pos + 2)].count("\n") + 1
            assert first <= error.problem.line <= last, f"{mutant.operator}: {error}"
        else:
            silent += 1
    assert silent <= 1, "more changes went unnoticed than could be equivalent"


# ---------------------------------------------------------------- a clone
@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    root = tmp_path_factory.mktemp("clone")
    (root / "backprop_math").mkdir()
    for folder in ("annotated_examples/tutorials", "operations"):
        (root / folder).mkdir(parents=True)
    kernel, cases = "annotated_examples/tutorials/vector_add.py", "operations/vector_add.py"
    for name in ("backprop_math/vector_add.md", kernel, cases):
        shutil.copy(PROJECT.root / name, root / name)
    for name in ("annotated_examples", "annotated_examples/tutorials"):
        (root / name / "__init__.py").touch()
    return root


def academy_check(root: Path, *files: str) -> tuple[int, str]:
    """Exit status and output of `academy check` in a folder. A process of its own, since the clone's kernels have the
    names of this project's; but a fork, which has imported torch and triton already."""
    context = process_context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_check_in, args=(root, files, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


def _check_in(root: Path, files: tuple[str, ...], sender) -> None:
    os.chdir(root)
    for name in [name for name in sys.modules if name.split(".")[0] == "annotated_examples"]:
        del sys.modules[name]
    # Recorded runs, of which tests/traces speaks, are those of the project that academy itself lies in.
    traces.in_files = lambda files: []
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = cli.main(["check", *files])
    sender.send((status, said.getvalue()))


@pytest.mark.nightly
def test_in_a_process_as_a_reader_starts_it(clone):
    """On the command line, and in a clone: the check of equations and of kernels, with status and place."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT.root), "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "academy.cli", "check", "backprop_math/vector_add.md"]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr


def edited(path: Path, old: str, new: str):
    text = path.read_text("utf-8")
    assert text.count(old) == 1, (old, text.count(old))
    path.write_text(text.replace(old, new), "utf-8")
    return text


def test_the_summary_counts_only_what_the_files_have(clone):
    status, output = academy_check(clone, "annotated_examples/tutorials/vector_add.py")
    assert status == 0 and "equations: 1 derivation, 3 tags, " in output, output
    assert "kernels: 1 case compared" in output and "notes, pages and notebooks: 1 file, " in output
    assert not re.search(r"\b0 ", output.rpartition("\nall is well")[0])
    (clone / "setup.py").write_text("")
    status, output = academy_check(clone, "setup.py")
    assert status == 2 and "setup.py: nothing in this file would be checked" in output, output


def test_a_wrong_sign_in_a_page_and_in_a_kernel(clone):
    page, kernel = clone / "backprop_math/vector_add.md", clone / "annotated_examples/tutorials/vector_add.py"
    status, output = academy_check(clone, "backprop_math/vector_add.md")
    assert status == 0, output
    before = edited(page, r"$$\nabla_y = \nabla_z \tag{VA-y}$$", r"$$\nabla_y = -\nabla_z \tag{VA-y}$$")
    status, output = academy_check(clone, "backprop_math/vector_add.md")
    page.write_text(before, "utf-8")
    line = before[: before.index("{VA-y}$$")].count("\n") + 1
    assert status == 1 and f"backprop_math/vector_add.md:{line}:14: '=' does not hold" in output, output
    before = edited(kernel, "out = x + y\n", "out = x - y\n")
    status, output = academy_check(clone, "backprop_math/vector_add.md")
    kernel.write_text(before, "utf-8")
    assert status == 1 and "the result is not what VA prints" in output, output


def test_a_case_file(clone):
    """It may be named on the command line, and then its derivation and its kernels are looked at."""
    path = clone / "operations/vector_add.py"
    status, output = academy_check(clone, "operations/vector_add.py")
    assert status == 0 and "kernels: 1 case compared" in output, output
    before = edited(path, '"x": "VA-x"', '"x": "VA-z"')
    for files in ((), ("operations/vector_add.py",)):
        status, output = academy_check(clone, *files)
        assert status == 1 and "vector_add.md has no tag 'VA-z'; it has VA, VA-x, VA-y" in output, output
        assert re.search(r"^operations/vector_add.py:\d+:\d+: ", output, re.M)
    path.write_text(before.replace("module.vector_add(x, y)", "module.vector_add(x, x)"), "utf-8")
    status, output = academy_check(clone, "operations/vector_add.py")
    assert status == 1 and "the result" in output and "VA prints" in output, output
    path.unlink()
    status, output = academy_check(clone)
    assert status == 1 and "no case names tutorials.vector_add" in output, output
    assert "without a kernel (no file of operations/ names it): backprop_math/vector_add.md" in output
    path.write_text(before, "utf-8")


def test_a_kernel_that_is_no_python(clone):
    kernel = clone / "annotated_examples/tutorials/vector_add.py"
    before = edited(kernel, "mask = offsets < n\n", "mask = offsets <\n")
    line = before[: before.index("mask = offsets < n\n")].count("\n") + 1
    for files in ((), ("annotated_examples/tutorials/vector_add.py",)):
        status, output = academy_check(clone, *files)
        assert status == 1 and f"annotated_examples/tutorials/vector_add.py:{line}:21: invalid syntax" in output, output
        assert "Traceback" not in output and output.split("\n")[-2].startswith("1 problem (")
    kernel.write_text(before, "utf-8")


def test_what_has_passed_is_not_looked_at_again(tmp_path, monkeypatch):
    """But what failed is, and so is everything once the cache is gone."""
    looked_at = []
    monkeypatch.setattr(cache, "FILE", tmp_path / "academy.sqlite")
    monkeypatch.chdir(PROJECT.root)
    monkeypatch.setattr(verify, "in_parallel", lambda function, jobs, done: [function(job) for job in jobs])
    for module, name in ((equations, "problems"), (kernels, "run")):
        original = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, _do=original, _n=name, **kw: looked_at.append(_n) or _do(*args, **kw)
        )
    page = [PROJECT.root / "backprop_math/vector_add.md"]
    first = verify.run(page)
    assert not first.problems and looked_at == ["run", "problems"]
    assert verify.run(page) == first and looked_at == ["run", "problems"]
    monkeypatch.setattr(cache, "FILE", tmp_path / "another.sqlite")
    monkeypatch.setattr(kernels, "run", lambda comparison, *_, **__: [comparison.problem("wrong")])
    for _ in range(2):
        assert [problem.message for problem in verify.run(page).problems] == ["wrong"]


@pytest.mark.parametrize(
    "file",
    [
        "backprop_math/softmax.md",
        "operations/softmax.py",
        "annotated_examples/tutorials/softmax.py",
        "academy/runtime/launch.py",
    ],
)
def test_a_change_of_what_a_comparison_is_made_of_is_looked_at(file, tmp_path, monkeypatch):
    for folder in ("annotated_examples", "backprop_math", "operations", "academy"):
        shutil.copytree(
            PROJECT.root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "playground")
        )
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)

    def decides() -> list:
        project = Project(tmp_path)
        page = project.page(tmp_path / "backprop_math/softmax.md")
        dependencies.made_of.cache_clear(), dependencies._made_by.cache_clear()
        return verify._decides(coverage.declared(project, [page])[0][page.path], project)

    before = decides()
    assert decides() == before
    changed = tmp_path / file
    changed.write_text(changed.read_text("utf-8") + "\n", "utf-8")
    assert decides() != before


def test_stale_results_are_told_of_the_whole_project_only(monkeypatch, capsys):
    from academy.compiler import rules
    from academy.formulas import verify
    from academy.formulas.comparing.result import Result
    from academy.results import ladder, store

    monkeypatch.chdir(PROJECT.root)
    monkeypatch.setattr(store, "stale_note", lambda root: "double is stale")
    monkeypatch.setattr(ladder, "stale_note", lambda root: "a ladder is stale")
    monkeypatch.setattr(verify, "run", lambda files, beside: Result(notes=[n for each in beside for n in each().notes]))
    monkeypatch.setattr(traces, "in_files", lambda files: [])
    monkeypatch.setattr(rules, "lint", lambda *_: [])
    assert cli.main(["check"]) == 0
    assert "\ndouble is stale\na ladder is stale\nall is well" in capsys.readouterr().out
    assert cli.main(["check", "docs/index.md"]) == 0
    assert "stale" not in capsys.readouterr().out


def test_outside_of_a_project(tmp_path):
    (tmp_path / "page.md").write_text("text")
    status, output = academy_check(tmp_path, "page.md")
    assert status == 2 and "is not inside a project" in output and "academy trace FILE" in output
    status, output = academy_check(tmp_path, "missing.md")
    assert status == 2 and "missing.md: no such file" in output


# ---------------------------------------------------------------- one home
HOME = "a display equation has one home"
LIST = "a list needs a blank line before it"
CODE = 'r"""Doc.\n\n$$x = y$$\n"""\nx = "$$not a note$$"\n# $$a = b$$\ndef f():\n    r"""[[eq: VB]]"""\n'


@pytest.mark.parametrize(
    ("file", "text", "wanted"),
    [
        ("docs/page.md", "Text.\n\n$$x = y$$\n", [f":3:1: {HOME}"]),
        ("docs/page.md", "<!-- math: prose a picture of a shape -->\n\n$$x = y$$\n", [f":3:1: {HOME}"]),
        ("docs/page.md", "Inline is fine, $x = y$, and so is code: `$$x$$`\n\n```\n$$a$$\n```\n", []),
        (
            "docs/page.md",
            "See [[tag: VA]] and [[eq: VB]], written `[[eq: VC]]`.\n",
            [":1:21: no page of backprop_math has \\tag{VB}"],
        ),
        ("docs/page.md", "---\na: 1\n---\nA tile of 128 x\n128. A list begins.\n", [f":5:1: {LIST}"]),
        (
            "annotated_examples/x.py",
            '"""Kernels."""\n\nx = 1\n\n# As many as\n# 512. No list.\ny = 2\n',
            [f":6:1: {LIST}", ":6:1: a sentence goes on"],
        ),
        ("docs/lesson.py", CODE, [":3:", ":6:", ":8:"]),
    ],
)
def test_what_stands_elsewhere(tmp_path, file, text, wanted):
    for folder in ("docs", "backprop_math", "annotated_examples"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs/a.md").write_text("$$x = y$$\n", "utf-8")
    (tmp_path / file).write_text(text, "utf-8")
    found = sorted(map(str, citations.check(Project(tmp_path.resolve()), None, {"VA"}).problems))
    wanted = sorted([f"docs/a.md:1:1: {HOME}", *[file + place for place in wanted]])
    assert len(found) == len(wanted) and all(map(str.startswith, found, wanted)), found


# ---------------------------------------------------------------- both ways
MODULE = '''import triton

@triton.jit
def f_kernel(x_ptr):
    """Raises: nothing."""

def f_forward(x):
    """Raises: a lot."""

def f(x, scale=1.0, *, BLOCK=8):
    """Returns.

    Raises:
        ValueError: always.
    """

def g(x):
    """No public function: it doesn't say what it raises."""
'''

DERIVATION = """---
math:
  given: {x: scalar, s: scalar}
---
$$y := s x \\tag{Y}$$
"""

CASE = """from academy.formulas.cases import case

DERIVATION = "d"

@case(modules="tutorials.m", returns="Y", forward_only=True)
def f(module, x, s):
    return CALL
"""


@pytest.fixture
def small(tmp_path):
    """A project of one module and one derivation; `small(call)` compares that call with it."""
    for folder in ("annotated_examples/tutorials", "backprop_math", "operations"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "annotated_examples/tutorials/m.py").write_text(MODULE)

    def declared(call: str, derivation: str = DERIVATION):
        from academy.formulas.comparing import coverage

        (tmp_path / "backprop_math/d.md").write_text(derivation)
        (tmp_path / "operations/d.py").write_text(CASE.replace("CALL", call))
        project = Project(tmp_path)
        found, problems = coverage.declared(project, project.pages()[0])
        return project, found[Path("backprop_math/d.md")], problems

    return declared


def gaps(project: Project, comparisons: list) -> list[str]:
    path = project.module_path("tutorials.m")
    return [problem.message for problem in coverage.uncovered_module(project, path, comparisons)]


def test_every_public_function_and_argument_is_compared(small):
    assert syntax.public_functions(MODULE) == ["f"]
    for call in ("module.f(x, s)", "module.f(x, scale=s)", "abs(module.g(module.f(x, s)))"):
        project, found, problems = small(call)
        assert not problems and not gaps(project, found), call
    assert gaps(*small("module.f(x)")[:2]) == ["no case passes scale to f"]
    assert gaps(*small("module.f_forward(x)")[:2]) == ["f returns tensors that no case compares with a tag"]
    assert "tutorials.m has no function h" in gaps(*small("module.h(x)")[:2])
    assert gaps(project, [])[0].startswith("no case names tutorials.m: nothing compares it with a printed formula")


def test_what_lessons_share_is_compared_through_them(small):
    project, _, _ = small("module.f(x, s)")
    shared = project.root / "annotated_examples/common/pieces.py"
    shared.parent.mkdir()
    shared.write_text("def _kernel():\n    pass\n" + MODULE)
    assert syntax.public_functions(shared.read_text()) == ["f"]
    assert not coverage.uncovered_module(project, shared, [])
    elsewhere = shared.rename(project.root / "annotated_examples/tutorials/pieces.py")
    assert coverage.uncovered_module(project, elsewhere, [])


def test_a_tag_without_a_kernel_is_an_error(small):
    _, _, (problem,) = small("module.f(x, s)", DERIVATION + "\n$$y^2 = s x y \\tag{Y2}$$\n")
    assert problem.path == "backprop_math/d.md" and problem.line == 7
    assert problem.message == "tag Y2: no case compares a kernel with it"
