"""Explorables: what they count is what the kernels and the guides count, and a reader can work them.

The modules run in QuickJS, as they do for the stills; one browser test works them as a reader does.
"""

import ast
import functools
import heapq
import itertools
import json
import re
from collections import OrderedDict
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import pytest
import torch

from academy.site import pictures
from tests.site.test_pictures import FAULTS, scripts

__all__ = ["scripts"]  # the fixture

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures"


@pytest.fixture(scope="module")
def run(scripts):
    """What a module shows: run(name, facts, **values) gives model, panels and words."""
    moving = scripts("moving")
    return lambda name, facts=None, /, **values: moving.run(name, values, facts or {})


def keys() -> list[str]:
    return [
        f"{path.stem}/{name}"
        for path in sorted(FIGURES.glob("*.py"))
        for name in re.findall(
            r"^@picture\ndef (\w+)\(.*\):\n(?:    .*\n|\n)*?    return moving\(", path.read_text("utf-8"), re.M
        )
    ]


def values_of(control: dict) -> list:
    """Both ends of a control, or all that it offers."""
    return list(
        control["choices"] or control["stops"] or ([0, 1] if control["ticks"] else [control["low"], control["high"]])
    )


def test_each_module_has_its_picture():
    modules = {path.stem for path in (ROOT / pictures.MODULES).glob("*.js")} - {"drawing", "explore"}
    assert modules == {pictures.found(ROOT, key)["moves"] for key in keys()}


@pytest.mark.parametrize("key", keys())
def test_the_ends_of_every_control_are_drawn(key, run):
    drawn = pictures.found(ROOT, key)
    assert drawn["question"].endswith("?") and drawn["hint"].rstrip()[-1] in ".?"
    assert drawn["state"] in drawn["alt"] and drawn["question"] in drawn["alt"]
    heights = {re.findall(r'<svg viewBox="0 0 360 ([\d.]+)"', "".join(drawn["panels"]))[0]}
    for place, found in states(drawn, run):
        shown = "".join(found["panels"]) + found["words"]
        assert not re.search(r"NaN|undefined|Infinity|\[object", shown), place
        assert found["words"].endswith((".", "?")) and re.search(r"\d", found["words"])
        heights.add(re.findall(r'<svg viewBox="0 0 360 ([\d.]+)"', found["panels"][0])[0])
    assert len(heights) == 1, "a picture that grows moves the page"


def states(drawn: dict, run):
    """An explorable with one control at a time at each of its ends: which it is, and what is shown."""
    start = {control["name"]: control["value"] for control in drawn["controls"]}
    for control in drawn["controls"]:
        for value in values_of(control):
            yield (control["name"], value), run(drawn["moves"], drawn["facts"], **start | {control["name"]: value})


def test_time_ends_when_all_is_done(run, scripts):
    def highest(name, values, facts):
        told = f"JSON.stringify(explorables.modules.{name}.highest({json.dumps(values)}, {json.dumps(facts)}))"
        return json.loads(scripts("moving")._engine(name).eval(told))

    for buffers in (1, 2, 5):
        values = dict(buffers=buffers, copy=2, latency=4, compute=2, time=0)
        found = run("overlap", {"steps": 6}, **values)["model"]
        assert highest("overlap", values, {"steps": 6}) == {"time": found["end"]}
    row = {f"x{place}": 0 for place in range(6)}
    for second, chunks in ((6, 2), (5, 3), (4, 2)):
        assert highest("online", row | dict(first=4, second=second, step=0), {}) == {"step": chunks}


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.site_check)])
def test_their_texts_can_be_read_at_the_ends_too(browser, address, run, step):
    browser.open(urljoin(address, "guides/numerics/"), width=390)
    for key in keys()[::step]:
        for place, found in states(pictures.found(ROOT, key), run):
            html = json.dumps(
                f'<figure class="drawn explore"><div class="panels">{"".join(found["panels"])}</div></figure>'
            )
            browser.run(f"document.querySelector('article').innerHTML = {html}")
            assert browser.run(FAULTS) == [], (key, place)


# ---------------------------------------------------------------- what they count


@pytest.mark.parametrize("tau", [2, 7, 10, 50])
def test_a_temperature_does_to_a_row_what_the_lesson_computes(tau, run):
    from annotated_examples.classics.token_logprobs import token_logprobs

    facts = pictures.found(ROOT, "logprobs/temperature")["facts"]
    for token in range(len(facts["row"])):
        found = run("temperature", facts, tau=tau, token=token)["model"]
        rows = torch.tensor([facts["row"]], dtype=torch.float32)
        logprobs, entropies = token_logprobs(rows, torch.tensor([token]), temperature=tau / 10)
        assert found["logprob"] == pytest.approx(logprobs.item(), abs=1e-5)
        assert found["entropy"] == pytest.approx(entropies.item(), abs=1e-5)
        assert found["p"] == pytest.approx(torch.softmax(rows[0] * 10 / tau, 0).tolist(), abs=1e-6)


@pytest.mark.parametrize("advantage", [-2, -1, 0, 1, 2])
def test_a_clip_holds_what_the_lesson_holds(advantage, run):
    from annotated_examples.classics.policy_loss import grpo_loss

    for ratio, (low, high) in itertools.product((41, 79, 81, 100, 119, 131, 199), ((20, 20), (5, 30))):
        found = run("clip", ratio=ratio, advantage=advantage, low=low, high=high)["model"]
        logprobs = torch.log(torch.tensor([[ratio / 100]])).requires_grad_()
        constants = torch.zeros(1, 1), torch.tensor([float(advantage)])
        loss = grpo_loss(logprobs, *constants, clip=(low / 100, high / 100))
        loss.backward()
        assert found["term"] == pytest.approx(loss.item(), abs=1e-5)
        assert found["slope"] == pytest.approx(logprobs.grad.item(), abs=1e-5)


def test_a_plateau_is_cut_where_the_lesson_cuts_it(run):
    from annotated_examples.attention.select_keys import select_keys

    facts = pictures.found(ROOT, "indexer/plateau")["facts"]
    assert facts["scores"].count(0) > 8 and min(facts["scores"]) < 0
    for k in range(1, len(facts["scores"]) + 1):
        row = torch.tensor([facts["scores"]], dtype=torch.float32)
        assert run("plateau", facts, k=k)["model"]["keys"] == select_keys(row, k)[0].tolist()


@pytest.mark.parametrize("k", [1, 6, 13, 24])
def test_lists_are_those_that_the_lesson_selects(k, run):
    """A column holds what comes back to the key: all keys weigh the same, upstream gradients are as long as lists."""
    from annotated_examples.attention.select_keys import select_keys
    from annotated_examples.attention.sparse_mla import sparse_attention

    facts = pictures.found(ROOT, "selected/columns")["facts"]
    keys, queries = len(facts["scores"][-1]), len(facts["scores"])
    rows = torch.tensor([row + [0] * (keys - len(row)) for row in facts["scores"]], dtype=torch.float32)
    end = torch.tensor([len(row) for row in facts["scores"]], dtype=torch.int32)
    found, lists = run("selected", facts, k=k, key=0)["model"], select_keys(rows, k, end=end)
    assert found["lists"] == [[key for key in row if key >= 0] for row in lists.tolist()]
    assert found["rows"] == (lists >= 0).sum()
    kv = torch.zeros(keys, 1, requires_grad=True)
    o = sparse_attention(torch.zeros(queries, 1, 1), kv, lists, rank=1, scale=1.0)
    o.backward((lists >= 0).sum(1).view(-1, 1, 1).float())  # all keys weigh the same
    assert kv.grad[:, 0].tolist() == pytest.approx([len(each) for each in found["queries"]])


def test_heads_and_a_latent_take_what_the_tensors_take(run):
    facts = pictures.found(ROOT, "latent/cache")["facts"]
    bf16 = functools.partial(torch.empty, dtype=torch.bfloat16)
    for heads in (1, 8, 128):
        kept = bf16(heads, facts["key"]).nbytes + bf16(heads, facts["value"]).nbytes
        assert run("latent", facts, heads=heads)["model"] == dict(kept=kept, latent=bf16(512 + 64).nbytes)


def test_a_row_is_rotated_as_the_lesson_rotates_it(run):
    from annotated_examples.attention.quantized_cache import append_
    from annotated_examples.common.codes import rotation

    facts = pictures.found(ROOT, "quantized/rotation")["facts"]
    signs = torch.tensor(facts["signs"], dtype=torch.float32)
    for outlier, mean, signed in ((12, 0, 0), (0, 3.5, 0), (0, 3.5, 1), (20, 1, 1)):
        found = run("rotation", facts, outlier=outlier, mean=mean, signed=signed)["model"]
        before, used = torch.tensor(found["before"]), signs if signed else torch.ones(16)
        assert found["after"] == pytest.approx((before @ rotation(used, torch.float32)).tolist(), abs=1e-5)
        for signs_given, step in zip((None, used), found["steps"]):
            cache, scale = torch.zeros(1, 1, 1, 8, dtype=torch.uint8), torch.zeros(1, 1, 1, 2)
            append_(cache, scale, before[None, None], torch.zeros(1, dtype=torch.int32), signs=signs_given)
            assert scale[0, 0, 0, 0].item() == pytest.approx(step, abs=1e-5)


@pytest.mark.parametrize("which", ["Keller Jordan", "Polar Express"])
def test_a_singular_value_goes_where_the_reference_takes_it(which, run):
    from annotated_examples.optimizers.muon import orthogonalize_reference

    facts = pictures.found(ROOT, "muon/path")["facts"]
    for sigma in (1, 50, 500, 999):
        found = run("newton_schulz", facts, sigma=sigma, which=which)["model"]["path"]
        assert len(found) == 6
        for rounds, value in enumerate(found):
            x = torch.diag(torch.tensor([sigma / 1000, (1 - (sigma / 1000) ** 2) ** 0.5], dtype=torch.float64))
            assert value == pytest.approx(orthogonalize_reference(x, facts["schedules"][which][:rounds])[0, 0].item())


def test_an_average_is_that_of_the_optimizer(run):
    from annotated_examples.optimizers.adamw import adamw_reference

    facts = pictures.found(ROOT, "optimizers/correction")["facts"]
    for beta in (0, 0.9, 0.999):
        found = run("average", facts, beta=beta, step=1)["model"]
        p, m, v, step = torch.zeros(4, dtype=torch.float64)
        for place, gradient in enumerate(facts["gradients"]):
            adamw_reference([p], [torch.full_like(p, gradient)], [m], [v], step, lr=0.1, betas=(beta, 0.99))
            assert found["averages"][place] == pytest.approx(m.item())
            assert found["corrected"][place] == pytest.approx(m.item() / (1 - beta ** step.item()))


def test_rounds_are_those_of_the_reference(run):
    from annotated_examples.model.sinkhorn import sinkhorn_reference

    facts = pictures.found(ROOT, "streams/rounds")["facts"]
    for logit in (-60, 20, 90):
        logits = torch.tensor(facts["logits"], dtype=torch.float64)
        logits[0, 0] = logit / 10
        for rounds in (1, 3, 10):
            found = run("sinkhorn", facts, logit=logit, step=2 * rounds)["model"]
            h = sinkhorn_reference(logits, rounds)
            assert found["matrix"] == [pytest.approx(row) for row in h.tolist()]
            assert found["left"][rounds - 1] == pytest.approx((h.sum(0) - 1).abs().max().item(), rel=1e-6, abs=1e-12)


def test_l2_order_counts_what_the_kernel_orders(run):
    from academy.site import l2_picture
    from annotated_examples.tutorials.matmul_grouped import program_order

    for group in range(1, 10):
        order = program_order(9, 9, group)
        loads = l2_picture.count(order, 9, 9)
        found = run("l2_order", {"blocks": 9}, group=group)["model"]
        assert [tuple(tile) for tile in found["tiles"]] == list(order)
        assert (found["left"], found["right"]) == (loads.left, loads.right)


def test_occupancy_is_the_guides(run, scripts):
    guide = scripts("card").guide("busy")
    sizes = (4, 64, 32), (4, 104, 32), (16, 104, 227), (16, 255, 0), (1, 16, 0), (32, 40, 7), (2, 104, 0)
    for warps, registers, shared in sizes:
        found = run("occupancy", warps=warps, registers=registers, shared=shared)["model"]
        assert found["limits"] == guide.limits(warps, registers, shared * 1024)
        assert (found["fit"], found["tightest"]) == guide.programs_per_sm(warps, registers, shared * 1024)
    # A quarter of an SM has 16,384 registers: room for 4 warps of 104 a thread, though all four could hold 19.
    assert guide.programs_per_sm(2, 104) == (8, "registers")


def test_the_roofline_bounds_as_the_formula_does(run, scripts):
    hardware = scripts("hardware")
    facts = hardware.roofline().facts
    for operations, moved, bound in ((137439, 100, "arithmetic"), (500, 250, "memory")):
        intensity, expected, least = hardware.limit(operations, moved)
        found = run("roofline", facts, operations=operations, moved=moved)["model"]
        assert found["bound"] == expected == bound
        assert [found["intensity"], found["least"]] == pytest.approx([intensity, least])


def test_halves_are_those_of_the_kernel(run, scripts):
    """Scores of queries and keys that are all 1 are what the gates leave between two tokens."""
    from annotated_examples.recurrences import kda

    gates = scripts("kda").GATES
    T = len(gates)
    one, g = torch.ones(1, 1, T, 1), torch.tensor(gates)[None, None, :, None]
    walk, part = kda.sizes(one, one, T, 1, 16)
    p, *_ = kda.differences(one, one, one, g, one[..., 0], None, None, kda.cut(one, None, T), 1.0, walk, part)
    for i in range(1, T):
        for j in range(i):
            found = run("halves", {"gates": gates}, i=i, j=j)["model"]
            assert max(found["row"], found["column"]) <= 0 and j < found["middle"] <= i
            assert i // (2 * found["half"]) == j // (2 * found["half"]) and found["middle"] % found["half"] == 0
            assert found["left"] == pytest.approx(p[0, 0, i, j].item(), rel=1e-5)


def test_coalescing_touches_the_guides_sectors(run, scripts):
    guide = scripts("card").guide()
    for stride in (1, 2, 3, 7, 8, 31, 32):
        for size in (1, 2, 4):
            found = run("coalescing", stride=stride, size=size)["model"]
            assert found["sectors"] == guide.sectors(stride, size)
            assert found["useful"] == pytest.approx(guide.useful(stride, size))


def recorded(module, call):
    """What a call's first launch did: bytes loaded and stored, and values(program, name), all that a name was given in
    the kernel itself."""
    from academy.traces.observer import jitted_files
    from academy.traces.recorder import Recorder
    from academy.traces.recording import Recording
    from academy.traces.watched_memory import WatchedMemory

    with WatchedMemory() as watched:
        recorder = Recorder(jitted_files(module), watched)
        with recorder.running():
            call()
    launch, places = recorder.launches[0], list(recorder.places)
    pool = Recording({"pool": recorder.pool.entries})

    def values(program, name):
        steps = launch.programs[program]
        return [pool.value(step[1][name]) for step in steps if name in step[1] and places[step[0]][0] == launch.kernel]

    moved = {"load": 0, "store": 0}
    for touch in launch.touches:
        moved[touch.operation] += int((touch.elements >= 0).sum()) * touch.argument.itemsize
    return moved, values


def window_of(window) -> int:
    return 64 if window == "all" else window


@pytest.mark.parametrize(
    "block_m, block_n, causal, window",
    [(16, 16, 1, "all"), (32, 8, 0, "all"), (16, 32, 1, 16), (32, 16, 0, 8)],
)
def test_the_walk_is_the_recorded_run_of_flash_attention(run, block_m, block_n, causal, window):
    from annotated_examples.attention import flash_attention as lesson

    # Scores of 1.6 sin(0.7 j + 0.35 i) + 0.05 j from sixteen features; the scale is a quarter.
    i = torch.arange(64.0)
    q, k, v = torch.zeros(3, 1, 1, 64, 16)
    q[0, 0, :, 0], q[0, 0, :, 1], q[0, 0, :, 2] = 6.4 * torch.cos(0.35 * i), 6.4 * torch.sin(0.35 * i), 0.2
    k[0, 0, :, 0], k[0, 0, :, 1], k[0, 0, :, 2] = torch.sin(0.7 * i), torch.cos(0.7 * i), i
    v[0, 0, :, 0] = torch.cos(0.4 * i)
    far = -1 if window == "all" else window - 1
    options = lesson.contract(q, k, v, bool(causal), 0.25, (far, 0 if causal else far), 0.0, None, True)
    tiles = dict(BLOCK_M=block_m, BLOCK_N=block_n)
    moved, values = recorded(lesson, lambda: lesson.attention_forward(q, k, v, None, None, None, options, **tiles))
    found = run("walk", block_m=block_m, block_n=block_n, causal=causal, window=window, step=0)["model"]
    assert found["bytes"] == moved["load"] + moved["store"]
    # Keys that a program loads, in tiles that lie over their end, and that none of its queries sees.
    seen = [[key for key in range(64) if q - window_of(window) < key <= (q if causal else 63)] for q in range(64)]
    if not causal and window != "all":
        seen = [[key for key in range(64) if abs(q - key) < window] for q in range(64)]
    unseen = 0
    for tile in found["tiles"]:
        rows = {key for q in range(tile["row"], tile["row"] + block_m) for key in seen[q]}
        unseen += len(set(range(tile["start"], tile["start"] + block_n)) - rows)
    assert (found["unseen"], found["idle"]) == (unseen, unseen * 2 * 16 * 4)
    for program in range(64 // block_m):
        tiles = [tile for tile in found["tiles"] if tile["row"] == program * block_m]
        here = functools.partial(values, (program, 0, 0))
        assert [int(start) for start in here("start")] == [tile["start"] for tile in tiles]
        seen = [np.isfinite(s).all() for s in here("s")[1::2]]  # the scores, and then the scores under their mask
        assert ["full" if each else "masked" for each in seen] == [tile["kind"] for tile in tiles]
        for name, shown in (("row_max", "m"), ("row_sum", "l"), ("acc", "acc")):
            after = [np.atleast_2d(each.T)[0, -1] for each in here(name)][-len(tiles) :]
            expected = [tile["after"][shown] for tile in tiles]
            expected = [x for x in expected if x is not None]
            assert after[-len(expected) :] == pytest.approx(expected, abs=2e-5), (program, name)
        alpha = [float(each[-1]) for each in here("alpha")]
        assert alpha[1:] == pytest.approx([tile["alpha"] for tile in tiles][1:], abs=1e-5)


@pytest.mark.parametrize("block_m, block_n, block_k", [(16, 16, 16), (8, 32, 16), (32, 8, 32)])
def test_the_tiled_product_loads_what_the_recorded_run_loads(run, scripts, block_m, block_n, block_k):
    from annotated_examples.tutorials import matmul_blocked as lesson

    x, y = torch.arange(32.0 * 32).view(32, 32) % 7, torch.arange(32.0 * 32).view(32, 32) % 5
    tiles = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k)
    moved, values = recorded(lesson, lambda: lesson.matmul_forward(x, y, **tiles))
    facts = {"side": 32, "size": 4, "bandwidth": 4, "operations": 700, "registers": 65536}
    found = run("tiled", facts, block_m=block_m, block_n=block_n, block_k=block_k, pid=1, step=1)["model"]
    assert (found["loaded"], found["stored"]) == (moved["load"], moved["store"])
    assert len(values((0, 0, 0), "acc")) - 1 == found["rounds"]
    assert found["perByte"] == pytest.approx(2 * 32**3 / moved["load"])
    assert found["perByte"] == pytest.approx(scripts("card").guide("busy").operations_per_byte(block_m, block_n, 4))


@pytest.mark.parametrize("group, capacity, lag", [(1, 120, 0), (4, 120, 0), (4, 8, 1), (5, 300, 0), (16, 272, 4)])
def test_l2_keeps_and_drops_what_a_cache_keeps_and_drops(run, group, capacity, lag):
    from academy.site import l2_picture
    from annotated_examples.tutorials.matmul_grouped import program_order

    tiles, order = 16, program_order(16, 16, group)
    facts = {"tiles": tiles, "places": 16}
    cache, hits, count, first = OrderedDict(), 0, 0, set()
    for step in range(16 * 16 + 15 * lag):
        for place in range(16):
            own = step - place * lag
            pid = own // tiles * 16 + place
            if own < 0 or pid >= tiles * tiles:
                continue
            (row, column), k = order[pid], own % tiles
            for tile in (("x", row, k), ("y", k, column)):
                if step < tiles and pid < 16:
                    first.add(tile)
                hits += tile in cache
                count += 1
                cache[tile] = cache.pop(tile, None)
                if len(cache) > capacity:
                    cache.popitem(last=False)
    shown = run("l2", facts, group=group, capacity=capacity, lag=lag, step=10**6)
    found = shown["model"]
    assert (found["whole"], found["all"]) == (hits, count) == (found["hit"], found["loads"])
    assert len(found["cached"]) == len(cache)
    assert f"the whole product finds {100 * hits / count:.0f}% of its loads" in shown["words"]
    if not lag:
        wave = run("l2", facts, group=group, capacity=512, lag=0, step=tiles)["model"]
        assert len(wave["cached"]) == len(first) == l2_picture.count(order, 16, 16).total


def test_l2_shows_who_brings_a_tile_and_who_finds_it(run):
    """Loads of a step, first from memory and then found by others of the same step, are neither red nor green alone."""
    drawn = pictures.found(ROOT, "products/l2")
    start = {control["name"]: control["value"] for control in drawn["controls"]}
    best = max(range(1, 17), key=lambda group: run("l2", drawn["facts"], **start | {"group": group})["model"]["whole"])
    assert start["group"] != best, "the start isn't the answer"
    for group, lag, step in ((2, 0, 40), (1, 0, 40), (4, 1, 90), (3, 2, 200)):
        values = start | {"group": group, "lag": lag, "step": step}
        found, before = (run("l2", drawn["facts"], **values | {"step": s})["model"] for s in (step, step - 1))
        assert found["here"] == found["loads"] - before["loads"]
        assert found["here"] - found["fresh"] == found["hit"] - before["hit"]
        kinds = [kind for _, kind in found["now"]]
        assert kinds.count("brought") + kinds.count("shared") == found["fresh"], "each tile comes from memory once"
        shown = run("l2", drawn["facts"], **values)["panels"][0]
        assert shown.count('class="g bare"') == kinds.count("shared") + 1, "and one in the legend"


def test_waves_are_the_guides_where_programs_are_even(run, scripts):
    guide = scripts("card").guide()
    even = dict(jitter=0, start=0, split=1, persistent=0, time=0)
    for programs in (1, 132, 133, 264, 500):
        found = run("waves", {"sms": guide.SMS}, programs=programs, **even)["model"]
        assert (found["rounds"], round(found["busy"], 2)) == guide.waves(programs)
        assert found["end"] == pytest.approx(found["rounds"])
        kept = run("waves", {"sms": guide.SMS}, programs=programs, **even | {"persistent": 1, "start": 20})["model"]
        assert kept["end"] == pytest.approx(found["rounds"] + 0.2), "it starts once"


def test_uneven_programs_go_where_a_place_is_free(run):
    found = run("waves", {"sms": 132}, programs=400, jitter=50, start=10, split=2, persistent=0, time=0)["model"]
    free = [0.0] * 132
    for piece in found["pieces"]:
        assert piece["from"] == pytest.approx(heapq.heappop(free))
        heapq.heappush(free, piece["until"])
    assert len(found["pieces"]) == 800 and found["end"] == pytest.approx(max(free))
    assert (
        0.93 < found["work"] / 400 < 1.07 and len({piece["until"] - piece["from"] for piece in found["pieces"]}) > 390
    )


def test_latency_is_hidden_as_the_formula_says(run, scripts):
    hardware, guide = scripts("hardware"), scripts("card").guide("busy")
    rate = hardware.latency().facts["rate"]
    assert rate * 500 == pytest.approx(guide.in_flight(4.8e12, 0.5e-6)[1])
    for values in (
        dict(warps=12, loads=1, size=16, latency=500, work=50),
        dict(warps=5, loads=4, size=8, latency=300, work=0),
        dict(warps=8, loads=8, size=16, latency=500, work=0),
        dict(warps=64, loads=1, size=4, latency=900, work=400),
    ):
        found = run("latency", {"rate": rate}, time=2000, **values)["model"]
        service = 32 * values["size"] / rate
        round_ns = values["latency"] + (values["loads"] - 1) * service + values["work"]
        assert found["share"] == pytest.approx(min(1, values["warps"] * values["loads"] * service / round_ns))
        assert found["least"] == pytest.approx(guide.in_flight(4.8e12, values["latency"] * 1e-9)[1])
        assert found["asked"] == values["warps"] * values["loads"] * 32 * values["size"]
        # The simulation agrees with it, once the first round is over.
        ends = sorted(end for each in found["rounds"] for end in each["sent"])
        rounds = [end for end in ends if end > 1000 and end <= 1000 + round_ns]
        assert len(rounds) * service / round_ns == pytest.approx(found["share"], abs=1.01 * service / round_ns)
        assert all(b - a > service - 1e-6 for a, b in zip(ends, ends[1:])), "memory sends one after the other"


def test_little_s_bar_is_green_only_where_memory_never_pauses(run, scripts):
    facts = scripts("hardware").latency().facts
    kinds = set()
    for warps, loads, size, latency, work in itertools.product(
        (1, 5, 6, 12, 64), (1, 8), (4, 16), (300, 900), (0, 400)
    ):
        values = dict(warps=warps, loads=loads, size=size, latency=latency, work=work, time=2000)
        shown = run("latency", facts, **values)
        found, service = shown["model"], 32 * size / facts["rate"]
        ends = sorted(end for each in found["rounds"] for end in each["sent"])
        late = [end for end in ends if 1000 < end <= 1000 + 2 * found["ns"] and end < 1990]
        pauses = any(b - a > service + 1e-6 for a, b in zip(late, late[1:])) or not late
        (kind,) = re.findall(r'class="(\w+)" data-part="asked"', shown["panels"][1])
        kinds.add(kind)
        assert (kind == "g") == (found["share"] == 1) == ("Memory never pauses" in shown["words"]), values
        assert kind != "g" or not pauses, values
        assert (kind == "r") == (found["asked"] < found["least"])
        assert "sends 100%" not in shown["words"], "rounded down"
    assert kinds == {"r", "a", "g"}
    trial = run("latency", facts, warps=5, loads=8, size=16, latency=500, work=50, time=2000)
    assert (
        trial["words"].startswith("Memory sends 86% of what it could.")
        and 'class="a" data-part="asked"' in trial["panels"][1]
    )


def test_splits_of_k_add_up(run, scripts):
    from annotated_examples.gemlite import gemm_splitK

    facts, guide = scripts("products").split_k().facts, scripts("card").guide()
    assert facts["block"] == gemm_splitK.CONFIGS[1].kwargs["BLOCK_N"]
    for split in (1, 2, 4, 8, 16):
        found = run("split_k", facts, split=split)["model"]
        assert found["programs"] == facts["columns"] // facts["block"] * split and found["each"] * split == facts["K"]
        rounds, busy = guide.waves(found["programs"])
        assert (found["rounds"], round(found["busy"], 2), found["time"]) == (rounds, busy, rounds / split)


def test_the_timeline_follows_the_model_on_its_page(run):
    """`schedule` stands in the chapter, and so does the formula for a long run."""
    tree = ast.parse((ROOT / "docs/learn/overlap.py").read_text("utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "schedule"]
    exec(compile(ast.Module([function], []), "overlap.py", "exec"), names := {})
    for buffers, copy, latency, compute in (
        (1, 2, 4, 2),
        (2, 2, 4, 2),
        (4, 2, 4, 2),
        (3, 1, 16, 8),
        (5, 8, 0, 1),
        (2, 3, 5, 7),
    ):
        values = dict(copy=copy, latency=latency, compute=compute)
        want = names["schedule"](buffers, **values, steps=6)
        end = want[-1][3]
        for time in (0, end // 2, end):
            found = run("overlap", {"steps": 6}, buffers=buffers, **values, time=time)["model"]
            assert [(t["begins"], t["there"], t["starts"], t["done"]) for t in found["times"]] == want
            assert found["now"]["multiplied"] == [
                k for k, (_, _, first, last) in enumerate(want) if first <= time < last
            ]
            assert found["now"]["waiting"] == [k for k, (_, first, last, _) in enumerate(want) if first <= time < last]
        assert found["end"] == end and found["busy"] == 6 * compute
        assert found["alone"] == names["schedule"](1, **values, steps=6)[-1][3]
        long = names["schedule"](buffers, **values, steps=600)
        assert (
            found["each"]
            == pytest.approx((long[599][3] - long[299][3]) / 300)
            == max(copy, compute, (copy + latency + compute) / buffers)
        )


# ---------------------------------------------------------------- a reader's hands


class Worked:
    """An explorable on a page, worked by keyboard."""

    def __init__(self, browser, url: str, name: str, width: int = 1440):
        self.browser, self.figure = browser, f"document.querySelector('figure[data-moves={name}]')"
        browser.errors.clear()
        browser.requests.clear()
        browser.open(url, width=width, height=844 if width < 600 else 1000)
        browser.run(f"{self.figure}.scrollIntoView()")
        browser.wait(f"{self.figure}.explorable")

    def press(self, field: str, *keys: str):
        self.browser.run(f"{self.figure}.querySelector('[name={field}]').focus()")
        for key in keys:
            self.browser.press(key)

    def state(self) -> str:
        assert self.browser.errors == []
        return self.browser.run(f"{self.figure}.querySelector('.state').textContent")


def test_explorables_are_worked_by_keyboard(browser, address, run):
    worked = Worked(browser, urljoin(address, "guides/how-a-gpu-runs-triton/"), "coalescing")
    assert not any(url.endswith("explore/roofline.js") for url in browser.requests), "a page loads its own modules only"
    still = pictures.found(ROOT, "hardware/coalescing")
    assert worked.state() == still["state"], "the first thing drawn is the still"
    worked.press("stride", "ArrowLeft", "ArrowLeft")
    worked.press("size", "ArrowUp")
    assert worked.state() == run("coalescing", stride=6, size=2)["words"]

    worked = Worked(browser, urljoin(address, "guides/measuring/"), "roofline")
    for impossible in ("0", "-5", "100001"):
        worked.press("moved", "Control+a", *impossible)
        assert worked.state() == "Bytes that must move, millions: a number from 1 to 100,000, please.", impossible
    paled = f"Number(getComputedStyle({worked.figure}.querySelector('.panels')).opacity) < 0.5"
    assert browser.run(paled), "the old answer doesn't stand beside the refusal"
    worked.press("moved", "Control+a", "2", "0", "0")
    assert not browser.run(paled)
    facts = pictures.found(ROOT, "hardware/roofline")["facts"]
    assert worked.state() == run("roofline", facts, operations=1074, moved=200)["words"]


def test_an_explorable_plays_on_a_phone_and_can_be_touched(browser, address, run):
    worked = Worked(browser, urljoin(address, "learn/tiles_and_pointers/"), "tiled", width=390)
    facts = pictures.found(ROOT, "products/tiled")["facts"]
    small = (
        "[...{0}.querySelectorAll('button, select, input[type=range]')]"
        ".filter(e => e.getBoundingClientRect().height < 44)"
    )
    assert browser.run(f"{small.format(worked.figure)}.length") == 0

    def button(what):
        browser.run(f"{worked.figure}.querySelector('[data-do={what}]').click()")

    button("start")
    button("next")
    start = dict(block_m=64, block_n=64, block_k=64, pid=9)
    assert worked.state() == run("tiled", facts, **start, step=1)["words"]
    button("play")
    assert browser.run(f"{worked.figure}.querySelector('.state').getAttribute('aria-live')") == "off"
    browser.wait(f"{worked.figure}.querySelector('[name=step]').value === '3'")
    button("play")
    assert browser.run(f"{worked.figure}.querySelector('.state').getAttribute('aria-live')") == "polite"

    shape = f"{worked.figure}.querySelector('[data-part=result]')"
    browser.run(f"{shape}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"(({{x, y, width, height}}) => [x, y, width, height])({shape}.getBoundingClientRect())")
    at = {"x": box[0] + box[2] * 0.95, "y": box[1] + box[3] * 0.3, "button": "left", "clickCount": 1}
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, **at)
    assert browser.run(f"{worked.figure}.querySelector('[name=pid]').value") == str(2 * 8 + 7)

    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    play = f"getComputedStyle({worked.figure}.querySelector('[data-do=play]')).display"
    assert browser.run(play) == "none"
    browser.call("Emulation.setEmulatedMedia", features=[])


def test_time_ends_where_the_chunks_do(browser, address):
    for page in ("learn/softmax/", "guides/numerics/"):
        worked = Worked(browser, urljoin(address, page), "online")
        slider = f"{worked.figure}.querySelector('[name=step]')"
        told = f"[{slider}.value, {slider}.max, {slider}.parentElement.querySelector('output').textContent]"
        assert browser.run(told) == ["2", "2", "2 of 2"]
        before = worked.state()
        browser.run(f"{worked.figure}.querySelector('[data-do=next]').click()")
        assert worked.state() == before and "That was the last one." in before
        worked.press("second", "ArrowLeft")
        assert browser.run(told) == ["3", "3", "3 of 3"], "who saw the end still does"


def test_a_slider_says_what_it_offers(browser, address):
    worked = Worked(browser, urljoin(address, "learn/from_profile/"), "fusion", width=390)
    listed = f"[...{worked.figure}.querySelector('[name=width]').parentElement.querySelectorAll('.stops span')]"
    assert browser.run(f"{listed}.map(e => e.textContent)") == ["1024", "4096", "16384", "32000", "65536", "128256"]
    edges = browser.run(f"{listed}.map(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right])")
    assert all(right < left for (_, right), (left, _) in zip(edges, edges[1:])), "none lies on another"
    name = f"{worked.figure}.querySelector('[name=width]').labels[0].querySelector('.stops').ariaHidden"
    assert browser.run(name) == "true", "a slider's name isn't all of its values"


def test_on_a_phone_the_sentence_stays_while_the_sliders_are_worked(browser, address):
    worked = Worked(browser, urljoin(address, "guides/keep-the-card-busy/"), "latency", width=390)
    top = "document.querySelector('.md-header').getBoundingClientRect().bottom"
    box = "(({{top, bottom}}) => [top, bottom])({}.getBoundingClientRect())"
    for field in ("warps", "loads", "size", "latency", "work"):
        slider = f"{worked.figure}.querySelector('[name={field}]')"
        for block in ("center", "end"):
            browser.run(f"{slider}.parentElement.scrollIntoView({{block: '{block}'}})")
            browser.run("new Promise(requestAnimationFrame)")
            begin, end = browser.run(box.format(f"{worked.figure}.querySelector('.state')"))
            assert begin >= browser.run(top) - 1 and end < 844, (field, block)
            low, high = browser.run(box.format(f"{slider}.parentElement"))
            above, below = browser.run(box.format(f"{worked.figure}.querySelector('.time')"))
            assert high <= above + 1 or low >= below - 1, f"the time lies on {field}"
            assert low >= end - 1, f"the sentence lies on {field}"
    # And while the picture is in view its time is, too.
    browser.run(f"{worked.figure}.querySelector('.panels').scrollIntoView()")
    browser.run("new Promise(requestAnimationFrame)")
    assert browser.run(box.format(f"{worked.figure}.querySelector('.time')"))[1] == pytest.approx(844, abs=1)


@pytest.mark.parametrize("width", [390, 1440])
def test_back_to_top_covers_no_title(browser, address, width):
    browser.open(urljoin(address, "guides/keep-the-card-busy/"), width=width, height=844)
    button = "document.querySelector('.md-top')"
    headings = "[...document.querySelectorAll('article :is(h1, h2, h3)')]"
    for place in range(1, browser.run(f"{headings}.length")):
        top = f"{headings}[{place}].getBoundingClientRect().top"
        browser.run(f"scrollBy(0, {top} + 200)")
        browser.wait(f"(scrollBy(0, 8), {button}.hidden)")
        browser.wait(f"(scrollBy(0, -8), !{button}.hidden)")
        browser.run(f"scrollBy(0, {top} - 70)")  # below the bar, where a reader who scrolls up looks
        covered = browser.run(f"""(() => {{
          const a = {button}.getBoundingClientRect(), range = document.createRange()
          range.selectNodeContents({headings}[{place}])
          return [...range.getClientRects()].some(b =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) }})()""")
        assert not covered, place
    size = browser.run(f"(({{width, height}}) => [width, height])({button}.getBoundingClientRect())")
    assert min(size) >= 24 and max(size) < 60, "small, and large enough for a finger"
