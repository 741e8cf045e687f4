"""moe/grouped_matmul and fast/grouped_matmul: what is in rows of nobody, where an expert's rows end, long sums, errors.

The traps of grouped products in use, and what holds each. "The formula" is the comparison with it, of both kinds of
products and their gradients, in large tiles and in small ones; "the judge" is `test_hostile_inputs`.

1. Rows or matrices that nobody writes: the formula; `rows_of_nobody`.
2. Every expert empty, no row at all, one expert with all rows: the formula, the judge.
3. NaN in rows behind the last offset: `rows_of_nobody`.
4. The last tile of an expert stores into the next one's rows: `stores_end_with_the_expert`, "stored to the last row".
5. It sums over them, and 0 · NaN is NaN: `experts_do_not_touch`, "sum to the last row".
6. Counts of rows around a tile: the judge, with 1 to 1037 rows.
7. Columns behind N are stored into the next row: the judge, in memory that is fenced.
8. An expert's number times a stride in 32 bits: `test_more_than_2_to_31_elements`, on a card.
9. The layout is guessed from the shape where K = N: the judge, with square matrices that are transposed.
10. Sums in the dtype of the result, or in any order: `dtypes_of_results`, `long_sums_in_float32`; the judge's second
    call, on a card.
11. Offsets off by one, or that make no sense: the formula; "past the last row", `offsets_that_make_no_sense`.
12. Too few programs for ragged counts: the formula.
13. A configuration of an autotuned kernel that is wrong: nothing is autotuned here.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.common import experts as common
from annotated_examples.fast import grouped_matmul as fast
from annotated_examples.moe import grouped_matmul as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

NAN = float("nan")
#: A GPU sums over blocks of at least 16.
SMALL = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
SMALL_SUMS = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_R=16)


def ends(counts, dtype=torch.int32):
    return torch.tensor(counts, device=DEVICE).cumsum(0).to(dtype)


def rows_of(counts, behind=0, K=10, N=7, dtype=torch.float32, bias=True):
    E, R = len(counts), sum(counts) + behind
    factors = dict(a=randn(R, K, dtype=dtype), b=randn(E, K, N, dtype=dtype))
    return factors | (dict(bias=randn(E, N, dtype=dtype)) if bias else {})


def sums_of(counts, behind=0, M=9, N=7, dtype=torch.float32):
    R = sum(counts) + behind
    return dict(a=randn(M, R, dtype=dtype), b=randn(R, N, dtype=dtype))


def assert_right(module, inputs, offsets, **options):
    call = lambda a, b, bias=None: module.grouped_matmul(a, b, offsets, bias=bias, **options)  # noqa: E731
    reference = lambda a, b, bias=None: lesson.grouped_matmul_reference(a, b, offsets, bias=bias, **options)  # noqa: E731
    out = reference(**inputs)
    harness.assert_right(call, reference, inputs, randn(*out.shape, dtype=out.dtype))


# ---------------------------------------------------------------- checks, which mutants have to fail


def rows_of_nobody(module):
    """NaN behind the last expert's rows, in factors and in the upstream gradient: results and gradients are zero. In
    sizes and a dtype that descriptors are for, and in others."""
    for size, dtype in ((dict(K=10, N=7), torch.float32), (dict(K=16, N=24), torch.float16)):
        nan_behind(module, rows_of((5, 0, 2), 9, **size, dtype=dtype), randn(16, size["N"], dtype=dtype))


def nan_behind(module, inputs, upstream):
    offsets = ends((5, 0, 2))
    inputs["a"][7:], upstream[7:] = NAN, NAN
    found = harness.gradients(lambda a, b, bias: module.grouped_matmul(a, b, offsets, bias=bias), inputs, upstream)
    assert not found["out"][7:].any() and not found["da"][7:].any()
    assert all(bool(value.isfinite().all()) for value in found.values())
    assert not found["db"][1].any() and not found["dbias"][1].any()
    sums = dict(a=inputs["a"].t(), b=upstream)
    dw = randn(3, sums["a"].shape[0], upstream.shape[1], dtype=upstream.dtype)
    found = harness.gradients(lambda a, b: module.grouped_matmul(a, b, offsets), sums, dw)
    assert all(bool(value.isfinite().all()) for value in found.values())
    assert not found["out"][1].any() and not found["da"][:, 7:].any() and not found["db"][7:].any()


def experts_do_not_touch(module, counts=(5, 6, 3), K=10, N=7, dtype=torch.float32, tiles=(SMALL,), sums=SMALL_SUMS):
    """A NaN in one expert's rows, or in its matrix, is in that expert's results alone. In tiles that reach beyond."""
    offsets = ends(counts)
    a, b = rows_of(counts, K=K, N=N, dtype=dtype, bias=False).values()
    for expert, (end, count) in enumerate(zip(offsets.tolist(), counts)):
        span, upstream = slice(end - count, end), randn(len(a), N, dtype=dtype)
        bad_a, bad_b, bad_upstream = a.clone(), b.clone(), upstream.clone()
        bad_a[span], bad_b[expert], bad_upstream[span] = NAN, NAN, NAN
        for first, second, options in [(*pair, each) for pair in ((bad_a, b), (a, bad_b)) for each in tiles]:
            c = module.grouped_rows_forward(first, second, offsets, **options)
            assert bool(c[span].isnan().all()) and int(c.isnan().sum()) == c[span].numel()
        for first, second in ((bad_a, upstream), (a, bad_upstream)):
            dw = module.grouped_sums_forward(first.t(), second, offsets, **sums)
            assert bool(dw[expert].isnan().all()) and int(dw.isnan().sum()) == K * N


def stores_end_with_the_expert(module):
    """The first program alone: expert 0 has rows 0 to 4, and of the three more in its tile none is written. (In a whole
    launch the next program writes there later, and hides it.)"""
    a, b, offsets, c = randn(10, 3), randn(2, 3, 4), ends((5, 5)), torch.full((10, 4), NAN, device=DEVICE)
    module.grouped_rows_kernel[(1, 1)](
        a, b, None, c, offsets, 10, 3, 4, 2, *a.stride(), *b.stride(), 0, 0,
        INPUT_PRECISION="ieee", BLOCK_M=8, BLOCK_N=16, BLOCK_K=16,
    )  # fmt: skip
    assert bool(c[:5].isfinite().all()) and bool(c[5:].isnan().all())


def most_a_tensor_core_drops(partial):
    """Of a float32 sum of products of 16-bit numbers whose sums so far are `partial`, (…, K) in float64.

    A tensor core adds 8 products or more at a time to the sum so far, and cuts off what lies below a sum's 24 bits,
    where other arithmetic rounds to the nearest. All these errors point towards zero, so they add up: after 3000 terms
    an H100 was off by 3.7e-6 of the result. Each step counts here as one unit of the last bit. (Fasi et al., "Numerical
    behavior of NVIDIA tensor cores", 2021.)
    """
    steps = partial.abs().unfold(-1, 8, 8).amax(-1)
    return 2.0**-23 * steps.sum(-1)


def long_sums_in_float32(module):
    """Thousands of terms: neither in 16 bits, nor in a single chain."""
    counts = (3000, 1)
    for dtype in (torch.bfloat16, torch.float32):
        assert_right(module, sums_of(counts, M=2, N=3, dtype=dtype), ends(counts))
    inputs = sums_of(counts, M=2, N=3, dtype=torch.bfloat16)
    c = module.grouped_matmul(**inputs, offsets=ends(counts), out_dtype=torch.float32)
    a, b = (value.double() for value in inputs.values())
    partial = (a[:, None, :3000] * b.t()[None, :, :3000]).cumsum(2)
    assert bool(((c[0] - partial[:, :, -1]).abs() <= most_a_tensor_core_drops(partial)).all())
    accuracy.check("the sum of a single term", c[1], (a[:, 3000:] @ b[3000:]).float(), a[:, 3000:] @ b[3000:])


def dtypes_of_results(module):
    """One rounding, to the dtype that was asked for; a bias of another dtype is added before."""
    counts, offsets = (5, 0, 3), ends((5, 0, 3))
    inputs = rows_of(counts, dtype=torch.bfloat16)
    inputs["bias"] = inputs["bias"].float() + 1 / 3
    exact = {n: v.double() for n, v in inputs.items()}
    wanted = lesson.grouped_matmul_reference(**exact, offsets=offsets)
    for out_dtype in (None, *DTYPES):
        c = module.grouped_matmul(**inputs, offsets=offsets, out_dtype=out_dtype)
        assert c.dtype == (out_dtype or torch.bfloat16)
        accuracy.check("c", c, wanted.to(c.dtype), wanted)
    leaves = {n: harness.leaf(v) for n, v in inputs.items()}
    c = module.grouped_matmul(**leaves, offsets=offsets, out_dtype=torch.float32)
    upstream = randn(*c.shape, dtype=torch.bfloat16)
    gradients = torch.autograd.grad(c, list(leaves.values()), upstream.float())
    sums = torch.stack([upstream[:5].double().sum(0), upstream[:0].double().sum(0), upstream[5:].double().sum(0)])
    accuracy.check("dbias", gradients[2], sums.float(), sums)
    assert [g.dtype for g in gradients] == [v.dtype for v in inputs.values()]


def offsets_that_make_no_sense(module):
    """A GPU can't refuse them without waiting: results may be wrong, but nothing outside is touched."""
    a, b = randn(9, 5), randn(3, 5, 6)
    for numbers in ([5, 2, 9], [-4, 3, 9], [3, 6, 40], [99, 99, 99]):
        offsets = torch.tensor(numbers, device=DEVICE)
        with harness.fenced_allocations():
            module.grouped_rows_forward(a, b, offsets, **SMALL)
            module.grouped_sums_forward(a.t(), randn(9, 6), offsets, **SMALL_SUMS)


OF_BOTH = [rows_of_nobody, long_sums_in_float32, dtypes_of_results]
test_check = harness.check_test(
    lesson, [*OF_BOTH, experts_do_not_touch, stores_end_with_the_expert, offsets_that_make_no_sense]
)


MUTANTS = [
    (stores_end_with_the_expert, Mutant("stored to the last row", "mask_m = offs_m < end", "mask_m = offs_m < R")),
    (experts_do_not_touch, Mutant("sum to the last row", "M, N, end - start,", "M, N, R - start,")),
    (dtypes_of_results, Mutant("gradient of the bias in another dtype", "sums(ones, dc, offsets, bias.dtype)", "sums(ones, dc, offsets)")),
]  # fmt: skip
HELPERS = [
    (offsets_that_make_no_sense, Mutant("past the last row", "tl.minimum(tl.maximum(end, start), R)", "tl.maximum(end, start)")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_helpers_is_caught = harness.mutant_test(common, HELPERS, within=lesson)


#: Programs walk over the experts before theirs, which takes the interpreter minutes.
@pytest.mark.parametrize(
    "E",
    [pytest.param(96, marks=[pytest.mark.nightly] * device.INTERPRET), pytest.param(256, marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("module", [lesson, fast], ids=["lesson", "fast"])
def test_as_many_experts_as_models_have(module, E):
    """Few of them with rows, the last one among these."""
    counts = (*(e % 4 * (e % 9 == 5) for e in range(E - 1)), 2)
    assert_right(module, rows_of(counts, 1, K=16, N=24, dtype=torch.bfloat16), ends(counts))
    assert_right(module, sums_of(counts, 1, M=3, N=5), ends(counts))


@pytest.mark.gpu
@pytest.mark.parametrize("module", [lesson, fast], ids=["lesson", "fast"])
def test_more_than_2_to_31_elements(module):
    """In front of an expert's matrix, and in front of a row."""
    b = torch.zeros(33, 8192, 8192, dtype=torch.bfloat16, device=DEVICE)
    b[-1, 0] = 2
    a = torch.ones(4, 8192, dtype=torch.bfloat16, device=DEVICE)
    assert bool((module.grouped_matmul(a, b, ends([0] * 32 + [4])) == 2).all())
    a = torch.zeros(2**20, 2176, dtype=torch.bfloat16, device=DEVICE)
    a[-1] = 1
    c = module.grouped_matmul(a, torch.ones(1, 2176, 16, dtype=torch.bfloat16, device=DEVICE), ends((2**20,)))
    assert bool((c[-1] == 2176).all()) and not c[:-1].any()
    dw = module.grouped_matmul(a.t(), c, ends((2**20,)))
    assert bool((dw == 2176).all())


FINE = dict(a=torch.ones(6, 4, device=DEVICE), b=torch.ones(3, 4, 5, device=DEVICE), offsets=ends((2, 0, 3)))
FLAT = dict(a=torch.ones(4, 6, device=DEVICE), b=torch.ones(6, 5, device=DEVICE))
BAD = [
    (TypeError, "b", dict(b=FINE["b"].half())),
    (ValueError, "b", dict(b=FINE["b"][0, 0])),
    (ValueError, "b", dict(b=FINE["b"][:, :3])),
    (ValueError, "offsets", dict(offsets=FINE["offsets"][:2])),
    (ValueError, "offsets must not decrease", dict(offsets=FINE["offsets"].flip(0))),
    (ValueError, "offsets must not decrease", dict(offsets=FINE["offsets"] + 2)),
    (ValueError, "offsets must not decrease", dict(offsets=FINE["offsets"] - 3)),
    (ValueError, "offsets", FLAT | dict(offsets=FINE["offsets"][:0])),
    (ValueError, "bias", dict(bias=torch.ones(3, 4, device=DEVICE))),
    (ValueError, "bias must be None", FLAT | dict(bias=torch.ones(3, 5, device=DEVICE))),
    (ValueError, "out_dtype", dict(out_dtype=torch.float64)),
]


test_bad_arguments = harness.refused_test("error, name, change", BAD, FINE, lesson.grouped_matmul, fast.grouped_matmul)
