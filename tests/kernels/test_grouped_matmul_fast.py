"""fast/grouped_matmul: both kinds of products by descriptors that stop at an expert's end, and what they are left out of.

What every grouped product has to stand is in `test_grouped_matmul`: its checks that call the public function run here
as well, on the lesson's kernels where a matrix can't be described. The traps of descriptors, and what holds each:

1. The last tile of an expert is stored over the next one's rows: `stores_end_with_the_expert`, "stored to the last row".
2. It is multiplied, or summed, with them: `experts_do_not_touch`, "read to the last row", "sum to the last row of all".
3. A tile that reaches over its matrix's edge takes the next matrix's rows: `odd_sizes`, "matrices without borders".
4. Rows of nobody are read, or not written: `rows_of_nobody`, "nobody's rows read", "rows of nobody not written".
5. Turned tiles come back the wrong way, or the halves exchanged: `in_every_order`, "halves exchanged".
6. Offsets that make no sense, and more tiles than the table has room for: `offsets_that_make_no_sense`.
7. Rows that can't be described: `what_is_copied`, `what_is_left_to_pointers`.
8. A sum over rows in the order of whoever comes first: no atomics; `test_the_same_bits_every_time`.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.common import ragged
from annotated_examples.fast import grouped_matmul as fast
from annotated_examples.moe import grouped_matmul as lesson
from tests.kernels import harness, test_grouped_matmul
from tests.kernels.harness import DEVICE, Mutant, randn
from tests.kernels.test_grouped_matmul import ends, rows_of, sums_of

NAN = float("nan")
HALF = (torch.bfloat16, torch.float16)
TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, NUM_PROGRAMS=3)
SUMS = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_R=16, NUM_PROGRAMS=3)
#: An expert without rows, one with all, the first and the last empty, one row, and what fills no tile.
COUNTS = [(17, 0, 40, 1), (0, 0, 50, 0), (16, 32, 0, 15), (0, 0, 0, 0)]

needs_copy_unit = pytest.mark.skipif(
    not device.INTERPRET and torch.cuda.get_device_capability()[0] < 9, reason="no TMA on this GPU"
)
pytestmark = needs_copy_unit


def transposed(b):
    """The same matrices, as the weights of a linear layer lie."""
    return b.transpose(1, 2).contiguous().transpose(1, 2)


def right(name, found, a, b, offsets, bias=None, dtype=None):
    wide = [None if x is None else x.double() for x in (a, b, bias)]
    exact = lesson.grouped_matmul_reference(*wide[:2], offsets, bias=wide[2])
    accuracy.check(name, found, exact.to(dtype or a.dtype), exact)


# ---------------------------------------------------------------- checks, which mutants have to fail


def in_every_order(module):
    """Matrices as they are and transposed, tiles as they are and turned, with a bias, in every dtype of the result."""
    for number, counts in enumerate(COUNTS):
        dtype, behind = HALF[number % 2], (0, 5)[number % 2]
        inputs = rows_of(counts, behind or (not sum(counts)), K=40, N=56, dtype=dtype)
        a, b, bias, offsets = *inputs.values(), ends(counts)
        for turned in (False, True):
            for matrices in (b, transposed(b)):
                with harness.fenced_allocations():
                    c = module.grouped_rows_forward(a, matrices, offsets, bias, **TILES, TURNED=turned)
                right("c", c, a, b, offsets, bias)
        c = module.grouped_rows_forward(a, b, offsets, None, torch.float32, **TILES)
        right("c in float32", c, a, b, offsets, dtype=torch.float32)


def sums_over_rows(module):
    for number, counts in enumerate(COUNTS):
        inputs = sums_of(counts, (5, 1)[number % 2], M=40, N=56, dtype=HALF[number % 2])
        a, b, offsets = inputs["a"].t().contiguous().t(), inputs["b"], ends(counts, torch.int64)
        for out_dtype in (None, torch.float32):
            with harness.fenced_allocations():
                c = module.grouped_sums_forward(a, b, offsets, out_dtype, **SUMS)
            right("sums", c, a, b, offsets, dtype=out_dtype)


def public(module):
    """With all gradients, in tiles that are chosen: few rows an expert, and many, of which some are turned."""
    for counts, K, N in (((17, 0, 40, 1), 40, 56), ((500, 30), 16, 136), ((500, 30), 16, 24)):
        for dtype in HALF:
            test_grouped_matmul.assert_right(module, rows_of(counts, 3, K=K, N=N, dtype=dtype), ends(counts))
    counts = (17, 0, 40, 1)
    inputs = sums_of(counts, 6, M=40, N=56, dtype=torch.float16)
    test_grouped_matmul.assert_right(module, inputs | {"a": inputs["a"].t().contiguous().t()}, ends(counts))


def odd_sizes(module):
    """K that fills no step, N that fills no tile, and NaN in the matrices before and behind an expert's."""
    a, b = randn(40, 24, dtype=torch.float16), randn(3, 24, 40, dtype=torch.float16)
    b[0], b[2] = NAN, NAN
    offsets = ends((0, 40, 0))
    for turned in (False, True):
        for matrices in (b, transposed(b)):
            c = module.grouped_rows_forward(a, matrices, offsets, **TILES | {"BLOCK_K": 32}, TURNED=turned)
            right("c", c, a, b[1:2], ends((40,)))


def experts_do_not_touch(module):
    tiles = [TILES | dict(TURNED=turned) for turned in (False, True)]
    test_grouped_matmul.experts_do_not_touch(module, (19, 22, 7), 16, 24, torch.float16, tiles, SUMS)


def rows_of_nobody(module):
    """NaN behind the last expert's rows: their results are zeros, and nobody else sees it."""
    a, b = rows_of((17, 0, 5), 30, K=16, N=24, dtype=torch.float16, bias=False).values()
    upstream, offsets = randn(52, 24, dtype=torch.float16), ends((17, 0, 5))
    a[22:], upstream[22:] = NAN, NAN
    for turned in (False, True):
        with harness.fenced_allocations():
            c = module.grouped_rows_forward(a, b, offsets, **TILES, TURNED=turned)
        assert bool(c.isfinite().all()) and not c[22:].any()
    bias = randn(3, 24, dtype=torch.float16)
    assert not module.grouped_rows_forward(a, b, offsets, bias, **TILES)[22:].any()
    dw = module.grouped_sums_forward(a.t(), upstream, offsets, **SUMS)
    assert bool(dw.isfinite().all()) and not dw[1].any()


def stores_end_with_the_expert(module):
    """The first program alone, which has expert 0's rows, 0 to 4: of the others in its tile none is written. (In a whole
    launch a later program writes there, and hides it.)"""
    a, b = randn(32, 16, dtype=torch.float16), randn(2, 16, 16, dtype=torch.float16)
    for turned in (False, True):
        c = torch.full((32, 16), NAN, device=DEVICE, dtype=torch.float16)
        count, tiles = ragged.tiles_of_experts(ends((5, 27)), 32, 16)
        module.launch(
            module.grouped_rows_kernel, (1,),
            (
                ragged.ragged(a, (16, 16)), ragged.stacked(b, (16, 16)),
                ragged.ragged(c, (8, 16) if turned else (16, 8)), None, torch.ones_like(count), tiles,
            ),
            (16, 16, 2, 0, 0), B_TRANSPOSED=False, TURNED=turned, NUM_PROGRAMS=1, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
        )  # fmt: skip
        assert bool(c[:5].isfinite().all()) and bool(c[5:].isnan().all())


def offsets_that_make_no_sense(module):
    """A GPU can't refuse them without waiting. Nothing outside is touched, and the results are the lesson's."""
    a, b, upstream = (randn(*shape, dtype=torch.float16) for shape in ((64, 16), (5, 16, 24), (64, 24)))
    for numbers in ([64, 0, 64, 0, 64], [40, 10, 50, 20, 60], [-4, 3, 9, 9, 9], [3, 6, 99, 200, 300]):
        offsets = torch.tensor(numbers, device=DEVICE)
        with harness.fenced_allocations():
            c = module.grouped_rows_forward(a, b, offsets, **TILES)
            dw = module.grouped_sums_forward(a.t(), upstream, offsets, **SUMS)
        torch.testing.assert_close(c, lesson.grouped_rows_forward(a, b, offsets))
        torch.testing.assert_close(dw, lesson.grouped_sums_forward(a.t(), upstream, offsets))


def the_table(module):
    """Every row of every expert is in one tile, and nobody's rows are the last expert's."""
    for counts, behind in (((17, 0, 40, 1), 7), ((0, 0), 1), ((300, 0, 5000), 0), ((1,) * 37, 2)):
        R = sum(counts) + behind
        count, tiles = module.tiles_of_experts(ends(counts), R, 16)
        wanted, start = [], 0
        for expert, end in enumerate((*ends(counts).tolist(), R)):
            wanted += [[expert, first, end] for first in range(start, end, 16)]
            start = end
        assert count.tolist() == [len(wanted)] and tiles[: len(wanted)].tolist() == wanted
        assert all(first >= end for _, first, end in tiles[len(wanted) :].tolist())


CHECKS = [
    in_every_order,
    sums_over_rows,
    public,
    odd_sizes,
    experts_do_not_touch,
    rows_of_nobody,
    stores_end_with_the_expert,
    offsets_that_make_no_sense,
]
OF_BOTH = [
    test_grouped_matmul.both_kinds,
    test_grouped_matmul.groups_around_a_tile,
    test_grouped_matmul.rows_of_nobody,
    test_grouped_matmul.layouts,
    test_grouped_matmul.long_sums_in_float32,
    test_grouped_matmul.dtypes_of_results,
]
test_check = harness.check_test(fast, [*CHECKS, *OF_BOTH])


def test_the_table():
    the_table(ragged)


MUTANTS = [
    (in_every_order, Mutant("halves exchanged", "store_rows(c_desc, left, first, end, start_n)\n", "store_rows(c_desc, right, first, end, start_n)\n")),
    (in_every_order, Mutant("turned halves exchanged", "right.to(c_desc.dtype).T, first + BLOCK_M // 2", "right.to(c_desc.dtype).T, first")),
    (in_every_order, Mutant("bias of the columns on rows", "bias[:, None] if TURNED", "bias[None, :] if TURNED")),
    (in_every_order, Mutant("bias of the first expert", "bias_ptr + expert.to(tl.int64) * stride_bias_e", "bias_ptr")),
    (in_every_order, Mutant("the matrix as it isn't stored", "load_matrix(b_desc, expert, start_n, k * BLOCK_K).T", "load_matrix(b_desc, expert, k * BLOCK_K, start_n).T")),
    (in_every_order, Mutant("a step too few", "tl.where(somebody, tl.cdiv(K, BLOCK_K), 1)", "tl.where(somebody, K // BLOCK_K, 1)")),
    (in_every_order, Mutant("tiles of one program only", "tl.range(tl.program_id(0), total, NUM_PROGRAMS", "tl.range(tl.program_id(0), total, NUM_PROGRAMS + 1")),
    (rows_of_nobody, Mutant("nobody's rows read", "read_to = tl.where(somebody, end, first)", "read_to = end")),
    (rows_of_nobody, Mutant("bias for rows of nobody", "mask=somebody & (offs_n < N)", "mask=offs_n < N")),
    (rows_of_nobody, Mutant("rows of nobody not written", "total = tl.load(count_ptr) * tiles_n", "total = (tl.load(count_ptr) - 2) * tiles_n")),
    (stores_end_with_the_expert, Mutant("stored to the last row", "store_rows(c_desc, right, first, end,", "store_rows(c_desc, right, first, end + 9,")),
    (experts_do_not_touch, Mutant("sum to the last row of all", "acc = tl.dot(load_rows(a_desc, row, end, start_m).T, load_rows(b_desc, row, end, start_n), acc)", "acc = tl.dot(load_rows(a_desc, row, end, start_m).T, load_rows(b_desc, row, R, start_n), acc)")),
    (sums_over_rows, Mutant("sum from the first row", "row = start + step * BLOCK_R", "row = step * BLOCK_R")),
    (sums_over_rows, Mutant("rows of the expert before, too", "mask=expert > 0, other=0).to(tl.int64)", "mask=expert > 1, other=0).to(tl.int64)")),
]  # fmt: skip
HELPERS = [
    (in_every_order, Mutant("rows of the expert before", "desc.load([FAR, end, FAR - end + first, column])", "desc.load([FAR, end - 1, FAR - end + first, column])")),
    (experts_do_not_touch, Mutant("read to the last row", "desc.load([FAR, end, FAR - end + first, column])", "desc.load([FAR, FAR - 9, 9 + first, column])")),
    (odd_sizes, Mutant("matrices without borders", "Tiles(w, tuple(w.shape), tuple(w.stride()), (1, *tile))", "Tiles(w, (w.shape[0], 2**20, w.shape[2]), tuple(w.stride()), (1, *tile))")),
    (stores_end_with_the_expert, Mutant("stores without an end", "desc.store([FAR, end, FAR - end + first, column], block.to(desc.dtype).reshape(shape))", "desc.store([FAR, end + 64, FAR - end - 64 + first, column], block.to(desc.dtype).reshape(shape))")),
    (offsets_that_make_no_sense, Mutant("offsets that run backwards", "tl.associative_scan(ends, 0, larger)", "ends")),
    (in_every_order, Mutant("the tile before", "line = tiles_ptr + 3 * number", "line = tiles_ptr + 3 * (number // 2 * 2)")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(fast, MUTANTS)
test_mutant_of_helpers_is_caught = harness.mutant_test(ragged, HELPERS, within=fast)


def test_what_is_copied():
    """Rows that a descriptor can't describe, but a copy of them: the same results, by the same kernel."""
    counts = (17, 0, 40, 1)
    a, b = rows_of(counts, K=16, N=24, dtype=torch.float16, bias=False).values()
    offsets, wide = ends(counts), randn(58, 21, dtype=torch.float16)
    wide[:, 1:17] = a
    one = randn(1, 16, dtype=torch.float16).expand(58, 16)
    for rows in (a.t().contiguous().t(), wide[:, 1:17]):
        with harness.unchanged(a=rows):
            c = fast.grouped_rows_forward(rows, b, offsets, **TILES)
        assert torch.equal(c, fast.grouped_rows_forward(a, b, offsets, **TILES))
    right("c", fast.grouped_rows_forward(one, b, offsets, **TILES), one, b, offsets)


def test_what_is_left_to_pointers():
    """float32, and widths that are no multiple of 8: the lesson's kernels. With sizes of a tile given, it is an error."""
    counts, offsets = (17, 0, 40, 1), ends((17, 0, 40, 1))
    for dtype, K, N in ((torch.float32, 16, 24), (torch.float16, 12, 24), (torch.float16, 16, 12)):
        a, b, bias = rows_of(counts, K=K, N=N, dtype=dtype).values()
        c = fast.grouped_rows_forward(a, b, offsets, bias)
        assert torch.equal(c, lesson.grouped_rows_forward(a, b, offsets, bias))
        with pytest.raises(ValueError, match="16-bit matrices whose rows begin"):
            fast.grouped_rows_forward(a, b, offsets, bias, **TILES)
        upstream = randn(58, N, dtype=dtype)
        dw = fast.grouped_sums_forward(a.t(), upstream, offsets)
        assert torch.equal(dw, lesson.grouped_sums_forward(a.t(), upstream, offsets))
        with pytest.raises(ValueError, match="16-bit matrices whose rows begin"):
            fast.grouped_sums_forward(a.t(), upstream, offsets, **SUMS)


@pytest.mark.parametrize("tiles", [dict(BLOCK_M=17), dict(BLOCK_N=24), dict(BLOCK_K=0)])
def test_sizes_of_tiles(tiles):
    a, b = rows_of((20,), K=16, N=24, dtype=torch.float16, bias=False).values()
    with pytest.raises(ValueError, match=next(iter(tiles))):
        fast.grouped_rows_forward(a, b, ends((20,)), **TILES | tiles)


@pytest.mark.parametrize(
    "E",
    [pytest.param(96, marks=[pytest.mark.nightly] * device.INTERPRET), pytest.param(256, marks=pytest.mark.gpu)],
)
def test_as_many_experts_as_models_have(E):
    """Few of them with rows, the last one among these."""
    counts = (*(e % 4 * (e % 9 == 5) for e in range(E - 1)), 2)
    test_grouped_matmul.assert_right(fast, rows_of(counts, 1, K=16, N=24, dtype=torch.bfloat16), ends(counts))


#: On a card every choice of tiles at a size that takes it, with counts that fill no tile.
CHOICES = [(1500, 2048, 1408), (4000, 512, 768), (9000, 512, 768), (9000, 768, 512)]


@pytest.mark.gpu
@pytest.mark.parametrize("R, K, N", CHOICES)
@pytest.mark.parametrize("lies", [transposed, lambda b: b], ids=["transposed", "as it is"])
def test_every_choice_on_a_card(R, K, N, lies):
    share = torch.rand(20).sort().values
    counts = [0, *((share / share.sum() * R).long().tolist()), 0]
    a, b, bias = rows_of(counts, 40, K=K, N=N, dtype=torch.bfloat16).values()
    b, offsets = lies(b / K**0.5), ends(counts)
    a[sum(counts) :] = NAN
    c = fast.grouped_matmul(a, b, offsets, bias=bias)
    right("c", c[: sum(counts)], a[: sum(counts)], b, offsets, bias)
    assert not c[sum(counts) :].any()
    dw = fast.grouped_matmul(a.t(), c, offsets)
    right("sums", dw, a[: sum(counts)].t(), c[: sum(counts)], offsets)


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_every_time(times):
    """Small tiles for the interpreter, and on a card sizes that fill it."""
    sizes = ((40, 0, 25), 24, 40) if device.INTERPRET else ((4000, 0, 2500), 512, 776)
    test_grouped_matmul.assert_the_same_bits(fast, *sizes, times)


@pytest.mark.gpu
def test_nobody_waits():
    offsets, inputs = ends((40, 0, 25)), rows_of((40, 0, 25), 5, K=24, N=40, dtype=torch.bfloat16)
    call = lambda a, b, bias: fast.grouped_matmul(a, b, offsets, bias=bias)  # noqa: E731
    harness.assert_nobody_waits(lambda: harness.forward_and_backward(call, inputs))


@pytest.mark.gpu
def test_more_than_2_to_31_elements():
    """In front of an expert's matrix, and in front of a row."""
    b = torch.zeros(33, 8192, 8192, dtype=torch.bfloat16, device=DEVICE)
    b[-1, 0] = 2
    a = torch.ones(4, 8192, dtype=torch.bfloat16, device=DEVICE)
    assert bool((fast.grouped_matmul(a, b, ends([0] * 32 + [4])) == 2).all())
    a = torch.zeros(2**20, 2176, dtype=torch.bfloat16, device=DEVICE)
    a[-1] = 1
    c = fast.grouped_matmul(a, torch.ones(1, 2176, 16, dtype=torch.bfloat16, device=DEVICE), ends((2**20,)))
    assert bool((c[-1] == 2176).all()) and not c[:-1].any()
    dw = fast.grouped_matmul(a.t(), c, ends((2**20,)))
    assert bool((dw == 2176).all())


test_bad_arguments = harness.refused_test(
    "error, name, change",
    test_grouped_matmul.BAD,
    test_grouped_matmul.FINE,
    fast.grouped_matmul,
)
