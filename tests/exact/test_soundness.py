"""Wrong kernels are refused by the two verdicts together, right ones by neither.

A kernel is a line here: statements that make the last one's value from rows `x`, `w` with the lanes' `mask` and the
number `N` of columns. `FORMULAS` says in PyTorch what is meant, `RIGHT` writes it in other ways, and `WRONG` holds a
mistake each. Many of them move the result by less than rounding does.
"""

import importlib.util
import re

import pytest
import torch
import torch.nn.functional as F

from academy.exact.compare import without_rounding
from academy.judge import accuracy
from tests.exact.kernels import row

pytestmark = pytest.mark.interpreted

HEAD = """from academy.runtime import device
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def total(x, mask):
    return tl.sum(tl.where(mask, x, 0.0), 0)


@triton.jit
def largest(x, mask):
    return tl.max(tl.where(mask, x, -float("inf")), 0)


@triton.jit
def tanh(x):
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@triton.jit
def rms_scaled(x, m, mask, N, eps):
    s = x / m
    return s * tl.rsqrt(total(s * s, mask) / N + eps / (m * m))


@triton.jit
def softmax(x, mask):
    e = tl.where(mask, tl.exp(x - largest(x, mask)), 0.0)
    return e / tl.sum(e, 0)
"""


def rms(x, eps=1e-5):
    return (x * x).mean(-1, keepdim=True) + eps


def gelu_gradient(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.gelu(x, approximate="tanh").sum(), x)[0]


def moment(x):
    q = x.softmax(-1)
    away = q - (q * q).sum(-1, keepdim=True)
    return (q * away**3).sum(-1, keepdim=True) + 0 * x


FORMULAS = {
    "tanh": lambda x, w: torch.tanh(x),
    "cubed": lambda x, w: x + (x.exp() - 1) ** 3,
    "tiny factors": lambda x, w: x + (0.01 * torch.tanh(x)) ** 8,
    "softmax": lambda x, w: x.softmax(-1),
    "softmax backward": lambda x, w: x.softmax(-1) * (w - (x.softmax(-1) * w).sum(-1, keepdim=True)),
    "third moment": lambda x, w: moment(x),
    "log-sum-exp": lambda x, w: x.logsumexp(-1, keepdim=True) + 0 * x,
    "entropy": lambda x, w: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1, keepdim=True) + 0 * x,
    "softplus": lambda x, w: F.softplus(x) * w,
    "rmsnorm": lambda x, w: x / rms(x).sqrt() * w,
    "rmsnorm and a term": lambda x, w: x / rms(x).sqrt() + w,
    "layernorm": lambda x, w: F.layer_norm(x, x.shape[-1:], w, eps=1e-5),
    "l2": lambda x, w: x / ((x * x).sum(-1, keepdim=True) + 1e-6).sqrt(),
    "gelu": lambda x, w: F.gelu(x),
    "gelu tanh": lambda x, w: F.gelu(x, approximate="tanh"),
    "silu": lambda x, w: F.silu(x) * w,
    "cap": lambda x, w: 15 * torch.tanh(x / 15),
    "cut": lambda x, w: torch.where(x > 3.0, 0.0, x),
    "clamp": lambda x, w: x.clamp(-2.5, 2.5) * w,
    "leaky relu": lambda x, w: F.leaky_relu(x, 0.01),
    "mean": lambda x, w: x.mean(-1, keepdim=True) + 0 * x,
    "dot": lambda x, w: (x * w).sum(-1, keepdim=True) + 0 * x,
    "gelu tanh backward": lambda x, w: gelu_gradient(x),
    "log10": lambda x, w: torch.log10(x.abs() + 1),
    "angles": lambda x, w: x * torch.cos(10_000.0 ** -(torch.arange(37) * 2 / 37)),
    "polynomial": lambda x, w: 1 + x + x * x / 2 + x**3 / 6 + 1e-9 * x**5,
    "capped softmax": lambda x, w: x.softmax(-1) * (1 - torch.tanh(x) ** 2) ** 2,
    "tiny root": lambda x, w: x + 1e-9 * (x * x + 1.5).sqrt(),
    "tiny root of a row": lambda x, w: x + 1e-9 * ((x * x).sum(-1, keepdim=True) + 1).sqrt(),
    "tiny step": lambda x, w: x - 1e-9 * w / (x * x + 0.5).sqrt(),
}

RIGHT = {
    "tanh": ["tanh(x)", "libdevice.tanh(x)", "2 / (1 + exp2(-2.8853900817779268 * x)) - 1"],
    "cubed": ["e = exp(x) - 1.0; x + e * e * e"],
    "tiny factors": ["t = 0.01 * tanh(x); s = t * t; f = s * s; x + f * f"],
    "softmax": [
        "softmax(x, mask)",
        "v = x * 1.4426950408889634; e = where(mask, exp2(v - largest(v, mask)), 0.0); e / tl.sum(e, 0)",
        "v = where(mask, x, -1e30); e = exp(v - tl.max(v, 0)); e * (1.0 / tl.sum(e, 0))",
        "e = where(mask, exp(x), 0.0); exp(x - log(tl.sum(e, 0)))",
    ],
    "softmax backward": ["q = softmax(x, mask); q * w - q * total(q * w, mask)"],
    "third moment": [
        "q = softmax(x, mask); d = q - total(q * q, mask); x * 0 + total(q * d * d * d, mask)",
        "q = softmax(x, mask); m = total(q * q, mask); "
        "x * 0 + total(q * q * q * q, mask) - 3 * m * total(q * q * q, mask) + 3 * m * m * m - m * m * m",
    ],
    "log-sum-exp": ["m = largest(x, mask); x * 0 + m + log(total(exp(x - m), mask))"],
    "entropy": [
        "m = largest(x, mask); e = exp(x - m); s = total(e, mask); x * 0 + log(s) - total(e * (x - m), mask) / s"
    ],
    "softplus": ["log(1.0 + exp(x)) * w", "(x + log(1.0 + exp(-x))) * w"],
    "rmsnorm": [
        "x * rsqrt(total(x * x, mask) / N + 1e-5) * w",
        "x * w / sqrt(total(x * x, mask) * (1.0 / N) + 1e-5)",
        "w * rms_scaled(x, largest(abs(x), mask), mask, N, 1e-5)",
        "w * rms_scaled(x, total(abs(x), mask), mask, N, 1e-5)",
        "w * rms_scaled(x, N, mask, N, 1e-5)",
    ],
    "rmsnorm and a term": [
        "rms_scaled(x, largest(abs(x), mask), mask, N, 1e-5) + w",
        "rms_scaled(x, total(abs(x), mask), mask, N, 1e-5) + w",
        "N * x * rsqrt(N * total(x * x, mask) + N * N * 1e-5) + w",
    ],
    "layernorm": ["c = where(mask, x - tl.sum(x, 0) / N, 0.0); c * rsqrt(tl.sum(c * c, 0) / N + 1e-5) * w"],
    "l2": ["x * rsqrt(total(x * x, mask) + 1e-6)"],
    "gelu": ["0.5 * x * (1 + erf(x * 0.7071067811865476))"],
    "gelu tanh": [
        "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
        "x / (1 + exp(-1.5957691216057308 * x * (1 + 0.044715 * x * x)))",
    ],
    "silu": ["x / (1 + exp(-x)) * w", "x * w * tl.sigmoid(x)"],
    "cap": ["15.0 * tanh(x / 15.0)", "15.0 * libdevice.tanh(x * (1.0 / 15.0))"],
    "cut": ["where(x > 3.0, 0.0, x)"],
    "clamp": ["tl.clamp(x, -2.5, 2.5) * w", "tl.minimum(tl.maximum(x, -2.5), 2.5) * w"],
    "leaky relu": ["where(x > 0, x, 0.01 * x)"],
    "mean": ["x * 0 + tl.sum(x, 0) / N", "x * 0 + tl.sum(x / N, 0)"],
    "dot": ["x * 0 + tl.sum(x * w, 0)"],
    "gelu tanh backward": [
        "t = tanh(0.79788456 * x * (1 + 0.044715 * x * x)); "
        "0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)"
    ],
    "log10": ["log(abs(x) + 1) * 0.4342944819", "libdevice.log10(abs(x) + 1)"],
    "angles": ["x * tl.cos(exp2(-(tl.arange(0, 64) * 2 / N) * 13.287712379549449))"],
    "polynomial": ["1 + x * (1 + x * (0.5 + x * (1 / 6 + x * x * 1e-9)))"],
    "capped softmax": ["t = tanh(x); g = 1.0 - t * t; softmax(x, mask) * g * g"],
}

WRONG = {
    "tanh": [
        "t = tanh(x); t - t * t * t",
        "t = tanh(x); t - 0.001 * (t * t * t)",
        "t = tanh(x); s = t * t; t + 1e-9 * s * s * t",
        "t = tanh(x); s = t * t; f = s * s; t + 1e-9 * f * f * s",
        "1.0 - 2.0 / (exp(2.0000002 * x) + 1.0)",
        "where(abs(x) < 1e-2, x, tanh(x))",
        "1.0 - 2.0 / (exp(2.0 * x) + 1.0) + 1e-12",
    ],
    "cubed": ["x", "e = exp(x) - 1.0; x + e * e", "e = exp(x) - 1.0; x + e * e * e * 1.0000001"],
    "tiny factors": ["x", "t = 0.01 * tanh(x); s = t * t; x + s * s * s * s * t"],
    "softmax": [
        "e = where(mask, exp(x - largest(x, mask) + 1e-7), 0.0); e / total(exp(x - largest(x, mask)), mask)",
        "e = where(mask, exp(x), 0.0); e / (tl.sum(e, 0) + 1e-9)",
        "v = x * 1.4426952; e = where(mask, exp2(v - largest(v, mask)), 0.0); e / tl.sum(e, 0)",
        "e = where(mask & (x > -3.4), exp(x - largest(x, mask)), 0.0); e / tl.sum(e, 0)",
        "m = largest(x, mask); e = where(mask, exp(x - m), 0.0); e / (tl.sum(e, 0) - 1e-8 * e)",
        "softmax(x, mask) * 1.0000001",
    ],
    "softmax backward": [
        "q = softmax(x, mask); q * (w - total(q * w, mask) * 1.0000001)",
        "q = softmax(x, mask); q * (w - total(q * w, mask)) + 1e-9 * q * q",
    ],
    "third moment": [
        "x * 0",
        "q = softmax(x, mask); d = q - 1.0 / N; x * 0 + total(q * d * d * d, mask)",
        "q = softmax(x, mask); d = q - total(q * q, mask); x * 0 + total(q * d * d * d * (1 + 1e-7 * d), mask)",
    ],
    "log-sum-exp": [
        "m = largest(x, mask); x * 0 + m + log(total(exp(x - m), mask) + 1e-8)",
        "m = largest(x, mask); x * 0 + m + log(total(exp(x - m), mask)) * 1.0000001",
        "m = largest(x, mask); x * 0 + m + log(total(exp(x - m), mask) - 1e-9 * total(exp(x - m), mask))",
    ],
    "entropy": [
        "m = largest(x, mask); e = exp(x - m); s = total(e, mask); "
        "x * 0 + log(s) - total(e * (x - m), mask) / (s + 1e-8)",
        "q = softmax(x, mask); x * 0 - total(q * log(q + 1e-10), mask)",
    ],
    "softplus": [
        "log(1.0 + exp(x)) * w * 1.0000001",
        "log(1.00000012 + exp(x)) * w",
        "where(x > 4.0, x * w, log(1.0 + exp(x)) * w)",
    ],
    "rmsnorm": [
        "x * rsqrt(total(x * x, mask) / N) * w",
        "x * rsqrt(total(x * x, mask) / N + 1.001e-5) * w",
        "x * rsqrt(total(x * x, mask) / N + 1e-6) * w",
        "x * w / (sqrt(total(x * x, mask) / N) + 1e-5)",
        "x * rsqrt((total(x * x, mask) + 1e-5) / N) * w",
        "x * rsqrt(total(x * x, mask) / N + 1.00000005e-5) * w",
        "w * rms_scaled(x, largest(abs(x), mask), mask, N, 1.0001e-5)",
        "m = largest(abs(x), mask); w * rms_scaled(x, m, mask, N, 1e-5 * m)",
        "-w * rms_scaled(x, largest(abs(x), mask), mask, N, 1e-5)",
        "w * rms_scaled(x, total(abs(x), mask), mask, N, 1e-5) * 1.0000001",
    ],
    "rmsnorm and a term": [
        "rms_scaled(x, largest(abs(x), mask), mask, N, 1e-5) + w * 1.0000001",
        "rms_scaled(x, total(abs(x), mask), mask, N, 0.0) + w",
        "w - rms_scaled(x, total(abs(x), mask), mask, N, 1e-5)",
    ],
    "layernorm": [
        "c = where(mask, x - tl.sum(x, 0) / N, 0.0); c * rsqrt(tl.sum(c * c, 0) / N) * w",
        "c = where(mask, x - tl.sum(x, 0) / N, 0.0); c * rsqrt(tl.sum(c * c, 0) / N + 1e-6) * w",
        "c = x - tl.sum(x, 0) / N; c * rsqrt(tl.sum(c * c, 0) / N + 1e-5) * w",
    ],
    "l2": [
        "x * rsqrt(total(x * x, mask))",
        "x / (sqrt(total(x * x, mask)) + 1e-6)",
        "x * rsqrt(tl.maximum(total(x * x, mask), 1e-6))",
    ],
    "gelu": ["0.5 * x * (1 + erf(x * 0.7071069))", "0.5 * x * (1 + erf(x * 0.7071067811865476) + 1e-10)"],
    "gelu tanh": [
        "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.0447151 * x * x * x)))",
        "0.5 * x * (1 + tanh(0.7978847 * (x + 0.044715 * x * x * x)))",
        "0.5 * x * (1 + erf(x * 0.7071067811865476))",
    ],
    "silu": ["x / (1.0000001 + exp(-x)) * w", "x / (1 + exp(-x)) * w + 1e-12 * x"],
    "cap": ["15.0 * tanh(x / 15.000001)", "x", "t = tanh(x / 15.0); 15.0 * t + 1e-7 * t * t * t"],
    "cut": ["where(x > 3.1, 0.0, x)", "where(x > 2.99, 0.0, x)", "where(x >= 3.05, 0.0, x)"],
    "clamp": ["tl.clamp(x, -2.5, 2.50001) * w", "tl.clamp(x, -2.45, 2.5) * w"],
    "leaky relu": ["where(x > 0, x, 0.01000001 * x)", "where(x > -0.02, x, 0.01 * x)"],
    "mean": ["x * 0 + tl.sum(x, 0) / (N + 1e-6)", "x * 0 + tl.sum(x, 0) * 0.027027026", "x * 0 + tl.sum(x, 0) / 64"],
    "dot": [
        "x * 0 + tl.sum(where(tl.arange(0, 64) != 36, x * w, 0.0), 0)",
        "x * 0 + tl.sum(where(abs(x * w) > 1e-2, x * w, 0.0), 0)",
        "x * 0 + tl.sum(x * w, 0) + 1e-12 * tl.sum(x, 0)",
    ],
    "gelu tanh backward": [
        "t = tanh(0.79788456 * x * (1 + 0.044715 * x * x)); "
        "0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070323 * x * x)) + 0.5 * (1 + t)"
    ],
    "log10": ["log(abs(x) + 1) * 0.4342946"],
    "angles": ["x * tl.cos(exp2(-(tl.arange(0, 64) * 2 / N) * 13.287714))"],
    "polynomial": [
        "1 + x * (1 + x * (0.5 + x * (1 / 6)))",
        "1 + x * (1 + x * (0.5 + x * (0.16666667 + x * x * 1e-9))) + 1e-11",
    ],
    "capped softmax": [
        "t = tanh(x); softmax(x, mask) * (1.0 - 2.0 * t * t)",
        "t = tanh(x); g = 1.0 - t * t; softmax(x, mask) * g * g * g",
    ],
}


#: Written for brevity: floats may see what isn't accurate.
BRIEF = ("tanh", "cubed", "third moment", "cap", "softplus", "angles", "gelu tanh backward")
#: Right, and with a wrong sign: of a root that is too small a term for the floats.
SIGNS = {
    "tiny root": ["x + 1e-9 * sqrt(x * x + 1.5)", "x - 1e-9 * sqrt(x * x + 1.5)"],
    "tiny root of a row": ["x + 1e-9 * sqrt(total(x * x, mask) + 1)", "x - 1e-9 * sqrt(total(x * x, mask) + 1)"],
    "tiny step": ["x - 1e-9 * w * rsqrt(x * x + 0.5)", "x + 1e-9 * w * rsqrt(x * x + 0.5)"],
}


def numbered(table):
    return [(name, line) for name, lines in table.items() for line in lines]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Each line's helper."""
    lines, text = numbered(RIGHT) + numbered(WRONG) + numbered(SIGNS), HEAD
    for number, (_, line) in enumerate(lines):
        line = re.sub(r"(?<![.\w])(exp2?|log2?|where|abs|sqrt|rsqrt|erf)\(", r"tl.\1(", line)
        *statements, last = line.split("; ")
        body = "".join(f"    {statement}\n" for statement in [*statements, f"return {last}"])
        text += f"\n\n@triton.jit\ndef kernel_{number}(x, w, mask, N):\n{body}"
    path = tmp_path_factory.mktemp("soundness") / "lines.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("lines_of_test_soundness", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {line: getattr(module, f"kernel_{number}") for number, line in enumerate(lines)}


def verdicts(name, kernel):
    """Exactly, and in floats: what is wrong, or None. Values lie on both sides of every threshold."""
    generator = torch.Generator().manual_seed(1)
    x, w = 1.5 * torch.randn(24, 37, generator=generator), torch.randn(37, generator=generator)
    x[0, :8] = torch.tensor([2.995, 3.005, 3.055, -2.47, 2.500005, -0.01, 0.005, 4.5])
    formula = FORMULAS[name]
    with without_rounding() as session:
        y = row(kernel, x, w)
        wanted = {"y": session.numbers(formula(x.double(), w.double()))}
        made = session.compare_each({"y": y}, wanted, again=lambda: {"y": row(kernel, x, w)})["y"]
        assert not session.lost
    return made, accuracy.problem(y, formula(x, w), formula(x.double(), w.double()))


@pytest.mark.parametrize("name, line", numbered(WRONG))
def test_wrong_kernels_are_refused(kernels, name, line):
    made, problem = verdicts(name, kernels[name, line])
    assert made.same is False or problem, f"{made}, and as accurate as PyTorch"
    if "rms_scaled" in line:  # the sign of a root doesn't excuse it
        assert made.same is False, made


@pytest.mark.parametrize("name", SIGNS)
def test_a_wrong_sign_that_no_float_shows_is_never_called_equal(kernels, name):
    """Each number has two roots. Where all of them would have to be the other one, nothing is decided."""
    right, wrong = SIGNS[name]
    made, problem = verdicts(name, kernels[name, wrong])
    assert not made.same and problem is None, str(made)
    made, _ = verdicts(name, kernels[name, right])
    assert made.same is True and made.decided > 0.7 * made.elements, str(made)


@pytest.mark.parametrize("name, line", numbered(RIGHT))
def test_right_kernels_are_not(kernels, name, line):
    made, problem = verdicts(name, kernels[name, line])
    assert made.same is True and made.decided > 0.7 * made.elements, str(made)
    if "libdevice" in line or name not in BRIEF:
        assert problem is None, problem


ROOT_OF_A_PRODUCT = {
    "a√b": (lambda x, a, b: a * b.sqrt(), True),
    "−a√b": (lambda x, a, b: -a * b.sqrt(), False),
    "tiny, the other sign": (lambda x, a, b: x - 1e-9 * (a * a * b).sqrt(), None),
    "tiny, the other sign, written differently": (lambda x, a, b: x - 1e-9 * a * b.sqrt(), True),
}


@pytest.mark.parametrize("name", ROOT_OF_A_PRODUCT)
def test_a_sign_is_judged_as_the_guide_says(name):
    """The last one passes. That is a limit, which docs/guides/without-a-tolerance.md names."""
    ours, expected = ROOT_OF_A_PRODUCT[name]
    generator = torch.Generator().manual_seed(0)
    x, a, b = (torch.rand(4, 40, generator=generator) + 0.5 for _ in "xab")
    tiny = "tiny" in name
    with without_rounding() as session:
        root = (a.double() * a.double() * b.double()).sqrt()
        wanted = {"y": session.numbers(x.double() + 1e-9 * root if tiny else root)}
        again = lambda: {"y": ours(x, a, b)}  # noqa: E731
        assert session.compare_each(again(), wanted, again=again)["y"].same is expected


@pytest.mark.parametrize("columns, primes", [(22, (3, 7, 23)), (23, (3, 7, 11)), (3 * 7 * 11 * 23, ())])
def test_a_mean_and_a_softmax_lose_the_primes_that_divide_their_length(columns, primes):
    x = torch.randn(1, columns, generator=torch.Generator().manual_seed(0)).double()
    with without_rounding() as session:
        for y in (x.mean(-1), x.softmax(-1)):
            made = session.compare(y, y)
            assert made.primes == primes and made.decided == (y.numel() if primes else 0)


def test_a_sum_over_causal_rows_of_up_to_23_keys_loses_every_prime():
    scores = torch.randn(23, 23, generator=torch.Generator().manual_seed(0)).double()
    with without_rounding() as session:
        weights = scores.masked_fill(torch.ones(23, 23).triu(1) > 0, -torch.inf).softmax(-1)
        for rows, decided in ((23, False), (22, True)):
            y = weights[:rows].sum(0)
            assert (session.compare(y, y).mask[0] > 0) == decided


def test_there_are_enough_of_them():
    assert len(numbered(WRONG)) >= 60 and set(WRONG) == set(RIGHT) == set(FORMULAS) - set(SIGNS)
