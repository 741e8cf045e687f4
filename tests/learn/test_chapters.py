"""The chapters under docs/learn: each runs from top to bottom, and shows what its text says.

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
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from academy.runtime import device
from academy.bench import notebook
from annotated_examples.capstone.gpt import PLAIN, SMALL

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = [
    "first_kernel",
    "softmax",
    "own_operation",
    "tiles_and_pointers",
    "l2_reuse",
    "autotuning",
    "reductions",
    "random_numbers",
    "attention",
    "without_a_cache",
    "write_the_difference",
    "fewer_bytes",
    "overlap",
    "from_profile",
    "reward",
    "same_function",
    "your_own_kernel",
]
CELL = re.compile(r"^# %%", re.M)


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


def test_every_chapter_is_tested():
    assert {path.stem for path in (ROOT / "docs/learn").glob("*.py")} == set(CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_its_parts(chapter):
    text = source(chapter)
    cells = CELL.split(text)
    code = [cell for cell in cells if not cell.startswith(" [markdown]")]
    assert 'find_spec("annotated_examples")' in code[1] and "{{ repo_url }}" in code[1], "the first cell installs"
    assert code[1].startswith(' tags=["setup"] jupyter={"source_hidden": true} cellView="form"'), "and is folded"
    assert "from academy.runtime import device" not in text.replace(code[1], ""), "all imports are in it"
    assert "?" in re.search(r"^# # (?:\d+\. )?\w.*?(?=^# %%)", text, re.M | re.S)[0].split("\n#\n")[1], (
        "opens with a question"
    )
    assert re.search(r'# %% tags=\["parameters"(, "live")?\]', text), "a cell for the reader to change"
    assert re.search(r"^notebook\.(speed|ladder)\(", text, re.M), "a measured gain"
    assert re.search(r"^# \[\[exercises\]\]$", text, re.M)
    marks = re.findall(r"^# %%.*$", text, re.M)
    assert all(re.fullmatch(r"# %%( \[markdown\]| tags=.*)?", mark) for mark in marks), "no text after it"


def test_chapters_keep_to_what_they_teach():
    imported = "from annotated_examples"
    assert "tl.dot(" in source("tiles_and_pointers") and imported not in source("tiles_and_pointers"), "its own product"
    for chapter in CHAPTERS:
        short = re.findall(r"^[# ]*(\w+) = tl\.program_id\(\d\)$", source(chapter), re.M)
        strided = [name for name in short if re.search(rf"\b{name} \* stride", source(chapter))]
        assert not strided, f"{chapter}: 32 bits times a stride"


EXPECTED = {
    "first_kernel": ["3 programs of 8 lanes for 23 elements", "written past the end: 0", "[1.0, 1.0, 7.0, 7.0, 7.0"],
    "softmax": ["[[0.0, nan, nan]]", "their sum:     0.331", "step by step: 512 MiB", "fused:        128 MiB"],
    "own_operation": [
        "y:  [0.0, 1.0, 9.0]",
        "dx: [0.0, 1.0, 6.0]",
        "'positive_numbers': True, 'sum_backward': True, 'views_and_odd_sizes': True",
        "the factor 2 is forgotten    caught by positive_numbers, sum_backward, views_and_odd_sizes\n",
        "negative x counts, too       caught by sum_backward, views_and_odd_sizes\n",
        "dy is ignored                caught by positive_numbers, views_and_odd_sizes\n",
        "x is taken to be contiguous  caught by views_and_odd_sizes\n",
        "sum_backward         caught",
    ],
    "tiles_and_pointers": [
        "every 2nd row: (16, 1)",
        "the same from transposed views: True",
        "kept in float16: 2048",
        "kept in float32: 2060",
        "TF32, cut:     7.",
        "TF32, rounded: 2.",
    ],
    "l2_reuse": [
        "8 x 6 tiles, the remainder alone: 24 outside, 24 missing",
        "7 x 6 tiles, with groups: 4 outside, 4 missing",
        "7 x 6 tiles, grouped_order: 0 outside, 0 missing",
        "GROUP_M =  1:   640 tiles of x,  4096 of y",
        "GROUP_M = 16:  2048 tiles of x,  1152 of y",
    ],
    "autotuning": ["first call:  5.0", "second call: 1.0", "12 trials so far", "right: True"],
    "reductions": [
        "of each row:    [6.0, 22.0, 38.0, 54.0]",
        "of each column: [24.0, 28.0, 32.0, 36.0]",
        "different results: from",
        "the same bits twice: True",
        "256 programs for 132 SMs, 128 tiles for each program",
    ],
    "your_own_kernel": [
        "l2_normalise.md:28:50: '=' does not hold",
        "acc = [25, 0, 0, 0]",
        "length = 5",
        "transposed: right",
        "zeros: right",
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
    "reward": [
        "Fri Sat Sun Mon: reward 1.00",
        "probability of 200 tokens: 0.0  its logarithm: -138.63",
        "[0.5, -0.5, -0.5, 0.5, 0.0, 0.0, 0.0, 0.0]",
        "as long as the right one: 0.500000\ncosine of the angle between them: 1.000000",
        "the trainer's own call drifts by 0.0\n",
        "a row alone, the same tiles: 0 of 32 elements differ",
        "log-probabilities alone:     0 differ",
    ],
    "same_function": [
        "stretch = 1.01: too far off",
        "stretch = 1.0000001: as accurate as PyTorch",
        "1/2    = 12 because 2 · 12 = 1",
        "exp(a + b) is exp(a) · exp(b): True",
        "equal residues: 6",
        "as accurate as the formula in float32: yes",
        "NO, 5 of 6 differ",
        "stretch = 1.0: the same function: all 222 elements, modulo powers of 3, 7, 11, 23",
        "stretch = 1.0000001: another function: element (0, 0) differs",
        "stretch = 1.000000001: the same function: all 222 elements, modulo powers of 3, 7, 11, 23",
        "at 100: 222 of 222 elements are finite, infinite or NaN where PyTorch's are not",
    ],
    "overlap": [
        "BUFFERS=1: copies and products overlap in 0 of 20 orders",
        "   6  full[0]         2       0\n",
        "Race\nrace on a_s[0]: wgmma at line",
        "{'Deadlock': 9, 'Race': 31}",
        "buffers = 4: 6 steps take 18 units of time, the tensor cores work for 12 of them",
        "MissingFence\nmissing fence on c_s: TMA store at line",
    ],
    "without_a_cache": [
        "131072 tokens: cache of a head   65536 KiB, a matrix 64 KiB",
        "numbers kept: 256, for any length; a cache of 48 tokens has 1536",
        "added:    [2.0, 7.0, 6.0]",
        "replaced: [2.0, 7.0, 4.0]",
    ],
    "write_the_difference": [
        "token 2: value [5.0, 5.0], answer [2.4, 1.6], written [2.6, 3.4]",
        "token 3: value [0.0, 8.0], answer [5.56, 2.04], written [-2.78, 2.98]",
        "[0.3000, 0.4000, 0.0000, 0.0000]",
        "token 3, column 0: 0 - (0.25 · 8 + 0.3 · 2.6) = -2.78",
        "as token by token: True",
        "[-0.1600,  0.1200, -0.3000,  1.0000]",
        "T @ R is U: True",
        "the same: True",
    ],
    "fewer_bytes": [
        "Llama-3.1-70B       4,096 bytes 327,680 bytes         40.0 GiB",
        "DeepSeek-V3.2-Exp   1,284 bytes  78,324 bytes          9.6 GiB",
        "64 texts of   8192 tokens: cache   171.8 GB,  55% of the bytes",
        "2 heads in the cache: 131072 bytes, 4 operations a byte",
        "while a byte arrives: 206 operations of the tensor cores, 7 ordinary instructions",
        "bytes of a token: 81920 with 128 heads, 1152 with a latent",
        "to make the key and the value: 262144, as many as 170.7 queries save by it",
        " 131072 tokens: all  150.99 MB, selected  21.23 MB, a factor of 7.1",
        "the first length that gains: 2341",
        "8 heads,  4 bits                    73.7            1208.0                 28",
        "latents, selected                   82.1             169.9                115",
    ],
    "attention": ["scores held at once: 40000", "scores held at once: 6400", "scores held at once: 512", "8192 MiB"],
}


def check_reward(names, printed):
    """What the chapter says of its numbers, within what another processor may make of them; and the same functions as
    benchmarks/reward.py calls them."""
    number = r"(-?\d[\d.e+-]*)"

    def found(pattern):
        return [float(each) for each in re.search(pattern.replace("#", number), printed).groups()]

    (far, of_all), (near, _) = (
        found(rf"by {name}: +off by \S+ spread #, length #") for name in ("the reward", "the reward less its mean")
    )
    assert far > 20 * near and near < 2 * of_all
    (sure, _), (unsure, past) = (
        found(rf"{name}: +largest probability #, largest ratio #") for name in ("no clip", "1.2")
    )
    assert sure > 0.9 and unsure < 0.25 and 1.2 < past < 1.5
    (divergence,) = found("the divergence: #")
    first, second, third = (
        found(rf"{re.escape(name)} +mean #, spread #, below zero in #%") for name in ("−d", "d²/2", "− d")
    )
    assert first[0] == third[0] == divergence != second[0] and first[1] > 20 * divergence > 20 * third[1]
    assert 30 < first[2] < 70 and third[2] == 0
    off = [found(rf"d = {d}: off by +#% as written, by # in the kernel") for d in ("1e-03", "1e-04")]
    assert all(written > 1 and kernel < 1e-6 for written, kernel in off)
    rewards, drift = names["rewards"], names["drift"]
    assert rewards[0] < 0.3 and sum(rewards[-3:]) / 3 > 0.4 and names["entropies"][-1] < 1
    halves, bfloat16, eight_bits, old = (sum(values) / len(values) for values in drift.values())
    assert halves < 1e-10 and 1e-7 < bfloat16 < eight_bits < old
    for name in ("bfloat16", "weights of 8 bits"):
        blind, weighed, draws = found(rf"{name} +off by #, with ratios by #; noise of # draws")
        assert weighed < 1e-12 < 1e-4 < blind < 0.1 and draws > 1e4
    at_real_size = importlib.import_module("benchmarks.reward").values(
        SimpleNamespace(**names),
        SMALL,
        PLAIN,
        torch.float32,
        text_steps=1,
        steps=2,
        prompts=2,
        group=2,
        prompt=4,
        length=3,
    )
    assert all(math.isfinite(value) for value, _ in at_real_size.values())
    assert at_real_size["drift"][0] < 1e-9 and at_real_size["largest"][0] < 1e-4 and 0 <= at_real_size["first"][0] <= 1


def check_fewer_bytes(names, printed):
    """What the chapter says of its errors, and that what it calls the same function is."""
    number = r"(\d[\d.]*e[+-]\d+)"
    heads = [float(each) for each in re.findall(rf"operations a byte, error {number}", printed)]
    made, latents = (float(re.search(rf"{what}: +error {number}", printed)[1]) for what in ("PyTorch", "from latents"))
    assert len(heads) == 2 and 1e-4 < max(*heads, latents) < 1e-2 and made < 5e-2

    def row(name):
        found = re.search(rf"^{re.escape(name)} +({number} +\d+% *)+$", printed, re.M)[0]
        return [float(each) for each in re.findall(number, found)], [int(each) for each in re.findall(r"(\d+)%", found)]

    (best, shares), (crude, crude_shares), (chance, _) = map(row, names["SCORERS"])
    assert best[2] < 1.5 * best[3] == 1.5 * chance[3] == 1.5 * crude[3] and best[3] < 1e-2 < 0.1 < chance[2]
    assert shares[1] > 95 and crude_shares[1] < 90 and crude[2] > 10 * best[2] and crude[1] < chance[1]
    plain, large, shifted = zip(*names["offs"].values())
    bf16, int8, int4, rotated, signed, channel = range(6)
    assert 3 * plain[bf16] < plain[int8] < 0.03 < 0.1 < plain[int4] < 0.3 and large[int8] > 0.5 * plain[int4]
    assert large[int4] > 1 > max(large[rotated], large[signed]) > 0.25 and large[channel] < 1.5 * plain[int4]
    assert shifted[rotated] > shifted[signed] > 3 * shifted[int4] and shifted[int4] < 1.5 * plain[int4]


CHECKS = {"reward": check_reward, "fewer_bytes": check_fewer_bytes}


#: At night: half a minute of commands, each in a process of its own, of which the tests of each command say what it
#: prints; and ten seconds of training by rewards.
LONG = {"your_own_kernel", "reward"}


@pytest.mark.parametrize(
    "chapter", [pytest.param(name, marks=[pytest.mark.nightly] * (name in LONG)) for name in CHAPTERS]
)
def test_a_chapter_runs_and_shows_what_its_text_says(chapter):
    printed = run(chapter)[1]
    assert "\x1b" not in printed, "colours of a terminal"
    for text in EXPECTED[chapter]:
        assert text in printed
    if chapter in CHECKS:
        CHECKS[chapter](*run(chapter))


def test_the_tolerance_hides_the_wrong_gradient_and_the_relative_error_shows_it():
    lines = [line for line in run("l2_reuse")[1].split("\n") if "relative error" in line]
    assert len(lines) == 2 and all(line.endswith("atol=1e-2: True") for line in lines)
    right, wrong = (float(re.search(r"error +(\S+),", line)[1]) for line in lines)
    assert right < 1e-6 and wrong > 0.5


def test_with_one_buffer_a_copy_is_never_beside_a_product():
    """What the chapter says of its first drawing. In the second one there are some."""
    drawings = re.findall(r"^TMA          (.*)\ntensor cores (.*)$", run("overlap")[1], re.M)
    beside = [sum(a == b == "=" for a, b in zip(copies, products)) for copies, products in drawings[:2]]
    assert beside[0] == 0 < beside[1]


# The experiments that a chapter asks its reader to try


@pytest.mark.parametrize(
    ("left_out", "buffers", "kinds"),
    [
        ("nothing", 3, set()),
        ("nothing", 1, {"Deadlock"}),
        ("fence", 2, {"MissingFence"}),
        ("arrival", 3, {"Deadlock"}),
        ("wait for empty", 3, {"Race", "Miscount"}),
        ("wait for full", 3, {"Race", "WrongUse"}),
    ],
)
def test_what_is_left_out_of_the_partitions_is_named_in_every_order(left_out, buffers, kinds):
    names = run("overlap")[0]
    for seed in range(8):
        wrong = names["run"](names["partitions_kernel"], seed=seed, BUFFERS=buffers, LEFT_OUT=left_out)[1]
        assert (type(wrong).__name__ in kinds) if kinds else wrong is None


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


@pytest.mark.parametrize(("error", "floats", "differing"), [(0.0, True, 0), (1e-2, False, 5), (1e-9, True, 5)])
def test_a_planted_mistake_is_seen_by_residues_and_only_a_large_one_by_floats(error, floats, differing):
    names, _ = run("same_function")
    ours = names["online"](names["row"], error)
    assert (names["furthest"](ours) <= names["limit"]) == floats
    assert sum(a.residue != b.residue for a, b in zip(ours, names["formula"])) == differing
    same_bits = all(a.value == b.value for a, b in zip(ours, names["online"](names["row"])))
    assert same_bits == (error in (0.0, 1e-9)), "the chapter says that the floats are equal"


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


@pytest.mark.nightly
def test_a_high_price_leaves_the_model_where_it_was():
    text = source("reward").partition("# %% [markdown]\n# Guessing gets")[0]
    assert text.count("\nbeta = 0.0\n") == 1
    names: dict = {}
    exec(compile(text.replace("\nbeta = 0.0\n", "\nbeta = 0.5\n"), "reward", "exec"), names)
    assert names["entropies"][-1] > 1.7 and names["rewards"][-1] < 0.35


@pytest.mark.nightly
def test_rows_have_length_one_between_the_limits_that_the_chapter_names():
    names, _ = run("your_own_kernel")
    for scale, length in ((1e15, 1.0), (1.8e18, 1.0), (1.9e18, 0.0), (1e-8, 0.1)):
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


def test_a_state_forgets_what_softmax_attention_finds():
    """The chapter says that with as many pairs as rows the error is as large as the value."""
    torch.manual_seed(1)
    measure = run("without_a_cache")[0]["asked_for_the_first"]
    errors = {pairs: torch.tensor([measure(pairs) for _ in range(20)]).mean(0).tolist() for pairs in (1, 64, 512)}
    assert errors[1][0] < 1e-9 and 0.8 < errors[64][0] < 1.2 and errors[512][0] > 2
    assert all(softmax < 0.05 for _, softmax in errors.values())


def test_the_dense_delta_rule_is_the_lessons_and_its_last_key_reads_the_last_value():
    names, printed = run("write_the_difference")
    assert float(re.search(r"from the lesson: (\S+)$", printed, re.M)[1]) < 1e-5
    for angle in (0, 30, 53, 90):
        key = [math.cos(math.radians(angle)), math.sin(math.radians(angle))]
        _, _, state = names["walk"]([*names["keys"][:3], key], names["values"], names["kept"], [1.0] * 4)[-1]
        read = [key[0] * x + key[1] * y for x, y in zip(*state)]
        assert read == pytest.approx(names["values"][3])
    _, u, state = names["walk"](names["keys"], names["values"], names["kept"], [1.0, 1.0, 1.0, 2.0])[-1]
    after = [wanted - found for wanted, found in zip(names["values"][3], state[0])]
    assert after == pytest.approx([-each / 2 for each in u]), "twice the difference turns its sign around"


@pytest.mark.parametrize(("C", "steps"), [(1, 32), (8, 4), (32, 1)])
def test_the_chapter_counts_chunks_and_multiplications(C, steps):
    counted = run("without_a_cache")[0]["counted"]
    pairs = sum(i // C == j // C for i in range(32) for j in range(i + 1))
    assert counted(32, 16, C) == (2 * 16 * pairs + 2 * 16 * 16 * 32, steps)


def test_every_form_of_the_sum_agrees():
    names, printed = run("without_a_cache")
    differences = [float(found) for found in re.findall(r"largest difference:? (\S+)$", printed, re.M)]
    assert len(differences) == 7 and max(differences) < 1e-5


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
