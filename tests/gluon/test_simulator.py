"""What the simulator computes, and what it names: small kernels, each with one thing wrong."""

# ruff: noqa: I001  the kernels choose the interpreter, before triton is imported

from tests.gluon import kernels

import pytest
import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from academy import gluon
from academy.runtime import device
from academy.gluon import units
from academy.gluon.rewriting import MODELLED

SEEDS = range(6)


def described(tensor, block):
    dtype = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}[tensor.dtype]
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block, layout)


def copied(seed=0, WAIT=True, FENCE=True, DONE=True, BYTES=0):
    x = torch.arange(40 * 64, dtype=torch.float32).reshape(40, 64).half() / 64
    y = torch.full_like(x, -1)
    args = described(x, [16, 64]), described(y, [16, 64])
    gluon.simulate(kernels.tile_copy, (3,), *args, WAIT, FENCE, DONE, BYTES, seed=seed)
    assert torch.equal(y, x + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tile_goes_in_and_out_with_a_tail(seed):
    copied(seed)


@pytest.mark.parametrize(
    ("missing", "kind", "said"),
    [
        (dict(WAIT=False), gluon.Race, "race on tile: load at line .*value = tile.load"),
        (dict(FENCE=False), gluon.MissingFence, "missing fence on out: TMA store at line .*store at line"),
        (dict(FENCE="too early"), gluon.MissingFence, "missing fence on out: TMA store at line .*store at line"),
        (dict(DONE=False), gluon.InFlight, "nothing has waited for the TMA store"),
        (dict(BYTES=16), gluon.Deadlock, "ready, phase 0 .*1 of 1 arrivals.*16 bytes still to come"),
        (dict(BYTES=-16), gluon.Deadlock, "16 bytes more than expected"),
    ],
)
def test_what_is_left_out_is_named_in_every_schedule(missing, kind, said):
    for seed in SEEDS:
        with pytest.raises(kind, match=f"(?s){said}") as caught:
            copied(seed, **missing)
        assert f"seed={seed}" in str(caught.value) and caught.value.places[0].line > 20


def test_a_seed_repeats_a_schedule():
    def events(seed):
        found = []
        x = torch.zeros(16, 64, dtype=torch.float16)
        args = described(x, [16, 64]), described(x.clone(), [16, 64])
        gluon.simulate(kernels.tile_copy, (1,), *args, True, True, True, 0, seed=seed, events=found)
        return found

    assert events(3) == events(3)
    assert {event["kind"] for event in events(3)} >= {"expect", "wait", "go on", "read", "write", "fence", "end"}


@pytest.mark.skipif(not device.INTERPRET, reason="with a GPU it is launched there")
def test_a_launch_without_a_gpu_is_simulated():
    x = torch.ones(16, 64, dtype=torch.float16)
    y = torch.zeros_like(x)
    with gluon.schedule(1):
        kernels.tile_copy[(1,)](described(x, [16, 64]), described(y, [16, 64]), True, True, True, 0)
    assert torch.equal(y, x + 1)
    with gluon.schedule(5), pytest.raises(gluon.Race, match="seed=5 repeats"):
        kernels.tile_copy[lambda meta: (1,)](described(x, [16, 64]), described(y, [16, 64]), False, True, True, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_elements_come_by_cp_async(seed):
    x, y = torch.randn(1000), torch.zeros(1000)
    gluon.simulate(kernels.elements, (1,), x, y, 1000, 1, True, 256, seed=seed)
    assert torch.equal(y, x * 2)


def test_a_group_that_is_not_waited_for_or_not_committed_is_named():
    for seed in SEEDS:
        with pytest.raises(gluon.Race, match="(?s)race on buffers.*cp.async copy"):
            gluon.simulate(kernels.elements, (1,), torch.randn(1000), torch.zeros(1000), 1000, 2, True, 256, seed=seed)
        with pytest.raises(gluon.Race, match="race on buffers"):
            gluon.simulate(kernels.elements, (1,), torch.randn(1000), torch.zeros(1000), 1000, 2, False, 256, seed=seed)


def test_reduce_and_scan_take_functions_of_their_own():
    x = torch.randn(16, 32)
    largest, where = torch.empty(16), torch.empty(16, dtype=torch.int32)
    scan, back = torch.empty_like(x), torch.empty_like(x)
    gluon.simulate(kernels.along_rows, (1,), x, largest, where, scan, back, 16, 32)
    assert torch.equal(largest, x.amax(1)) and torch.equal(where.long(), x.argmax(1))
    torch.testing.assert_close(scan, x.cumsum(1))
    torch.testing.assert_close(back, x.flip(0).cumsum(0).flip(0))


def test_whole_numbers_are_those_of_a_gpu():
    out = torch.zeros(4, dtype=torch.int64)
    gluon.simulate(kernels.scalars, (1,), out, -7, 2)
    assert out.tolist() == [-3, -1, 0, 1]


def added(programs=3, seed=0, FIRST=0, READ=True, ARRIVED=True):
    x, y = torch.randn(48, 64), torch.zeros(16, 64)
    counter = torch.zeros(1, dtype=torch.int32)
    args = described(x, [16, 64]), described(y, [16, 64]), counter
    gluon.simulate(kernels.adds_up, (programs,), *args, FIRST, READ, ARRIVED, seed=seed)
    torch.testing.assert_close(y, x.reshape(3, 16, 64).sum(0))
    assert counter.item() == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_tma_adds_to_global_memory(seed):
    added(seed=seed)
    added(seed=seed, READ=False)  # who waits until it has arrived needn't wait until it was read


@pytest.mark.parametrize(
    ("missing", "kind", "said"),
    [
        (dict(ARRIVED=False), gluon.Race, "atomic_xchg with release on counter .*TMA add issued at line"),
        (dict(ARRIVED=False, READ=False), gluon.Race, "may not have arrived in global memory yet"),
        (dict(FIRST=1, programs=2), gluon.Deadlock, "polls counter at line .*finds 0 again and again"),
    ],
)
def test_a_turn_that_is_passed_too_early_or_never_is_named(missing, kind, said):
    for seed in SEEDS:
        with pytest.raises(kind, match=f"(?s){said}"):
            added(seed=seed, **missing)


def test_a_tma_reduction_reads_its_buffer_until_it_is_waited_for():
    """The releases before 3.9 have no functions for the others, so this one is called as the simulator's own."""
    target, reduce = torch.ones(8, 64, dtype=torch.float16), units.tma_reduce("max")
    function = lambda desc, coord, src: (yield from reduce(desc, coord, src))  # noqa: E731
    old, MODELLED[id(kernels.tma_store)] = MODELLED[id(kernels.tma_store)], function
    try:
        x = torch.arange(8 * 64).reshape(8, 64).half() / 100
        args = described(x, [8, 64]), described(target, [8, 64])
        gluon.simulate(kernels.tile_copy, (1,), *args, True, True, True, 0)
        assert torch.equal(target, torch.maximum(torch.ones_like(x), x + 1))
        with pytest.raises(gluon.InFlight, match="TMA max"):
            gluon.simulate(kernels.tile_copy, (1,), *args, True, True, False, 0)
    finally:
        MODELLED[id(kernels.tma_store)] = old


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("two", r"layouts differ: .*Element \[0, 1\] is in warp 0, lane 0, and in warp 0, lane 8\. Convert"),
        ("slice", r"a new dimension 1 needs a tensor with SliceLayout\(1, "),
        ("warps", "is for 8 warps, and 4 execute this line"),
        ("trivial", "the conversion isn't trivial"),
        ("split", "split needs a last dimension of 2 whose two elements lie in one thread"),
    ],
)
def test_a_wrong_layout_is_named(case, said):
    with pytest.raises(gluon.WrongLayout, match=f"(?s)line .*{said}"):
        gluon.simulate(kernels.wrong_layout, (1,), torch.zeros(1), case)


def test_layouts_that_the_compiler_takes_for_the_same_pass():
    gluon.simulate(kernels.wrong_layout, (1,), torch.zeros(1), "written")


def test_a_deadlock_says_who_waits_for_what():
    with pytest.raises(gluon.Deadlock) as caught:
        gluon.simulate(kernels.stuck, (1,))
    text = str(caught.value)
    assert text.splitlines()[1].split()[0] in ("waits_for", "arrives_late"), "not the one that waits for its partitions"
    assert "waits_for waits at line" in text and "bars[0], phase 0 (parity 0); it has 0 of 2 arrivals" in text
    assert "arrives_late waits at line" in text and "bars[1], phase 0 (parity 0); it has 0 of 1 arrivals" in text


def test_a_race_of_two_partitions_names_both_lines_and_the_phase():
    for seed in SEEDS:
        out = torch.zeros(128)
        gluon.simulate(kernels.two_partitions, (1,), out, True, seed=seed)
        assert out.eq(1).all()
        with pytest.raises((gluon.Race, gluon.WrongUse)) as caught:
            gluon.simulate(kernels.two_partitions, (1,), out, False, seed=seed)
        if isinstance(caught.value, gluon.Race):
            assert "partition takes" in str(caught.value) and "partition hands_on" in str(caught.value)
            assert len(caught.value.places) == 2
        else:
            assert "nothing has been written there yet" in str(caught.value)


def test_shared_memory_has_an_end_and_global_memory_too():
    with pytest.raises(gluon.WrongUse, match="Hopper has 232,448"):
        gluon.simulate(kernels.elements, (1,), torch.zeros(9), torch.zeros(9), 9, 1, True, 32768)
    with pytest.raises(gluon.WrongUse, match="stores to element 4 of out_ptr, whose memory has 4 elements"):
        gluon.simulate(kernels.two_partitions, (1,), torch.zeros(4), True)


@pytest.mark.skipif(not device.INTERPRET, reason="with a GPU it is launched there")
def test_what_the_simulator_lacks_is_said():
    with pytest.raises(gluon.NotModelled, match="no clusters"):
        kernels.stuck[(1,)](num_ctas=2)


def test_more_programs_than_a_gpu_takes_are_refused():
    with pytest.raises(RuntimeError, match="elements: 65,536 programs on axis 1 of the grid"):
        gluon.simulate(kernels.elements, (1, 65_536), torch.ones(3), torch.ones(3), 3, 1, True, 4)
