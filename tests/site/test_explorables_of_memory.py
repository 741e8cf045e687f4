"""What explorables of loops, rows, fusion, banks and formats count: the same as the kernels, their runs, or torch."""

import itertools
import math
import os
import shutil
import subprocess
import sys
from urllib.parse import urljoin

import pytest
import torch

from academy.site import pictures
from tests.site.test_explorables import ROOT, Worked, run, scripts  # noqa: F401  fixtures


def facts(key: str) -> dict:
    return pictures.found(ROOT, key)["facts"]


# ---------------------------------------------------------------- a pipelined loop


def simulated(stages: int, latency: float, compute: float, steps: int) -> float:
    """The end of a loop, from its events: loads go out in order when a buffer is free and the step before has begun."""
    asked = [0.0] * min(steps, stages - 1) if stages > 1 else []
    now = 0.0
    for k in range(steps):
        if len(asked) < steps:
            asked.append(now)  # stages == 1: this step's own tile; otherwise one that is `stages - 1` steps ahead
        arrives = asked[k] + latency
        begun = max(now, arrives)
        if stages > 1 and k + stages - 1 < len(asked):
            asked[k + stages - 1] = begun
        now = begun + compute
    return now


def test_a_pipeline_waits_as_its_events_say(run):  # noqa: F811
    given = facts("choices/pipeline")
    tiles = ("64 × 64", "128 × 256", "256 × 256")
    for stages, latency, tile in itertools.product(range(1, 7), (200, 900, 1600), tiles):
        found = run("pipeline", given, stages=stages, latency=latency, tile=tile)["model"]
        m, n = map(int, tile.split(" × "))
        compute = 2 * m * n * 64 / 4096
        assert found["compute"] == compute and found["total"] == simulated(stages, latency, compute, 8)
        assert found["waits"] == found["total"] - 8 * compute
        assert found["bytes"] == stages * (m + n) * 64 * 2 and found["fits"] == (found["bytes"] <= 227 * 1024)
        # The caption's formula: nobody waits behind the first tile if (stages - 1) steps cover the latency.
        assert found["waits"] >= latency, "no stage hides the first load"
        assert (found["waits"] == latency) == ((stages - 1) * compute >= latency) == (stages >= found["needed"])


def test_the_red_of_a_pipeline_can_be_gone(run):  # noqa: F811
    """As the hint says: with enough stages only the wait for the first load is left, and that is amber."""
    drawn = pictures.found(ROOT, "choices/pipeline")
    start = {control["name"]: control["value"] for control in drawn["controls"]}
    assert drawn["hint"].startswith("Add stages until the red is gone")

    def idle(**values):
        found = run("pipeline", drawn["facts"], **start | values)
        bar = found["panels"][0].partition(">cores<")[2].partition(">loading<")[0]
        return bar.count('class="r"'), bar.count('class="a"'), found

    few, first, _ = idle()
    assert few and first == 1
    enough, first, found = idle(stages=found_stages(run, drawn, start))
    assert (enough, first) == (0, 1) and "for the first load, and for no later one." in found["words"]
    assert "limit: 227 KB" in found["panels"][0]


def found_stages(run, drawn, start) -> int:  # noqa: F811
    return run("pipeline", drawn["facts"], **start)["model"]["needed"]


def test_the_pipelines_card_and_memory_are_the_guides(run, scripts):  # noqa: F811
    card, choices = scripts("card"), scripts("choices")
    rate = choices.OPERATIONS * card.SMS * choices.CLOCK_GHZ * 1e9 / 1e12
    assert rate == pytest.approx(card.MATRIX_TFLOP_S, rel=0.001)
    from annotated_examples.tutorials.matmul_autotuned import CONFIGURATIONS

    for config in CONFIGURATIONS:
        tiles = config.kwargs
        given = facts("choices/pipeline") | {"block_k": tiles["BLOCK_K"]}
        tile = f"{tiles['BLOCK_M']} × {tiles['BLOCK_N']}"
        found = run("pipeline", given, stages=config.num_stages, latency=900, tile=tile)["model"]
        one = (tiles["BLOCK_M"] + tiles["BLOCK_N"]) * tiles["BLOCK_K"] * 2  # as the chapter's `shared_memory` has it
        assert found["bytes"] == config.num_stages * one and found["fits"]


# ---------------------------------------------------------------- softmax


def row(values, **more) -> dict:
    return {f"x{place}": value for place, value in enumerate(values)} | more


def test_online_softmax_is_the_recorded_run(run, scripts):  # noqa: F811
    from academy.site import project_parts

    rows = scripts("rows")

    if project_parts.no_run():
        pytest.skip("triton is missing: nothing is recorded")
    found = run("online", {}, **row(rows.ROW, first=rows.CHUNK, second=6, step=2))["model"]["steps"]
    for step, start in zip(found, (0, rows.CHUNK)):
        for name, key in (("max", "row_max"), ("sum", "row_sum")):
            told = project_parts.recorded_number(
                f"tutorials/softmax: softmax_forward_kernel, launch=0, pid=0, start={start}: {key}"
            )[0]
            assert step[name] == pytest.approx(float(told.rpartition(" = ")[2]), rel=1e-3)


def test_online_softmax_ends_right_for_any_scores_and_chunks(run):  # noqa: F811
    generator = torch.Generator().manual_seed(0)
    for first, second in ((1, 2), (4, 6), (6, 6), (5, 2), (3, 3)):
        scores = (torch.randint(-8, 17, (6,), generator=generator) / 2).double()
        found = run("online", {}, **row(scores.tolist(), first=first, second=second, step=3))["model"]
        largest, total = scores.max(), (scores - scores.max()).exp().sum()
        last = found["steps"][-1]
        assert [last["max"], last["sum"]] == pytest.approx([float(largest), float(total)])
        assert found["chunks"][-1][1] == 6 and [a for a, _ in found["chunks"][1:]] == [
            b for _, b in found["chunks"][:-1]
        ]


def test_the_old_sum_stands_in_its_line(run):  # noqa: F811
    found = run("online", {}, **row((1, 3, 2, 0, 4, 8), first=4, second=6, step=2))
    old = 1 + math.exp(-1) + math.exp(-2) + math.exp(-3)
    assert f"old sum: {old:.3f} × e^(3 − 8) = {old:.3f} × 0.00674 = 0.0105" in found["panels"][1]
    negative = run("online", {}, **row((-4, -4, -4, -4, -4, -2.5), first=4, second=6, step=2))
    assert "e^(−4 − (−2.5))" in negative["panels"][1]


def counted_trips(kernels: list[list[int]]) -> int:
    """Matrices that softmax's steps read and write in these kernels, from torch's own calls: tensors as large as x."""
    names = ["max", "difference", "exp", "sum", "quotient"]
    uses = {"max": ["x"], "difference": ["x"], "exp": ["difference"], "sum": ["exp"], "quotient": ["exp"]}
    made = {"difference": "difference", "exp": "exp", "quotient": "quotient"}
    home = {names[step]: place for place, kernel in enumerate(kernels) for step in kernel}
    read = {(place, tensor) for name, place in home.items() for tensor in uses[name] if home.get(tensor) != place}
    written = {"quotient"} | {tensor for _, tensor in read if tensor in made}
    return len(read) + len(written)


def test_fusion_counts_the_trips_of_every_way_to_cut_softmax(run):  # noqa: F811
    given = facts("work/fusion")
    for joins in itertools.product((0, 1), repeat=4):
        kernels = [[0]]
        for place, join in enumerate(joins, 1):
            if join:
                kernels[-1].append(place)
            else:
                kernels.append([place])
        fields = {f"join{place}": join for place, join in enumerate(joins, 1)}
        found = run("fusion", given, **fields, width=4096, warps=8)["model"]
        assert found["trips"] == counted_trips(kernels)
        assert found["moved"] == found["trips"] * given["rows"] * 4096 * 2 and found["spills"] == 0
        assert found["ms"] == pytest.approx(found["moved"] / given["copy"] * 1e3)
    assert found["trips"] == 2 and found["moved"] == found["least"]
    separate = run("fusion", given, **dict.fromkeys(fields, 0), width=4096, warps=8)["model"]
    assert separate["trips"] == 8, "the text beside it says so"


def test_fusion_spills_where_registers_end(run):  # noqa: F811
    given, together = facts("work/fusion"), dict(join1=1, join2=1, join3=1, join4=1)
    for warps, registers in ((2, 255), (8, 255), (16, 128), (32, 64)):
        for width in (1024, 16384, 65536, 128256):
            found = run("fusion", given, **together, width=width, warps=warps)["model"]
            shown = run("fusion", given, **together, width=width, warps=warps)["panels"][1]
            assert ("and spilled registers" in shown) == (found["spills"] > 0), "the headline says it"
            held = math.ceil(width / (32 * warps))
            lost = max(0, held + 32 - registers) * 32 * warps
            assert (found["wanted"], found["allowed"]) == (held + 32, registers)
            assert found["spills"] == given["rows"] * min(lost, width) * 8
            apart = run("fusion", given, join1=0, join2=1, join3=1, join4=0, width=width, warps=warps)["model"]
            assert apart["spills"] == 0, "nothing there goes on behind a reduction"


# ---------------------------------------------------------------- formats

DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}
DTYPES |= {"fp8 e5m2": "float8_e5m2", "fp8 e4m3": "float8_e4m3fn"}
#: All numbers of fp4 (OCP Microscaling, table 5).
FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def number(text) -> float:
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(text, text)


@pytest.mark.parametrize("name", DTYPES)
def test_a_format_rounds_as_torch_does(name, run):  # noqa: F811
    dtype, given = getattr(torch, DTYPES[name]), facts("layout/formats")
    info = torch.finfo(dtype)
    assert given["formats"][name]["largest"] == info.max
    tiny = info.smallest_normal * info.eps
    special = [0.1, -0.3, 1.0, 300.0, 70000.0, 1e-8, 464.0, 465.0, 65519.0, 65520.0, 3.4e38]
    special += [1 + info.eps / 2, 1 + 1.5 * info.eps]
    special += [info.max, tiny, tiny / 2, 1.5 * tiny, -2.5 * tiny, info.smallest_normal * 0.9]
    for x in torch.tensor(special, dtype=torch.float32).tolist():
        found = run("floats", given, format=name, kind="a number", x=x)["model"]
        cast = torch.tensor([x]).to(dtype)
        # Beyond the end of e4m3 older versions of torch give NaN.
        expected = math.copysign(info.max, x) if name == "fp8 e4m3" and abs(x) > info.max else float(cast)
        assert number(found["number"]) == expected, x
        bits = int.from_bytes(cast.view(torch.uint8).numpy().tobytes(), "little")
        if float(cast) == expected:
            assert found["bits"] == [int(bit) for bit in f"{bits:0{info.bits}b}"], x
        assert number(found["decoded"]) == expected, x
    assert run("floats", given, format=name, kind="not a number", x=1)["model"]["decoded"] == "NaN"


def test_what_is_beyond_the_largest_is_said_to_be_a_choice_where_it_is_one(run):  # noqa: F811
    given = facts("layout/formats")
    for name, end in (("float16", 65504), ("bfloat16", None), ("fp8 e5m2", 57344), ("fp8 e4m3", 448)):
        x = 70000.0 if end else 3.4e38
        found = run("floats", given, format=name, kind="a number", x=x)
        cast = float(torch.tensor([x]).to(getattr(torch, DTYPES[name])))
        if name == "fp8 e4m3":
            assert cast == 448 or math.isnan(cast), "by version and device"
            assert "PyTorch's does or gives NaN" in found["words"]
        else:
            assert cast == math.inf and "becomes infinity" in found["words"]
    said = run("floats", given, format="fp8 e5m2", kind="a number", x=70000)["words"]
    assert "That is PyTorch's choice" in said and f"saturates at {torch.finfo(torch.float8_e5m2).max:.0f}" in said


@pytest.mark.nightly
def test_the_cards_own_conversion_saturates_at_eight_bits_only(tmp_path):
    (tmp_path / "cast.py").write_text(CAST, "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(tmp_path / "cast.py")]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
    for line, saturates in zip(told, (True, True, False, False)):
        assert ".f32" in line and ("satfinite" in line) == saturates, line


CAST = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def cast(x_ptr, y_ptr, TO: tl.constexpr):
    i = tl.arange(0, 1024)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(TO))


for name, dtype in (("fp8e5", tl.float8e5), ("fp8e4nv", tl.float8e4nv), ("fp16", tl.float16), ("bf16", tl.bfloat16)):
    signature = {"x_ptr": "*fp32", "y_ptr": f"*{name}", "TO": "constexpr"}
    source = ASTSource(fn=cast, signature=signature, constexprs={"TO": dtype})
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"].split()
    print(*sorted({word for word in ptx if word.startswith("cvt.rn")}))
"""


def test_fp4_has_its_fifteen_numbers(run):  # noqa: F811
    given = facts("layout/formats")
    for x in [value / 16 for value in range(0, 112)]:
        found = run("floats", given, format="fp4 e2m1", kind="a number", x=x)["model"]
        nearest = min(abs(x - value) for value in FP4)
        assert found["number"] in FP4 and abs(x - found["number"]) == nearest and found["decoded"] == found["number"]
        if sum(abs(x - value) == nearest for value in FP4) == 2:
            assert found["bits"][-1] == 0, "of two equally near ones the even one"
    assert "no pattern" in run("floats", given, format="fp4 e2m1", kind="not a number", x=1)["words"]


def test_integers_are_those_of_the_lesson(run):  # noqa: F811
    from annotated_examples.gemlite.gemm import dequantize_reference, quantize

    given = facts("layout/integers")
    for bits, outlier, shift in itertools.product((8, 4), (-3.3, 0.0, 1.4, 3.9), (-1.7, 0.0, 1.1)):
        found = run("integers", given, bits=bits, outlier=outlier, shift=shift)["model"]
        w = torch.tensor(found["w"], dtype=torch.float32)[:, None]
        words, scales, zeros = quantize(w, bits, 8)
        assert found["scale"] == pytest.approx(float(scales), rel=1e-6) and found["zero"] == float(zeros)
        assert found["word"] == int(words[0, 0]) & 0xFFFFFFFF
        back = dequantize_reference(words, scales, zeros, W_nbits=bits, group_size=8)[:, 0]
        assert found["back"] == pytest.approx(back.tolist(), abs=1e-5)
        assert found["error"] <= 0.5 * found["scale"] * (1 + 1e-9), "as the sentence below it says"


# ---------------------------------------------------------------- banks


def test_banks_count_the_words_that_meet(run):  # noqa: F811
    fields = itertools.product(("a row", "a column"), (8, 16, 32, 64, 128), (0, 1, 3, 8), (2, 4), (0, 1))
    for access, width, padding, size, swizzle in fields:
        values = dict(access=access, width=width, padding=padding, size=size, swizzle=swizzle)
        found = run("banks", {}, **values)["model"]
        wanted = []
        for lane in range(32):
            r, c = (lane, 0) if access == "a column" else divmod(lane, width)
            if swizzle:
                c ^= r % min(width, 32)
            wanted.append((r * (width + padding) + c) * size // 4)
        banks = [len({word for word in wanted if word % 32 == bank}) for bank in range(32)]
        assert found["words"] == wanted and found["count"] == max(banks) and found["used"] == sum(map(bool, banks))
    start = dict(access="a column", width=32, size=4)
    counts = [run("banks", {}, **start, padding=p, swizzle=s)["model"]["count"] for p, s in ((0, 0), (1, 0), (0, 1))]
    assert counts == [32, 1, 1], "the question's answer"


# ---------------------------------------------------------------- rotary embedding


def test_rope_turns_as_the_kernel_does(run):  # noqa: F811
    from annotated_examples.classics.rope import rope

    given = facts("attention/rope")
    D, half = given["D"], given["D"] // 2
    frequencies = given["base"] ** (-2 * torch.arange(half).double() / D)
    scores = set()
    for (m, distance), order in itertools.product(((0, 0), (20, 3), (64, 3), (5, 64)), ("interleaved", "half-split")):
        found = run("rope", given, m=m, distance=distance, order=order)["model"]
        start = torch.zeros(1, 1, 2, D)
        start[..., :: 2 if order == "interleaved" else 1][..., :half] = 1
        angles = torch.tensor([m, m - distance])[:, None] * frequencies
        turned, _ = rope(start, start, angles.cos().float(), angles.sin().float(), interleaved=order == "interleaved")
        assert found["query"] == pytest.approx(turned[0, 0, 0].tolist(), abs=1e-6)
        assert found["key"] == pytest.approx(turned[0, 0, 1].tolist(), abs=1e-6)
        assert found["dot"] == pytest.approx(float(turned[0, 0, 0] @ turned[0, 0, 1]) / half, abs=1e-6)
        assert found["curve"][distance] == pytest.approx(found["dot"])
        scores.add((distance, round(found["dot"], 9)))
    assert len(scores) == 3, "the score depends on the distance alone"


# ---------------------------------------------------------------- from an equation to its line


@pytest.mark.nightly
@pytest.mark.parametrize("name", ("the formula's sign", "the case's tag", "the kernel's sign", "the quoted number"))
def test_what_fails_when_a_line_of_the_chain_changes(name, scripts, tmp_path):  # noqa: F811
    chain = scripts("chain")
    for part in ("academy", "annotated_examples", "backprop_math", "benchmarks", "operations", "docs", "exercises"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    line, fails, said = chain.BREAKS[name]
    file, _, text = chain.changed(line)
    (tmp_path / file).write_text(text, "utf-8")
    command = [sys.executable, "-m", "academy.cli", "check", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    told = told.stdout + told.stderr
    assert said in told
    marks = {"autograd": "does not hold", "case": "prints", "run": "the kernel computes"}
    assert [check for check, words in marks.items() if words in told] == fails


# ---------------------------------------------------------------- a reader's hands


class Hand(Worked):
    """Presses and drags shapes of the drawing, with the mouse."""

    def drag(self, part: str, x: float = 0, y: float = 0) -> None:
        """From the middle of a shape by so many pixels; (0, 0) presses it."""
        shape = f"{self.figure}.querySelector('[data-part=\"{part}\"]')"
        self.browser.run(f"{shape}.scrollIntoView({{block: 'center'}})")
        left, top = self.browser.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({shape}.getBoundingClientRect())")
        for kind, share in (("mousePressed", 0), ("mouseMoved", 0.5), ("mouseMoved", 1), ("mouseReleased", 1)):
            if (x or y) or kind != "mouseMoved":
                at = {"x": left + share * x, "y": top + share * y, "button": "left", "buttons": 1, "clickCount": 1}
                self.browser.call("Input.dispatchMouseEvent", type=kind, **at)

    def values(self) -> dict:
        return self.browser.run(f"{self.figure}.explorable.values()")

    def scale(self) -> float:
        """Pixels of a unit of the drawing."""
        return self.browser.run(f"{self.figure}.querySelector('svg').getBoundingClientRect().width / 360")


def test_shapes_are_pressed_and_dragged(browser, address, run):  # noqa: F811
    """After every gesture the words are those of the fields' values."""
    hand = Hand(browser, urljoin(address, "guides/numerics/"), "floats")
    given = facts("layout/formats")
    hand.drag("bit-0")
    assert hand.values() == {"format": "bfloat16", "kind": "a number", "x": -0.10009765625}
    assert hand.state() == run("floats", given, **hand.values())["words"]
    for bit in (1, 6):  # the exponent 01111011 becomes all ones, and the fraction isn't zero
        hand.drag(f"bit-{bit}")
    assert hand.values()["kind"] == "not a number" and "has a pattern" in hand.state()

    hand = Hand(browser, urljoin(address, "learn/softmax/"), "online")
    hand.drag("x-5", y=-36 * hand.scale())
    hand.drag("first", x=-120 * hand.scale())
    assert (hand.values()["x5"], hand.values()["first"]) == (4, 2)
    assert hand.state() == run("online", {}, **hand.values())["words"]

    hand = Hand(browser, urljoin(address, "learn/from_profile/"), "fusion")
    hand.drag("op-0", y=4 * 54 * hand.scale())
    joins = [hand.values()[f"join{place}"] for place in range(1, 5)]
    assert joins == [1, 1, 1, 1] and hand.state().startswith("1 kernel (")
    hand.drag("op-3")
    assert hand.values()["join3"] == 0 and hand.state() == run("fusion", facts("work/fusion"), **hand.values())["words"]

    hand = Hand(browser, urljoin(address, "kernels/gemlite/gemm/"), "integers", width=390)
    hand.drag("outlier", x=84 * hand.scale())
    assert hand.values()["outlier"] == 2, "the middle of the strip is 0"
    assert hand.state() == run("integers", facts("layout/integers"), **hand.values())["words"]
