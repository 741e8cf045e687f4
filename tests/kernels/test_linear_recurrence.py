"""recurrences/linear_recurrence and fast/linear_recurrence: long decays, rows of no sequence, tiles, scans on a card.

The traps of recurrences in use, and what holds each. "The formula" is the comparison with it, of all results and
gradients, in whole sequences, small tiles and small stretches; "the judge" tries batches and packed sequences with the
state before and after them, in `test_hostile_inputs`.

1. Backward takes a gate of the same token, at the border of a tile or a sequence, too: the formula, the judge.
2. Padding with gates of 0 empties the final state: the formula.
3. Dividing by the product of the gates overflows: `test_small_gates_over_many_tokens`.
4. The carry is read back from the rounded result: the formula, in bfloat16.
5. The operator has its arguments, or its results, the wrong way round: the formula.
6. Gates of 0 and negative ones: `test_small_gates_over_many_tokens`.
7. A row in pieces differs from the whole: the formula of the final state, and of what begins with one.
8. The first gate's gradient needs the initial state: the formula, `test_without_an_initial_state`.
9. The gradients of the final and the initial state are dropped: the formula.
10. Packed: empty sequences, one token, a state for each sequence: the judge; `test_rows_of_no_sequence`.
11. A scan in place: `test_hostile_inputs` of the judge.
12. No token, one channel, gates of stride 0: `test_hostile_inputs` of the judge.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch
import triton
import triton.language as tl

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.elements import in_float64
from annotated_examples.fast import linear_recurrence as fast
from annotated_examples.recurrences import linear_recurrence as lesson
from tests.kernels import harness
from tests.kernels.chunk_cases import assert_right, results
from tests.kernels.harness import DEVICE, randn

module = harness.modules(lesson, fast)

FAST_TILES = dict(ROWS=4, STRETCHES=4, BLOCK_D=4, num_warps=1)


def gates(*shape, dtype=torch.float32):
    """Any sign, no larger than 1, and no two alike."""
    return randn(*shape).sin().to(dtype)


def everything(B, T, D, dtype=torch.float32):
    return dict(a=gates(B, T, D, dtype=dtype), x=randn(B, T, D, dtype=dtype), initial_state=randn(B, D))


def test_small_gates_over_many_tokens(module):
    """Trap 3: dividing by the product of the gates would be infinite from the 127th token on, then NaN. Trap 6: 0 and negative gates."""
    inputs = everything(1, 400, 4)
    inputs["a"][..., 0], inputs["a"][..., 1], inputs["a"][:, 100, 2], inputs["a"][..., 3] = 0.5, 0.0, 0.0, -0.9
    ups = dict(o=randn(1, 400, 4), state=randn(1, 4))
    assert_right(module.linear_recurrence, lesson.linear_recurrence_reference, inputs, ups)


def test_without_an_initial_state(module):
    """Trap 8: then the first gate multiplies nothing, and its gradient is 0."""
    a, x = harness.leaf(gates(2, 20, 3)), harness.leaf(randn(2, 20, 3))
    module.linear_recurrence(a, x).sum().backward()
    assert (a.grad[:, 0] == 0).all() and (a.grad[:, 1:] != 0).all()


def test_rows_of_no_sequence(module):
    """They are NaN, and nothing of them is in what comes back: zeros in their place."""
    a, x, ends = gates(9, 3), randn(9, 3), torch.tensor([0, 0, 5, 6], dtype=torch.int32, device=DEVICE)
    a[6:], x[6:] = float("nan"), float("nan")
    h, final = module.linear_recurrence_varlen(a, x, ends, return_final_state=True)
    assert h[6:].eq(0).all() and h.isfinite().all() and final.isfinite().all()


def refused(cu_seqlens):
    ends = torch.tensor(cu_seqlens, dtype=torch.int32)
    return dict(cu_seqlens=ends), ValueError, "cu_seqlens must rise from 0 to at most the number of rows, 7, got"


test_bad_offsets = harness.refused_test(
    "change, error, words",
    [refused([1, 3]), refused([0, 3, 2]), refused([0, 8])],
    dict(a=torch.ones(7, 3), x=torch.ones(7, 3)),
    *(each.linear_recurrence_varlen for each in (lesson, fast)),
)


test_bad_tile_size = harness.raises_test(
    [
        (lambda: lesson.linear_recurrence_forward(gates(1, 5, 2), randn(1, 5, 2), BLOCK_T=12), ValueError,
         "BLOCK_T must be a power of two"),
        (lambda: fast.linear_recurrence_forward(gates(1, 5, 2), randn(1, 5, 2), **FAST_TILES | dict(ROWS=12)), ValueError,
         "ROWS must be a power of two"),
    ]
)  # fmt: skip


def test_tuned_tiles():
    """Many channels, few of them, and sequences too short for stretches."""
    for shape, sizes in (((8, 4096, 2048), fast.MANY), ((1, 65536, 2048), fast.FEW), ((64, 1, 4096), None)):
        x = torch.empty((), device="meta").expand(shape)
        assert fast.tiles(x, None, fast.MANY, fast.FEW) == sizes
    ends = torch.zeros(5, dtype=torch.int32, device=DEVICE)
    assert fast.tiles(randn(63, 3), ends, fast.MANY, fast.FEW) is None
    assert fast.tiles(randn(64, 3), ends, fast.MANY, fast.FEW) == fast.FEW
    assert fast.tiles(randn(64, 2048), ends, fast.MANY, fast.FEW) == fast.MANY


@pytest.mark.parametrize("shape", [(2, 90, 40), (2, 530, 20)], ids=str)
def test_more_than_a_tuned_tile(shape, monkeypatch):
    monkeypatch.setattr(fast, "MANY_CHANNELS", 64)
    ups = dict(o=randn(*shape), state=randn(shape[0], shape[2]))
    assert_right(fast.linear_recurrence, lesson.linear_recurrence_reference, everything(*shape), ups)


@triton.jit
def one_after_the_other(a, x, b, y):
    return a * b, b * x + y


@triton.jit
def scan_kernel(a_ptr, x_ptr, sums_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a, x = tl.load(a_ptr + at), tl.load(x_ptr + at)
    sums = tl.cumsum(x, axis=AXIS, reverse=REVERSE)
    a, x = tl.associative_scan((a, x), AXIS, one_after_the_other, reverse=REVERSE)
    tl.store(a_ptr + at, a)
    tl.store(x_ptr + at, x)
    tl.store(sums_ptr + at, sums)


@pytest.mark.parametrize("REVERSE", [False, True], ids=["from the start", "from the end"])
@pytest.mark.parametrize("AXIS", [0, 1])
@pytest.mark.parametrize("num_warps", [1, 2, 4, 8] if not device.INTERPRET else [1])
@pytest.mark.parametrize("size", [16, 128, 1024, 4096] if not device.INTERPRET else [16])
def test_a_scan_compiles_right(size, num_warps, AXIS, REVERSE):
    """H9: a scan of pairs beside a running sum, along either axis. Not the kernels of the lesson: the scan itself."""
    other = max(1, 1024 // size)
    shape = (other, size) if AXIS else (size, other)
    a, x = gates(*shape, dtype=torch.float32), randn(*shape)
    turned = (lambda y: y.flip(AXIS)) if REVERSE else lambda y: y
    products, state, states = turned(a.double()).cumprod(AXIS), 0.0, []
    for gate, new in zip(turned(a.double()).unbind(AXIS), turned(x.double()).unbind(AXIS)):
        state = gate * state + new
        states.append(state)
    exact = dict(
        sums=turned(turned(x.double()).cumsum(AXIS)),
        products=turned(products),
        states=turned(torch.stack(states, AXIS)),
    )
    sums = torch.empty_like(x)
    scan_kernel[(1,)](a, x, sums, *shape, AXIS, REVERSE, num_warps=num_warps)
    for name, value in dict(sums=sums, products=a, states=x).items():
        assert accuracy.errors(value, exact[name]).rms < 2e-6, name


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("BLOCK_T", "BLOCK_D"), [(16, 16), (16, 32), (16, 64), (64, 16), (64, 32), (64, 64), (256, 16)]
)
def test_scans_of_both_directions_compile_right(BLOCK_T, BLOCK_D):
    """H9: tuples, axis 0, forward and reverse. Four tiles of each float32 tensor lie in shared memory, which holds no
    larger ones; the public functions always use (64, 32)."""
    compiles_right(lesson, dict(BLOCK_T=BLOCK_T, BLOCK_D=BLOCK_D))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
@pytest.mark.parametrize("BLOCK_D", [16, 32])
@pytest.mark.parametrize(
    ("ROWS", "STRETCHES", "num_warps"), [(8, 8, 4), (16, 4, 2), (16, 32, 8), (4, 16, 4), (2, 64, 8), (8, 2, 1)]
)
def test_scans_of_stretches_compile_right(ROWS, STRETCHES, num_warps, BLOCK_D, dtype):
    """H9 again: four numbers of each stretch, in blocks of several sizes."""
    compiles_right(fast, dict(ROWS=ROWS, STRETCHES=STRETCHES, BLOCK_D=BLOCK_D, num_warps=num_warps), dtype)


def compiles_right(module, size, dtype=torch.float32):
    shape = 3, 1000, 100
    a, x, dh = gates(*shape, dtype=dtype), randn(*shape, dtype=dtype), randn(*shape, dtype=dtype)
    state, dfinal = randn(3, 100), randn(3, 100)
    h, final = module.linear_recurrence_forward(a, x, state, **size)
    dx, da, dstate = module.linear_recurrence_backward(dh, dfinal, a, h, state, **size)
    inputs = dict(a=a, x=x, initial_state=state)
    reference, ups = lesson.linear_recurrence_reference, dict(o=dh, state=dfinal)
    theirs, exact = results(reference, inputs, ups), results(reference, in_float64(inputs), ups)
    for name, value in dict(o=h, state=final, da=da, dx=dx, dinitial_state=dstate).items():
        accuracy.check(name, value, theirs[name], exact[name])


@pytest.mark.gpu
def test_many_sequences(module):
    """H7: 70 000 sequences of one token."""
    x = randn(70_000, 40)
    ends = torch.arange(70_001, dtype=torch.int32, device=DEVICE)
    assert torch.equal(module.linear_recurrence_varlen(torch.ones_like(x), x, ends), x)
