"""`academy judge --only exact`: mistakes far below rounding are found; what can't be decided is no mistake."""

import pytest

from academy.book.layout import ROOT
from academy.judge import kernel_mutants
from academy.judge.subject import from_file
from academy.judge.trials import GROUPS, USUAL, Plan
from academy.judge.trying import attempt

pytestmark = pytest.mark.interpreted

FILE = """
import torch
import triton
import triton.language as tl


@triton.jit
def newton(x):
    r = 1.0 / (0.5 + 0.5 * x)
    for _ in range(6):
        r = r * (1.5 - 0.5 * x * r * r)
    return r


@triton.jit
def kernel(x_ptr, y_ptr, N, MODE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + tl.program_id(0) * N + offs, mask=mask, other=0.0)
    square = tl.sum(x * x, 0) / N
    if MODE == 0:
        y = x * tl.rsqrt(square + 1e-5)
    elif MODE == 1:
        y = x * newton(square + 1e-5)
    else:
        y = FAULT
    tl.store(y_ptr + tl.program_id(0) * N + offs, y, mask=mask)


def launched(x, mode):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(len(x),)](x, y, x.shape[1], mode, triton.next_power_of_2(x.shape[1]))
    return y


def right(x):
    return launched(x, 0)


def by_newton(x):
    return launched(x, 1)


def faulty(x):
    return launched(x, 2)


def unknown(x):
    return torch.special.i0(x)


def right_reference(x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def scaled(x, weight, bias):
    m = x.abs().SIZE(-1, keepdim=True)
    s = x / m
    return s * torch.rsqrt((s * s).mean(-1, keepdim=True) + EPS / (m * m)) * weight + bias


def scaled_reference(x, weight, bias):
    return right_reference(x) * weight + bias


by_newton_reference = faulty_reference = right_reference


def unknown_reference(x):
    return torch.special.i0(x)


ROWS = {"x": "rows cols"}
INPUTS = {"right": ROWS, "by_newton": ROWS, "faulty": ROWS, "unknown": ROWS}
INPUTS["scaled"] = {**ROWS, "weight": "cols", "bias": "cols"}
"""
#: Each moves a result by less than 1e-6 of itself.
FAULTS = {
    "an eps too large": "x * tl.rsqrt(square + 1.0001e-5)",
    "an eps beside a literal": "x * tl.rsqrt(square + 1e-5 + 1e-12)",
    "an eps outside of the mean": "x * tl.rsqrt((tl.sum(x * x, 0) + 1.9001e-4) / N)",
    "a factor": "x * tl.rsqrt(square + 1e-5) * 1.0000001",
    "a term more": "x * tl.rsqrt(square + 1e-5) + 1e-9 * x * x",
    "a constant more": "x * tl.rsqrt(square + 1e-5) + 1e-12",
    "one over N": "x * tl.rsqrt(tl.sum(x * x, 0) * 0.05263158 + 1.00001e-5)",
    "a threshold": "tl.where(tl.abs(x) < 1e-3, 0.0 * x, x) * tl.rsqrt(square + 1e-5) + 1e-30 * x",
    "a mean that is nearly 0": "(x - 1e-10 * tl.sum(x, 0)) * tl.rsqrt(square + 1e-5)",
    "a square of a square": "x * tl.rsqrt(square + 1e-5 + 1e-9 * square * square)",
}


#: Right kernels that others wrote, see `tests/corpus/outside`, and which of the engine's changes is planted there: the
#: last one, but in a kernel that quantises the one before. What moves a number by less than its eight bits is a choice.
OUTSIDE = dict.fromkeys(
    """adamw_step batch_stats_welford bias_gelu_tanh causal_conv1d csr_spmv embedding_bag_mean geglu_packed
    host_descriptor_rowmean reverse_cumsum splitk_gemm heuristics_leaky_add bsr_matmul blockwise_int8""".split(),
    -1,
) | {"fp8_rowwise_quant": -2}


def trial_of(path, name, **said):
    (subject,) = [one for one in from_file(path, None) if one.name == name]
    (trial,) = Plan(subject).trials(["exact"])
    return attempt(subject, trial)


def written(folder, fault="x", atoms="", size="amax", eps="1e-5"):
    path = folder / "mine.py"
    path.write_text(FILE.replace("FAULT", fault).replace("SIZE", size).replace("EPS", eps) + atoms)
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_below_rounding_is_found(tmp_path, fault):
    outcome = trial_of(written(tmp_path, FAULTS[fault]), "faulty")
    assert outcome.state == "wrong" and "isn't the function that the reference is. out: another" in outcome.message


@pytest.mark.parametrize("name, number", OUTSIDE.items())
def test_the_last_bit_of_a_factor_is_found_in_kernels_from_outside(tmp_path, name, number):
    """1.2e-7 of a result, made by the engine in an expression of floats. It is in one of the file's functions."""
    path = ROOT / f"tests/corpus/outside/right_{name}.py"
    text = path.read_text("utf-8")
    planted = [each for each in kernel_mutants.of_source(text, fine=True) if each.operator == "last bit"][number]
    wrong = tmp_path / path.name
    wrong.write_text(planted.apply(text))
    assert {outcome.state for outcome in exact_trials(path)} == {"right"}
    found = [outcome for outcome in exact_trials(wrong) if outcome.state != "right"]
    assert {outcome.state for outcome in found} == {"wrong"}
    assert all("isn't the function that the reference is" in outcome.message for outcome in found)


def exact_trials(path):
    for subject in from_file(path, None):
        yield from (attempt(subject, trial) for trial in Plan(subject).trials(["exact"]))


def test_the_right_kernel_is_right(tmp_path):
    assert trial_of(written(tmp_path), "right").state == "right"


@pytest.mark.parametrize("size", ["amax", "sum"])
def test_a_kernel_that_scales_its_rows_before_a_root_is_right(tmp_path, size):
    """√(a²b) = a√b for a > 0, also if a is no square modulo some prime; in a gradient that adds up rows, too."""
    outcome = trial_of(written(tmp_path, size=size), "scaled")
    assert outcome.state == "right", outcome.message
    (tmp_path / "wrong").mkdir()
    outcome = trial_of(written(tmp_path / "wrong", size=size, eps="1.0001e-5"), "scaled")
    assert outcome.state == "wrong", outcome.message


SCORES = """
import math
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, N, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + offs, mask=offs < N, other=-float("inf")) * SCALE
    e = tl.exp2(x - tl.max(x, 0))
    tl.store(y_ptr + tl.program_id(0) * N + offs, e / tl.sum(e, 0), mask=offs < N)


def weights(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(len(x),)](x, y, x.shape[1], 80 ** -0.5 * math.log2(math.e), 80, triton.next_power_of_2(x.shape[1]))
    return y


def weights_reference(x):
    return (x REFERENCE).softmax(-1)


INPUTS = {"weights": {"x": "rows cols"}}
"""


@pytest.mark.parametrize("reference", ["/ math.sqrt(80)", "* 80 ** -0.5", "* 80 ** -0.25 * 80 ** -0.25"])
@pytest.mark.parametrize("scale", ["scale", "tl.rsqrt(1.0 * WIDTH) * 1.4426950408889634"])
def test_a_scale_may_be_written_as_one_likes(tmp_path, reference, scale):
    """1 / √80 has no residue modulo three of the primes; PyTorch's attention multiplies both factors with its root."""
    path = tmp_path / "mine.py"
    path.write_text(SCORES.replace("REFERENCE", reference).replace("SCALE", scale))
    outcome = trial_of(path, "weights")
    assert outcome.state == "right", outcome.message
    path.write_text(SCORES.replace("REFERENCE", reference.replace("80", "80.0001", 1)).replace("SCALE", scale))
    (tmp_path / "wrong").mkdir()
    assert trial_of(path.rename(tmp_path / "wrong/mine.py"), "weights").state == "wrong"


def test_an_approximation_is_named(tmp_path):
    assert trial_of(written(tmp_path), "by_newton").state == "wrong"
    (tmp_path / "named").mkdir()
    assert trial_of(written(tmp_path / "named", atoms='\nATOMS = {"newton": "rsqrt"}\n'), "by_newton").state == "right"


def test_what_has_no_rule_is_no_mistake(tmp_path):
    outcome = trial_of(written(tmp_path), "unknown")
    assert outcome.state == "skipped" and "no rule for" in outcome.message


def test_it_is_tried_where_it_is_named():
    assert "exact" in GROUPS and "exact" not in USUAL
