"""tutorials/matmul_autotuned and fast/matmul: what every product has to stand, the search, every configuration, the
descriptors of the fast file, mutants.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools

import pytest
import torch
from triton.compiler.errors import CompilationError
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.fast import matmul as fast
from annotated_examples.tutorials import matmul_autotuned as lesson
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant, randn
from tests.kernels.matmul_cases import ACTIVATIONS, ProductTests, right, tiled

module = harness.modules(lesson, fast)
BF16, FP16 = torch.bfloat16, torch.float16

#: several tiles in every direction and two persistent programs; compiled, what tensor cores and copies can do
DESCRIBED = dict(BLOCK_M=64, BLOCK_N=32, BLOCK_K=16, GROUP_M=2, NUM_PROGRAMS=2, descriptors=True)
INTERLEAVED = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=3, interleaved=True)
if not device.INTERPRET:
    INTERLEAVED |= dict(BLOCK_M=128, BLOCK_N=64, BLOCK_K=64, GROUP_M=4, num_warps=4, num_stages=4)

#: one whole wave and a rest, which is cut into two pieces for each tile
IN_PIECES = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=16, GROUP_M=2, NUM_PROGRAMS=4, pieces=2)

#: On a GPU the public functions search, which takes seconds for each shape: most tests hand the launchers these.
FIXED = {
    lesson: dict(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, GROUP_M=3, num_warps=4, num_stages=2),
    fast: dict(BLOCK_M=64, BLOCK_N=32, BLOCK_K=32, GROUP_M=3, num_warps=4, num_stages=3),
}


def options_of(configuration):
    """A configuration as the keywords of a launcher."""
    return dict(configuration.kwargs, num_warps=configuration.num_warps, num_stages=configuration.num_stages)


# ---------------------------------------------------------------- mutants


def check_descriptors(module):
    """What a mutant of the descriptors has to get past: rows that overlap, a window of 16 that moves on by 8."""
    assert module.storage_order(module.stored(randn(200, dtype=FP16).as_strided((16, 16), (8, 1)))) is None


def check_last_wave(module):
    """What a mutant of the last wave has to get past. Three columns of tiles, of which the last is partly outside."""
    pieces = dict(**IN_PIECES, descriptors=True)
    try:
        for a, b in [(randn(120, 24), randn(24, 168)), (randn(24, 120).T, randn(168, 24).T)]:
            right(module, tiled(module, **pieces), dict(a=a.to(FP16), b=b.to(FP16)), "silu")
        a, b = randn(264, 24, dtype=FP16), randn(24, 64, dtype=FP16)
        right(module, tiled(module, **pieces | dict(pieces=4)), dict(a=a, b=b), "relu")
    except (InterpreterError, CompilationError) as error:
        raise AssertionError(str(error)) from error


def check_interleaved(module):
    """What a mutant of the kernel that interleaves has to get past."""
    try:
        with pytest.raises(ValueError, match="interleaving needs rows of a, as many of them in each phase"):
            module.matmul_forward(randn(12, 24, dtype=BF16), randn(24, 16, dtype=BF16), **INTERLEAVED)
        if device.INTERPRET:
            copies_whole_lines(module)
    except (pytest.fail.Exception, InterpreterError, CompilationError) as error:
        raise AssertionError(str(error)) from error


# Only the interpreter can be asked for the addresses.
LESSON_MUTANTS = [
    Mutant("no mask on N loads", "b_ptrs, mask=n_mask[None, :],", "b_ptrs, mask=(offs_n >= 0)[None, :],")
] * device.INTERPRET
DESCRIPTOR_MUTANTS = [
    Mutant("rows that overlap described", "stride_row >= columns and stride_row % 8 == 0", "stride_row % 8 == 0"),
]
LAST_WAVE_MUTANTS = [
    Mutant("each piece is the first", "pid_n * PIECES + tile % PIECES) * BLOCK_N", "pid_n * PIECES) * BLOCK_N"),
    Mutant("columns counted in pieces", "tl.cdiv(N, PIECES * BLOCK_N)", "tl.cdiv(N, BLOCK_N)"),
    Mutant("the last whole tile left out", "        last = last // NUM_PROGRAMS * NUM_PROGRAMS", "        last = last // NUM_PROGRAMS * NUM_PROGRAMS - 1"),
    Mutant("the rest begins a tile late", "first = last // NUM_PROGRAMS * NUM_PROGRAMS", "first = last // NUM_PROGRAMS * NUM_PROGRAMS + 1"),
    Mutant("pieces as wide as tiles", 'dict(BLOCK_N=tiles["BLOCK_N"] // pieces)', "dict()"),
    Mutant("a program for each tile of the rest", 'count % programs * tiles["PIECES"]', "count % programs"),
]  # fmt: skip
# Where a copy begins changes no result, and a GPU that is told nonsense about copies may stop for good.
INTERLEAVED_MUTANTS = [
    Mutant("unequal phases", " and a.shape[0] % row_phases(a) == 0", ""),
    Mutant("copies begin inside a line", "phase * (stride_am % LINE) % LINE", "phase * 0"),
] * device.INTERPRET


test_mutant_of_the_lesson_is_caught = harness.mutant_test(lesson, LESSON_MUTANTS, matmul_cases.reads_inside)
test_mutant_of_the_descriptors_is_caught = harness.mutant_test(fast, DESCRIPTOR_MUTANTS, check_descriptors)
test_mutant_of_the_last_wave_is_caught = harness.mutant_test(fast, LAST_WAVE_MUTANTS, check_last_wave)
test_mutant_of_the_interleaving_is_caught = harness.mutant_test(fast, INTERLEAVED_MUTANTS, check_interleaved)


# ---------------------------------------------------------------- lesson and fast


class TestMatmulAutotuned(ProductTests):
    def product(self, module):
        return module.matmul if device.INTERPRET else tiled(module, **FIXED[module])

    def test_check_passes(self, module):
        for check in (check_last_wave, check_interleaved) if module is fast else (matmul_cases.reads_inside,):
            check(module)


# ---------------------------------------------------------------- the search, on a GPU


def searched(tuner, function):
    """How many searches a call made. Each test has a shape of its own, so that none was made before."""
    before = len(tuner.cache)
    function()
    return len(tuner.cache) - before


def every_configuration_ran(tuner, rows=None):
    """All of them, or those that suit so many rows."""
    expected = tuner.configs if rows is None else fast.with_fitting_rows(tuner.configs, {"M": rows, "N": 1})
    assert set(tuner.configs_timings) == set(expected), "not every configuration was timed"
    assert max(times[0] for times in tuner.configs_timings.values()) < float("inf"), "a configuration can't run"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("function", "tuner", "shape"),
    [
        (lesson.matmul, lesson.tuned_matmul_kernel, (519, 77, 201)),
        (fast.matmul, fast.tuned_descriptor_kernel, (521, 776, 200)),
    ],
    ids=["lesson", "fast"],
)
def test_search_leaves_inputs_and_result_right(function, tuner, shape):
    """The first call for a shape runs the kernel many times: inputs stay, the result is as if it had run once."""
    M, N, K = shape
    inputs = dict(a=randn(M, K, dtype=FP16), b=randn(K, N, dtype=FP16))
    check = functools.partial(right, lesson, function, inputs, "gelu", randn(M, N, dtype=FP16))
    assert searched(tuner, check) == 3, "a search for each of the three products"
    every_configuration_ran(tuner, rows=K if tuner is fast.tuned_descriptor_kernel else None)  # dB comes last
    first, second = (function(**inputs, activation="gelu") for _ in range(2))
    assert torch.equal(first, second)
    assert searched(tuner, check) == 0, "searched again for a shape that was known"


@pytest.mark.gpu
@pytest.mark.parametrize("M", [17, 57])
def test_few_rows_have_tiles_of_their_own_to_search(M):
    a, b = randn(M, 520, dtype=FP16), randn(520, 776, dtype=FP16)
    tuner = fast.tuned_descriptor_kernel
    assert searched(tuner, lambda: accuracy.check("c", fast.matmul(a, b), a @ b, a.double() @ b.double())) == 1
    every_configuration_ran(tuner, rows=M)


@pytest.mark.gpu
def test_float32_search_leaves_large_tiles_out():
    """Compiling them takes longer than all the others together."""
    a, b = randn(71, 40), randn(40, 50)
    accuracy.check("c", lesson.matmul(a, b), a @ b, a.double() @ b.double())
    tried = set(lesson.tuned_matmul_kernel.configs_timings)
    assert 1 < len(tried) < len(lesson.CONFIGURATIONS)
    assert lesson.CONFIGURATIONS[0] in tried


@pytest.mark.gpu
def test_each_precision_has_its_own_search():
    a, b = randn(73, 40), randn(40, 50)
    lesson.matmul(a, b)
    torch.backends.cuda.matmul.allow_tf32 = True  # `monkeypatch` can't put it back, and later tests would have it
    try:
        assert searched(lesson.tuned_matmul_kernel, lambda: lesson.matmul(a, b)) == 1
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.gpu
@pytest.mark.parametrize("tuner", [lesson.tuned_matmul_kernel, fast.tuned_descriptor_kernel], ids=["lesson", "fast"])
def test_each_layout_has_its_own_search(tuner):
    function = lesson.matmul if tuner is lesson.tuned_matmul_kernel else fast.matmul
    a, b = (randn(264, 264, dtype=BF16) for _ in range(2))
    searches = [searched(tuner, lambda: function(x, y)) for x, y in ((a, b), (a, b.T), (a.T, b), (a, b))]  # noqa: B023
    assert searches == [1, 1, 1, 0]


@pytest.mark.gpu
def test_search_among_interleaved_configurations():
    a, b = randn(1000, 5000, dtype=BF16), randn(5000, 3000, dtype=BF16)
    with harness.unchanged(a=a, b=b):
        c = fast.matmul(a, b)
    every_configuration_ran(fast.tuned_interleaved_kernel)
    accuracy.check("c", c, a @ b, a.double() @ b.double())


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(fast.DESCRIPTOR_CONFIGURATIONS)))
def test_every_descriptor_configuration_is_right(number):
    options = options_of(fast.DESCRIPTOR_CONFIGURATIONS[number])
    inputs = dict(a=randn(521, 200, dtype=BF16), b=randn(200, 776, dtype=BF16))
    right(fast, tiled(fast, descriptors=True, **options), inputs, "silu", randn(521, 776, dtype=BF16))
    inputs = dict(a=randn(200, 520, dtype=BF16).T, b=randn(776, 200, dtype=BF16).T)
    right(fast, tiled(fast, descriptors=True, **options), inputs, "silu", randn(520, 776, dtype=BF16))


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(fast.INTERLEAVED_CONFIGURATIONS)))
def test_every_interleaved_configuration_is_right(number):
    options = options_of(fast.INTERLEAVED_CONFIGURATIONS[number])
    for transposed in (False, True):
        interleaved_right(fast, 1032, 776, 200, "gelu", transposed=transposed, interleaved=True, **options)


# ---------------------------------------------------------------- fast: descriptors


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_descriptors_with_small_tiles(activation):
    """Several tiles in every direction, the last ones partly full; the gradients use every order of storage."""
    dtype = FP16 if activation in (None, "gelu") else BF16
    a, b = harness.nan_fenced(randn(136, 40, dtype=dtype)), harness.nan_fenced(randn(40, 72, dtype=dtype))
    right(fast, tiled(fast, **DESCRIBED), dict(a=a, b=b), activation, randn(136, 72, dtype=dtype))


def test_what_no_descriptor_fits():
    """Addresses that are no multiple of 16 bytes, rows that overlap, float32: pointers take over, or it is an error."""
    odd = randn(40, 33, dtype=BF16)[1:, 1:]
    windows = randn(200, dtype=BF16).as_strided((16, 16), (8, 1))
    assert fast.storage_order(fast.stored(odd)) is None and fast.storage_order(fast.stored(windows)) is None
    assert fast.storage_order(fast.stored(randn(32, 48, dtype=BF16))) == "rows"
    assert fast.storage_order(fast.stored(randn(32, 48, dtype=BF16).T)) == "columns"
    multiply = tiled(fast, **FIXED[fast])
    right(fast, multiply, dict(a=odd, b=randn(32, 48, dtype=BF16)), "relu")
    right(fast, multiply, dict(a=windows, b=randn(16, 48, dtype=BF16)), "relu")
    for options in (dict(descriptors=True), dict(interleaved=True)):
        with pytest.raises(ValueError, match="descriptors need 16-bit matrices"):
            fast.matmul_forward(randn(16, 16), randn(16, 16), **options)


@pytest.mark.parametrize(("rows", "tall"), [(1, {16}), (32, {16}), (33, {64}), (64, {64}), (65, {64, 128, 256})])
def test_configurations_that_suit_the_rows(rows, tall):
    kept = fast.with_fitting_rows(fast.DESCRIPTOR_CONFIGURATIONS, {"M": rows, "N": 4096})
    assert {configuration.kwargs["BLOCK_M"] for configuration in kept} == tall


def test_one_configuration_for_the_logits_of_a_vocabulary():
    """Weights that don't fit into L2 are read as seldom as possible; a product a little smaller is searched for."""
    kept = lambda M, N: fast.with_fitting_rows(fast.DESCRIPTOR_CONFIGURATIONS, {"M": M, "N": N})  # noqa: E731
    assert [(c.kwargs["GROUP_M"], c.num_stages) for c in kept(8192, 128256)] == [(32, 3)]
    assert len(kept(4096, 65536)) > 1 and len(kept(2048, 2**20)) > 1


# ---------------------------------------------------------------- fast: the last wave


@pytest.mark.parametrize(("activation", "dtype"), [(None, FP16), ("leaky_relu", BF16), ("gelu", FP16)], ids=str)
def test_last_wave_in_pieces(activation, dtype):
    """Whole waves and a rest in pieces, tails on every side, every order of storage in the gradients."""
    a, b = harness.nan_fenced(randn(200, 72, dtype=dtype)), harness.nan_fenced(randn(72, 152, dtype=dtype))
    tiles = dict(**IN_PIECES, descriptors=True)
    right(fast, tiled(fast, **tiles), dict(a=a, b=b), activation, randn(200, 152, dtype=dtype))


@pytest.mark.parametrize(
    ("M", "programs", "what"), [(256, 4, "no rest"), (128, 4, "no whole wave"), (192, 1, "one each")]
)
def test_waves_without_a_rest_and_rests_without_a_wave(M, programs, what):
    """The rule asks for neither, and both are right all the same: four, two and three tiles of 64 x 64."""
    a, b = randn(M, 40, dtype=BF16), randn(40, 64, dtype=BF16)
    with harness.fenced_allocations():
        c = fast.matmul_forward(a, b, **IN_PIECES | dict(NUM_PROGRAMS=programs))
    accuracy.check(what, c, a @ b, a.double() @ b.double())


@pytest.mark.parametrize(
    ("shape", "pieces"),
    [((n, n, n), 1) for n in (1024, 1920, 2048, 2560, 4096, 8192)]  # no whole wave, or a rest that fills half of one
    + [((n, n, n), 4) for n in (2176, 2304, 2944, 3072)]
    + [((n, n, n), 2) for n in (2432, 3200, 3712, 3840)]
    + [((4096, 11008, 4096), 2), ((3072, 3072, 2040), 1), ((16, 8192, 8192), 1), ((128, 256 * 132 * 11 + 1, 4096), 1)],
)
def test_rule_of_pieces(shape, pieces):
    """With 132 multiprocessors, as it was measured; sums of few terms and many waves have little to gain."""
    assert fast.pieces_of_the_last_wave(*shape, 132) == pieces


def test_pieces_or_interleaving():
    """Rows that all begin with a line are never interleaved where pieces pay; others are."""
    for K, kernel, pieces in [(3072, "matmul_descriptor_kernel", 4), (3000, "matmul_interleaved_kernel", 1)]:
        a = fast.Stored((3000, K), (K, 1), BF16, 0)
        b = fast.Stored((K, 3000), (3000, 1), BF16, 0)
        planned = fast.plan(a, b, 132, None, None)
        assert (planned.kernel.__name__, planned.pieces) == (kernel, pieces)
        assert fast.plan(a, b, 132, False, 1).pieces == 1


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2304, 2304, 2304), (3200, 3200, 3200), (2200, 2056, 4096)], ids=str)
def test_last_wave_of_large_products(shape):
    """The public function chooses pieces here. The launches overlap: the same bits every time, in both passes."""
    M, N, K = shape
    if torch.cuda.get_device_capability() == (9, 0) and fast.multiprocessors(0) == 132:
        assert fast.pieces_of_the_last_wave(M, N, K, 132) > 1
    inputs = dict(a=randn(M, K, dtype=BF16), b=randn(K, N, dtype=BF16))
    right(fast, fast.matmul, inputs, "silu", randn(M, N, dtype=BF16))
    first = fast.matmul_forward(**inputs, save_z=False)
    assert all(torch.equal(fast.matmul_forward(**inputs), first) for _ in range(20))


# ---------------------------------------------------------------- fast: interleaved


def interleaved_right(module, M, N, K, activation, dtype=BF16, transposed=False, **tiles):
    """The product and what was saved before its activation."""
    a = randn(M, K, dtype=dtype)
    b = randn(N, K, dtype=dtype).T if transposed else randn(K, N, dtype=dtype)
    with harness.unchanged(a=a, b=b), harness.fenced_allocations():
        c, z = module.matmul_forward(a, b, activation, save_z=True, **(tiles or INTERLEAVED))
    for name, actual, kind in (("c", c, activation), ("z", z, None)):
        pytorch, exact = (fast.matmul_reference(x, y, kind) for x, y in ((a, b), (a.double(), b.double())))
        accuracy.check(name, actual, pytorch, exact)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("M", "N", "K", "phases"),
    [(48, 104, 24, 8), (16, 8, 8, 8), (8, 200, 72, 8), (36, 56, 16, 4), (34, 48, 96, 2), (33, 64, 64, 1)],
)
def test_interleaved(M, N, K, phases, transposed):
    """Rows that begin in 8, 4, 2 and 1 ways; phases with less than a tile of rows; b as it is stored or not."""
    assert fast.row_phases(fast.stored(randn(M, K, dtype=BF16))) == phases
    interleaved_right(fast, M, N, K, "silu", FP16 if phases == 8 else BF16, transposed)


def test_interleaved_sliced_rows():
    """The stride decides about the phases, and what lies between the rows is never read."""
    a = torch.full((24, 72), float("nan"), dtype=BF16, device=harness.DEVICE)[:, :40]
    a.copy_(randn(24, 40))
    b = randn(40, 48, dtype=BF16)
    assert fast.row_phases(fast.stored(a)) == 8
    c = fast.matmul_forward(a, b, **INTERLEAVED)
    accuracy.check("c", c, a @ b, a.double() @ b.double())


def test_what_can_interleave():
    a = randn(24, 24, dtype=BF16)
    assert fast.can_interleave(fast.stored(a), "rows")
    assert not fast.can_interleave(fast.stored(a), "columns")
    assert not fast.can_interleave(fast.stored(a[:12]), "rows")


@pytest.mark.parametrize(
    ("M", "N", "phases", "pays"),
    [(1000, 3000, 8, True), (3000, 3000, 8, True), (4000, 4000, 8, False), (1000, 1000, 8, False)]
    + [(n, n, 1, False) for n in (2048, 4096, 8192)],
)
def test_rule_of_interleaving(M, N, phases, pays):
    """With 132 multiprocessors, as it was measured."""
    assert fast.interleaving_pays(M, N, phases, 132) == pays


def at_a_line(rows, columns):
    """A contiguous matrix that begins where a cache line begins, wherever the allocator starts."""
    memory = torch.full((rows * columns + 64,), float("nan"), dtype=BF16, device=harness.DEVICE)
    start = -memory.data_ptr() % 128 // 2
    return memory[start : start + rows * columns].view(rows, columns).copy_(randn(rows, columns))


def copies_whole_lines(module):
    """What the interleaving is for: each row of each copied tile of `a` begins where a cache line begins."""
    a, b = at_a_line(16, 200), randn(200, 24, dtype=BF16)
    handle, seen = interpreter.TensorDescHandle, []
    original = handle.materialize_pointers

    def watched(self, offsets):
        pointers, mask = original(self, offsets)
        if self.base.data.item() == a.data_ptr():
            seen.append(pointers.data[0, :, 0] % 128)
        return pointers, mask

    handle.materialize_pointers = watched
    try:
        module.matmul_forward(a, b, interleaved=True, BLOCK_M=2, BLOCK_N=16, BLOCK_K=64, GROUP_M=2)
    finally:
        handle.materialize_pointers = original
    assert len(seen) >= 8 and not any(offsets.any() for offsets in seen), "a copy begins inside a cache line"


@pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter can be asked for addresses")
def test_copies_whole_lines():
    copies_whole_lines(fast)
