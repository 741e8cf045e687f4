"""mla_attention: traps of a rotated part that all heads share, rows without keys, widths, errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import math

import pytest
import torch

from annotated_examples.attention import mla as module
from tests.kernels import harness
from tests.kernels.harness import DTYPES, Mutant, randn

MUTANTS = [
    Mutant("k_pe of the first sequence", "k_pe = load_block(head(k_pe_tensor, b, h, 0), offs_n, S, offs_e, E)", "k_pe = load_block(head(k_pe_tensor, 0, h, 0), offs_n, S, offs_e, E)", count=2),
    Mutant("a row without keys is NaN", "row_max = tl.full((BLOCK_M,), LOWEST, tl.float32)", 'row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)'),
    Mutant("a row without keys is divided by zero", "acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]", "acc / row_sum[:, None]"),
    Mutant("scale of another width", "1 / math.sqrt(D + E)", "1 / math.sqrt(D + V)"),
]  # fmt: skip


def inputs(B=1, H=3, T=21, S=38, D=10, E=6, V=7, dtype=torch.float32):
    shapes = dict(q_nope=(B, H, T, D), q_pe=(B, H, T, E), k_nope=(B, H, S, D), k_pe=(B, S, E), v=(B, H, S, V))
    return {name: randn(*shape, dtype=dtype) for name, shape in shapes.items()}


def right(module, given, **options):
    """Output, log-sum-exp and all gradients; the loss has a part of both. In tiles of 16."""
    T, S, V = given["q_nope"].shape[2], given["k_nope"].shape[2], given["v"].shape[3]
    weights = torch.arange(V, device=given["v"].device) % 5 - 1.5
    keys = torch.arange(T, device=weights.device) + S - T >= 0  # rows that see one

    def both(function):
        def call(**tensors):
            o, lse = function(**tensors, **options, return_lse=True)
            return torch.cat([o * weights, torch.where(keys, lse, 0.0)[..., None].to(o.dtype)], -1)

        return call

    harness.assert_right(both(module.mla_attention), both(module.mla_attention_reference), given)


def halves(given):
    """k_nope and v as what one product leaves: for each head a key beside a value."""
    joined = torch.cat([given["k_nope"], given["v"]], -1).transpose(1, 2).contiguous().transpose(1, 2)
    return given | dict(zip(("k_nope", "v"), joined.split([given["k_nope"].shape[3], given["v"].shape[3]], -1)))


def check(module):
    right(module, inputs(B=2))
    right(module, inputs(T=40, S=23, E=0))  # 17 rows without keys
    right(module, halves(inputs(T=5, S=20)), causal=False, scale=0.7)


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)


@pytest.mark.parametrize("E", [0, 1, 64])
@pytest.mark.parametrize(("D", "V"), [(1, 256), (128, 128), (256, 1)])
def test_widths(D, E, V):
    right(module, inputs(H=2, T=9, S=18, D=D, E=E, V=V))


@pytest.mark.parametrize("H", [1, 5, 17])
def test_numbers_of_heads(H):
    right(module, inputs(H=H, T=3, S=5))


@pytest.mark.parametrize(("B", "H", "T", "S"), [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_nothing_to_do(B, H, T, S):
    """No heads, no queries, no keys: the gradients that are left are 0."""
    given = inputs(B, H, T, S)
    o = module.mla_attention(**{name: x.requires_grad_() for name, x in given.items()})
    o.sum().backward()
    assert not o.any() and not any(x.grad.any() for x in given.values())


def test_rows_without_keys():
    """An upstream gradient of their log-sum-exp, −∞, reaches nothing."""
    given = {name: x.requires_grad_() for name, x in inputs(T=40, S=23).items()}
    o, lse = module.mla_attention(**given, return_lse=True)
    assert not o[:, :, :17].any() and (lse[:, :, :17] == -math.inf).all() and lse[:, :, 17:].isfinite().all()
    (o.sum() + torch.where(lse.isinf(), 0.0, lse).sum()).backward()
    assert all(x.grad.isfinite().all() for x in given.values())
    assert not given["q_nope"].grad[:, :, :17].any() and not given["q_pe"].grad[:, :, :17].any()


def test_it_is_attention_of_whole_keys():
    """The shared part copied to each head's key, whose gradients are then summed over the heads."""
    given = {name: x.double().requires_grad_() for name, x in inputs(B=2).items()}
    q = torch.cat([given["q_nope"], given["q_pe"]], -1)
    k = torch.cat([given["k_nope"], given["k_pe"][:, None].expand(-1, 3, -1, -1)], -1)
    s = (q @ k.mT / math.sqrt(16)).masked_fill(torch.ones(21, 38, device=q.device).tril(17) == 0, -math.inf)
    o = s.softmax(-1) @ given["v"]
    expected = torch.autograd.grad(o.sum(), list(given.values()))
    mine = harness.gradients(module.mla_attention, {name: x.detach().float() for name, x in given.items()})
    torch.testing.assert_close(mine["out"].double(), o.detach(), rtol=1e-5, atol=1e-6)
    for name, gradient in zip(given, expected):
        torch.testing.assert_close(mine[f"d{name}"].double(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    harness.assert_bitwise_repeatable(module.mla_attention, inputs(H=4, dtype=torch.bfloat16), None, times)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("D", "E", "V"), [(128, 64, 128), (192, 0, 256), (64, 32, 64)])
def test_lengths_of_a_real_call(dtype, D, E, V):
    right(module, inputs(B=2, H=4, T=1000, S=1300, D=D, E=E, V=V, dtype=dtype))


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(q_nope=[1.0]), TypeError, "q_nope must be a torch.Tensor, got list"),
        (dict(q_nope=torch.ones(2, 3)), ValueError, "q_nope must have 4 dimensions (B, H, T, D)"),
        (dict(q_nope=torch.ones(1, 2, 3, 4).double()), TypeError, "q_nope must be one of float32, float16, bfloat16"),
        (dict(k_nope=torch.ones(1, 2, 5, 4).half()), TypeError, "k_nope must have the dtype of q_nope"),
        (dict(q_pe=torch.ones(1, 2, 4, 2)), ValueError, "q_pe must have shape (1, 2, 3, 2)"),
        (dict(k_nope=torch.ones(1, 1, 5, 4)), ValueError, "k_nope must have shape (1, 2, 5, 4)"),
        (dict(k_pe=torch.ones(1, 2, 5, 2)), ValueError, "k_pe must have shape (1, 5, 2) (the tokens of k_nope, the width of q_pe, no heads)"),
        (dict(v=torch.ones(1, 2, 6, 3)), ValueError, "v must have shape (1, 2, 5, 3)"),
        (dict(v=torch.ones(1, 2, 5, 257)), ValueError, "v must have a width of 1 to 256, got 257"),
        (dict(q_pe=torch.ones(1, 2, 3, 65), k_pe=torch.ones(1, 5, 65)), ValueError, "q_pe must have a width of 0 to 64, got 65"),
        (dict(causal=1), ValueError, "causal must be one of True, False, got 1"),
        (dict(scale=float("nan")), ValueError, "scale must be finite"),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(changes, error, message):
    given = {name: torch.ones_like(x) for name, x in inputs(H=2, T=3, S=5, D=4, E=2, V=3).items()} | changes
    harness.assert_refused(error, message, module.mla_attention, **given)
