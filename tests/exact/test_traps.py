"""What an earlier sketch fell into, and what a kernel or its caller can do with floats: each has a test."""

import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter

from academy.exact import residues as r
from academy.exact.compare import without_rounding
from tests.exact.kernels import each, row

pytestmark = pytest.mark.interpreted


def same(compute, formula, *shapes, atoms=None, draw=torch.randn):
    """The verdict on a kernel's result and a formula's, from the same inputs, and what was lost."""
    generator = torch.Generator().manual_seed(0)
    inputs = [draw(shape, generator=generator) for shape in shapes]
    with without_rounding(atoms) as session:
        made = session.compare(compute(*inputs), formula(*(x.double() for x in inputs)))
    return made, session.lost


def assert_same(*args, **kwargs):
    made, lost = same(*args, **kwargs)
    assert made.same is True and made.decided == made.elements and not lost, (str(made), lost)


# ---------------------------------------------------------------- 1: what falls back to floats
@triton.jit
def reductions(x, w, mask, N):
    largest = tl.max(tl.where(mask, x, -float("inf")), 0)
    smallest = tl.min(tl.where(mask, x, float("inf")), 0)
    return tl.sum(x * w, 0) + largest * smallest + tl.sum(x, 0) * x


def test_reductions_keep_their_residues():
    def formula(x, w):
        return ((x * w).sum(1) + x.amax(1) * x.amin(1))[:, None] + torch.einsum("rn,rm->rm", x, torch.ones_like(x)) * x

    assert_same(lambda x, w: row(reductions, x, w), formula, (3, 37), (37,))


#: What Python makes of a number, and the same in PyTorch.
THROUGH_PYTHON = {
    "item": (lambda x: x * x.sum().item(), lambda x: x * x.sum()),
    "item of data": (lambda x: x / (x.abs().max().item() / 127), lambda x: x / (x.abs().max() / 127)),
}


@pytest.mark.parametrize("way", THROUGH_PYTHON)
def test_a_number_that_goes_through_python_is_counted(way):
    made, lost = same(*THROUGH_PYTHON[way], (16,))
    assert lost[way.split()[0]] == 1 and made.same is None


def test_an_item_that_nobody_changes_is_what_it_was():
    made, _ = same(lambda x: x * x[0].item(), lambda x: x * x[0], (16,))
    assert made.same is True
    assert_same(lambda x: x * torch.tensor(3.0).item(), lambda x: 3 * x, (16,))


@triton.jit
def asin_of(x, w):
    return tl.extra.libdevice.asin(x * 0.125)


def test_what_has_no_rule_is_counted_and_decides_nothing():
    made, lost = same(lambda x: each(asin_of, x, x), lambda x: torch.asin(x / 8), (16,))
    assert made.same is None and made.decided == 0 and lost["libdevice.asin"] == 1 and lost["asin"] == 1


# ---------------------------------------------------------------- 2: tensors inside of arguments
@triton.jit
def in_tuple_kernel(pair, y_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(pair[0] + offs) * tl.load(pair[1][0] + offs))


def test_tensors_in_tuples():
    def compute(x, w):
        y, product = torch.empty(16), x * w
        in_tuple_kernel[(1,)]((product, (w,)), y, BLOCK=16)
        return y

    assert_same(compute, lambda x, w: x * w * w, (16,), (16,))


@triton.jit
def descriptor_kernel(x_desc, y_desc, BLOCK: tl.constexpr):
    block = x_desc.load([0, 16])
    y_desc.store([0, 16], block + block)


def test_tensors_behind_descriptors():
    from triton.tools.tensor_descriptor import TensorDescriptor

    def compute(x):
        y, square = torch.zeros(4, 32), x * x
        descriptors = [TensorDescriptor.from_tensor(each, [4, 16]) for each in (square, y)]
        descriptor_kernel[(1,)](*descriptors, BLOCK=16)
        return y

    assert_same(compute, lambda x: torch.cat([torch.zeros(4, 16), 2 * x[:, 16:] ** 2], 1), (4, 32))


# ---------------------------------------------------------------- 3: memory used again
@triton.jit
def product(x, w):
    return x * w


def test_memory_that_is_freed_is_not_mistaken_for_what_comes_after():
    with without_rounding() as session:
        x, addresses = torch.randn(16), set()
        for _ in range(20):
            y = each(product, x, x)
            addresses.add(y.data_ptr())
            del y
        assert len(addresses) == 20
        assert session.compare(each(product, x, x), x.double() ** 2).same is True


# ---------------------------------------------------------------- 4: PyTorch between the launches
BETWEEN = {
    "sum(0)": (lambda y: y.sum(0), lambda y: y.sum(0)),
    "mul_": (lambda y: y.mul_(2), lambda y: 2 * y),
    "zero_": (lambda y: y.zero_(), lambda y: 0 * y),
    "copy_": (lambda y: torch.empty_like(y).copy_(y), lambda y: y),
    "a slice": (lambda y: y[1:, ::3].contiguous(), lambda y: y[1:, ::3]),
    "index_add": (
        lambda y: torch.zeros(5, 16).index_add_(0, torch.tensor([4, 0, 4]), y),
        lambda y: torch.stack([y[1], 0 * y[0], 0 * y[0], 0 * y[0], y[0] + y[2]]),
    ),
    "cat, where, masked_fill": (
        lambda y: torch.where(torch.cat([y, y]) > 0, 1.5, torch.cat([y, y]).masked_fill(torch.eye(6, 16) > 0, 0.25)),
        lambda y: (
            torch.cat([y, y]).masked_fill(torch.eye(6, 16) > 0, 0.25).where(torch.cat([y, y]) <= 0, torch.tensor(1.5))
        ),
    ),
    "layer_norm": (lambda y: torch.layer_norm(y, (16,)) * 0, lambda y: 0 * y),
    "softmax": (lambda y: torch.softmax(y, 1), lambda y: y.exp() / y.exp().sum(1, keepdim=True)),
    "an out argument": (lambda y: torch.add(y, y, out=torch.empty(3, 16)), lambda y: 2 * y),
    "addmm onto nothing": (
        lambda y: torch.addmm(torch.full((3, 16), torch.nan), y, y.new_ones(16, 16), beta=0),
        lambda y: y.sum(1, True) + 0 * y,
    ),
    "addmm": (lambda y: torch.addmm(y, y, y.new_ones(16, 16), beta=0.5, alpha=2), lambda y: y / 2 + 2 * y.sum(1, True)),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_pytorch_between_the_launches_is_seen(name):
    change, formula = BETWEEN[name]
    if name == "layer_norm":  # a root: some rows have none
        made, lost = same(lambda x: change(each(product, x, x)), lambda x: formula(x * x), (3, 16))
        assert made.same is True and not lost
    else:
        assert_same(lambda x: change(each(product, x, x)), lambda x: formula(x * x), (3, 16))


def test_a_host_that_changes_the_result_after_the_launch_is_refused():
    made, _ = same(lambda x: each(product, x, x).mul_(2), lambda x: x * x, (16,))
    assert made.same is False and made.where == (0,)


def test_memory_that_somebody_wrote_unseen_is_not_known():
    def compute(x):
        y = each(product, x, x)
        y.numpy()[3:5] *= 2
        return y

    made, lost = same(compute, lambda x: x * x, (16,))
    assert made.same is True and made.decided == 14 and lost["memory written unseen"] == 2


def test_gradients_go_along():
    def gradient(x, w):
        x = x.clone().requires_grad_()
        return torch.autograd.grad((torch.nn.functional.silu(x) * w).sum(), x)[0]

    def formula(x, w):
        sigmoid = 1 / (1 + torch.exp(-x))
        return w * sigmoid * (1 + x * (1 - sigmoid))

    assert_same(gradient, formula, (16,), (16,))


# ---------------------------------------------------------------- 5: views
@triton.jit
def strided_kernel(x_ptr, stride_m, stride_n, y_ptr, M: tl.constexpr, N: tl.constexpr):
    offs_m, offs_n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    block = tl.load(x_ptr + offs_m * stride_m + offs_n * stride_n)
    tl.store(y_ptr + offs_m * N + offs_n, tl.trans(tl.trans(block)) + block.T.T)


VIEWS = {
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[:, 1::2],
    "expanded": lambda x: x[:1].expand(8, 16),
    "from the middle": lambda x: x[3:],
    "unfolded": lambda x: x.reshape(-1).unfold(0, 8, 4)[:8],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_a_computed_tensor(name):
    def compute(x):
        view = VIEWS[name](each(product, x, x))[:8, :8]
        y = torch.empty(8, 8)
        strided_kernel[(1,)](view, *view.stride(), y, 8, 8)
        return y

    assert_same(compute, lambda x: 2 * VIEWS[name](x * x)[:8, :8], (16, 16))


# ---------------------------------------------------------------- 6: bits
@triton.jit
def through_bits(x, w):
    bits = (x * w).to(tl.int32, bitcast=True)
    word = bits.to(tl.int64) | (1 << 40)  # packed beside a flag
    return word.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def magnitude_through_bits(x, w):
    return ((x * w).to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True)


@triton.jit
def sorted_rows(x, w, mask, N):
    return tl.sort(x * x)


@triton.jit
def with_its_sign_bit_changed(x, w):
    return ((x * w).to(tl.int32, bitcast=True) ^ -2147483648).to(tl.float32, bitcast=True)


@triton.jit
def words_kernel(x_ptr, y_ptr, N: tl.constexpr):
    words = tl.load(x_ptr + tl.arange(0, N))
    if x_ptr.dtype.element_ty == tl.int16:
        words = words.to(tl.int32) << 16
    tl.store(y_ptr + tl.arange(0, N), words.to(tl.float32, bitcast=True))


def as_words(x, dtype):
    y = torch.empty(16)
    words_kernel[(1,)](x.view(dtype), y, 16)
    return y


def test_floats_that_were_computed_and_are_loaded_as_integers():
    assert_same(lambda x: as_words(each(product, x, x), torch.int32), lambda x: x * x, (16,))
    made, lost = same(lambda x: as_words((x * x).bfloat16(), torch.int16), lambda x: x * x, (16,))
    assert made.same is None and lost["a load of floats as integers"] == 1


def test_bits_that_come_back_as_they_were():
    assert_same(lambda x, w: each(with_its_sign_bit_changed, x, w), lambda x, w: -x * w, (16,), (16,))
    assert_same(lambda x, w: each(through_bits, x, w), lambda x, w: x * w, (16,), (16,))
    assert_same(lambda x, w: each(magnitude_through_bits, x, w), lambda x, w: (x * w).abs(), (16,), (16,))
    assert_same(lambda x: row(sorted_rows, x, x[0]), lambda x: (x * x).sort(1).values, (3, 16))


@triton.jit
def rounded_by_bits(x, w):
    return ((x * w).to(tl.int32, bitcast=True) & -0x10000).to(tl.float32, bitcast=True)


def test_bits_that_were_changed_are_a_choice():
    made, _ = same(lambda x, w: each(rounded_by_bits, x, w), lambda x, w: x * w, (16,), (16,))
    assert made.same is False


def test_bits_that_two_numbers_share_are_nobodys():
    @triton.jit
    def shared(x, w):
        tiny = x * 1e-30 + 1.0  # 1 in float32
        return tiny.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)

    made, _ = same(lambda x: each(through_ones, x, x), lambda x: 1 + x * 1e-30, (16,))
    assert made.same is None


@triton.jit
def through_ones(x, w):
    return (x * 1e-30 + 1.0).to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)


# ---------------------------------------------------------------- 7: ties
def test_of_two_equal_floats_the_first_one_is_taken():
    with without_rounding() as session:
        x = torch.ones(4)
        almost = x + 1e-30  # the same float
        assert session.compare(torch.maximum(x, almost), x.double()).same is True
        assert session.compare(torch.maximum(almost, x), x.double()).same is False


# ---------------------------------------------------------------- 8: what a logarithm knows
@triton.jit
def log_of_log(x, w):
    return tl.log(tl.log(tl.exp(tl.exp(x))))


def test_a_logarithm_of_a_logarithm_is_compared_as_far_as_it_is_known():
    assert_same(lambda x: each(log_of_log, x, x), lambda x: x, (16,))


# ---------------------------------------------------------------- 9: sizes that a prime divides
@triton.jit
def mean(x, w, mask, N):
    return x - tl.sum(x, 0) / N


@pytest.mark.parametrize("n, without", [(37, ()), (33, (3, 11)), (46, (23,)), (63, (3, 7))])
def test_a_prime_that_divides_the_size_decides_nothing(n, without):
    made, _ = same(lambda x: row(mean, x, x[0]), lambda x: x - x.sum(1, keepdim=True) / n, (2, n))
    assert made.same is True and made.primes == tuple(p for p in r.PRIMES if p not in without)


def test_nothing_decided_is_not_equal():
    n = 3 * 7 * 11 * 23
    made, _ = same(lambda x: x.sum(1, True) / n, lambda x: x.sum(1, True) / n, (2, n))
    assert made.same is None and not made.primes


# ---------------------------------------------------------------- 10: atomics, scans
@triton.jit
def atomic_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    tl.atomic_add(y_ptr + offs % 3, x * x, mask=offs < N)


def test_atomics_add_residues_also_where_lanes_meet():
    def compute(x):
        y = torch.zeros(3)
        atomic_kernel[(4,)](x, y, 50, BLOCK=16)
        return y

    assert_same(compute, lambda x: torch.stack([x[i::3].square().sum() for i in range(3)]), (50,))


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def join(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def scans(x, w, mask, N):
    _, h = tl.associative_scan((w, x), 0, join)
    back = tl.associative_scan(x, 0, multiply, reverse=True)
    return tl.cumsum(x, 0) + tl.cumprod(w, 0) + h + back + tl.cumsum(w, 0, reverse=True) + tl.reduce(x + 2, 0, multiply)


def test_scans_and_reductions_with_a_function():
    def formula(x, w):
        h, states = torch.zeros(2), []
        for t in range(16):
            h = w[t] * h + x[:, t]
            states.append(h)
        back = x.flip(1).cumprod(1).flip(1)
        total = x.cumsum(1) + w.cumprod(0) + torch.stack(states, 1) + back + w.flip(0).cumsum(0).flip(0)
        return total + (x + 2).prod(1, keepdim=True)

    assert_same(lambda x, w: row(scans, x, w), formula, (2, 16), (16,))


# ---------------------------------------------------------------- 11: whole numbers
def test_inputs_that_are_whole_make_accidental_equalities():
    """Why cases draw floats with all their digits."""

    def of_ones(shape, generator):
        return torch.ones(shape)

    assert same(lambda x: x * x, lambda x: x, (16,), draw=of_ones)[0].same is True
    assert same(lambda x: x * x, lambda x: x, (16,))[0].same is False


@triton.jit
def powers(x, w):
    return x * tl.exp2(tl.floor(w)) + tl.log2(tl.exp2(tl.floor(w)))


def test_whole_exponents_are_powers_of_two():
    assert_same(lambda x, w: each(powers, x, w), lambda x, w: torch.ldexp(x, w.floor().int()) + w.floor(), (16,), (16,))


# ---------------------------------------------------------------- 12: random numbers, integers
@triton.jit
def dropped(x, w):
    offs = tl.arange(0, 16)
    keep = tl.rand(5, offs) > 0.25
    return tl.where(keep, x * (4 / 3), 0.0) + offs.to(tl.float32) * (tl.randint(7, offs) & 0xFFFF).to(tl.float32)


def test_random_numbers_and_integers_are_what_they_are():
    def formula(x, w):
        offs = torch.arange(16, dtype=torch.float32)
        random, words = torch.empty(16), torch.empty(16, dtype=torch.int32)
        draws_kernel[(1,)](random, words)
        return torch.where(random > 0.25, x * 4 / 3, 0.0) + offs * words.double()

    assert_same(lambda x, w: each(dropped, x, w), formula, (16,), (16,))


@triton.jit
def draws_kernel(random_ptr, words_ptr):
    offs = tl.arange(0, 16)
    tl.store(random_ptr + offs, tl.rand(5, offs))
    tl.store(words_ptr + offs, tl.randint(7, offs) & 0xFFFF)


# ---------------------------------------------------------------- 13: 1 / N in the kernel and on the host
def test_pytorch_divides_whole_numbers_exactly():
    assert_same(lambda x: x * (torch.arange(16) * 2 / 37), lambda x: x * torch.arange(16).double() * 2 / 37, (16,))


@triton.jit
def by_inverse(x, w, mask, N):
    return tl.sum(x, 0) * (1.0 / N) + tl.sum(w, 0) / N


@pytest.mark.parametrize("n", [37, 100])
def test_one_over_n(n):
    assert_same(
        lambda x, w: row(by_inverse, x, w) + x.sum(1, True) * (1 / n),
        lambda x, w: (2 * x.sum(1, True) + w.sum()) / n + 0 * x,
        (2, n),
        (n,),
    )


# ---------------------------------------------------------------- what stands for infinities
@triton.jit
def zero_for_infinity(x, w):
    return tl.where(x > -10.0, x, 0.0)


def test_infinities_have_marks_of_their_own():
    def compute(kernel):
        x = torch.randn(16)
        x[3], x[5], x[7] = -math.inf, math.inf, math.nan
        with without_rounding() as session:
            return session.compare(kernel(x), torch.where(x.isnan(), x.double(), x.double()))

    assert compute(lambda x: x.clone()).same is True
    assert compute(lambda x: each(zero_for_infinity, x, x)).where == (3,)


@triton.jit
def softmax_by_sentinel(x, w, mask, N):
    scores = tl.where(mask, x, -1e30)
    numerator = tl.exp(scores - tl.max(scores, 0))
    return numerator / tl.sum(numerator, 0)


def test_an_exponential_that_is_zero_in_float32_is_zero():
    def formula(x):
        far = x - x.amax(1, keepdim=True)
        return far.exp() / far.exp().sum(1, keepdim=True)

    assert_same(lambda x: row(softmax_by_sentinel, x, x[0]), formula, (3, 37))
    wide = lambda shape, generator: 100 * torch.randn(shape, generator=generator)  # noqa: E731
    assert_same(lambda x: row(softmax_by_sentinel, x, x[0]), formula, (3, 37), draw=wide)


def test_the_root_of_a_square_goes_by_the_float():
    positive = lambda shape, generator: torch.rand(shape, generator=generator) + 0.5  # noqa: E731
    made, lost = same(lambda x: torch.sqrt(x * x), lambda x: x, (64,), draw=positive)
    assert made.same is True and made.decided > 48 and not lost
    assert same(lambda x: x * 0.25, lambda x: x / torch.full((), 16.0).sqrt(), (16,))[0].same is True


# ---------------------------------------------------------------- atoms
@triton.jit
def newton(x):
    r = 0.7 + 0.0 * x
    for _ in range(8):
        r = r * (1.5 - 0.5 * x * r * r)
    return r


@triton.jit
def by_newton(x, w):
    return w * newton(x)


def test_an_atom_is_taken_for_its_function():
    near_one = lambda shape, generator: torch.rand(shape, generator=generator) * 0.5 + 0.75  # noqa: E731
    formula, compute = (lambda x, w: w / x.sqrt()), (lambda x, w: each(by_newton, x, w))
    assert same(compute, formula, (64,), (64,), draw=near_one)[0].same is False
    made, lost = same(compute, formula, (64,), (64,), draw=near_one, atoms={"test_traps.newton": "rsqrt"})
    assert made.same is True and made.decided > 48 and not lost


# ---------------------------------------------------------------- the switch
def test_off_it_leaves_nothing_behind():
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    before = dict(vars(builder)), vars(interpreter.ReduceOps).copy(), interpreter.GridExecutor.__call__
    with without_rounding():
        assert builder.create_fadd is not before[0]["create_fadd"]
    assert (dict(vars(builder)), vars(interpreter.ReduceOps).copy(), interpreter.GridExecutor.__call__) == before


def test_results_are_the_same_floats_with_and_without():
    x, w = torch.randn(2, 16), torch.randn(16)
    plain = row(scans, x, w)
    with without_rounding():
        assert torch.equal(row(scans, x, w), plain)


def test_all_primes_say_something():
    with without_rounding() as session:
        assert np.array_equal(session.of(torch.tensor([1.0, -2.0, 0.5]))[0], [1] * r.COUNT)


@triton.jit
def with_core_only(x):
    return core.where(x > 0.0, x * x, x)


@triton.jit
def by_helper_of_another_module(x, w):
    return with_core_only(x) * w


def test_short_ways_that_another_launch_took_for_good_are_left_too():
    """A helper that knows `triton.language.core` has its functions replaced once and for all."""
    x, w = torch.randn(16), torch.randn(16)
    each(by_helper_of_another_module, x, w)
    assert_same(
        lambda x, w: each(by_helper_of_another_module, x, w), lambda x, w: x.where(x <= 0, x * x) * w, (16,), (16,)
    )
    before = each(by_helper_of_another_module, x, w)
    assert torch.equal(each(by_helper_of_another_module, x, w), before)


#: Methods of the builder that no kernel hands floats to.
INTEGERS = set("add iabs idiv maxsi maxui minsi minui mul sdiv srem sub udiv umulhi urem".split())


def test_whatever_this_interpreter_does_to_floats_has_a_rule():
    """Each release brings methods: 3.8 a negation that was a subtraction before, 3.9 an approximate quotient."""
    handle, builder = interpreter.TensorHandle, interpreter.interpreter_builder
    without, tried = [], set()
    with without_rounding() as session:

        def block():
            floats = np.array([0.5, 2.0, 3.0, 0.75], np.float32)
            return session.kernels.give(handle(floats, tl.float32), r.embed(floats))

        for name in sorted(name for name in dir(builder) if name.startswith("create_")):
            for count in (1, 2, 3):
                try:
                    out = getattr(builder, name)(*(block() for _ in range(count)))
                except (AttributeError, AssertionError, LookupError, TypeError, ValueError):
                    continue  # other operands
                if isinstance(out, handle) and out.dtype.scalar.is_floating() and out.data.dtype.kind == "f":
                    tried.add(name.removeprefix("create_"))
                    without += [name] if getattr(out, "residues", None) is None else []
    assert {"fadd", "fdiv", "exp", "select", "fma", "cat"} <= tried and INTEGERS & tried
    assert [name for name in without if name.removeprefix("create_") not in INTEGERS] == []
