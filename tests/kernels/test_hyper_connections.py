"""model/sinkhorn, model/hyper_connections, model/stream_coefficients: traps, errors, mutants.

The traps of such kernels in use, and the check or mutant ("…") that holds each:

1. A mixture and its transpose: `streams_that_move_on`, "trap 1: the mixture transposed", "trap 1: the mixture transposed,
   backward", "trap 1: columns divided last".
2. The order of the 24 columns: `columns_in_their_order`, "trap 2: written before read".
3. Three eps: `no_small_number_inside`, "trap 3: a small number in the sum"; `test_weights_trained_with_a_floor`.
4. A backward pass as if the rounds had converged: `gradient_of_the_rounds`, "trap 4: rounds that don't move".
5. Atomic additions: `test_the_same_bits`.
6. A backward pass that makes all rounds again for each round: `test_backward_makes_each_round_once`.
7. A maximum that is taken for a constant: it is one where nothing is added to a sum, `no_small_number_inside`.
8. Powers of two only: `three_streams`, "trap 8: lanes past the end take part".
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import ast
import inspect

import pytest
import torch

from annotated_examples.model import hyper_connections, sinkhorn, stream_coefficients
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

EPS = torch.finfo(torch.float32).eps


# ---------------------------------------------------------------- Sinkhorn's rounds
def with_gradient(function, logits, upstream, iterations):
    leaf = logits.detach().clone().requires_grad_()
    h = function(leaf, iterations)
    return h.detach(), torch.autograd.grad((h * upstream).sum(), leaf)[0]


def gradient_of_the_rounds(module):
    """Logits of 3 N(0, 1), 20 rounds and fewer: the gradient of the rounds to two millionths. That of the limit is off by
    a thousandth of itself for the median matrix, and by more than half for one in a hundred."""
    torch.manual_seed(0)
    logits, upstream = (x.double() for x in (3 * torch.randn(1000, 4, 4), torch.randn(1000, 4, 4)))
    for iterations in (1, 3, 20):
        h, exact = with_gradient(module.sinkhorn_reference, logits, upstream, iterations)
        few = logits[:100].float().to(DEVICE), upstream[:100].float().to(DEVICE)
        mine, gradient = with_gradient(module.sinkhorn, *few, iterations)
        assert (mine.cpu() - h[:100]).abs().max() < 1e-6
        assert (gradient.cpu() - exact[:100]).abs().max() < 2e-6
    away = (at_the_limit(h, upstream) - exact).square().sum((1, 2)).sqrt() / exact.square().sum((1, 2)).sqrt()
    assert away.median() > 5e-4 and away.quantile(0.99) > 0.5


def at_the_limit(h, dh):
    """The gradient if h were doubly stochastic: h (dh − a − b), where a and b make rows and columns add up to 0."""
    n, q = h.shape[-1], h * dh
    matrix = torch.eye(2 * n, dtype=h.dtype).repeat(len(h), 1, 1)
    matrix[:, :n, n:], matrix[:, n:, :n] = h, h.mT
    # a + 1 and b − 1 are the same matrix: the last unknown is 0.
    found = torch.linalg.solve(matrix[:, :-1, :-1], torch.cat([q.sum(-1), q.sum(-2)], -1)[:, :-1, None])
    found = torch.nn.functional.pad(found, (0, 0, 0, 1))
    return h * (dh - found[:, :n] - found[:, n:].mT)


def no_small_number_inside(module):
    """Rows add up to 1 exactly, whatever logits there are; columns, too, where a matrix is a permutation."""
    for scale in (0.0, 1.0, 100.0, 1e4):
        h = module.sinkhorn(randn(50, 4, 4, scale=scale))
        assert torch.isfinite(h).all() and (h.sum(-1) - 1).abs().max() < 4 * EPS
    permutation = torch.eye(4, device=DEVICE)[[2, 0, 3, 1]]
    h = module.sinkhorn(permutation * 200)
    assert torch.equal(h, permutation)


def columns_come_first(module):
    """One round of a matrix that isn't symmetric, by hand."""
    h = module.sinkhorn(torch.tensor([[1.0, 3.0], [1.0, 1.0]], device=DEVICE).log(), 1)
    torch.testing.assert_close(h, torch.tensor([[0.4, 0.6], [2 / 3, 1 / 3]], device=DEVICE))


def three_streams(module):
    for n in (1, 3, 5, 6, 7):
        logits, upstream = randn(9, n, n), randn(9, n, n)
        h, exact = with_gradient(module.sinkhorn_reference, logits.double(), upstream.double(), 4)
        mine, gradient = with_gradient(module.sinkhorn, logits, upstream, 4)
        assert (mine - h).abs().max() < 8 * EPS and (gradient - exact).abs().max() < 32 * EPS


def impossible_entries(module):
    """−∞ is an entry of 0, forward, and gets no gradient; what is all −∞, or has a NaN, ruins its own matrix only."""
    logits = randn(6, 4, 4)
    logits[1] = torch.where(torch.eye(4, device=DEVICE) > 0, logits[1], -torch.inf)
    logits[2, 0, :3] = -torch.inf
    logits[3, :, 1] = -torch.inf
    logits[4, 2, 2] = torch.nan
    h, gradient = with_gradient(module.sinkhorn, logits, randn(6, 4, 4), 3)
    assert (
        torch.equal(h[1], torch.eye(4, device=DEVICE))
        and (h[2, 0] == torch.tensor([0, 0, 0, 1.0], device=DEVICE)).all()
    )
    assert (gradient[2, 0, :3] == 0).all()
    for result in (h, gradient):
        assert torch.isfinite(result[[0, 1, 2, 5]]).all() and result[[3, 4]].isnan().all()
    logits[0, 1, 2] = torch.inf  # of one round only its row notices
    assert torch.equal(module.sinkhorn(logits[0], 1).isnan().any(-1), torch.arange(4, device=DEVICE) == 1)


def entries_that_come_back(module):
    """A row and a column of ones, and e⁻²⁰⁰ elsewhere, which is 0 in float32. After 200 rounds those are a quarter each."""
    logits = torch.full((1, 3, 3), -200.0, device=DEVICE)
    logits[0, 0] = logits[0, :, 0] = 0.0
    for iterations in (15, 16, 17, 32, 400):
        h = module.sinkhorn(logits, iterations)
        assert (h - module.sinkhorn_reference(logits.double(), iterations)).abs().max() < 1e-5, iterations


def logits_a_thousand_apart(module):
    """Of 10¹⁰ the next float is a thousand away: wrong, as in PyTorch, but never infinite. Rows add up to 1 still."""
    torch.manual_seed(0)
    for scale in (1e9, 3e10, 1e20):
        logits = scale * torch.randn(200, 4, 4)
        h, gradient = with_gradient(module.sinkhorn, logits.to(DEVICE), torch.randn(200, 4, 4).to(DEVICE), 20)
        assert torch.isfinite(h).all() and torch.isfinite(gradient).all() and (h.sum(-1) - 1).abs().max() < 4 * EPS


ROUNDS = [
    gradient_of_the_rounds, no_small_number_inside, columns_come_first, three_streams, impossible_entries,
    entries_that_come_back, logits_a_thousand_apart,
]  # fmt: skip
OF_ROUNDS = [
    (columns_come_first, Mutant("trap 1: columns divided last", "h = softmax_of_rows(z - c[:, None, :])", "h = exp(z - r[:, :, None] - log_sum_exp_of_columns(z - r[:, :, None])[:, None, :])")),
    (no_small_number_inside, Mutant("trap 3: a small number in the sum", "return e / tl.sum(e, 2)[:, :, None]", "return e / (tl.sum(e, 2)[:, :, None] + 1e-6)")),
    (no_small_number_inside, Mutant("quotients instead of logarithms", "largest = tl.max(z, 1)\n", "largest = tl.max(z, 1) * 0.0\n")),
    (entries_that_come_back, Mutant("no round in logarithms but the first", "EVERY = tl.constexpr(16)", "EVERY = tl.constexpr(1000)")),
    (gradient_of_the_rounds, Mutant("a round's rows without their factors", "keep_rows_of(t, r - tl.log(a),", "keep_rows_of(t, r,")),
    (logits_a_thousand_apart, Mutant("what is left of logits, rounded in another order", "k = exp(z - c[:, None, :] - r[:, :, None])", "k = exp(z - r[:, :, None] - c[:, None, :])")),
    (gradient_of_the_rounds, Mutant("trap 4: rounds that don't move", "rows_ptr + (tl.cast(t, tl.int64) * M + m)[:, None] * n + i[None, :]\n        r = tl.load", "rows_ptr + ((iterations - 1) * M + m)[:, None] * n + i[None, :]\n        r = tl.load")),
    (gradient_of_the_rounds, Mutant("no share of a row is taken", "d -= of_row * tl.sum(d, 2)[:, :, None]", "d -= of_row * 0.0")),
    (gradient_of_the_rounds, Mutant("no share of a column is taken", "d -= of_column * tl.sum(d, 1)[:, None, :]", "d -= of_column * 0.0")),
    (gradient_of_the_rounds, Mutant("columns first on the way back", "d -= of_row * tl.sum(d, 2)[:, :, None]\n", "d -= exp(z - r[:, :, None] - c[:, None, :]) * tl.sum(d, 1)[:, None, :]\n        d -= of_row * tl.sum(d, 2)[:, :, None]\n        continue\n")),
    (three_streams, Mutant("trap 8: lanes past the end take part", '0.0, float("-inf"))\n    return', "0.0, 0.0)\n    return")),
    (impossible_entries, Mutant("infinity is subtracted", 'tl.where(tl.abs(largest) == float("inf"), 0.0, largest)', "largest")),
]  # fmt: skip

test_rounds = harness.check_test(sinkhorn, ROUNDS)
test_mutant_of_the_rounds_is_caught = harness.mutant_test(sinkhorn, OF_ROUNDS)


def with_a_floor(x, iterations, eps):
    """As DeepSeek's code has it, with eps added to every quotient and every sum but the first."""
    m = (x - x.amax(-2, keepdim=True)).exp()
    m = m / m.sum(-2, keepdim=True) + eps
    m = m / (m.sum(-1, keepdim=True) + eps)
    for _ in range(iterations - 1):
        m = m / (m.sum(-2, keepdim=True) + eps)
        m = m / (m.sum(-1, keepdim=True) + eps)
    return m


def test_weights_trained_with_a_floor():
    """Trap 3. What the docstring of `sinkhorn` says of such weights."""
    torch.manual_seed(0)
    logits = 3 * torch.randn(1000, 4, 4, dtype=torch.float64)
    theirs = with_a_floor(logits, 20, 1e-6)
    assert 5e-3 < (theirs - sinkhorn.sinkhorn_reference(logits)).abs().max() < 3e-2
    floor = torch.logaddexp(torch.log_softmax(logits, -2), torch.tensor(1e-6).log())
    assert (theirs - sinkhorn.sinkhorn_reference(floor)).abs().max() < 2e-6
    mine = sinkhorn.sinkhorn(floor[:100].float().to(DEVICE)).cpu()
    assert (theirs[:100] - mine).abs().max() < 4e-6


def test_backward_makes_each_round_once():
    """Trap 6. One loop, over the rounds, and what each began with is loaded."""
    tree = ast.parse(inspect.getsource(sinkhorn.sinkhorn_backward_kernel.fn))
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    assert len(loops) == 1 and "rows_ptr" in ast.unparse(loops[0])
    _, rows = sinkhorn.sinkhorn_forward(randn(3, 4, 4), 20, keep_rows=True)
    assert rows.numel() * rows.element_size() == 3 * 320  # bytes: the lesson says 320 a token


def test_backward_waits_for_nothing_that_it_does_not_need():
    """Without a gradient no round is stored."""
    assert sinkhorn.sinkhorn_forward(randn(3, 4, 4))[1] is None


# ---------------------------------------------------------------- streams
def streams_that_move_on(module):
    """Trap 1. A permutation that isn't its own inverse: stream j goes into stream i where res[i, j] is 1."""
    for n in (3, 4):
        x, out = randn(2, n, 70), torch.zeros(2, 70, device=DEVICE)
        order = [*range(1, n), 0]
        res = torch.eye(n, device=DEVICE)[order].expand(2, n, n)
        leaf = x.clone().requires_grad_()
        y = module.expand_streams(leaf, out, res, torch.ones(2, n, device=DEVICE))
        assert torch.equal(y, x[:, order])
        (dx,) = torch.autograd.grad((y * x).sum(), leaf)
        assert torch.equal(dx[:, order], x)


def gradients_as_in_float64(module):
    for n, C, dtype in (
        (3, 5, torch.float32),
        (4, 70, torch.float32),
        (7, 600, torch.float32),
        (4, 70, torch.bfloat16),
    ):
        given = dict(x=randn(3, n, C, dtype=dtype), out=randn(3, C, dtype=dtype), res=randn(3, n, n), post=randn(3, n))
        upstream = randn(3, n, C, dtype=dtype)
        mine = harness.gradients(module.expand_streams, given, upstream)
        exact = harness.gradients(
            module.expand_streams_reference, {k: v.double() for k, v in given.items()}, upstream.double()
        )
        for name, value in mine.items():
            far = 4 * torch.finfo(value.dtype).eps * max(1.0, exact[name].abs().max().item())
            assert (value - exact[name]).abs().max() < far, name
        collapsed = dict(x=given["x"], pre=randn(3, n))
        mine = harness.gradients(module.collapse_streams, collapsed, upstream[:, 0])
        exact = harness.gradients(
            module.collapse_streams_reference, {k: v.double() for k, v in collapsed.items()}, upstream[:, 0].double()
        )
        for name, value in mine.items():
            far = 4 * torch.finfo(value.dtype).eps * max(1.0, exact[name].abs().max().item())
            assert (value - exact[name]).abs().max() < far, name


STREAMS = [streams_that_move_on, gradients_as_in_float64]
OF_STREAMS = [
    (streams_that_move_on, Mutant("trap 1: the mixture transposed", "res_ptr + m * N * N + i * N + j) * xs[j]", "res_ptr + m * N * N + j * N + i) * xs[j]")),
    (streams_that_move_on, Mutant("trap 1: the mixture transposed, backward", "res_ptr + m * N * N + j * N + i) * dys[j]", "res_ptr + m * N * N + i * N + j) * dys[j]")),
    (gradients_as_in_float64, Mutant("the mixture's gradient transposed", "fold(dys[i] * xs[j], FOLD)", "fold(dys[j] * xs[i], FOLD)")),
    (gradients_as_in_float64, Mutant("the last block of channels only", "(acc_post[i] + fold(dys[i] * out, FOLD),)", "(fold(dys[i] * out, FOLD),)")),
    (gradients_as_in_float64, Mutant("what is read has no weight on the way back", "tl.load(pre_ptr + m * N + i) * du, mask", "du, mask")),
]  # fmt: skip

test_streams = harness.check_test(hyper_connections, STREAMS)
test_mutant_of_streams_is_caught = harness.mutant_test(hyper_connections, OF_STREAMS)


# ---------------------------------------------------------------- coefficients
def layer(n=4, C=9, tokens=3, dtype=torch.float32):
    columns = 2 * n + n * n
    return dict(
        x=randn(tokens, n, C, dtype=dtype), phi=randn(columns, n * C, dtype=dtype) / 4, alpha=randn(3), bias=randn(columns)
    )  # fmt: skip


def columns_in_their_order(module):
    """Trap 2. Only one of the columns has a bias, and only one result notices."""
    n = 3
    given = layer(n)
    given["phi"] = torch.zeros_like(given["phi"])
    for column in range(2 * n + n * n):
        bias = torch.zeros(2 * n + n * n, device=DEVICE)
        bias[column] = 2.0
        pre, post, res = module.stream_coefficients(given["x"], given["phi"], given["alpha"], bias)
        usual = torch.full((n,), 0.5, device=DEVICE)
        moved = torch.sigmoid(bias[column])
        assert (
            pre[0] - usual.index_fill(0, harness.on_device(torch.tensor([column] if column < n else []).long()), moved)
        ).abs().max() < 1e-6
        at = torch.tensor([column - n] if n <= column < 2 * n else []).long().to(DEVICE)
        assert (post[0] - 2 * usual.index_fill(0, at, moved)).abs().max() < 1e-6
        logits = bias[2 * n :].view(n, n)
        assert (res[0] - sinkhorn.sinkhorn_reference(logits)).abs().max() < 1e-6


def gradients_of_a_layer(module):
    """Several tiles of tokens and of channels, several programs for each."""
    given = layer(C=50, tokens=70)
    upstream = [randn(70, 4), randn(70, 4), randn(70, 4, 4)]

    def found(function, wide=lambda t: t):
        leaves = {name: wide(t).detach().clone().requires_grad_() for name, t in given.items()}
        results = function(*leaves.values())
        return torch.autograd.grad(sum((r * wide(u)).sum() for r, u in zip(results, upstream)), list(leaves.values()))

    exact = found(module.stream_coefficients_reference, torch.Tensor.double)
    for name, mine, true in zip(given, found(module.stream_coefficients), exact):
        assert (mine - true).abs().max() < 64 * EPS * true.abs().max(), name


def a_nan_stays_in_its_token(module):
    given = layer(tokens=5)
    before = module.stream_coefficients(*given.values())
    given["x"][2, 1, 3] = torch.nan
    for one, other in zip(before, module.stream_coefficients(*given.values())):
        rest = [0, 1, 3, 4]
        assert torch.equal(one[rest], other[rest]) and other[2].isnan().all()


def nobody_asks_for_the_others(module):
    """0 times a NaN is NaN: where a result isn't used, its columns get zeros, also from a token that has a NaN."""
    given = layer(tokens=5)
    given["x"][2, 1, 3] = torch.nan
    given["bias"].requires_grad_()
    for which, part in enumerate((slice(0, 4), slice(4, 8), slice(8, 24))):
        result = module.stream_coefficients(*given.values())[which]
        (dbias,) = torch.autograd.grad(result.sum(), given["bias"])
        assert dbias[part].isnan().all() and not dbias.isnan().sum() > part.stop - part.start


COEFFICIENTS = [columns_in_their_order, gradients_of_a_layer, a_nan_stays_in_its_token, nobody_asks_for_the_others]
OF_COEFFICIENTS = [
    (columns_in_their_order, Mutant("trap 2: written before read", "tl.store(pre_ptr + token[:, None] * n + column[None, :], share, mask=of_pre)", "tl.store(pre_ptr + token[:, None] * n + column[None, :] - n, share, mask=of_post)")),
    (columns_in_their_order, Mutant("the mixture column by column", "logits_ptrs = logits_ptr + token[:, None] * n * n + column[None, :] - 2 * n", "logits_ptrs = logits_ptr + token[:, None] * n * n + (column[None, :] - 2 * n) % n * n + (column[None, :] - 2 * n) // n")),
    (gradients_of_a_layer, Mutant("one alpha for all", "group = (column >= n).to(tl.int32) + (column >= 2 * n).to(tl.int32)\n    scale = tl.load(alpha_ptr + group).to(tl.float32)\n    mask_phi", "group = column * 0\n    scale = tl.load(alpha_ptr + group).to(tl.float32)\n    mask_phi")),
    (gradients_of_a_layer, Mutant("the normalization is a constant", "- pull[:, None] * x.to(tl.float32)", "")),
    (gradients_of_a_layer, Mutant("slope of a sigmoid for twice a sigmoid", "post * (1.0 - 0.5 * post)", "post * (1.0 - post)")),
    (gradients_of_a_layer, Mutant("each program stores to the first's place", "tl.program_id(1).to(tl.int64) * columns * K", "0")),
]  # fmt: skip

test_coefficients = harness.check_test(stream_coefficients, COEFFICIENTS)
test_mutant_of_coefficients_is_caught = harness.mutant_test(stream_coefficients, OF_COEFFICIENTS)


# ---------------------------------------------------------------- all three
@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits(times):
    """Trap 5. Sums over tokens and over channels, of which nobody adds to another's."""
    given, out = layer(C=50, tokens=70), randn(70, 50)

    def step():
        leaves = {name: t.clone().requires_grad_() for name, t in given.items()}
        pre, post, res = stream_coefficients.stream_coefficients(*leaves.values())
        read = hyper_connections.collapse_streams(leaves["x"], pre)
        y = hyper_connections.expand_streams(leaves["x"], out + read, res, post)
        return y, *torch.autograd.grad(y.square().sum(), list(leaves.values()))

    first = step()
    for _ in range(times - 1):
        assert all(torch.equal(one, other) for one, other in zip(first, step()))


def test_what_streams_hold_together():
    """A doubly stochastic mixture moves what they hold, and keeps it."""
    x = randn(5, 4, 33)
    res = sinkhorn.sinkhorn(randn(5, 4, 4))
    nothing = torch.zeros(5, 33, device=DEVICE), torch.zeros(5, 4, device=DEVICE)
    y = hyper_connections.expand_streams(x, nothing[0], res, nothing[1])
    torch.testing.assert_close(y.sum(1), x.sum(1), rtol=0, atol=2e-5)
    assert (y.abs().amax(1) <= x.abs().amax(1) * (1 + 4 * EPS)).all()


@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 4, 0), (2, 0, 3, 5), (3, 5)])
def test_nothing_to_do_and_other_dimensions(shape):
    *lead, n, C = shape
    x = torch.zeros(shape, device=DEVICE)
    one, square = torch.zeros(*lead, n, device=DEVICE), torch.zeros(*lead, n, n, device=DEVICE)
    u = hyper_connections.collapse_streams(x, one)
    y = hyper_connections.expand_streams(x, u, square, one)
    assert u.shape == (*lead, C) and y.shape == shape and not y.any()
    assert sinkhorn.sinkhorn(square).shape == square.shape
    if C:
        coefficients = stream_coefficients.stream_coefficients(
            x,
            torch.zeros(2 * n + n * n, n * C, device=DEVICE),
            torch.ones(3, device=DEVICE),
            torch.zeros(2 * n + n * n, device=DEVICE),
        )
        assert [tuple(each.shape) for each in coefficients] == [(*lead, n), (*lead, n), (*lead, n, n)]


X, ONE, SQUARE = torch.ones(2, 4, 6), torch.ones(2, 4), torch.ones(2, 4, 4)
COLUMNS = dict(x=X, phi=torch.ones(24, 24), alpha=torch.ones(3), bias=torch.ones(24))
REFUSED = [
    (sinkhorn.sinkhorn, TypeError, "logits must be a torch.Tensor", dict(logits=[1.0])),
    (sinkhorn.sinkhorn, TypeError, "logits must be one of float32, float16, bfloat16, got float64", dict(logits=SQUARE.double())),
    (sinkhorn.sinkhorn, ValueError, "logits must end in n, n with n from 1 to 8", dict(logits=X)),
    (sinkhorn.sinkhorn, ValueError, "logits must end in n, n with n from 1 to 8", dict(logits=torch.ones(9, 9))),
    (sinkhorn.sinkhorn, ValueError, "iterations must be at least 1, got 0", dict(logits=SQUARE, iterations=0)),
    (sinkhorn.sinkhorn, TypeError, "iterations must be an int, got float", dict(logits=SQUARE, iterations=2.0)),
    (hyper_connections.collapse_streams, ValueError, "x must have at least 2 dimensions", dict(x=X[0, 0], pre=ONE)),
    (hyper_connections.collapse_streams, ValueError, "x must have 1 to 8 streams", dict(x=torch.ones(9, 6), pre=torch.ones(9))),
    (hyper_connections.collapse_streams, ValueError, "pre must have shape (2, 4)", dict(x=X, pre=ONE[0])),
    (hyper_connections.collapse_streams, TypeError, "pre must be one of float32, got bfloat16", dict(x=X, pre=ONE.bfloat16())),
    (hyper_connections.expand_streams, TypeError, "out must have the dtype of x, float32, got float16", dict(x=X, out=X[:, 0].half(), res=SQUARE, post=ONE)),
    (hyper_connections.expand_streams, ValueError, "out must have shape (2, 6)", dict(x=X, out=X, res=SQUARE, post=ONE)),
    (hyper_connections.expand_streams, ValueError, "res must have shape (2, 4, 4)", dict(x=X, out=X[:, 0], res=SQUARE[0], post=ONE)),
    (hyper_connections.expand_streams, TypeError, "post must be a torch.Tensor, got NoneType", dict(x=X, out=X[:, 0], res=SQUARE, post=None)),
    (stream_coefficients.stream_coefficients, ValueError, "phi must have shape (24, 24)", COLUMNS | dict(phi=torch.ones(24, 6))),
    (stream_coefficients.stream_coefficients, TypeError, "phi must have the dtype of x", COLUMNS | dict(phi=torch.ones(24, 24).bfloat16())),
    (stream_coefficients.stream_coefficients, ValueError, "alpha must have shape (3,)", COLUMNS | dict(alpha=torch.ones(1))),
    (stream_coefficients.stream_coefficients, ValueError, "bias must have shape (24,)", COLUMNS | dict(bias=torch.ones(16))),
    (stream_coefficients.stream_coefficients, ValueError, "eps must be at least 0", COLUMNS | dict(eps=-1.0)),
    (stream_coefficients.stream_coefficients, ValueError, "iterations must be at least 1", COLUMNS | dict(iterations=0)),
    (stream_coefficients.stream_coefficients, ValueError, "x must have a channel", COLUMNS | dict(x=torch.ones(2, 4, 0), phi=torch.ones(24, 0))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "kind", "message", "given"), REFUSED, ids=[f"{f.__name__}-{m}" for f, _, m, _ in REFUSED]
)
def test_errors(function, kind, message, given):
    harness.assert_refused(kind, message, function, **given)
