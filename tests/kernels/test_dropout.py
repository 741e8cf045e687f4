"""dropout: the words of Philox, a mask that depends on seed and p, wide loads, errors, mutants."""

import functools

import pytest
import torch
import triton
import triton.language as tl

from academy import compiler
from annotated_examples.classics import dropout as lesson
from tests.kernels import harness
from tests.kernels.harness import Mutant, randn

DEVICE = harness.DEVICE
SEED = 2**41 + 12345


def on_device(seed):
    return torch.tensor(seed, device=DEVICE)


def exact_mask(n, p, seed):
    return lesson.dropout_mask_reference((n,), p, seed, DEVICE)


# ---------------------------------------------------------------- the random words


def test_published_vectors():
    """The known answer of Philox4x32-10 for a counter and a key of 0, from its authors' library Random123."""
    words = lesson.random_words_reference(torch.tensor(0), torch.tensor([0]))
    assert words.tolist() == [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]]


def the_same_mask_as_the_reference(module):
    for seed in (0, 1, 7, SEED, 2**63 - 1, on_device(-(2**40) - 5)):
        for p in (0.1, 0.5, 0.99):
            assert torch.equal(module.dropout_mask((301,), p, seed), exact_mask(301, p, seed)), (seed, p)


@triton.jit
def words_kernel(out_ptr, seed_ptr, high, PHILOX: tl.constexpr, BLOCK: tl.constexpr):
    counter = tl.arange(0, BLOCK).to(tl.uint32)
    w0, w1, w2, w3 = PHILOX(tl.load(seed_ptr), counter, (tl.program_id(0) + high).to(tl.uint32), 10)
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, w0.to(tl.int64) ^ w1.to(tl.int64) ^ w2.to(tl.int64) ^ w3.to(tl.int64))


def counters_of_64_bits(module):
    """Elements behind 2**34 would take gigabytes. So a kernel of the test's asks for the words directly."""
    out = torch.empty(2, 8, dtype=torch.int64, device=DEVICE)
    words_kernel[(2,)](out, on_device(SEED), 5, PHILOX=module.philox, BLOCK=8)
    index = torch.arange(8, device=DEVICE) + torch.tensor([[5], [6]], device=DEVICE) * 2**32
    words = lesson.random_words_reference(on_device(SEED), index.flatten())
    assert torch.equal(out.flatten(), functools.reduce(torch.bitwise_xor, words.unbind(-1)))


def seeds_differ(module):
    """All 63 bits of a seed count, as an int and as a tensor; and where the tensor lies doesn't."""
    masks = [module.dropout_mask((512,), 0.5, 2**bit) for bit in range(0, 63, 6)]
    for number, mask in enumerate(masks):
        assert not any(torch.equal(mask, other) for other in masks[:number])
        assert torch.equal(mask, module.dropout_mask((512,), 0.5, on_device(2 ** (6 * number))))
    assert torch.equal(masks[0], module.dropout_mask((512,), 0.5, on_device([3, 1])[1]))


def nothing_and_everything(module):
    x = randn(3, 37)
    x[0, :3] = torch.tensor([float("inf"), float("-inf"), float("nan")], device=DEVICE)
    x = harness.leaf(x)
    y = module.dropout(x, 0.0, SEED)
    y.backward(torch.full_like(y, 3.0))
    torch.testing.assert_close(y.detach(), x.detach(), rtol=0, atol=0, equal_nan=True)
    assert bool((x.grad == 3).all()) and bool(module.dropout_mask((4000,), 0.0, 1).all())
    x.grad = None
    for p in (1, 1.0):
        y = module.dropout(x, p, SEED)
        (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, float("inf")))
        assert bool((y == 0).all()) and bool((gradient == 0).all())
        assert not module.dropout_mask((4000,), p, 1).any()


CHECKS = [
    the_same_mask_as_the_reference,
    counters_of_64_bits,
    seeds_differ,
    nothing_and_everything,
]
test_check = harness.check_test(lesson, CHECKS)


# ---------------------------------------------------------------- mutants, each with the check that must notice it

MUTANTS = [
    (counters_of_64_bits, Mutant("counter of 32 bits", "tl.zeros_like(counter) + high", "tl.zeros_like(counter)")),
    (nothing_and_everything, Mutant("p of one keeps ones", "out.zero_()", "out.fill_(1)")),
]  # fmt: skip


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)


def test_a_seed_that_changes_before_backward_is_noticed():
    seed, x = on_device(3), harness.leaf(randn(8))
    y = lesson.dropout(x, 0.5, seed)
    seed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_largest_probability_below_one():
    p = 1 - 2**-53
    assert not lesson.dropout_mask((4000,), p, 1).any()
    assert bool((lesson.dropout(randn(4000), p, 1) == 0).all())


test_bad_arguments = harness.refused_test(
    "error, name, change",
    [
        (ValueError, "p", dict(p=1.1)),
        (ValueError, "seed", dict(seed=2**63)),
        (ValueError, "seed", dict(seed=torch.tensor(1, dtype=torch.int32))),
    ],
    dict(x=torch.ones(3), p=0.5, seed=1),
    lesson.dropout,
)


def test_wide_loads():
    """Each thread loads and stores four elements at a time, and no random word moves to another thread."""
    code = """
import torch
from annotated_examples.classics import dropout
seed = torch.tensor(7, device="cuda")
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    dropout.dropout_forward(torch.empty(2**20, dtype=dtype, device="cuda"), 0.1, seed)
"""
    kernels = compiler.compile_code(code).kernels
    assert [kernel.signature["x_ptr"] for kernel in kernels] == ["*fp32", "*bf16", "*fp16"]
    for kernel in kernels:
        each, wide = (
            kernel.constants["BLOCK"] // (32 * kernel.num_warps),
            16 if "fp32" in kernel.signature["x_ptr"] else 8,
        )
        loads = each // 4 + (wide == 8)  # the seed is one more load of 8 bytes
        assert kernel.ptx[f"global load, {wide} bytes"] == loads, kernel
        assert kernel.ptx[f"global store, {wide} bytes"] == each // 4 and "barrier" not in kernel.sass, kernel


@pytest.mark.gpu
def test_more_than_2_to_31_elements():
    n = 2**31 + 2**12
    mask = lesson.dropout_mask((n,), 0.5, SEED)
    words = lesson.random_words_reference(torch.tensor(SEED), torch.arange(n // 4 - 1024, n // 4)).flatten()
    assert torch.equal(mask[-4096:].cpu(), (words ^ 2**31) - 2**31 >= lesson.threshold(0.5))
