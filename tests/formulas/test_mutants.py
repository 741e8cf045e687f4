"""Every small change of a formula or a kernel is noticed, or is on the reviewed list with its reason."""

import re
import tomllib
from pathlib import Path

import pytest

from academy.runtime import device
from academy import cli
from academy.book.problems import Problem
from academy.formulas.mutation import engine, equations, seen
from academy.formulas.project import Project
from academy.judge import kernel_mutants as kernels
from academy.judge.mutants import Mutant, sample
from academy.results import changes as tables

PROJECT = Project.here(Path(__file__))
JUDGES = engine.judges(PROJECT)
(VECTOR_ADD,) = (judge for judge in JUDGES if judge.path.as_posix().endswith("tutorials/vector_add.py"))
QUICK = ("vector_add.py",)


@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
@pytest.mark.parametrize(
    "judge",
    # One kernel file in `make test`, the others at night (`pytest -m nightly`).
    [pytest.param(j, marks=[] if j.path.name in QUICK else [pytest.mark.nightly]) for j in JUDGES],
    ids=lambda judge: judge.path.as_posix(),
)
def test_no_change_goes_unnoticed(judge):
    score, problems = engine.score(PROJECT, judge, cli.SAMPLE if judge.path.suffix == ".py" else None)
    assert not problems, "\n".join(map(str, problems))
    assert score.caught or not engine.possible(PROJECT, judge)


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.path.as_posix())
def test_the_list_names_changes_that_can_be_made(judge):
    assert not engine.stale(PROJECT, judge), "\n".join(map(str, engine.stale(PROJECT, judge)))


def test_the_list_names_files_and_kernels_that_exist():
    for kind in ("mutant", "exempt"):
        assert all((PROJECT.root / entry["file"]).is_file() for entry in engine.entries(PROJECT, kind))
    for entry in engine.entries(PROJECT, "exempt"):
        assert f"def {entry['kernel']}(" in (PROJECT.root / entry["file"]).read_text("utf-8")


# ---------------------------------------------------------------- the mutators themselves
PAGE = r"""---
math:
  dims: [n, m]
  index: {i: n, j: n, k: m}
  class: {c: n}
  given: {x: n, y: n, A: "n, m", s: scalar}
---
$$FORMULA$$
"""


def changes(formula: str) -> dict[str, set[str]]:
    from academy.formulas import Page

    page = Page("page.md", PAGE.replace("FORMULA", formula))
    found: dict[str, set[str]] = {}
    for mutant in equations.of_page(page):
        found.setdefault(mutant.operator, set()).add(mutant.name)
    return found


@pytest.mark.parametrize(
    ("formula", "operator", "mutant"),
    [
        (r"x_i + y_i = y_i + x_i", "sign", r"x_i - y_i = y_i + x_i"),
        (r"x_i + y_i = y_i + x_i", "sign", r"-x_i + y_i = y_i + x_i"),
        (r"x_i + y_i = y_i + x_i", "drop term", r"x_i = y_i + x_i"),
        (r"2 x_i = x_i + x_i", "coefficient", r"3 x_i = x_i + x_i"),
        (r"2 x_i = x_i + x_i", "index", r"2 x_j = x_i + x_i"),
        (r"0.5 s = \frac{s}{2}", "coefficient", r"0.6 s = \frac{s}{2}"),
        (r"0.5 s = \frac{s}{2}", "turned fraction", r"0.5 s = \frac{2}{s}"),
        (r"0.5 s = \frac{s}{2}", "drop factor", r"0.5 s = {s}"),
        (r"s^2 = s s", "exponent", r"s = s s"),
        (r"x^\top y = y^\top x", "transpose", r"x y = y^\top x"),
        (r"A_{ik} = A_{ik} + 0", "index", r"A_{k i} = A_{ik} + 0"),
        (r"\sum_{i=1}^n x_i = \sum_j x_j", "sum range", r"\sum_{i=1}^{m} x_i = \sum_j x_j"),
        (r"\sum_{i=1}^n x_i = \sum_j x_j", "drop sum", r"x_i = \sum_j x_j"),
        (r"s \cdot x_i = x_i \cdot s", "drop factor", r"s = x_i \cdot s"),
        (
            r"\mathbf{1}_{i = c} x_i = x_c \mathbf{1}_{i = c}",
            "condition",
            r"\mathbf{1}_{i \ne c} x_i = x_c \mathbf{1}_{i = c}",
        ),
        (r"x_i = y_i + 0 \quad \text{if } i = c", "condition", r"x_i = y_i + 0 \quad \text{if } i \ne c"),
        (r"\exp(s) = e^s", "function", r"\log(s) = e^s"),
        (r"\sin(s) = -\sin(-s)", "function", r"\cos(s) = -\sin(-s)"),
        (r"\max(s, 0) = -\min(-s, 0)", "function", r"\min(s, 0) = -\min(-s, 0)"),
        (r"\tanh(s) = -\tanh(-s)", "function", r"\operatorname{erf}(s) = -\tanh(-s)"),
        (r"x_i + y_i = y_i + x_i", "symbol", r"y _i + y_i = y_i + x_i"),
    ],
)
def test_mutator(formula, operator, mutant):
    assert mutant in changes(formula).get(operator, set()), changes(formula)


def test_a_sign_in_front_of_zero_is_no_change():
    assert not any(name.startswith("-") for name in changes(r"x_i - x_i = 0").get("sign", ()))


KERNEL = """import triton
import triton.language as tl

@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < n) & (offs >= 0)
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    width: tl.constexpr = n & -n
    offs = tl.max_contiguous(offs, width)
    total = 0.0
    total += tl.sum(tl.where(mask, -x, 1.0), 0)
    tl.store(y_ptr + offs, tl.exp(total), mask=mask)

def launcher(x):
    return x + 1
"""


def test_kernel_mutators():
    found: dict[str, set[str]] = {}
    for mutant in kernels.of_source(KERNEL):
        compile(mutant.apply(KERNEL), "mutant", "exec")
        found.setdefault(mutant.operator, set()).add(f"{mutant.old} -> {mutant.new}")
    expected = {
        "operator": "* -> +",
        "comparison": "< -> <=",
        "drop mask term": "(offs < n) & (offs >= 0) -> offs < n",
        "narrow cast": "tl.float32 -> tl.float16",
        "drop mask": "mask -> None",
        "drop other": "0.0 -> None",
        "pointer": "x_ptr -> y_ptr",
        "function": "exp -> log",
        "swap": "-x, 1.0 -> 1.0, -x",
        "sign": "-x -> x",
        "constant": "1.0 -> 2.0",
        "forget": "total += tl.sum(tl.where(mask, -x, 1.0), 0) -> total = tl.sum(tl.where(mask, -x, 1.0), 0)",
        "drop statement": "total += tl.sum(tl.where(mask, -x, 1.0), 0) -> pass",
    }
    for operator, change in expected.items():
        assert change in found[operator], (operator, found[operator])
    everything = {change for changes_ in found.values() for change in changes_}
    assert not any("x + 1" in change for change in everything), "a launcher is no kernel"
    assert not any(change.startswith("-n") for change in everything), "a hint to the compiler computes nothing"


def test_a_swap_of_equal_arguments_is_no_mutant():
    source = "@triton.jit\ndef k(x_ptr, n):\n    other(x_ptr, n, n)\n"
    assert [mutant.apply(source) for mutant in kernels.of_source(source)] == [
        source.replace("(x_ptr, n, n)", "(n, x_ptr, n)")
    ]


def test_wrong_entries_of_the_list_are_reported(tmp_path):
    file = tmp_path / "annotated_examples/k.py"
    for folder in (file.parent, tmp_path / "backprop_math"):
        folder.mkdir()
    file.write_text(KERNEL)
    judge = engine.kernel_judge(Project(tmp_path), file, [])
    first, second = (mutant.name for mutant in judge.mutants()[:2])
    entry = "[[mutant]]\nfile = 'annotated_examples/k.py'\nchange = '%s'\nreason = '%s'\n"
    (tmp_path / engine.LIST).write_text(entry % (first, "fine") + entry % ("gone", "old") + entry % (second, ""))
    found = engine.stale(Project(tmp_path), judge)
    assert [problem.line for problem in found] == [5, 9]
    said = [problem.message for problem in found]
    assert said == [
        "annotated_examples/k.py: no longer a mutant of the file: remove the entry: gone",
        f"annotated_examples/k.py: no reason is given: {second}",
    ]
    (tmp_path / engine.LIST).write_text("[[exempt]]\nfile = 'annotated_examples/k.py'\nkernel = 'k'\n")
    assert not engine.possible(Project(tmp_path), judge)


def test_sample_is_spread_and_stable():
    everything = kernels.of_source(KERNEL)
    some = sample(everything, 12)
    assert some == sample(everything, 12) and len(some) == 12
    assert {mutant.operator for mutant in some} == {mutant.operator for mutant in sample(everything, 12)}
    assert len({mutant.operator for mutant in some}) > 9
    assert sorted(map(str, sample(everything, 10**6))) == sorted(map(str, everything))


def changed(old: str, new: str) -> Mutant:
    start = VECTOR_ADD.text.index(old)
    return Mutant("test", old, new, start=start)


@pytest.mark.parametrize(("new", "verdict"), [("x + y", "survived"), ("x - y", "value"), ("x +* y", "error")])
def test_a_mutant_of_a_kernel_is_judged(new, verdict):
    assert VECTOR_ADD.verdict(changed("out = x + y\n", f"out = {new}\n"), walls=False).split(":")[0] == verdict


def test_a_write_behind_the_end_is_seen():
    (mutant,) = [mutant for mutant in VECTOR_ADD.mutants() if mutant.operator == "comparison"]
    assert VECTOR_ADD.verdict(mutant, walls=False) == "value"


@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
def test_a_crash_or_a_hang_ends_one_process(monkeypatch):
    monkeypatch.setattr(engine, "PATIENCE", 2)
    monkeypatch.setattr(VECTOR_ADD, "together", 4)
    said = {"": "survived", "while True: pass\n    ": "hang", "mask = None\n    ": "crash", "x = y\n    ": "value"}
    mutants = [changed("out = x + y", f"{new}out = x + y") for new in said]
    found = {mutant.new: verdict for mutant, verdict in engine.verdicts(VECTOR_ADD, mutants)}
    assert found == {f"{new}out = x + y": verdict for new, verdict in said.items()}


# ---------------------------------------------------------------- which comparison sees it
@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
@pytest.mark.parametrize(
    ("new", "kind"),
    [
        ("x + y", "neither"),
        ("x - y", "both"),
        ("x + y * 1.0000001", "exact alone"),
        ("(x + y).to(tl.float16).to(tl.float32)", "floats alone"),
        ("x + nothing", "stopped"),
    ],
)
def test_it_is_said_which_comparison_sees_a_mutant(new, kind):
    judge = seen.Seen(VECTOR_ADD.path, VECTOR_ADD.text, VECTOR_ADD.comparisons)
    assert judge.verdict(changed("out = x + y\n", f"out = {new}\n"), walls=False) == kind


@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
def test_the_table_counts_each_mutant_once_and_keeps_date_and_commit(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(tables.FILES, "coarse", str(tmp_path / "seen.json"))
    assert seen.main(PROJECT, {VECTOR_ADD.path}, count=32, write=True) == 0
    kept = tables.read("coarse", PROJECT.root)[VECTOR_ADD.path.as_posix()]
    assert sum(kept["counts"].values()) == len(VECTOR_ADD.mutants()) and kept["counts"]["both"] > 5
    for kind in ("floats alone", "exact alone", "neither"):
        assert len(kept[kind]) == kept["counts"][kind]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", kept["date"]) and re.fullmatch(r"[0-9a-f]{7,}", kept["commit"])
    assert f"| {VECTOR_ADD.path.as_posix()} | {kept['counts']['both']} |" in capsys.readouterr().out


FINE = """
import triton
import triton.language as tl
from somewhere import SCALE


@triton.jit
def kernel(x_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    mean = tl.sum(x, axis=0) / N
    y = tl.exp(x - mean) * SCALE / tl.sqrt(mean + eps)
    tl.store(y_ptr + offs, -0.5 * y)
"""
SEVENTH, LAST = "1.00000095367431640625", "1.00000011920928955078125"


def test_fine_changes_are_of_floats_and_of_the_size_of_rounding():
    made = {(each.operator, each.old, each.new) for each in kernels.of_source(FINE, fine=True)}
    assert {operator for operator, *_ in made} == set(
        "factor,last bit,digit,exponent,no eps,n - 1,one short,term left out".split(",")
    )
    loaded = "tl.load(x_ptr + offs, mask=offs < N, other=0.0)"
    assert {
        ("factor", loaded, f"({loaded}) * {SEVENTH}"), ("last bit", "-0.5 * y", f"(-0.5 * y) * {LAST}"),
        ("digit", "SCALE", f"(SCALE * {SEVENTH})"), ("digit", "eps", f"(eps * {SEVENTH})"),
        ("digit", "0.5", "0.5000004768371582"), ("exponent", "x - mean", f"(x - mean) * {LAST}"),
        ("no eps", "mean + eps", "mean"), ("n - 1", "N", "(N - 1)"), ("one short", "N", "N - 1"),
        ("term left out", "x", "tl.where(tl.arange(0, (x).shape[-1]) != 3, x, 0.0)"),
    } <= made  # fmt: skip
    assert not [old for _, old, _ in made if "arange(0, BLOCK)" in old or "zeros" in old or old == "0.0"]


@pytest.mark.skipif(not device.INTERPRET, reason="runs in Triton's interpreter")
def test_of_fine_changes_only_the_exact_comparison_sees_some(monkeypatch, tmp_path):
    monkeypatch.setitem(tables.FILES, "fine", str(tmp_path / "fine.json"))
    assert seen.main(PROJECT, {VECTOR_ADD.path}, count=32, write=True, fine=True) == 0
    counts = tables.read("fine", PROJECT.root)[VECTOR_ADD.path.as_posix()]["counts"]
    assert counts["exact alone"] >= 2 and counts["both"] and not counts["neither"], counts


@pytest.mark.parametrize("kind", tables.FILES)
def test_what_is_kept_is_of_kernels_that_exist(kind):
    kept, sums = tables.read(kind, PROJECT.root), tables.counted(kind, PROJECT.root)
    assert sums["changed"] == sums["both"] + sums["floats alone"] + sums["exact alone"] >= sums["exact"]
    assert sums["all"] == sums["changed"] + sums["neither"] + sums["stopped"]
    assert tables.said(kind, PROJECT.root) == (
        f"of {sums['all']} changes of {len(kept)} kernel files, {sums['changed']} give another result; twice PyTorch's "
        f"error sees {sums['floats']} of these, the exact comparison {sums['exact']}"
    )
    assert kept and set(kept) <= {judge.path.as_posix() for judge in JUDGES}
    assert all(set(each["counts"]) == set(seen.KINDS) for each in kept.values())


@pytest.mark.parametrize("change", ["sum: a + b -> a - b", "clip: it's a -> b", r"\frac{a}{b}"])
def test_a_survivor_comes_as_an_entry_of_the_list(change):
    survivor = Problem("annotated_examples/k.py", 1, 1, f"{engine._UNNOTICED} (sign): {change}")
    (entry,) = tomllib.loads(engine._entry(survivor))["mutant"]
    assert (entry["file"], entry["change"]) == (survivor.path, change)


def test_a_file_that_no_case_compares_is_no_success(capsys):
    assert engine.main([PROJECT.root / "annotated_examples/common/halves.py"], count=1) == 1
    assert engine._UNCOMPARED in capsys.readouterr().out
