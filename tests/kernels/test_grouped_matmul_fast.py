"""fast/grouped_matmul: descriptors that stop at an expert's end, and what they are left out of.

What every grouped product has to stand is in `test_grouped_matmul`, whose checks that call the public function run here
as well. The traps of descriptors, and what holds each ("the formula": the comparison with it, by descriptors, too):

1. The last tile of an expert is stored over the next one's rows: the formula.
2. It is multiplied, or summed, with them: `experts_do_not_touch`, "sum to the last row of all".
3. A tile that reaches over its matrix's edge takes the next matrix's rows: the formula.
4. Rows of nobody are read, or not written: `rows_of_nobody`, "nobody's rows read".
5. Turned tiles come back the wrong way, or the halves exchanged: the formula.
6. Offsets that make no sense, and more tiles than the table has room for: `offsets_that_make_no_sense`.
7. Rows that can't be described: `what_is_copied`, `what_is_left_to_pointers`.
8. A sum over rows in the order of whoever comes first: no atomics; the judge's second call, on a card.
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
from tests.kernels.test_grouped_matmul import ends, rows_of

TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, NUM_PROGRAMS=3)
SUMS = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_R=16, NUM_PROGRAMS=3)
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


def experts_do_not_touch(module):
    tiles = [TILES | dict(TURNED=turned) for turned in (False, True)]
    test_grouped_matmul.experts_do_not_touch(module, (19, 22, 7), 16, 24, torch.float16, tiles, SUMS)


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


test_check = harness.check_test(fast, [*test_grouped_matmul.OF_BOTH, experts_do_not_touch, offsets_that_make_no_sense])
MUTANTS = [
    (test_grouped_matmul.rows_of_nobody, Mutant("nobody's rows read", "read_to = tl.where(somebody, end, first)", "read_to = end")),
    (experts_do_not_touch, Mutant("sum to the last row of all", "acc = tl.dot(load_rows(a_desc, row, end, start_m).T, load_rows(b_desc, row, end, start_n), acc)", "acc = tl.dot(load_rows(a_desc, row, end, start_m).T, load_rows(b_desc, row, R, start_n), acc)")),
]  # fmt: skip
HELPERS = [
    (offsets_that_make_no_sense, Mutant("offsets that run backwards", "tl.associative_scan(ends, 0, larger)", "ends")),
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
    a[sum(counts) :] = float("nan")
    c = fast.grouped_matmul(a, b, offsets, bias=bias)
    right("c", c[: sum(counts)], a[: sum(counts)], b, offsets, bias)
    assert not c[sum(counts) :].any()
    dw = fast.grouped_matmul(a.t(), c, offsets)
    right("sums", dw, a[: sum(counts)].t(), c[: sum(counts)], offsets)
