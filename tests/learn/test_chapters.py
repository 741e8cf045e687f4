"""The chapters under docs/learn: each runs from top to bottom, and the folded answers of its exercises are right.

A chapter is a Python file in the percent format, so it is run here as it is; nothing of Jupyter is needed, and on a GPU
the same file runs compiled. tests/site/test_learn.py looks at the pages that are made from them.
"""

import contextlib
import importlib.util
import io
import math
import os
import re
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
import torch

from academy import device
from academy.bench import notebook
from academy.formulas.project import import_source

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = [
    "first_kernel",
    "softmax",
    "tiles_and_pointers",
    "l2_reuse",
    "autotuning",
    "reductions",
    "random_numbers",
    "attention",
    "from_profile",
    "your_own_kernel",
]
CELL = re.compile(r"^# %%", re.M)
ANSWER = re.compile(
    r"^# \*\*(\d)\.\*\*.*?^# <details class=\"success\" markdown=\"1\">.*?^# ```python\n(.*?)^# ```$", re.M | re.S
)


def source(chapter):
    return (ROOT / f"docs/learn/{chapter}.py").read_text("utf-8")


@cache
def run(chapter):
    """The chapter's names after all of its cells, and what it printed."""
    spec = importlib.util.spec_from_file_location(f"chapter_{chapter}", ROOT / f"docs/learn/{chapter}.py")
    module = importlib.util.module_from_spec(spec)
    printed = io.StringIO()
    jupyter = mock.patch.dict(os.environ, {"FORCE_COLOR": "1"})  # which it sets for its kernels
    with contextlib.redirect_stdout(printed), jupyter:
        spec.loader.exec_module(module)
    return vars(module), printed.getvalue()


def answers(chapter):
    """Exercise number -> the code of its answer."""
    code = {int(n): re.sub(r"^# ?", "", text, flags=re.M) for n, text in ANSWER.findall(source(chapter))}
    return code


def answered(chapter, number, folder):
    """The names that a reader has who runs the answer at the end of the chapter."""
    path = folder / f"{chapter}_{number}.py"  # a file: Triton reads a kernel's source from it
    path.write_text(answers(chapter)[number], "utf-8")
    names = dict(run(chapter)[0])
    exec(compile(path.read_text("utf-8"), str(path), "exec"), names)
    return names


def test_every_chapter_is_tested():
    assert {path.stem for path in (ROOT / "docs/learn").glob("*.py")} == set(CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_its_parts(chapter):
    text = source(chapter)
    cells = CELL.split(text)
    code = [cell for cell in cells if not cell.startswith(" [markdown]")]
    assert 'find_spec("annotated_examples")' in code[1] and "{{ repo_url }}" in code[1], "the first cell installs"
    assert code[1].startswith(' tags=["setup"] jupyter={"source_hidden": true} cellView="form"'), "and is folded"
    assert "from academy import device" not in text.replace(code[1], ""), "all imports are in it"
    assert "?" in re.search(r"^# # \d+\. .*?(?=^# %%)", text, re.M | re.S)[0].split("\n#\n")[1], "opens with a question"
    assert '# %% tags=["parameters"]' in text, "a cell for the reader to change"
    assert re.search(r"^notebook\.(speed|ladder)\(", text, re.M), "a measured gain"
    assert sorted(answers(chapter)) == [1, 2, 3]


def test_chapters_keep_to_what_they_teach():
    imported = "from annotated_examples"
    assert "tl.dot(" in source("tiles_and_pointers") and imported not in source("tiles_and_pointers"), "its own product"
    for chapter in CHAPTERS:
        short = re.findall(r"^[# ]*(\w+) = tl\.program_id\(\d\)$", source(chapter), re.M)
        strided = [name for name in short if re.search(rf"\b{name} \* stride", source(chapter))]
        assert not strided, f"{chapter}: 32 bits times a stride"


EXPECTED = {
    "first_kernel": ["3 programs of 8 lanes for 23 elements", "written behind the end: 0", "[1.0, 1.0, 7.0, 7.0, 7.0"],
    "softmax": ["[[0.0, nan, nan]]", "their sum:     0.331", "step by step: 512 MiB", "fused:        128 MiB"],
    "tiles_and_pointers": [
        "every 2nd row: (16, 1)",
        "the same from transposed views: True",
        "kept in float16: 2048",
        "kept in float32: 2060",
    ],
    "l2_reuse": [
        "8 x 6 blocks, the remainder alone: 24 outside, 24 missing",
        "7 x 6 blocks, with groups: 4 outside, 4 missing",
        "7 x 6 blocks, grouped_order: 0 outside, 0 missing",
        "GROUP_M =  1:   640 blocks of x,  4096 of y",
        "GROUP_M = 16:  2048 blocks of x,  1152 of y",
    ],
    "autotuning": ["first call:  5.0", "second call: 1.0", "12 trials so far", "right: True"],
    "reductions": [
        "of each row:    [6.0, 22.0, 38.0, 54.0]",
        "of each column: [24.0, 28.0, 32.0, 36.0]",
        "different results: from",
        "the same bits twice: True",
        "256 programs for 132 multiprocessors, 128 tiles for each program",
    ],
    "your_own_kernel": [
        "l2_normalise.md:28:50: '=' does not hold",
        "acc = [25, 0, 0, 0]",
        "length = 5",
        "transposed: right",
        "caught: with other=1.0, y, torch.float32",
        "kernels: 1 case compared with the printed formulas",
        "all is well",
    ],
    "random_numbers": [
        "[0.514, 0.176, 0.309, 0.535]",
        "heads: 0.500",
        "as the lesson's: True",
        "10 rounds:  63.9 of 128 bits",
        "again:           the same True",
        "blocks of 16:    the same True",
        "another seed:    the same False",
        "drops what the first drops: True",
        "right kernel: False",
        "layout don't matter: True",
    ],
    "from_profile": [
        "3 calls, 6 times the bytes of y",
        "rotary embedding     624   20.0 GB     1.9 GB   4.7 ms   0.4 ms",
        "products                                         7.3 Tflop10.2 ms  10.2 ms",
        "loss                                             4.9 Tflop19.6 ms   6.9 ms",
    ],
    "attention": ["scores held at once: 40000", "scores held at once: 6400", "scores held at once: 512", "8192 MiB"],
}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_runs_and_shows_what_its_text_says(chapter):
    printed = run(chapter)[1]
    assert "\x1b" not in printed, "colours of a terminal"
    for text in EXPECTED[chapter]:
        assert text in printed


def on_device(*shape):
    return torch.randn(*shape, device=device.DEVICE)


def check_scale_and_add(names):
    for n in (1, 128, 300):
        x, y = on_device(n), on_device(n)
        torch.testing.assert_close(names["scale_and_add"](-2.5, x, y), -2.5 * x + y)


def check_reverse(names):
    for n in (1, 128, 300):
        x = on_device(n)
        assert torch.equal(names["reverse"](x), x.flip(0))


def check_add_three(names):
    x, y, z = on_device(300), on_device(300), on_device(300)
    torch.testing.assert_close(names["add_three"](x, y, z), x + y + z)
    assert names["bytes_saved"](1000) == 8000


def check_logsumexp(names):
    x = 1000 * on_device(3, 13)
    torch.testing.assert_close(names["logsumexp"](x), torch.logsumexp(x.double(), -1).float())
    wide = on_device(3, 20)[:, :13]
    torch.testing.assert_close(names["logsumexp"](wide), torch.logsumexp(wide, -1))


def check_softmax_gradient(names):
    x = on_device(4, 9).double().requires_grad_()
    dy = on_device(4, 9).double()
    y = torch.softmax(x, -1)
    (expected,) = torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(names["softmax_gradient"](dy, y.detach()), expected)
    assert names["softmax_gradient"](torch.ones_like(y), y).abs().max() < 1e-15


def check_merge(names):
    row = torch.randn(20).double()
    halves = [
        value for half in row.split(7) for value in (half.max().item(), torch.exp(half - half.max()).sum().item())
    ]
    largest, total = names["merge"](*halves[:4])
    largest, total = names["merge"](*halves[4:], largest, total)
    assert largest == row.max() and math.isclose(total, torch.exp(row - row.max()).sum().item())
    assert names["merge"](-math.inf, 0.0, 3.0, 2.0) == (3.0, 2.0)
    assert names["merge"](-math.inf, 0.0, -math.inf, 0.0) == (-math.inf, 0.0)


def check_offset(names):
    view = names["x"][::2].T
    assert names["place"] == 33 == names["offset"](1, 2, view.stride()) == view[1, 2]
    assert names["offset"](3, 5, (8, 1)) == 29


def check_diagonal(names):
    x = on_device(11, 20)
    for square in (x[:, :11], x[:, 3:14].T, x[:, ::2][:10, :10]):
        assert torch.equal(names["diagonal"](square), torch.diagonal(square))


def check_smallest_square_tile(names):
    assert names["smallest_square_tile"](206) == 512
    assert names["smallest_square_tile"](64) == 128 and names["smallest_square_tile"](65) == 256


def check_block_of_program(names):
    for rows, columns, group in ((9, 9, 3), (7, 6, 4), (4, 3, 8), (5, 1, 1)):
        order = [names["block_of_program"](pid, rows, columns, group) for pid in range(rows * columns)]
        assert order == names["lesson"].program_order(rows, columns, group)


def check_best_group(names):
    assert names["best_group"](9, 9, 9, 9) == 3
    assert names["best_group"](4, 1, 4, 5) == 1


def check_gradients(names):
    x, y, dz = on_device(20, 30), on_device(30, 17), on_device(20, 17)
    dx, dy = names["gradients"](dz, x, y)
    torch.testing.assert_close(dx, dz @ y.T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dy, x.T @ dz, rtol=1e-4, atol=1e-4)


def check_safe_accumulate(names):
    def tuned(kernel):
        out = torch.full((100,), 7.0, device=device.DEVICE)
        tuner = names["Autotuner"](kernel, names["BLOCKS"], lambda a: None, lambda a, c: 1.0)
        tuner(x=torch.ones(100, device=device.DEVICE), out=out)
        return out.unique().tolist()

    assert tuned(names["safe_accumulate"]) == [1.0]
    assert tuned(names["accumulate"]) == [12.0], "the mistake that the exercise is about"


def check_pruned(names):
    kept = names["pruned"](names["lesson"].CONFIGURATIONS)
    assert kept == names["lesson"].CONFIGURATIONS
    huge = names["triton"].Config(dict(BLOCK_M=256, BLOCK_N=256, BLOCK_K=64), num_stages=4)
    assert names["shared_memory"](huge) == 4 * 512 * 64 * 2
    assert names["pruned"]([huge, *kept]) == kept and names["fits"](huge, limit=1 << 20)


def check_hard_swish(names):
    a, b = names["a"].clone(), names["b"]
    a[0, 0] = math.nan
    c = torch.empty(100, 80, device=device.DEVICE)
    strides = (*a.stride(), *b.stride(), *c.stride())
    tiles = dict(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, GROUP_M=8)
    names["lesson"].matmul_kernel[(12,)](
        a, b, c, c, 100, 80, 60, *strides, ACTIVATION=names["hard_swish"], SAVE_Z=False, INPUT_PRECISION="ieee", **tiles
    )
    expected = torch.nn.functional.hardswish((a.double() @ b.double()).float())
    assert c[0].isnan().all() and not c[1:].isnan().any()
    torch.testing.assert_close(c[1:], expected[1:], rtol=1e-4, atol=1e-4)


def check_column_sums_of_squares(names):
    for M, N in ((1, 1), (70, 130), (300, 5)):
        x = on_device(M, N + 3)[:, :N]
        torch.testing.assert_close(names["column_sums_of_squares"](x), x.double().square().sum(0).float())


def check_tiles_of(names):
    assert names["guess"] == names["tiles_of"](2, 3, 200, 32)
    shared = [start for p in range(3) for start in names["tiles_of"](p, 3, 200, 32)]
    assert sorted(shared) == list(range(0, 200, 32))
    assert names["tiles_of"](2, 3, 64, 32) == []


def check_shares(names):
    shares = names["shares"]
    assert shares(32768, 4096, 132) == 5 and shares(32768, 4096, 2048) == 64
    assert shares(32768, 50000, 132) == 1 and shares(33, 128, 132) == 2 and shares(100000, 128, 132) == 132


def check_sum_normalise(names):
    for x in (on_device(3, 1), on_device(3, 200)[:, 3:140], on_device(70, 3).T):
        x = x.abs() + 0.1
        torch.testing.assert_close(names["sum_normalise"](x), x / x.sum(-1, keepdim=True))


def check_sum_normalise_gradient(names):
    x = (on_device(4, 9).double().abs() + 0.1).requires_grad_()
    dy, total = on_device(4, 9).double(), x.sum(-1, keepdim=True)
    (expected,) = torch.autograd.grad(x / total, x, dy, retain_graph=True)
    torch.testing.assert_close(names["sum_normalise_gradient"](dy, (x / total).detach(), total.detach()), expected)


def check_stays_inside(names):
    def launch(kernel):
        def launched(x, y):
            length = torch.empty(len(x), device=x.device)
            kernel[(len(x),)](x, y, length, x.shape[1], x.stride(0), 0.0, BLOCK_N=8)

        return launched

    assert names["stays_inside"](launch(names["l2_forward_kernel"]))
    unmasked = names["FILE"].replace("tl.store(y_ptr + offs_n, y, mask=mask)", "tl.store(y_ptr + offs_n, y)")
    module = import_source(unmasked, "unmasked")
    assert unmasked != names["FILE"] and not names["stays_inside"](launch(module.l2_forward_kernel))


def check_tiles_computed(names):
    for N, BLOCK in ((64, 8), (96, 32), (16, 16)):
        kinds = names["kinds_of_tiles"](N, N, 1000, 0, BLOCK, BLOCK)
        assert names["tiles_computed"](N, BLOCK) == sum(kind != "skipped" for row in kinds for kind in row)


def check_with_lse(names):
    q, k, v = on_device(9, 16), on_device(50, 16), on_device(50, 16)
    o, lse = names["with_lse"](q, k, v, 8)
    scores = q @ k.T / 4
    torch.testing.assert_close(o, torch.softmax(scores, -1) @ v)
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1))


def check_merged_outputs(names):
    scores, v = on_device(4, 20), on_device(20, 5)
    scores[0, :8], scores[1, 8:], scores[2] = -math.inf, -math.inf, -math.inf
    halves = []
    for half in (slice(0, 8), slice(8, 20)):
        p = torch.softmax(scores[:, half], -1).nan_to_num(0.0)
        halves += [p @ v[half], torch.logsumexp(scores[:, half], -1)]
    expected = torch.softmax(scores, -1).nan_to_num(0.0) @ v
    torch.testing.assert_close(names["merge"](*halves), expected)


def check_spread(names):
    spread, trials = names["spread"], torch.rand(4000, 50) >= 0.2
    assert abs(spread(50, 0.2) / float(trials.sum(1).double().std()) - 1) < 0.1
    assert abs(names["spread"](1000, 0.25) - 13.7) < 0.1 and spread(10, 1.0) == 0
    kept = int((names["drop"](names["x"], 0.25, seed=1) != 0).sum())
    assert abs(kept - 750) < 2 * spread(1000, 0.25)


def check_keeps(names):
    words = torch.tensor([0, 2**30 - 1, 2**30, 2**32 - 1])
    assert names["keeps"](words, 0.25).tolist() == [False, False, True, True]
    assert names["keeps"](words, 0.0).all() and not names["keeps"](words, 1.0).any()


def check_round_randomly(names):
    round_randomly = names["round_randomly"]
    exact = torch.tensor([1.0, -3.5, 0.0, 2.0**100]).repeat(50)
    assert torch.equal(round_randomly(exact, 1), exact.bfloat16())
    x = torch.full((20000,), 1 + 2.0**-7 / 4)  # a quarter of the way from 1 to the next bfloat16
    for value in (x, -x):
        rounded = round_randomly(value, 2).float()
        assert set(rounded.abs().tolist()) == {1.0, 1 + 2.0**-7}
        assert abs(float((rounded.abs() > 1).double().mean()) - 0.25) < 0.02


def check_whole(names):
    assert abs(names["whole"](0.1, 10) - 1 / 0.91) < 1e-9 and names["whole"](0.5, 1) == 1


def check_order(names):
    assert names["order"](dict(a=(5.0, 4.5), b=(2.0, 0.1), c=(1.0, 1.0))) == ["b", "a", "c"]
    assert names["order"](names["prediction"])[:2] == ["loss", "rotary embedding"]


def check_step_time(names):
    assert names["step_time"](1000, 50, 30) == (50, 30) and names["step_time"](100, 50, 30) == (30, 30)


CHECKS = {
    "random_numbers": [check_spread, check_keeps, check_round_randomly],
    "from_profile": [check_whole, check_order, check_step_time],
    "first_kernel": [check_scale_and_add, check_reverse, check_add_three],
    "softmax": [check_logsumexp, check_softmax_gradient, check_merge],
    "tiles_and_pointers": [check_offset, check_diagonal, check_smallest_square_tile],
    "l2_reuse": [check_block_of_program, check_best_group, check_gradients],
    "attention": [check_tiles_computed, check_with_lse, check_merged_outputs],
    "autotuning": [check_safe_accumulate, check_pruned, check_hard_swish],
    "reductions": [check_column_sums_of_squares, check_tiles_of, check_shares],
    "your_own_kernel": [check_sum_normalise, check_sum_normalise_gradient, check_stays_inside],
}


@pytest.mark.parametrize("chapter", CHAPTERS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_answer_is_right(chapter, number, tmp_path):
    CHECKS[chapter][number - 1](answered(chapter, number, tmp_path))


def test_the_tolerance_hides_the_wrong_gradient_and_the_relative_error_shows_it():
    lines = [line for line in run("l2_reuse")[1].split("\n") if "relative error" in line]
    assert len(lines) == 2 and all(line.endswith("atol=1e-2: True") for line in lines)
    right, wrong = (float(re.search(r"error +(\S+),", line)[1]) for line in lines)
    assert right < 1e-6 and wrong > 0.5


# The experiments that a chapter asks its reader to try


@pytest.mark.parametrize(("masked", "written"), [(True, 0), (False, 1)])
def test_only_the_mask_keeps_the_kernel_from_writing_behind_the_end(masked, written):
    names, _ = run("first_kernel")
    memory = torch.zeros(24, device=device.DEVICE)
    names["ones_kernel"][(3,)](memory[:23], 23, BLOCK=8, MASKED=masked)
    assert memory[:23].eq(1).all() and memory[23] == written


@pytest.mark.parametrize(
    ("key", "trials", "slower"), [("exact", 40, False), ("none", 4, True), ("power of two", 20, None)]
)
def test_the_key_trades_searches_for_choices(key, trials, slower):
    names, _ = run("autotuning")
    make = names["KEYS"][key]
    tuner = names["Autotuner"](names["pretend_kernel"], names["CONFIGURATIONS"], make, names["pretended_time"])
    worse = 0
    for M in names["lengths"]:
        arguments = dict(M=M, N=4096, K=4096)
        tuner(**arguments)
        times = [names["pretended_time"](arguments, c) for c in names["CONFIGURATIONS"]]
        worse += names["pretended_time"](arguments, tuner.best[make(arguments)]) > min(times)
    assert tuner.trials == trials and (slower is None or bool(worse) == slower)


def test_what_a_masked_lane_reads_shows_only_where_there_is_one():
    names, _ = run("softmax")
    sums = {
        (len(row), other): float(names["row_softmax"](torch.tensor([row], device=device.DEVICE), other).sum())
        for row in ([-3.0, -1.0, -2.0, -4.0, -1.0, -3.0], [-3.0, 1.0, -2.0, 4.0, -1.0, 3.0, 0.0, 2.0])
        for other in (0.0, -math.inf)
    }
    assert abs(sums[6, 0.0] - 1) > 0.1
    assert all(abs(sums[key] - 1) < 1e-5 for key in sums if key != (6, 0.0))


def test_strides_read_what_the_chapter_says():
    names, _ = run("tiles_and_pointers")
    x, read_tile = names["x"], names["read_tile"]
    assert torch.equal(read_tile(x, 4, 0), x[4:, :4].int())
    assert torch.equal(read_tile(x, 4, 0, (1, 8)), x.T[4:, :4].int())
    assert torch.equal(read_tile(x, 0, 0, (9, 0)), torch.diagonal(x)[:4, None].expand(4, 4).int())


def test_rows_have_length_one_between_the_limits_that_the_chapter_names():
    names, _ = run("your_own_kernel")
    for scale, length in ((1e15, 1.0), (1e18, 1.0), (1e20, 0.0), (1e-8, 0.1)):
        rows = names["l2_normalise"](scale * torch.ones(3, 100, device=device.DEVICE)).double().norm(dim=1)
        assert all(abs(rows - length) < 0.01), (scale, rows)


def test_no_result_is_said_and_interpreter_times_are_not_shown(monkeypatch, tmp_path):
    monkeypatch.setattr(notebook, "ROOT", tmp_path)
    monkeypatch.setattr(notebook, "BROUGHT", tmp_path)
    monkeypatch.setattr(device, "INTERPRET", True)
    for shown in (
        notebook.speed("softmax", live=[(8, 8)]),
        notebook.ladder("x", {"a": lambda: None}),
    ):
        assert repr(shown).startswith("Nothing measured") and "ms" not in shown._repr_html_()


def test_elsewhere_without_a_gpu_the_package_brings_results_along(monkeypatch, tmp_path):
    monkeypatch.setattr(notebook, "BROUGHT", notebook.ROOT)  # a package installed from this repository
    monkeypatch.setattr(notebook, "ROOT", tmp_path)
    monkeypatch.setattr(device, "INTERPRET", True)
    assert "H200" in repr(notebook.speed("vector_add", live=[(8,)]))
    assert "<svg" in notebook.ladder("matmul_grouped", {"a": lambda: None})._repr_html_()


def test_committed_results_are_drawn():
    shown = notebook.speed("vector_add")
    assert "<svg" in shown._repr_html_() and "<table" in shown._repr_html_() and "H200" in repr(shown)
    assert "var(--bench-0, #" in shown._repr_html_(), "colours for a notebook outside the site"


@pytest.mark.parametrize(
    ("window", "counts"),
    [
        (dict(left=1000, right=0), dict(full=28, masked=8, skipped=28)),
        (dict(left=20, right=0), dict(full=7, masked=19, skipped=38)),
        (dict(left=1000, right=1000), dict(full=64)),
    ],
    ids=["causal", "window", "everything"],
)
def test_the_picture_counts_the_kernels_own_tiles(window, counts):
    kinds = run("attention")[0]["kinds_of_tiles"](64, 64, BLOCK_M=8, BLOCK_N=8, **window)
    found = [kind for row in kinds for kind in row]
    assert {kind: found.count(kind) for kind in set(found)} == counts
