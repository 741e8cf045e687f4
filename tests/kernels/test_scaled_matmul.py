"""fp8/scaled_matmul and its fast version: sums of codes against float64; scales where they belong, layouts, tails, NaN,
errors, mutants.

Results are float32 wherever sums are judged: in bfloat16 the rounding of the result would hide what happens to the sum.
On a card sums are judged by PyTorch's own product of codes there, `torch._scaled_mm`: on Hopper the accumulator of both
keeps 14 bits, so their errors are a thousand times those of float32. Where PyTorch's happens to be exact, the floor is
4 units in the last of these bits, as it is 4 units of the dtype elsewhere.

The traps of kernels that multiply scaled codes, and the check or mutant ("…") that holds each:

1. Sums that are never promoted: `positive_sums`, "never promoted", on a card; `test_promotion_is_compiled` without one.
2. `max_num_imprecise_acc` that is larger than a step: the launchers pass no more, and `scales_belong_to_parts_of_k`
   has steps of 32, 64 and 128.
3. A mask that is computed before the loop over K: the formulas, with a K that ends within a step.
4. Scales that are read where none is: `not_a_number_stays_in_its_row`, with NaN before and behind.
5. Scales of the step of a loop, not of the part of K: `scales_belong_to_parts_of_k`.
6. A tile over two columns of blocks: `tiles_wider_than_a_block`.
7. Scales of rows and columns exchanged, encoded for decoded: the formulas.
8. Vectors for rows and for columns, both at once: every check of the recipe "row".
9. A tile's last columns stored into the next row: "columns stored past the end", in memory that is fenced.
10. `b` row by row, `a` transposed, any strides: `strides_count`, "stride of a column".
11. Scales of shape () or (1, 1): `test_bad_arguments`.
12. A NaN in a code or in a scale that leaves its row: `not_a_number_stays_in_its_row`.
13. Layouts that libraries demand, and silently copy or refuse: any are taken, and the page says what is copied.
14. A bias that is scaled: the formulas; one that is added after rounding: `rounded_once`, "rounded before the bias".
15. Offsets in 32 bits: `rows_far_apart`, "offsets of 32 bits".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import functools
import re

import pytest
import torch

from academy.judge import accuracy
from academy.judge.fences import Fences, far_apart
from annotated_examples.common.fp8 import eps_of_sums
from annotated_examples.fast import scaled_matmul as fast
from annotated_examples.fp8 import scaled_matmul as lesson
from annotated_examples.gluon import scaled_matmul as below
from tests.kernels import harness
from tests.kernels.harness import DEVICE, LAYOUTS, Mutant, randn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NAN = float("nan")
TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=32, GROUP_M=2)


def as_codes(*shape, dtype=E4M3):
    return randn(*shape, scale=20).to(dtype)


def scales(recipe, M, K, N, GROUP=128, columns=False):
    """Powers of three, another one for each row, column and block: any two that are exchanged give another result."""
    blocks, few = -(-K // GROUP), -(-N // GROUP)
    shapes = {"tensor": ((), ()), "row": ((M, 1), (1, N)), "block": ((M, blocks), (blocks, N if columns else few))}
    powers = lambda shape: (3.0 ** torch.arange(torch.Size(shape).numel(), device=DEVICE).fmod(7) / 20).reshape(shape)  # noqa: E731
    return [powers(shape).contiguous() for shape in shapes[recipe]]


def launched(
    module, a, b, scale_a, scale_b, recipe, bias=None, out_dtype=torch.float32, GROUP=128, use_fast_accum=False, **tiles
):  # fmt: skip
    """The launchers with tiles of the test's size."""
    arguments = a, b, scale_a, scale_b, bias, out_dtype
    if recipe == "block":
        return module.block_scaled_matmul_forward(*arguments, GROUP=GROUP, **TILES | tiles)
    return module.scaled_matmul_forward(*arguments, use_fast_accum, **TILES | tiles)


def assert_near(out, a, b, scale_a, scale_b, recipe, bias=None, GROUP=128, use_fast_accum=False):
    """Twice the error of PyTorch's product of the same codes, both against float64."""
    if a.dtype == b.dtype == E5M2:  # PyTorch has no product of these, but of the same numbers in the other format
        same = b.float().to(E4M3)
        assert torch.equal(same.float(), b.float())
        b = same
    wanted = functools.partial(
        lesson.scaled_matmul_reference, a, b, scale_a, scale_b, recipe=recipe, bias=bias, GROUP=GROUP,
        use_fast_accum=use_fast_accum,
    )  # fmt: skip
    exact = wanted(out_dtype=torch.float64)
    theirs = wanted(out_dtype=torch.float32, precision=torch.float32).to(out.dtype)
    accuracy.check(f"{recipe} {tuple(a.shape)} {tuple(b.shape)}", out, theirs, exact, eps=eps_of_sums())


def assert_right(
    module, M, K, N, recipe, formats=(E4M3, E4M3), bias=None, columns=False, GROUP=128, use_fast_accum=False, **tiles
):  # fmt: skip
    a, b = as_codes(M, K, dtype=formats[0]), as_codes(N, K).float().to(formats[1]).t()
    scale_a, scale_b = scales(recipe, M, K, N, GROUP, columns)
    options = dict(GROUP=GROUP, use_fast_accum=use_fast_accum)
    out = launched(module, a, b, scale_a, scale_b, recipe, bias, **options, **tiles)
    assert_near(out, a, b, scale_a, scale_b, recipe, bias, **options)


# ---------------------------------------------------------------- checks, which mutants have to fail


def scales_belong_to_parts_of_k(module):
    """Not to steps of the loop: a step of half a group, and of a quarter, and a K of 200 that ends within both."""
    for BLOCK_K in (32, 64, 128):
        assert_right(module, 5, 200, 9, "block", BLOCK_K=BLOCK_K)


def tiles_wider_than_a_block(module):
    """256 columns in a tile, and 128 in a block of b: two scales for one tile."""
    assert_right(module, 5, 40, 200, "block", BLOCK_N=256, GROUP=64)


def every_code(module):
    """Each of the 256 codes of a format, times one: subnormal ones, zeros with a sign, infinities and NaN."""
    for dtype in (E4M3, E5M2):
        a = torch.arange(256, dtype=torch.uint8).view(dtype).to(DEVICE).view(256, 1)
        one = torch.ones(1, 1, device=DEVICE)
        out = launched(module, a, one.to(E4M3), one.expand(256, 1), one, "row")
        assert torch.equal(out.nan_to_num(-7), a.float().nan_to_num(-7)), dtype


def not_a_number_stays_in_its_row(module):
    """Nor does one behind the tensors come in: 130 rows, whose scales end with the tile."""
    M, K, N = 130, 40, 70
    large = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    for recipe in lesson.RECIPES:
        a, b = as_codes(M, K), as_codes(N, K).t()
        scale_a, scale_b = scales(recipe, M, K, N, 32)
        a[3, 5] = NAN
        if recipe != "tensor":
            scale_a[7, -1] = NAN
        bad = torch.zeros(M, N, dtype=torch.bool, device=DEVICE)
        bad[[3] if recipe == "tensor" else [3, 7]] = True
        a, b, scale_a, scale_b = (harness.nan_fenced(x) if x.dim() else x for x in (a, b, scale_a, scale_b))
        with Fences() as fences:
            out = launched(module, a, b, scale_a, scale_b, recipe, GROUP=32, **large)
        assert not fences.broken() and torch.equal(out.isnan(), bad), recipe
        b = b.clone()
        b[2, 4] = NAN
        out = launched(module, as_codes(M, K), b, *scales(recipe, M, K, N, 32), recipe, GROUP=32, **large)
        assert bool(out[:, 4].isnan().all()) and int(out.isnan().sum()) == M, recipe


def strides_count(module):
    a, b = as_codes(21, 40), as_codes(40, 23)
    bias = randn(23)
    for recipe in lesson.RECIPES:
        scale_a, scale_b = scales(recipe, 21, 40, 23, 32)
        wanted = launched(module, a, b, scale_a, scale_b, recipe, bias, GROUP=32)
        for layout in LAYOUTS.values():
            given = [layout(x) if x.dim() else x for x in (a, b, scale_a, scale_b)]
            assert torch.equal(launched(module, *given, recipe, layout(bias), GROUP=32), wanted), recipe


def rows_far_apart(module):
    """Offsets beyond 2³¹ elements."""
    a, b = as_codes(3, 40), as_codes(40, 5)
    for recipe in ("row", "block"):
        scale_a, scale_b = scales(recipe, 3, 40, 5, 32)
        wanted = launched(module, a, b, scale_a, scale_b, recipe, GROUP=32)
        far = [far_apart(a.view(torch.uint8)).view(E4M3), b, far_apart(scale_a), scale_b]
        assert torch.equal(launched(module, *far, recipe, GROUP=32), wanted), recipe


def rounded_once(module):
    """2049 + 1 is a float16, and 2049 isn't: rounded before the bias is added, it would be 2048."""
    a = torch.tensor([[448.0] * 4 + [256, 1]], device=DEVICE).to(E4M3)
    one = torch.ones(1, 1, device=DEVICE)
    for recipe in lesson.RECIPES:
        scale = one[0, 0] if recipe == "tensor" else one
        options = dict(recipe=recipe, bias=torch.ones(1, device=DEVICE), out_dtype=torch.float16)
        assert float(module.scaled_matmul(a, one.expand(6, 1).to(E4M3), scale, scale, **options)) == 2050, recipe


def extreme_scales(module):
    """Rows of 1e±30 times columns of 1e∓30: neither overflow nor underflow on the way. Whole numbers: exact sums."""
    a, b = (as_codes(*shape).float().clamp(-16, 16).round().to(E4M3) for shape in ((4, 40), (40, 4)))
    large = torch.tensor([1e30, 1e-30, 1.0, 1e4], device=DEVICE)
    out = launched(module, a, b, large[:, None], 1 / large[None], "row")
    wanted = lesson.scaled_matmul_reference(a, b, large[:, None], 1 / large[None], out_dtype=torch.float32)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=0)


CHECKS = [
    scales_belong_to_parts_of_k,
    tiles_wider_than_a_block,
    every_code,
    not_a_number_stays_in_its_row,
    strides_count,
    rows_far_apart,
    rounded_once,
    extreme_scales,
]
BOTH = pytest.mark.parametrize("module", (lesson, fast), ids=("lesson", "fast"))


@BOTH
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check, module):
    check(module)


def promoted(module):
    """Below Triton: more tiles than programs, one sum in a group and two, tails, and NaN behind every end."""
    tiles = dict(BLOCK_N=16, BLOCK_K=32, STAGES=2, GROUP_M=2)
    for sums, M in ((2, 270), (3, 200), (4, 300)):
        for recipe in ("tensor", "row") if sums == 3 else (*lesson.RECIPES, "columns"):
            for out_dtype in (torch.float32, torch.bfloat16):
                K, N, blocks = 72, 41, recipe in ("block", "columns")
                a, b = as_codes(M, K), as_codes(N, K).t()
                scale_a, scale_b = scales("block" if blocks else recipe, M, K, N, 32, columns=recipe == "columns")
                if recipe == "block":  # for each tile's columns
                    scale_b = scales("row", M, K, 9)[1].reshape(3, 3)
                bias = randn(N)
                a, b, scale_a, scale_b = (harness.nan_fenced(x) if x.dim() else x for x in (a, b, scale_a, scale_b))
                out = module.promoted_forward(a, b, scale_a, scale_b, bias, out_dtype, blocks, SUMS=sums, **tiles)
                assert out.dtype == out_dtype and out.is_contiguous()
                if recipe == "block":
                    scale_b = scale_b.repeat_interleave(16, 1)[:, :N]
                given = a, b, scale_a, scale_b
                assert_near(out, *given, "block" if blocks else recipe, bias, GROUP=32)


def test_promoted():
    promoted(below)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

BIAS = "        c += tl.load(bias_ptr"
MUTANTS = [
    (strides_count, Mutant("scales side by side", "offs_m * stride_scale_a", "offs_m * (stride_scale_a > 0)")),
    (strides_count, Mutant("stride of a column", "offs_c[None, :] * stride_c", "offs_c[None, :]")),
    (rows_far_apart, Mutant("offsets of 32 bits", "offs_r[:, None] * stride_r", "(offs_r[:, None] * stride_r).to(tl.int32)")),
    (not_a_number_stays_in_its_row, Mutant("rows past the end", "(offs_r < rows)[:, None]", "(offs_r < rows + 9)[:, None]")),
    (not_a_number_stays_in_its_row, Mutant("columns stored past the end", ", c, mask=m_mask[:, None] & n_mask", ", c, mask=m_mask[:, None] | n_mask")),
    (rounded_once, Mutant("rounded before the bias", BIAS, BIAS.replace("c +=", "c = c.to(tl.float16).to(tl.float32) +"))),
]  # fmt: skip
OF_BELOW = [
    (promoted, Mutant("scale of the first tile", "(n // TILES).to", "(0 * n // TILES).to")),
    (promoted, Mutant("columns of the first tile", "offs_n.to(gl.int64) * scale_b[1], offs_m", "(offs_n % BLOCK_N).to(gl.int64) * scale_b[1], offs_m")),
    (promoted, Mutant("one scale for columns of a step", "gl.load(b_at + columns,", "gl.load(b_at + 0 * columns,")),
    (promoted, Mutant("scales of the first rows", "(offs_m + ROWS) * scale_a[1]", "offs_m * scale_a[1]")),
    (promoted, Mutant("bias of the first tile", "bias_ptr + offs_n,", "bias_ptr + offs_n % BLOCK_N,")),
]  # fmt: skip
test_mutant_below_triton_is_caught = harness.mutant_test(below, OF_BELOW)
ON_A_CARD = Mutant("never promoted", "IMPRECISE=None if use_fast_accum else BLOCK_K", "IMPRECISE=None", gpu=True)

test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)


# ---------------------------------------------------------------- the sum on a card


def positive_sums(module, rows=256):
    """A long sum of positive products: what is cut off is always cut off in the same direction.

    A step of 128 takes four instructions, each of which may cut off a unit in the last of 14 bits: 4 · 2⁻¹³ = 5e-4.
    PyTorch's product without fast accumulation has the same error. Promoted, a longer sum is off by no more. What isn't
    promoted is off by 1e-1 at K = 8192.
    """
    for K in (128, 8192):
        a, b = as_codes(rows, K).float().abs().to(E4M3), as_codes(256, K).float().abs().to(E4M3).t()
        for recipe in lesson.RECIPES:
            scale_a, scale_b = scales(recipe, rows, K, 256)
            arguments = dict(recipe=recipe, out_dtype=torch.float32)
            out = module.scaled_matmul(a, b, scale_a, scale_b, **arguments).double()
            exact = lesson.scaled_matmul_reference(a, b, scale_a, scale_b, recipe=recipe, out_dtype=torch.float64)
            error = float((out - exact).norm() / exact.norm())
            options = arguments | dict(use_fast_accum=False, precision=torch.float32)
            theirs = lesson.scaled_matmul_reference(a, b, scale_a, scale_b, **options).double()
            allowed = max(2 * float((theirs - exact).norm() / exact.norm()), eps_of_sums())
            assert error <= allowed < 2e-3, f"{recipe}, K = {K}: {error:.1e}, and {allowed:.1e} is allowed"


@pytest.mark.gpu
@pytest.mark.parametrize("module, rows", [(lesson, 256), (fast, 256), (fast, 16)])
def test_sums_are_promoted(module, rows):
    """With sixteen rows the fast version has another kernel."""
    positive_sums(module, rows)


@pytest.mark.gpu
def test_every_size_of_the_fast_version():
    """With the tiles that calls get: each kernel that may be chosen, at sizes around its borders."""
    for M, K, N in (
        (1, 128, 64),
        (16, 8192, 200),
        (33, 1000, 130),
        (64, 512, 1024),
        (65, 256, 128),
        (300, 1000, 200),
        (1000, 3000, 5008),
    ):
        for recipe in lesson.RECIPES:
            for use_fast_accum in (False, True)[: 1 if recipe == "block" else 2]:
                a, b, bias = as_codes(M, K), as_codes(N, K).t(), randn(N)
                given = scales(recipe, M, K, N)
                options = dict(recipe=recipe, bias=bias, out_dtype=torch.float32, use_fast_accum=use_fast_accum)
                out = fast.scaled_matmul(a, b, *given, **options)
                assert_near(out, a, b, *given, recipe, bias, use_fast_accum=use_fast_accum)


test_mutant_of_a_card_is_caught = harness.mutant_test(lesson, [(positive_sums, ON_A_CARD)])


@functools.cache
def without_gpu():
    return harness.without_gpu("scaled_matmul_without_gpu.py")


def test_a_descriptor_of_a_gluon_kernel_has_a_layout():
    """`academy.runtime.launch` makes both kinds: with the default layout, which the kernel expects, and without one."""
    assert without_gpu()["descriptors"] == [True, True, False]


def test_promotion_is_compiled():
    """Without a card: Hopper's instructions are there, and additions of their sums only where they were asked for."""
    found = without_gpu()["instructions"]
    per_thread = 64 * 64 // 128
    wanted = {"row, fast": 0, "row": per_thread, "block": per_thread}
    for kernel, (products, additions) in found.items():
        assert products, f"{kernel}: no product of codes"
        assert additions == wanted[kernel], f"{kernel}: {additions}"


# ---------------------------------------------------------------- shapes and errors


FINE = dict(a=as_codes(4, 200), b=as_codes(200, 6), scale_a=torch.ones(4, 1), scale_b=torch.ones(1, 6))
FINE = {name: value.to(DEVICE) for name, value in FINE.items()}
BLOCKS = dict(recipe="block", scale_a=torch.ones(4, 2, device=DEVICE), scale_b=torch.ones(2, 1, device=DEVICE))
ONE = torch.ones((), device=DEVICE)
BAD = [
    (TypeError, "a", dict(a=[1.0])),
    (TypeError, "a", dict(a=torch.ones(4, 200, device=DEVICE))),
    (TypeError, "b", dict(b=torch.ones(200, 6, dtype=torch.uint8, device=DEVICE))),
    (TypeError, "b", dict(b=torch.zeros(200, 6, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fnuz))),
    (TypeError, "scale_a", dict(scale_a=torch.ones(4, 1, dtype=torch.float16, device=DEVICE))),
    (TypeError, "scale_b", dict(scale_b=1.0)),
    (ValueError, "a", dict(a=as_codes(4, 200)[0])),
    (ValueError, "b", dict(b=as_codes(199, 6))),
    (ValueError, "scale_a", dict(scale_a=torch.ones(4, device=DEVICE))),
    (ValueError, "scale_a", dict(scale_a=torch.ones(1, 4, device=DEVICE))),
    (ValueError, "scale_b", dict(scale_b=torch.ones(6, 1, device=DEVICE))),
    (ValueError, "scale_a", dict(recipe="tensor", scale_a=torch.ones(1, 1, device=DEVICE), scale_b=ONE)),
    (ValueError, "scale_b", dict(recipe="tensor", scale_a=ONE, scale_b=torch.ones(1, 1, device=DEVICE))),
    (ValueError, "scale_a", BLOCKS | dict(scale_a=torch.ones(4, 1, device=DEVICE))),
    (ValueError, "scale_b", BLOCKS | dict(scale_b=torch.ones(1, 2, device=DEVICE))),
    (ValueError, "recipe", dict(recipe="column")),
    (ValueError, "out_dtype", dict(out_dtype=E4M3)),
    (ValueError, "bias", dict(bias=torch.ones(4, device=DEVICE))),
    (TypeError, "bias", dict(bias=torch.ones(6, dtype=torch.float16, device=DEVICE))),
    (ValueError, "use_fast_accum", dict(use_fast_accum=1)),
    (ValueError, "use_fast_accum", BLOCKS | dict(use_fast_accum=True)),
]


test_bad_arguments = harness.refused_test(
    "error, name, change",
    BAD,
    FINE,
    lesson.scaled_matmul,
    fast.scaled_matmul,
)


@BOTH
def test_a_message_says_what_came_and_what_is_allowed(module):
    with pytest.raises(ValueError, match=re.escape("must have shape (2, 1) or (2, 6) (recipe='block'), got (1, 2)")):
        module.scaled_matmul(**FINE | BLOCKS | dict(scale_b=torch.ones(1, 2, device=DEVICE)))
    for recipe in ("row", "block"):
        with pytest.raises(ValueError, match="BLOCK_K must be at least 32, what an instruction takes of codes, got 16"):
            launched(module, FINE["a"], FINE["b"], BLOCKS["scale_a"], BLOCKS["scale_b"], recipe, BLOCK_K=16)
    with pytest.raises(ValueError, match="BLOCK_K must divide GROUP = 128, got 256"):
        launched(module, FINE["a"], FINE["b"], BLOCKS["scale_a"], BLOCKS["scale_b"], "block", BLOCK_K=256)
