"""recurrences/linear_recurrence and fast/linear_recurrence: values, gradients, states, packed sequences, traps, errors, mutants.

The traps of recurrences in use, and the check or mutant ("…") that holds each:

1. Backward takes a gate of the same token, at the border of a tile or a sequence, too: `test_check_passes`, whose lengths
    lie around a tile's; `test_packed_sequences`, "gates not moved on in backward", "gate of the next sequence".
2. Padding with gates of 0 empties the final state: "padding gate of 0".
3. Dividing by the product of the gates overflows: `test_small_gates_over_many_tokens`.
4. The carry is read back from the rounded result: `the_state_is_float32`, "carry read back from the rounded result".
5. The operator has its arguments, or its results, the wrong way round: two mutants of `join`.
6. Gates of 0 and negative ones: `test_a_reset_forgets`, `test_small_gates_over_many_tokens`.
7. A row in pieces differs from the whole: `test_a_sequence_in_pieces`.
8. The first gate's gradient needs the initial state: `test_without_an_initial_state`, "initial state missing in da".
9. The gradients of the final and the initial state are dropped: `test_only_the_final_state_in_the_loss`, two mutants.
10. Packed: empty sequences, one token, a state for each sequence: `test_packed_sequences`, "sequences' states mixed up".
11. A scan in place: `test_hostile_inputs` of the judge.
12. No token, one channel, gates of stride 0: `test_empty`, `test_values_and_gradients`, `test_hostile_inputs`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

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
from tests.kernels.chunk_cases import results
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

module = harness.modules(lesson, fast)

NAN = float("nan")
TILES = dict(BLOCK_T=16, BLOCK_D=4)
FAST_TILES = dict(ROWS=4, STRETCHES=4, BLOCK_D=4, num_warps=1)

LESSON_MUTANTS = [
    Mutant("arguments of join swapped", "return a * b, b * x + y", "return a * b, a * y + x"),
    Mutant("join returns the pair the wrong way round", "return a * b, b * x + y", "return b * x + y, a * b"),
    Mutant("state not handed on", "y = local + decay * h[None, :]", "y = local"),
    Mutant("padding gate of 0", "b, start + offs_t, offs_d), mask=mask, other=1.0)", "b, start + offs_t, offs_d), mask=mask, other=0.0)"),
    Mutant("carry read back from the rounded result", "h = tl.sum(tl.where(lanes[:, None] == BLOCK_T - 1, y, 0.0), axis=0)", "h = tl.sum(tl.where(lanes[:, None] == BLOCK_T - 1, y, 0.0), axis=0).to(h_tensor[0].dtype.element_ty).to(tl.float32)"),
    Mutant("first lane carried", "lanes[:, None] == BLOCK_T - 1, y", "lanes[:, None] == 0, y"),
    Mutant("initial state ignored", "h = tl.load(initial_ptr + b * D + offs_d, mask=mask_d, other=0.0)", "h = h"),
    Mutant("sequences' states mixed up", "tl.store(final_ptr + b * D", "tl.store(final_ptr + 0 * b * D"),
    Mutant("gates not moved on in backward", "start + offs_t + 1, offs_d), mask=below", "start + offs_t, offs_d), mask=below"),
    Mutant("gate of the next sequence", "(offs_t + 1 < length)[:, None]", "(offs_t + 1 < length + 1)[:, None]"),
    Mutant("gradient of the final state dropped", "carry = tl.load(dfinal_ptr + b * D + offs_d, mask=mask_d, other=0.0)", "carry = tl.zeros((BLOCK_D,), tl.float32)"),
    Mutant("first lane carried in backward", "lanes[:, None] == BLOCK_T - 1, lam", "lanes[:, None] == 0, lam"),
    Mutant("gradient not carried", "lam = local + decay * carry[None, :]", "lam = local"),
    Mutant("state of the same token", "start + offs_t - 1, offs_d), mask=above", "start + offs_t, offs_d), mask=above"),
    Mutant("initial state missing in da", "before = tl.where(offs_t[:, None] == 0, first[None, :], before)", ""),
    Mutant("first gate missing in the state's gradient", "dinitial = carry * tl.sum(gate.to(tl.float32), axis=0)", "dinitial = carry"),
    Mutant("gradient of the initial state dropped", "dinitial if ctx.needs_input_grad[2] else None", "torch.zeros_like(dinitial)"),
    Mutant("gradients swapped", "return da, dx, dinitial", "return dx, da, dinitial"),
    Mutant("a packed sequence begins at the first row", "start, length = sequence(cu_ptr, b, T)", "start, length = sequence(cu_ptr, b, T)\n    start = start * 0", count=2),
]  # fmt: skip


FAST_MUTANTS = [
    Mutant("arguments of join swapped", "return a * b, b * x + y, a * before_b", "return a * b, a * y + x, a * before_b"),
    Mutant("join drops the first stretch", "before_b * x + before_y", "before_b * before_x + before_y"),
    Mutant("join drops the gates of the first stretch", "b * x + y, a * before_b,", "b * x + y, before_b,"),
    Mutant("stretches include themselves", "_, _, decay, local = tl.associative_scan", "decay, local, _, _ = tl.associative_scan"),
    Mutant("state not handed on", "return local + decay * state[None, :]", "return local"),
    Mutant("gates not multiplied", "decay, local = decay * gate, gate * local", "decay, local = decay, gate * local"),
    Mutant("a gate decays its own token", "gate * local + values[r].to(tl.float32)", "gate * (local + values[r].to(tl.float32))"),
    Mutant("padding gate of 0", "0, length, mask_d, 1.0, ROWS, 1)", "0, length, mask_d, 0.0, ROWS, 1)", count=2),
    Mutant("the same tile again", "        x_ptrs += TILE * step_x\n", ""),
    Mutant("states written over the first tile", "        h_ptrs += TILE * step_h\n", ""),
    Mutant("behind the end of the sequence", "(rows + r < length)[:, None]", "(rows + r < length + 1)[:, None]"),
    Mutant("carry read back from the rounded result", "state = tl.sum(tl.where(lanes[:, None] == STRETCHES - 1, h, 0.0), axis=0)", "state = tl.sum(tl.where(lanes[:, None] == STRETCHES - 1, h, 0.0), axis=0).to(h_tensor[0].dtype.element_ty).to(tl.float32)"),
    Mutant("first stretch carried", "lanes[:, None] == STRETCHES - 1, h, 0.0)", "lanes[:, None] == 0, h, 0.0)"),
    Mutant("initial state ignored", "state = tl.load(ptr + b * D + offs_d, mask=offs_d < D, other=0.0)", "state = tl.zeros(offs_d.shape, tl.float32)"),
    Mutant("sequences' states mixed up", "tl.store(final_ptr + b * D", "tl.store(final_ptr + 0 * b * D"),
    Mutant("gates not moved on in backward", "b, start + rows + 1, offs_d)", "b, start + rows, offs_d)"),
    Mutant("gate of the next sequence", "0, length - 1, mask_d, 1.0, ROWS, -1)", "0, length, mask_d, 1.0, ROWS, -1)", count=2),
    Mutant("gradient of the final state dropped", "carry, initial = load_state(dfinal_ptr, b, offs_d, D),", "carry, initial = tl.zeros((BLOCK_D,), tl.float32),"),
    Mutant("first stretch carried in backward", "lanes[:, None] == STRETCHES - 1, lam", "lanes[:, None] == 0, lam"),
    Mutant("state of the same token", "b, start + rows - 1, offs_d)", "b, start + rows, offs_d)"),
    Mutant("initial state missing in da", "tl.where((rows == r)[:, None], initial, h[r].to(tl.float32))", "h[r].to(tl.float32)"),
    Mutant("before the start of the sequence", "(rows - r >= 0)[:, None]", "(rows - r >= -1)[:, None]"),
    Mutant("first gate missing in the state's gradient", "carry * gate, mask", "carry, mask"),
    Mutant("a packed sequence begins at the first row", "start, length = sequence(cu_ptr, b, T)", "start, length = sequence(cu_ptr, b, T)\n    start = start * 0", count=2),
]  # fmt: skip


def is_fast(module):
    """Whether this is the fast file, or a mutant of it."""
    return hasattr(module, "tiles")


def gates(*shape, dtype=torch.float32):
    """Any sign, no larger than 1, and no two alike."""
    return randn(*shape).sin().to(dtype)


def everything(B, T, D, dtype=torch.float32):
    return dict(a=gates(B, T, D, dtype=dtype), x=randn(B, T, D, dtype=dtype), initial_state=randn(B, D))


def assert_right(function, reference, inputs, upstream):
    """Result, final state and all gradients; `upstream`: of both results."""
    ups = dict(zip(("o", "state"), upstream))
    with (
        harness.unchanged(**inputs, **{f"upstream of {name}": x for name, x in ups.items()}),
        harness.fenced_allocations(),
    ):
        ours = results(function, inputs, ups)
    theirs, exact = results(reference, inputs, ups), results(reference, in_float64(inputs), ups)
    dtype = inputs["x"].dtype
    for name, value in ours.items():
        # The states are saved in the dtype of x, so a float32 gate gets a gradient of that precision.
        value, their = (v.to(dtype) if name == "da" else v for v in (value, theirs[name]))
        accuracy.check(name, value, their, exact[name])


def small_tiles(module):
    """The public function, with small tiles."""
    launchers = module.linear_recurrence_forward, module.linear_recurrence_backward
    launchers = [functools.partial(f, **(FAST_TILES if is_fast(module) else TILES)) for f in launchers]

    def call(a, x, initial_state=None, cu_seqlens=None, *, return_final_state):
        return module.call(a, x, initial_state, return_final_state, cu_seqlens, launchers)

    return call


def packed(*lengths, D=3, dtype=torch.float32, behind=0):
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device=DEVICE).cumsum(0, dtype=torch.int32)
    total = sum(lengths) + behind
    return dict(
        a=gates(total, D, dtype=dtype),
        x=randn(total, D, dtype=dtype),
        cu_seqlens=ends,
        initial_state=randn(len(lengths), D),
    )


def check(module):
    """Everything a mutant has to get past."""
    for T in (1, 15, 16, 17, 37):
        inputs = everything(2, T, 5)
        assert_right(small_tiles(module), lesson.linear_recurrence_reference, inputs, (randn(2, T, 5), randn(2, 5)))
    inputs = everything(2, 20, 5) | dict(a=harness.strided(gates(2, 20, 5)), x=randn(2, 5, 20).transpose(1, 2))
    upstream = randn(5, 20, 2).permute(2, 1, 0), randn(2, 5)
    assert_right(module.linear_recurrence, lesson.linear_recurrence_reference, inputs, upstream)
    inputs = packed(5, 0, 1, 18, behind=2)
    reference = lesson.linear_recurrence_varlen_reference
    assert_right(small_tiles(module), reference, inputs, (randn(26, 3), randn(4, 3)))
    assert_right(module.linear_recurrence_varlen, reference, inputs, (randn(26, 3), randn(4, 3)))
    the_state_is_float32(module)


def the_state_is_float32(module):
    """Trap 4: 1024 steps of 0.003, which bfloat16 can't add to 1."""
    x = torch.full((1, 1024, 1), 0.003, dtype=torch.bfloat16, device=DEVICE)
    _, final = small_tiles(module)(torch.ones_like(x), x, return_final_state=True)
    torch.testing.assert_close(final.double(), x.double().sum(1), rtol=1e-5, atol=0)


def test_check_passes(module):
    check(module)


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, check)
test_mutant_of_the_fast_version_is_caught = harness.mutant_test(fast, FAST_MUTANTS, check)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("shape", [(2, 70, 33), (1, 1, 1), (3, 64, 1)], ids=str)
def test_values_and_gradients(module, shape, dtype):
    """Trap 12, too: one token, one channel."""
    B, _, D = shape
    upstream = randn(*shape, dtype=dtype), randn(B, D)
    for wide in (False, True):
        inputs = everything(*shape, dtype=dtype)
        inputs["a"] = inputs["a"].float() if wide else inputs["a"]
        assert_right(module.linear_recurrence, lesson.linear_recurrence_reference, inputs, upstream)


def test_small_gates_over_many_tokens(module):
    """Trap 3: dividing by the product of the gates would be infinite from token 126 on, then NaN. Trap 6: 0 and negative gates."""
    inputs = everything(1, 400, 4)
    inputs["a"][..., 0], inputs["a"][..., 1], inputs["a"][:, 100, 2], inputs["a"][..., 3] = 0.5, 0.0, 0.0, -0.9
    assert_right(module.linear_recurrence, lesson.linear_recurrence_reference, inputs, (randn(1, 400, 4), randn(1, 4)))


def test_a_reset_forgets(module):
    """Trap 6: what is before a gate of 0 matters no more, forward or back, unless it is infinite."""
    inputs = everything(1, 40, 2)
    inputs["a"][:, 20] = 0
    h = module.linear_recurrence(**inputs)
    inputs["x"][:, :20] = 1e4
    assert torch.equal(module.linear_recurrence(**inputs)[:, 20:], h[:, 20:])


def test_a_sequence_in_pieces(module):
    """Trap 7: through the state, the pieces give what the whole gives."""
    inputs = everything(2, 50, 5)
    whole, last = module.linear_recurrence(**inputs, return_final_state=True)
    state, parts = inputs["initial_state"], []
    for piece in (slice(0, 1), slice(1, 20), slice(20, 50)):
        h, state = module.linear_recurrence(
            inputs["a"][:, piece], inputs["x"][:, piece], state, return_final_state=True
        )
        parts.append(h)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, last, rtol=1e-5, atol=1e-6)


def test_only_the_final_state_in_the_loss(module):
    """Trap 9: h has no upstream gradient then. And the other way round."""
    for chosen in (0, 1):
        inputs = {n: harness.leaf(v) for n, v in everything(2, 20, 3).items()}
        doubles = {n: harness.leaf(v.detach().double()) for n, v in inputs.items()}
        pair = [
            f(**i, return_final_state=True)[chosen]
            for f, i in ((module.linear_recurrence, inputs), (lesson.linear_recurrence_reference, doubles))
        ]
        up = randn(*pair[0].shape)
        ours = torch.autograd.grad((pair[0] * up).sum(), list(inputs.values()))
        exact = torch.autograd.grad((pair[1] * up).sum(), list(doubles.values()))
        for value, right in zip(ours, exact):
            torch.testing.assert_close(value.double(), right, rtol=1e-5, atol=1e-5)


def test_without_an_initial_state(module):
    """Trap 8: then the first gate multiplies nothing, and its gradient is 0."""
    a, x = harness.leaf(gates(2, 20, 3)), harness.leaf(randn(2, 20, 3))
    module.linear_recurrence(a, x).sum().backward()
    assert (a.grad[:, 0] == 0).all() and (a.grad[:, 1:] != 0).all()


@pytest.mark.parametrize("lengths", [(5, 0, 1, 18), (0, 0), (70,), (1,) * 9], ids=str)
def test_packed_sequences(module, lengths):
    """Traps 1 and 10: empty sequences, sequences of one token, a state for each; rows behind the last are 0."""
    for behind in (0, 3):
        inputs = packed(*lengths, behind=behind)
        upstream = randn(*inputs["x"].shape), randn(len(lengths), 3)
        assert_right(module.linear_recurrence_varlen, lesson.linear_recurrence_varlen_reference, inputs, upstream)
    inputs["a"][sum(lengths) :], inputs["x"][sum(lengths) :] = NAN, NAN
    h, final = module.linear_recurrence_varlen(**inputs, return_final_state=True)
    assert h[sum(lengths) :].eq(0).all() and final.isfinite().all()


@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 5, 3), (2, 5, 0)], ids=str)
def test_empty(module, shape):
    """Trap 12: without tokens the final state is the initial one, and so is its gradient."""
    B, _, D = shape
    inputs = {n: harness.leaf(v) for n, v in everything(*shape).items()}
    h, final = module.linear_recurrence(**inputs, return_final_state=True)
    up = randn(B, D)
    (h.sum() + (final * up).sum()).backward()
    assert h.shape == shape and all(v.grad.shape == v.shape for v in inputs.values())
    if shape[1] == 0:
        assert torch.equal(final, inputs["initial_state"]) and torch.equal(inputs["initial_state"].grad, up)


test_bad_arguments = harness.refused_test(
    "change, error, words",
    [
        (dict(x=[1.0]), TypeError, "x must be a torch.Tensor"),
        (dict(x=torch.ones(2, 5, 3).double()), TypeError, "x must be one of float32"),
        (
            dict(a=torch.ones(2, 5, 3).half()),
            TypeError,
            "a must be one of float32, float32, got float16|a must be one of",
        ),
        (dict(a=torch.ones(2, 5, 4)), ValueError, "a must have the shape of x"),
        (dict(x=torch.ones(5, 3)), ValueError, "x must have 3 dimensions"),
        (dict(initial_state=torch.ones(2, 4)), ValueError, r"initial_state must have shape \(2, 3\)"),
        (dict(initial_state=torch.ones(2, 3).half()), TypeError, "initial_state must be one of float32, got float16"),
        (dict(return_final_state=1), ValueError, "return_final_state must be one of True, False"),
    ],
    dict(a=gates(2, 5, 3), x=torch.ones(2, 5, 3)),
    lesson.linear_recurrence,
    fast.linear_recurrence,
)


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        (torch.tensor([0, 3]), TypeError, "cu_seqlens must be one of int32"),
        (torch.tensor([1, 3]), ValueError, "cu_seqlens must rise from 0"),
        (torch.tensor([0, 3, 2]), ValueError, "cu_seqlens must rise from 0"),
        (torch.tensor([0, 8]), ValueError, "cu_seqlens must rise from 0 to at most the number of rows, 7, got"),
        (torch.tensor([]), ValueError, "cu_seqlens must have at least one element"),
        (torch.tensor([[0, 7]]), ValueError, "cu_seqlens must have 1 dimensions"),
    ],
    ids=str,
)
def test_bad_offsets(module, offsets, error, words):
    offsets = offsets if error is TypeError else offsets.int()
    if error is ValueError and not harness.device.INTERPRET and "rise" in words:
        pytest.skip("looked at on a CPU only")
    with pytest.raises(error, match=words):
        module.linear_recurrence_varlen(gates(7, 3), randn(7, 3), offsets.to(DEVICE))


def test_bad_tile_size():
    with pytest.raises(ValueError, match="BLOCK_T must be a power of two"):
        lesson.linear_recurrence_forward(gates(1, 5, 2), randn(1, 5, 2), BLOCK_T=12)
    with pytest.raises(ValueError, match="ROWS must be a power of two"):
        fast.linear_recurrence_forward(gates(1, 5, 2), randn(1, 5, 2), **FAST_TILES | dict(ROWS=12))


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
    B, _, D = shape
    assert_right(
        fast.linear_recurrence, lesson.linear_recurrence_reference, everything(*shape), (randn(*shape), randn(B, D))
    )


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
def test_many_sequences_and_offsets_past_32_bits(module):
    """H7: 70 000 sequences of one token. H8: more than 2^31 elements."""
    x = randn(70_000, 40)
    ends = torch.arange(70_001, dtype=torch.int32, device=DEVICE)
    assert torch.equal(module.linear_recurrence_varlen(torch.ones_like(x), x, ends), x)
    x = torch.empty(2, 2**15 + 8, 2**15, device=DEVICE, dtype=torch.bfloat16).normal_()
    a = torch.full((), 0.5, device=DEVICE, dtype=torch.bfloat16).expand(x.shape)
    h = module.linear_recurrence(a, x)
    part = lesson.linear_recurrence_reference(a[1:, -60:, -8:].float(), x[1:, -60:, -8:].float())
    torch.testing.assert_close(h[1:, -20:, -8:].float(), part[:, -20:], rtol=2e-2, atol=2e-2)
