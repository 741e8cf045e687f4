"""A NaN or an infinity in one input of a public function: never hidden, never spread, as in PyTorch.

`non_finite.py` says what that means, `references.py` what the functions are compared with.
"""

import importlib

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from academy.judge import non_finite, public
from academy.judge.public import Call
from tests.judge.test_public import LONG
from tests.kernels.harness import DEVICE, randn
from tests.kernels.references import references

#: Infinities that cancel may meet in the parts of a sum: of words of weights with few bits, multiplied one plane at a
#: time; of a tile of a recurrence, scanned as if it began at 0, and what its first state becomes.
IN_PARTS = {"fast.low_bit", "recurrences.linear_recurrence", "fast.linear_recurrence"}
#: A scale that is no positive number is refused on the CPU.
REFUSED = {("quantize_fp8_delayed", "scale")}
#: The logarithm of a decay is at most 0, which is checked on the CPU.
GATED = {f"{name}{way}" for name in ("gated_delta_rule", "kda") for way in ("", "_varlen", "_step_")}
GATED |= {"linear_attention", "linear_attention_varlen"}
#: Programs that add to the same element, on a card in any order: the last bit varies from call to call.
ATOMICS = {"gemlite.gemm_splitK"}


def other(*names, **said):
    """The call of each function whose name ends so, with other tensors: their words, or a function that makes one."""
    options = said.pop("options", {})
    found = [Call(each, dict(inputs=said, **options)) for each in public.functions() if str(each).endswith(names)]
    assert found, names
    return found


def labels(rows, vocabulary):
    return lambda: torch.randint(0, vocabulary, (rows,)).index_fill(0, torch.tensor(1), -100)


CASES = public.calls()
#: Sizes that are no multiples of a block, and rows of several chunks.
TUNED = ("matmul_autotuned.matmul", "fast.matmul.matmul")
OTHER_SIZES = [
    *other("softmax.softmax", x="3 9000"),
    *other("softmax.softmax", x="5 33"),
    *other("matmul_blocked.matmul", x="33 70", y="70 47"),
    *other("matmul_grouped.matmul", x="33 70", y="70 47", options=dict(activation="relu")),
    *other(*TUNED, a="33 70", b="70 47", options=dict(activation="leaky_relu")),
    *other(*TUNED, a="3 1", b="1 5"),
    *other("classics.matmul.matmul", a="33 70", b="70 47", options=dict(activation="silu")),
    *other("classics.matmul.matmul", a="33 70", b="70 47", options=dict(activation="relu")),
    *other(".layernorm.layernorm", x="3 9000", weight="9000", bias="9000"),
    *other(".rmsnorm.rmsnorm", x="3 9000", weight="9000"),
    *other(".add_rmsnorm", x="5 33", residual="5 33", weight="33"),
    *other(".cross_entropy.cross_entropy_loss", logits="3 9001", labels=labels(3, 9001)),
    *other(".linear_cross_entropy", x="5 33", weight="700 33", bias="700", labels=labels(5, 700)),
    *other(".geglu", gate="3 1", up="3 1"),
    *other(".flash_attention", q="1 2 9 40", k="1 1 70 40", v="1 1 70 40"),
    *other(".flash_attention", q="1 2 70 40", k="1 1 9 40", v="1 1 9 40", options=dict(causal=True)),
    *other(".low_bit_matmul", a="3 256: float16", options=dict(W_nbits=4, group_size=128)),
]


def problems(case, seed, places, dtype=None, few=None):
    inputs = {n: v.to(dtype) if dtype and v.dtype == torch.bfloat16 else v for n, v in case.inputs(seed).items()}
    function, upstream = case.load(), None
    if case.differentiable:
        with torch.no_grad():
            out = function(**inputs)
        upstream = torch.randn(out.shape, device=DEVICE).to(out.dtype)
    spoilt = {name: x for name, x in inputs.items() if (case.function, name) not in REFUSED} | (
        {} if upstream is None else {non_finite.UPSTREAM: upstream}
    )
    tried = list(non_finite.trials(spoilt, seed, places))
    if case.function in GATED:
        tried = [trial for trial in tried if (trial.name, trial.value) != ("g", "+inf")]
    if few:
        tried = tried[seed % (len(tried) // few) :: len(tried) // few][:few]
    return non_finite.walk(
        function, references(case), inputs, upstream, tried, case.module in IN_PARTS, case.module not in ATOMICS
    )


def assert_no_problems(*arguments, **options):
    found = [f"{trial}: {message}" for trial, message in problems(*arguments, **options)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed, case", enumerate(case for case in CASES if case.function in LONG), ids=str)
def test_a_few_places(seed, case):
    """Of what the judge tries less with in `make test`: other places, inputs and values for each function."""
    assert_no_problems(case, seed=seed, places=1, few=1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES + OTHER_SIZES, ids=str)
def test_many_places(case, seed):
    assert_no_problems(case, seed=seed, places=3)


#: A module keeps its parameters' dtype, and so do scales.
CASTABLE = [c for c in CASES + OTHER_SIZES if "apply" not in c.function and not {"scale", "scales"} & c.inputs().keys()]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "case, dtype", [(c, d) for c in CASTABLE for d in ("float32", "float16") if d in c.public.dtypes], ids=str
)
def test_other_dtypes(case, dtype):
    assert_no_problems(case, seed=7, places=2, dtype=getattr(torch, dtype))


# ---------------------------------------------------------------- what was wrong once


def flash(module):
    return importlib.import_module(f"annotated_examples.{module}").flash_attention


@pytest.mark.parametrize("module", ["attention.flash_attention", "fast.flash_attention"])
@pytest.mark.parametrize("name", ["q", "upstream"])
def test_a_pair_that_a_mask_hides_gets_no_gradient(module, name):
    """Zero times NaN: a query's NaN came to keys that the query doesn't see."""
    tensors = {name: randn(1, 1, 8, 16).requires_grad_() for name in "qkv"}
    upstream = randn(1, 1, 8, 16)
    with torch.no_grad():
        (upstream if name == "upstream" else tensors[name])[0, 0, 4, 3] = float("nan")
    flash(module)(**tensors, causal=True).backward(upstream)
    # The product for dK has the query itself as a factor: in its column PyTorch computes zero times NaN, too.
    columns = [column for column in range(16) if name == "upstream" or column != 3]
    gradient = tensors["k"].grad[0, 0, :, columns]
    assert gradient[5:].isfinite().all() and gradient[:5].isnan().all()


@pytest.mark.parametrize("module", ["attention.flash_attention", "fast.flash_attention"])
def test_scores_of_minus_infinity_alone_are_no_keys(module):
    """As in PyTorch's scaled_dot_product_attention."""
    q, k, v = (randn(1, 1, 3, 16) for _ in "qkv")
    k[0, 0, 0] = torch.where(q[0, 0, 0] > 0, -torch.inf, 0.0)
    out = flash(module)(q, k, v, causal=True)
    with sdpa_kernel(SDPBackend.MATH):  # on a card another one may be chosen, which answers NaN
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert out[0, 0, 0].eq(0).all() and want[0, 0, 0].eq(0).all()


# ---------------------------------------------------------------- the rules themselves


def softmax(x):
    return torch.softmax(x, -1)


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda x: softmax(x.nan_to_num()), "hidden, first"),
        (lambda x: softmax(x) + 0 * x.sum(), "NaN, not finite"),
        (lambda x: softmax(x) + 1e-3 * x.nan_to_num(nan=1.0).sum().clamp(-5, 5), "depend on it that must not"),
        (lambda x: torch.where(x.isnan(), torch.inf, softmax(x)), r"\+inf, not NaN"),
    ],
)
def test_a_broken_rule_is_seen(function, message):
    x = torch.randn(3, 4)
    tried = list(non_finite.trials(dict(x=x), seed=1, places=2))
    found = [said for _, said in non_finite.walk(function, [softmax], dict(x=x), None, tried)]
    assert found and any(message.replace("\\", "") in said for said in found), found
    assert not list(non_finite.walk(softmax, [softmax], dict(x=x), torch.randn(3, 4), tried))


def test_an_infinity_in_a_gradient_may_be_a_nan():
    x = torch.randn(3, 4)
    tried = [non_finite.Trial("x", value, (5,)) for value in non_finite.BAD]
    squares = lambda x: x * x  # noqa: E731
    other = lambda x: (x * x + x) - x  # noqa: E731
    found = [str(trial) for trial, _ in non_finite.walk(other, [squares], dict(x=x), torch.ones(3, 4), tried)]
    assert found == ["+inf in x at 5", "-inf in x at 5"]  # the result is NaN instead of +∞
    assert not list(non_finite.walk(other, [squares], dict(x=x), torch.ones(3, 4), tried, infinity_or_nan=True))


@pytest.mark.parametrize("value", ["+inf", "-inf"])
def test_an_infinity_may_be_a_nan_and_not_the_other_infinity(value):
    class Cube(torch.autograd.Function):
        """Where it overflows its result, and then its gradient, has the wrong sign."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x.isinf(), -x, x**3)

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return torch.where(x.isinf(), -torch.inf, 3 * x * x) * dy

    given, tried = dict(x=torch.randn(3, 4)), [non_finite.Trial("x", value, (5,))]
    walk = lambda other: non_finite.walk(other, [lambda x: x**3], given, torch.ones(3, 4), tried, infinity_or_nan=True)  # noqa: E731
    # torch 2.11 takes no names.
    assert [said.partition(":")[0] for _, said in walk(lambda x: Cube.apply(x))] == ["out", "dx"]
    assert not list(walk(lambda x: torch.where(x.isinf(), x - x, x**3)))


def test_whole_numbers_are_compared_as_they_are():
    """A sampler's tokens have no rounding: one that a bad number elsewhere moves is another token."""
    clean = torch.tensor([3, 4])
    compared = lambda ours: non_finite.wrong(ours, clean, [clean], [clean], [clean], False, same_bits=False)  # noqa: E731
    assert compared(clean.clone()) is None
    assert "first [1]: 5 instead of 4" in compared(torch.tensor([3, 5]))
