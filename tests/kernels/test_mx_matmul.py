"""mx/mx_matmul and its fast version: weights of four and eight bits against float64; bytes at their ends, tails,
errors, mutants.

The traps of kernels that decode microscaled weights, and the check or mutant ("…") that holds each:

1. Bytes 0, 254 and 255 of an exponent, in the product as alone: `bytes_at_their_ends`, "byte 0 is zero",
   "byte 255 is infinite". (`tl.dot_scaled`, which has byte 0 as zero up to Triton 3.7, isn't used.)
2. K of a single group: `test_shapes`.
3. K and N that end before a tile: the formulas, with NaN behind each end.
4. Scales that are read behind the end, where a byte is 255: the formulas.
5. Which half of a byte comes first, shifts of eight bits: `whole_numbers`, and the formulas.
6. Negative zero, and the sign of each code: `whole_numbers`, and the formulas.
7. Scales along the wrong dimension: `whole_numbers`, with weights that aren't symmetric. A stride that is ignored:
   `layouts`, "stride of a scale". A scale for each step of the loop: "a scale for each step".
"""

import pytest
import torch

from academy.judge import accuracy
from annotated_examples.fast import mx_matmul as fast
from annotated_examples.mx import mx_matmul as lesson
from annotated_examples.mx.microscaling import E8M0, FP4, dequantize_mx_reference, quantize_mx_reference
from tests.kernels import harness
from tests.kernels.harness import DEVICE, LAYOUTS, Mutant, randn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BF16, FP16 = torch.bfloat16, torch.float16
SMALL = dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=64, GROUP_M=2)


def weights(N, K, dtype=FP4):
    """Rows and groups of very different sizes: a scale of another row or group is off by much."""
    sizes = 3.0 ** (torch.arange(N, device=DEVICE) % 7)[:, None] * 2.0 ** (torch.arange(K, device=DEVICE) // 32 % 5)
    return quantize_mx_reference(randn(N, K) * sizes, dtype)


def of_bytes(tensor):
    return tensor.view(torch.uint8) if tensor.dtype in (FP4, E8M0) else tensor


def launched(module, a, q, scale, bias=None, out_dtype=torch.float32, **tiles):
    if hasattr(module, "parts_forward"):  # the fast version: tiles of its own
        return module.mx_matmul_forward(a, of_bytes(q), of_bytes(scale), bias, out_dtype)
    return module.mx_matmul_forward(a, of_bytes(q), of_bytes(scale), bias, out_dtype, **SMALL | tiles)


def assert_right(module, a, q, scale, bias=None, **tiles):
    """Not more than twice the error of PyTorch's product of decoded weights."""
    wide = None if bias is None else bias.double()
    exact = lesson.mx_matmul_reference(a.double(), q, scale, bias=wide)
    theirs = lesson.mx_matmul_reference(a, q, scale, bias=bias)
    message = accuracy.problem(launched(module, a, q, scale, bias, a.dtype, **tiles), theirs, exact)
    assert message is None, message


# ---------------------------------------------------------------- checks, which mutants have to fail


def whole_numbers(module):
    """Codes are whole numbers and halves, so with small ones nothing is rounded: the same as in float64."""
    a = torch.randint(-3, 4, (7, 160), device=DEVICE).to(BF16)
    q, scale = weights(9, 160)
    for tiles in ({}, dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=32), dict(BLOCK_K=128)):
        exact = a.double() @ dequantize_mx_reference(q, scale, torch.float32).double().t()
        assert torch.equal(launched(module, a, q, scale, **tiles).double(), exact), tiles
    bias = torch.arange(9.0, device=DEVICE)
    assert torch.equal(launched(module, a, q, scale, bias).double(), exact + bias)


def bytes_at_their_ends(module):
    """Byte 0 is 2 to the -127, 254 the opposite, 255 makes its column NaN, and no other."""
    a = torch.eye(32, dtype=BF16, device=DEVICE)
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(16, 16)
    scale = torch.tensor([0, 1, 2, 126, 127, 128, 253, 254], dtype=torch.uint8, device=DEVICE).repeat(2)[:, None]
    found = launched(module, a, codes, scale).t()
    wanted = dequantize_mx_reference(codes, scale, torch.float32).to(BF16).float()
    clean = wanted.isfinite().all(1)
    assert torch.equal(found[clean], wanted[clean]) and bool(found[0].any()) and int((~clean).sum()) >= 2
    assert bool((found[~clean].isfinite() == False).any(1).all())  # noqa: E712
    scale[3] = 255
    found = launched(module, randn(5, 32, dtype=BF16), codes, scale.clamp(max=200).where(scale < 255, scale))
    assert bool(found[:, 3].isnan().all()) and int(found.isnan().sum()) == 5
    ones, alike = torch.ones(2, 32, dtype=BF16, device=DEVICE), torch.full_like(codes, 0x22)
    assert bool(launched(module, ones, alike, torch.full_like(scale, 255)).isnan().all()), "infinity isn't NaN"


def layouts(module):
    a, (q, scale) = randn(9, 64, dtype=BF16), weights(10, 64)
    wanted = launched(lesson, a, q, scale)
    for layout in LAYOUTS.values():
        assert torch.equal(launched(module, layout(a), q, scale), wanted)
    for one, other in (
        (of_bytes(q).t().contiguous().t(), of_bytes(scale).t().contiguous().t()),
        (harness.strided(of_bytes(q)), harness.strided(of_bytes(scale))),
    ):
        assert torch.equal(launched(module, a, one, other), wanted)


def decoded_beforehand(module):
    """Every code with every byte, in both dtypes: as the reference decodes it. Rows of words, and others."""
    codes = (torch.arange(256, device=DEVICE)[:, None] + torch.arange(48, device=DEVICE) * 7).to(torch.uint8) ^ 0x5A
    scale = torch.arange(256 * 3, device=DEVICE).view(256, 3).to(torch.uint8)
    apart = harness.strided(codes)
    for dtype in (BF16, FP16):
        other = scale.t().contiguous().t()
        for q, s in ((codes, scale), (codes[:, :16], scale[:, 1:2]), (codes, other), (apart, other)):
            wanted = dequantize_mx_reference(q.contiguous().view(FP4), s.contiguous().view(E8M0), torch.float32).to(
                dtype
            )
            with harness.fenced_allocations():
                found = module.decoded(q, s, dtype, BLOCK_N=16, BLOCK_K=64)
            assert torch.equal(found.isnan(), wanted.isnan()) and found.is_contiguous()
            assert torch.equal(found.nan_to_num(7.0), wanted.nan_to_num(7.0))


CHECKS = [whole_numbers, bytes_at_their_ends, layouts]
BOTH = pytest.mark.parametrize("module", (lesson, fast), ids=("lesson", "fast"))


@BOTH
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check(check, module):
    check(module)


def test_decoded_beforehand():
    decoded_beforehand(fast)


MUTANTS = [
    (whole_numbers, Mutant("a scale for each step", "offs_g = start // 32 +", "offs_g = start // BLOCK_K +")),
    (layouts, Mutant("stride of a scale", "offs_g[None, :] * stride_sk", "offs_g[None, :]")),
    (layouts, Mutant("stride of a", "offs_k[None, :] * stride_ak", "offs_k[None, :]")),
]
test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
OF_FAST = [
    (bytes_at_their_ends, Mutant("byte 0 is zero", "tl.maximum(byte << 7, 0x40)", "(byte << 7)")),
    (
        bytes_at_their_ends,
        Mutant("byte 255 is infinite", "tl.where(byte == 255, 0x7FC0,", "tl.where(byte == 256, 0x7FC0,"),
    ),
    (
        decoded_beforehand,
        Mutant("groups side by side", "(offs_w // 4)[None, :] * stride_sk", "(offs_w // 4)[None, :]"),
    ),
    (
        decoded_beforehand,
        Mutant("rows of words side by side", "offs_n[:, None] * stride_wn", "offs_n[:, None] * (K // 8)"),
    ),
]
test_fast_mutant_is_caught = harness.mutant_test(fast, OF_FAST)


# ---------------------------------------------------------------- dtypes, shapes, errors


@BOTH
@pytest.mark.parametrize("out_dtype", [None, *harness.DTYPES], ids=str)
def test_every_way_to_say_it(out_dtype, module):
    """PyTorch's dtypes or bytes and a name: the same product."""
    a = randn(5, 64, dtype=BF16)
    for name, dtype in lesson.FORMATS.items():
        q, scale = weights(6, 64, dtype)
        found = module.mx_matmul(a, q, scale, out_dtype=out_dtype)
        again = module.mx_matmul(a, q.view(torch.uint8), scale.view(torch.uint8), out_dtype=out_dtype, format=name)
        assert torch.equal(found, again) and found.dtype == (out_dtype or BF16)
        wanted = lesson.mx_matmul_reference(a.double(), q, scale).to(found.dtype)
        torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2 * float(wanted.float().abs().max()))


@BOTH
@pytest.mark.parametrize("M, N, K", [(0, 5, 64), (5, 0, 64), (5, 6, 0), (1, 1, 32), (70, 5, 64)])
def test_shapes(M, N, K, module):
    a, (q, scale) = randn(M, K, dtype=BF16), weights(N, K)
    bias = randn(N, dtype=BF16)
    found = module.mx_matmul(a, q, scale, bias=bias)
    assert found.shape == (M, N)
    if M and N and not K:
        assert torch.equal(found, bias.expand(M, N))


@pytest.mark.gpu
def test_every_size_of_the_fast_version():
    """With the tiles that calls get, at sizes around the borders between kernels; K of a multiple of 32 only, too."""
    for M in (1, 8, 9, 16, 17, 33, 64, 65, 128, 256, 300, 512, 513):
        for N, K in ((200, 2880), (1000, 8192)):
            for precision in (BF16, FP16):
                a, (q, scale) = randn(M, K, dtype=precision), quantize_mx_reference(randn(N, K), FP4)
                assert_right(fast, a, q, scale, randn(N, dtype=precision))


@BOTH
def test_weights_beyond_float16(module):
    """They are infinite, as in PyTorch's product of decoded weights; in bfloat16 they aren't."""
    q = torch.full((4, 16), 0x22, dtype=torch.uint8, device=DEVICE)  # ones
    scale = torch.full((4, 1), 127 + 20, dtype=torch.uint8, device=DEVICE)
    ones = torch.ones(2, 32, device=DEVICE)
    assert bool(module.mx_matmul(ones.to(FP16), q, scale, format="e2m1").isinf().all())
    assert bool((module.mx_matmul(ones.to(BF16), q, scale, format="e2m1") == 32 * 2.0**20).all())


FINE = dict(
    a=torch.ones(3, 64, dtype=BF16, device=DEVICE), b=torch.zeros(5, 32, dtype=torch.uint8, device=DEVICE),
    scale_b=torch.zeros(5, 2, dtype=torch.uint8, device=DEVICE), format="e2m1",
)  # fmt: skip


test_bad_arguments = harness.refused_test(
    "error, name, change",
    [
        (TypeError, "a", dict(a=[1.0])),
        (TypeError, "a", dict(a=torch.ones(3, 64, device=DEVICE))),
        (ValueError, "a", dict(a=torch.ones(64, dtype=BF16, device=DEVICE))),
        (ValueError, "a", dict(a=torch.ones(3, 32, dtype=BF16, device=DEVICE))),
        (TypeError, "b", dict(b=torch.zeros(5, 32, device=DEVICE))),
        (ValueError, "b", dict(b=torch.zeros(5, dtype=torch.uint8, device=DEVICE))),
        (ValueError, "format", dict(format=None)),
        (ValueError, "format", dict(format="e3m2")),
        (ValueError, "format", dict(b=torch.zeros(5, 64, device=DEVICE).to(E5M2))),
        (TypeError, "scale_b", dict(scale_b=torch.zeros(5, 2, device=DEVICE))),
        (ValueError, "scale_b", dict(scale_b=torch.zeros(2, 5, dtype=torch.uint8, device=DEVICE))),
        (ValueError, "bias", dict(bias=torch.zeros(4, dtype=BF16, device=DEVICE))),
        (TypeError, "bias", dict(bias=torch.zeros(5, dtype=FP16, device=DEVICE))),
        (ValueError, "out_dtype", dict(out_dtype=torch.float64)),
    ],
    FINE,
    lesson.mx_matmul,
    fast.mx_matmul,
)
