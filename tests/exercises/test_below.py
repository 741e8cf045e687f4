"""What the exercises of "Below Triton" expect of numbers is what the simulator does."""

# ruff: noqa: I001  academy.runtime.device must come before triton

from academy.runtime import device

import ast

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from academy import gluon as simulator
from academy.book import exercise_files
from academy.exercises import marking
from academy.gluon import layouts
from annotated_examples.common.hopper import described, tma_load

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="the simulator runs where kernels are interpreted")


def answer(name):
    """The names of an exercise's solution, once it has run."""
    exec(compile(exercise_files.named(f"below/{name}").solution, name, "exec"), names := {})
    return names


@gluon.jit
def allocates(M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, BUFFERS: gl.constexpr):
    rows: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tiles: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    result = gl.allocate_shared_memory(gl.bfloat16, [M, N], rows)  # noqa: F841
    a_s = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, M, K], tiles)  # noqa: F841
    b_s = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, K, N], tiles)  # noqa: F841
    bars = gl.allocate_shared_memory(gl.int64, [BUFFERS, 2], mbarrier.MBarrierLayout())  # noqa: F841


@pytest.mark.parametrize("tile", [(128, 256, 64), (128, 128, 64), (64, 64, 32)])
def test_as_many_buffers_fit_as_the_exercise_says(tile):
    most = answer("most_buffers")["most_buffers"](*tile, 2)
    simulator.simulate(allocates, (1,), *tile, most)
    with pytest.raises(simulator.WrongUse, match="Hopper has 232,448"):
        simulator.simulate(allocates, (1,), *tile, most + 1)


@gluon.jit
def ring(x_desc, tiles, steps):
    x_s = gl.allocate_shared_memory(x_desc.dtype, [4, 8, 64], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(4):
        mbarrier.init(full.index(s), count=1)
    for i in range(tiles * steps):
        mbarrier.expect(full.index(i % 4), x_desc.block_type.nbytes)
        tma_load(x_desc, [0, 0], full.index(i % 4), x_s.index(i % 4))
        mbarrier.wait(full.index(i % 4), (i // 4) & 1)


def test_the_phase_is_the_one_that_the_simulator_waits_for():
    events = []
    simulator.simulate(ring, (1,), described(torch.zeros(8, 64), [8, 64]), 3, 7, events=events)
    phases = [event["phase"] for event in events if event["kind"] == "go on"]
    assert len(phases) == 21 and answer("which_phase")["answer"] == phases[2 * 7 + 3]


def test_the_sums_are_in_as_many_registers():
    form = layouts.linear(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]), (64, 64))
    assert answer("held_sums")["answer"] == 3 * 2 ** len(form.registers)  # 192 columns are three times 64


def test_five_buffers_are_too_few_and_six_enough_in_the_chapters_model():
    text = (exercise_files.ROOT / "docs/learn/overlap.py").read_text("utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "schedule"]
    exec(compile(ast.Module(found, []), "overlap.py", "exec"), names := {})
    each = {}
    for buffers in (5, 6):
        times = names["schedule"](buffers, 3, 14, 4, 600)
        each[buffers] = (times[599][3] - times[299][3]) / 300
    assert each[5] > 4 == each[6] and answer("enough_buffers")["answer"] == 6


def test_every_exercise_of_the_stage_shows_a_picture():
    stage = [exercise for exercise in exercise_files.every() if exercise.stage == "below"]
    assert len(stage) >= 10 and all("[[figure: " in exercise.question for exercise in stage)


FAULTS = {
    "an arrival too many": (
        "turns",
        ("mbarrier.arrive(empty.index(buffer))", "mbarrier.arrive(empty.index(buffer), count=1)\n"
         "            mbarrier.arrive(empty.index(buffer))"),
        "consume 0 arrives at empty[0]",
        "Is it an arrival too many",
    ),
    "two arrivals of one reader": (
        "arrive_count",
        ("        mbarrier.arrive(empty.index(buffer))", "        mbarrier.arrive(empty.index(buffer))\n"
         "        if i == 1:\n            mbarrier.arrive(empty.index(buffer))"),
        "was completed by two arrivals of consume",
        "one is too many",
    ),
    "the wrong buffer given back": (
        "given_back",
        ("(k + BUFFERS - 1) % BUFFERS", "k % BUFFERS"),
        "still reads a_s[1]",
        "Does it give back the wrong buffer?",
    ),
    "a count of one for two readers": (
        "arrive_count",
        ("count=2", "count=1"),
        "has a count of 1, and the arrival of consume 0",
        "consume 1 reads x_s[0] as well, so it has to arrive there, too, and be counted in mbarrier.init",
    ),
    "a counter that begins again": (
        "turns",
        ("    turns = 0\n    for first in range(2 * W, tiles, 4):\n",
         "    for first in range(2 * W, tiles, 4):\n        turns = 0\n"),
        "waits for parity 1 of turn[0]",
        "Does a counter begin again, with each tile?",
    ),
    "a tile that nobody has given back": (
        "first_wait",
        ("mbarrier.wait(empty.index(buffer), ((k // BUFFERS) & 1) ^ 1)", "pass"),
        "fetch overwrites a tile that nobody has given back",
        "wait for the barrier at which those who read a_s[0] arrive",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_by_its_cause(fault):
    name, edit, *said = FAULTS[fault]
    text = exercise_files.named(f"below/{name}").solution
    assert text.count(edit[0]) == 1
    outcome = marking.mark(f"below/{name}", text.replace(*edit), 1, compiled=False)
    assert outcome.state == "failed" and all(piece in outcome.message for piece in said), outcome.message
