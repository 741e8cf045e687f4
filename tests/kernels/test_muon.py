"""optimizers/muon: the fold of a triangle, symmetric bits, what is left of rounding; PyTorch's Muon; errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch
import triton
import triton.language as tl

from annotated_examples.common import frobenius
from annotated_examples.optimizers import muon as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn

INF, NAN = float("inf"), float("nan")
KELLER = lesson.NEWTON_SCHULZ[0]


def rms(x):
    return x.square().mean().sqrt()


def error(x, truth):
    return (rms(x.double() - truth) / rms(truth)).item()


# ---------------------------------------------------------------- the symmetric product
def symmetric_to_the_last_bit(module):
    """In every dtype, with d, and with tiles that end inside of the matrix. Within 1 and 4 eps in 16 bits."""
    for dtype in DTYPES:
        for batch, m, k in ((2, 37, 50), (1, 1, 1), (3, 16, 7), (1, 130, 33), (2, 5, 0)):
            square = randn(batch, m, m, dtype=dtype)
            d = square + square.mT
            for a in (
                harness.LAYOUTS["transposed"](randn(batch, m, k, dtype=dtype)),
                randn(batch, 2 * m, k, dtype=dtype)[:, ::2],
            ):
                c = module.symmetric_product(a, alpha=0.7, d=d, beta=-1.3)
                exact = 0.7 * a.double() @ a.double().mT - 1.3 * d.double()
                assert torch.equal(c, c.mT)
                eps = torch.finfo(dtype).eps
                most = (1, 4) if dtype is not torch.float32 else (4, 8)
                assert error(c, exact) <= most[0] * eps
                assert (c.double() - exact).abs().max() <= most[1] * eps * exact.abs().max()


def a_nan_stays_in_its_matrix(module):
    for value in (NAN, INF):
        x = randn(3, 9, 12)
        x[1, 4, 5] = value
        product, result = module.symmetric_product(x), module.orthogonalize(x)
        assert not product[1, 4].isfinite().any() and product[[0, 2]].isfinite().all()
        assert result[1].isnan().all() and result[[0, 2]].isfinite().all()
        assert torch.equal(result[[0, 2]], module.orthogonalize(x[[0, 2]]))


def alone_as_in_a_batch(module):
    """The same bits."""
    for m, n in ((37, 50), (64, 33), (1, 9)):
        x = randn(3, m, n)
        for at in range(3):
            assert torch.equal(module.orthogonalize(x[at]), module.orthogonalize(x)[at])
        assert torch.equal(module.symmetric_product(x[2]), module.symmetric_product(x)[2])


# ---------------------------------------------------------------- orthogonalize
def exact(x, coefficients, safety=1.0):
    return module_reference(x.double(), coefficients, safety=safety)


module_reference = lesson.orthogonalize_reference


def as_near_as_pytorch(module):
    """At most 1.2 times the error of PyTorch's own five rounds, against the same polynomials in float64."""
    for shape in ((3, 37, 50), (2, 64, 33), (1, 1, 9), (2, 48, 48), (1, 1, 1), (1, 20, 1)):
        x = randn(*shape)
        got = module.orthogonalize(x)
        truth = exact(x, lesson.NEWTON_SCHULZ)
        theirs = torch.stack([torch.optim._muon._zeropower_via_newtonschulz(each, KELLER, 5, 1e-7) for each in x])
        assert got.shape == x.shape and got.dtype is torch.bfloat16
        assert error(got, truth) <= max(1.2 * error(theirs, truth), 4e-3), shape
    for shape in ((2, 37, 50), (1, 64, 33)):
        x = randn(*shape)
        assert (
            error(module.orthogonalize(x, lesson.POLAR_EXPRESS, safety=1.01), exact(x, lesson.POLAR_EXPRESS, 1.01))
            < 1e-2
        )


def of_any_size(module):
    """The square of 10³⁰ is no float32, nor that of 10⁻³⁰. A norm below eps is taken as eps."""
    x = randn(9, 12)
    for scale in (1e-30, 1e-12, 1e6, 1e30):
        truth = exact(x * scale, lesson.NEWTON_SCHULZ)
        assert error(module.orthogonalize(x * scale), truth) < 2e-2, scale
    assert not module.orthogonalize(torch.zeros(2, 5, 8, device=DEVICE)).any()
    assert torch.equal(module.orthogonalize(x, eps=x.norm().item() / 2), module.orthogonalize(x))
    shrunk, whole = (module.orthogonalize(x * scale).float().norm() for scale in (1e-12, 1.0))
    assert shrunk < 0.05 * whole


def nothing_above_one(module):
    """Of a matrix of rank one the norm is the singular value. Polar Express would carry 1.015 to infinity."""
    for _ in range(5):
        x = randn(32, 1) @ randn(1, 48)
        start = module.orthogonalize(x, ((1.0, 0.0, 0.0),))
        assert start.double().norm() < 1.001
        got = module.orthogonalize(x, lesson.POLAR_EXPRESS, safety=1.01)
        assert 0.9 < torch.linalg.matrix_norm(got.double(), 2) < 1.2


CHECKS = [
    symmetric_to_the_last_bit, a_nan_stays_in_its_matrix, alone_as_in_a_batch,
    as_near_as_pytorch, of_any_size, nothing_above_one,
]  # fmt: skip
test_behaviour = harness.check_test(lesson, CHECKS)


def test_polar_express_without_safety_runs_away():
    """In float64, from a singular value of 1.015 on; Keller's polynomial forgives it."""
    x = torch.zeros(3, 4, dtype=torch.float64)
    x[0, 0] = 1.0
    above = dict(coefficients=lesson.POLAR_EXPRESS, safety=1 / 1.015)
    assert (
        not lesson.orthogonalize_reference(x, **above).isfinite().all()
        or lesson.orthogonalize_reference(x, **above).abs().max() > 10
    )
    assert lesson.orthogonalize_reference(x, **above | dict(safety=1 / 1.01)).abs().max() < 1.3
    assert lesson.orthogonalize_reference(x, safety=1 / 1.015).abs().max() < 1.3


@triton.jit
def tiles_kernel(out_ptr, tiles):
    i, j = lesson_tile(tl.program_id(0), tiles)
    tl.store(out_ptr + 2 * tl.program_id(0), i)
    tl.store(out_ptr + 2 * tl.program_id(0) + 1, j)


lesson_tile = lesson.tile_of_triangle


@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 7, 10, 33])
def test_every_tile_of_the_triangle_has_one_program(tiles):
    out = torch.zeros(tiles * (tiles + 1) // 2, 2, dtype=torch.int32, device=DEVICE)
    tiles_kernel[(len(out),)](out, tiles)
    assert sorted(map(tuple, out.tolist())) == [(i, j) for i in range(tiles) for j in range(i + 1)]


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 4, 0), (0, 0)])
def test_nothing_to_do(shape):
    x = torch.zeros(shape, device=DEVICE)
    assert lesson.orthogonalize(x).shape == shape
    product = lesson.symmetric_product(x)
    assert product.shape == (*shape[:-1], shape[-2]) and not product.any()


# ---------------------------------------------------------------- the optimizer
def trained(optimizer, params, steps=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(DEVICE, p.dtype)
        optimizer.step()


def weights(shapes=((37, 50), (50, 37), (37, 50), (4, 4)), dtype=torch.float32):
    return [torch.nn.Parameter(randn(*shape, dtype=dtype)) for shape in shapes]


OPTIONS = [
    dict(),
    dict(lr=0.02, weight_decay=0.5, momentum=0.8, nesterov=False),
    dict(adjust_lr_fn="match_rms_adamw", ns_steps=3),
    dict(ns_coefficients=(2.0, -1.5, 0.5), eps=1e-3),
]


def like_pytorch(module):
    """Three steps of both. What they orthogonalize is bfloat16, so the moves differ by its error, and no more."""
    for options in OPTIONS:
        ours = weights()
        theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
        trained(module.Muon(ours, **options), ours)
        trained(torch.optim.Muon(theirs, **options), theirs)
        for one, other in zip(ours, theirs):
            lr = options.get("lr", 1e-3)
            factor = module.adjusted(lr, *one.shape, options.get("adjust_lr_fn"))
            assert (one - other).abs().max() < 3 * 0.1 * factor, options
            assert rms(one - other) < 3 * 0.02 * factor / min(one.shape) ** 0.5 * max(
                1, (min(one.shape) / max(one.shape)) ** 0.5
            ), options


def one_step(module, weight, grad, **options):
    p = torch.nn.Parameter(weight.clone())
    p.grad = grad.clone()
    module.Muon([p], **options).step()
    return p.detach()


def the_decay_is_not_adjusted(module):
    """A gradient of zero moves nothing, so what is left is the decay: of the learning rate as it was given."""
    weight = torch.ones(40, 10, device=DEVICE)
    moved = one_step(module, weight, torch.zeros_like(weight), lr=0.1, weight_decay=0.5)
    torch.testing.assert_close(moved, weight * 0.95)


def a_weight_without_gradient_stays(module):
    a, b = weights(((4, 6), (4, 6)))
    before = b.detach().clone()
    a.grad = torch.ones_like(a)
    module.Muon([a, b], lr=0.1, weight_decay=0.5).step()
    assert torch.equal(b, before) and not module.Muon([b]).state


def coarse_weights_decay(module):
    """bfloat16 weights just below 1, a decay of 0.1 %: rounded with the step they move, rounded apart they don't."""
    weight = torch.full((4, 64), 0.99, dtype=torch.bfloat16, device=DEVICE)
    grad = torch.zeros_like(weight)
    grad[:, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    moved = one_step(module, weight, grad, lr=2e-3, weight_decay=0.6, adjust_lr_fn="match_rms_adamw")
    alone = (weight.float() * (1 - 1.2e-3)).to(torch.bfloat16)
    assert torch.equal(alone, weight)
    exact = weight.double() * (1 - 1.2e-3)
    step = module.orthogonalize(0.0975 * grad.float()).double()
    exact -= module.adjusted(2e-3, 4, 64, "match_rms_adamw") * step
    assert torch.equal(moved, exact.to(torch.bfloat16))


def heads_are_matrices_of_their_own(module):
    """Each as if it were a weight, also where a head is tall."""
    for shape, heads in (((12, 20), 3), ((24, 5), 2)):
        weight, grad = randn(*shape), randn(*shape)
        whole = one_step(module, weight, grad, heads=heads)
        for one, part, of in zip(whole.chunk(heads), weight.chunk(heads), grad.chunk(heads)):
            assert torch.equal(one, one_step(module, part, of))
        assert not torch.equal(whole, one_step(module, weight, grad))


def the_average_is_kept_as_it_is(module):
    """PyTorch 2.13 normalizes a bfloat16 average in place where nesterov is False: 0.158 for 0.1."""
    p = torch.nn.Parameter(torch.zeros(4, 10, dtype=torch.bfloat16, device=DEVICE))
    optimizer = module.Muon([p], nesterov=False, momentum=0.9)
    p.grad = torch.ones_like(p)
    optimizer.step()
    torch.testing.assert_close(optimizer.state[p]["momentum_buffer"], torch.full((4, 10), 0.1, device=DEVICE))


def a_batch_changes_no_bits(module):
    shapes = ((8, 12),) * 3
    together = weights(shapes)
    alone = [torch.nn.Parameter(p.detach().clone()) for p in together]
    trained(module.Muon(together), together)
    generator = torch.Generator().manual_seed(0)
    optimizers = [module.Muon([p]) for p in alone]
    for _ in range(3):
        for p, optimizer in zip(alone, optimizers):
            p.grad = torch.randn(p.shape, generator=generator).to(DEVICE)
            optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(together, alone))


def the_first_polynomials_are_taken(module):
    """Of a list of triples the first ones; the last one is repeated; and then the norm is 1.01 times as large."""
    weight, grad = torch.zeros(6, 9, device=DEVICE), randn(6, 9)
    for steps, triples in (
        (3, lesson.POLAR_EXPRESS[:3]),
        (10, (*lesson.POLAR_EXPRESS, *lesson.POLAR_EXPRESS[-1:] * 2)),
    ):
        options = dict(
            ns_coefficients=lesson.POLAR_EXPRESS, ns_steps=steps, lr=1.0, weight_decay=0.0, nesterov=False, momentum=0.0
        )
        moved = one_step(module, weight, grad, **options)
        assert torch.equal(moved, -lesson.orthogonalize(grad, triples, safety=1.01).float())


OPTIMIZER = [
    like_pytorch, the_decay_is_not_adjusted, a_weight_without_gradient_stays, coarse_weights_decay,
    heads_are_matrices_of_their_own, the_average_is_kept_as_it_is, a_batch_changes_no_bits,
    the_first_polynomials_are_taken,
]  # fmt: skip
test_optimizer = harness.check_test(lesson, OPTIMIZER)

MUTANTS = [
    (as_near_as_pytorch, Mutant("a tall matrix isn't turned", "tall = as_batch(x), x.shape[-2] > x.shape[-1]", "tall = as_batch(x), False")),
    (like_pytorch, Mutant("Nesterov always", ' if group["nesterov"] else average)', " if True else average)")),
    (like_pytorch, Mutant("rows and columns exchanged", "math.sqrt(max(1, rows / columns))", "math.sqrt(max(1, columns / rows))")),
    (the_decay_is_not_adjusted, Mutant("the decay is adjusted", 'moved = p.float() * (1 - group["lr"] * group["weight_decay"])', 'moved = p.float() * (1 - adjusted(group["lr"], *batch.shape[-2:], None) * group["weight_decay"])')),
    (coarse_weights_decay, Mutant("the decay is rounded by itself", "moved = p.float() *", "p.mul_(1 - group[\"lr\"] * group[\"weight_decay\"])\n                moved = p.float() + 0 *")),
    (heads_are_matrices_of_their_own, Mutant("heads are one matrix", '.unflatten(1, (group["heads"], -1))', ".unflatten(1, (1, -1))")),
    (heads_are_matrices_of_their_own, Mutant("scaled by the shape of the weight", 'adjusted(group["lr"], *batch.shape[-2:], group', 'adjusted(group["lr"], *p.shape, group')),
    (the_first_polynomials_are_taken, Mutant("the last polynomials", "coefficients[min(at, len(coefficients) - 1)]", "coefficients[max(at - steps, -len(coefficients))]")),
    (the_first_polynomials_are_taken, Mutant("no safety", "safety = 1.01 if", "safety = 1.0 if")),
]  # fmt: skip
#: In the file that divides by the norm.
OF_THE_NORM = [
    (of_any_size, Mutant("squares in float32", "mask=mask, other=0.0).to(tl.float64)\n        total", "mask=mask, other=0.0).to(tl.float32)\n        total")),
    (nothing_above_one, Mutant("the norm in bfloat16", "* safety\n", "* safety\n    norm = (norm * 0.997).to(tl.float32).to(tl.bfloat16).to(tl.float64)\n")),
    (a_nan_stays_in_its_matrix, Mutant("a NaN is lost", "norm = tl.where(norm < eps, eps, norm)", "norm = tl.maximum(norm, eps)", gpu=True)),
]  # fmt: skip

test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS)
test_mutant_of_the_norm_is_caught = harness.mutant_test(frobenius, OF_THE_NORM, within=lesson)


def test_what_was_saved_is_loaded_without_rounding():
    (p,) = weights(((9, 7),), torch.bfloat16)
    optimizer = lesson.Muon([p])
    trained(optimizer, [p])
    other = lesson.Muon([torch.nn.Parameter(p.detach().clone())])
    other.load_state_dict(optimizer.state_dict())
    (loaded,), (saved,) = other.state.values(), optimizer.state.values()
    assert loaded["momentum_buffer"].dtype is torch.float32
    assert torch.equal(loaded["momentum_buffer"], saved["momentum_buffer"])


def test_a_checkpoint_of_pytorchs_is_loaded():
    ours, theirs = weights(((6, 9),)), weights(((6, 9),))
    optimizer = torch.optim.Muon(theirs)
    trained(optimizer, theirs)
    mine = lesson.Muon(ours)
    state = optimizer.state_dict()
    state["param_groups"][0]["heads"] = 1
    mine.load_state_dict(state)
    assert torch.equal(mine.state[ours[0]]["momentum_buffer"], optimizer.state[theirs[0]]["momentum_buffer"])
    trained(mine, ours, 1)


A, D = torch.ones(2, 3, 4), torch.eye(3).expand(2, 3, 3)
WRONG_PRODUCTS = [
    (TypeError, "a must be a torch.Tensor", dict(a=[1.0])),
    (TypeError, "a must be one of float32, float16, bfloat16, got float64", dict(a=A.double())),
    (ValueError, "a must have at least 2 dimensions", dict(a=A[0, 0])),
    (ValueError, "d must be given: beta is 1.0", dict(a=A, beta=1.0)),
    (ValueError, "d must have shape (2, 3, 3)", dict(a=A, d=D[0], beta=1.0)),
    (TypeError, "d must have the dtype of a, float32, got bfloat16", dict(a=A, d=D.bfloat16(), beta=1.0)),
    (ValueError, "alpha must be finite", dict(a=A, alpha=NAN)),
    (
        ValueError,
        "a requires a gradient, but symmetric_product has no backward pass",
        dict(a=A.clone().requires_grad_()),
    ),
]
WRONG_MATRICES = [
    (ValueError, "x must have at least 2 dimensions", dict(x=A[0, 0])),
    (TypeError, "coefficients must be a list of triples", dict(x=A, coefficients=())),
    (ValueError, "coefficients must be triples (a, b, c)", dict(x=A, coefficients=((1.0, 2.0),))),
    (TypeError, "coefficients must be a number, got str", dict(x=A, coefficients=((1.0, 2.0, "3"),))),
    (ValueError, "safety must be above 0", dict(x=A, safety=0.0)),
    (ValueError, "eps must be above 0", dict(x=A, eps=0.0)),
    (ValueError, "x requires a gradient, but orthogonalize has no backward pass", dict(x=A.clone().requires_grad_())),
]


def on_device(given):
    return {name: harness.on_device(x) if isinstance(x, torch.Tensor) else x for name, x in given.items()}


@pytest.mark.parametrize(
    ("kind", "message", "given"), WRONG_PRODUCTS, ids=[message for _, message, _ in WRONG_PRODUCTS]
)
def test_errors_of_a_product(kind, message, given):
    harness.assert_refused(kind, message, lesson.symmetric_product, **on_device(given))


@pytest.mark.parametrize(
    ("kind", "message", "given"), WRONG_MATRICES, ids=[message for _, message, _ in WRONG_MATRICES]
)
def test_errors_of_orthogonalize(kind, message, given):
    harness.assert_refused(kind, message, lesson.orthogonalize, **on_device(given))


@pytest.mark.skipif(not harness.device.INTERPRET, reason="a card looks at values only if it is asked to")
def test_d_must_be_symmetric():
    d = torch.ones(3, 3, device=DEVICE).tril()
    with pytest.raises(ValueError, match="d must be symmetric"):
        lesson.symmetric_product(torch.ones(3, 4, device=DEVICE), d=d, beta=1.0)
    lesson.symmetric_product(torch.ones(3, 4, device=DEVICE), d=d)  # not read


@pytest.mark.parametrize(
    ("kind", "message", "options"),
    [
        (ValueError, "lr must be at least 0", dict(lr=-1.0)),
        (TypeError, "lr must be a number, got Tensor", dict(lr=torch.tensor(0.1))),
        (ValueError, "momentum must be below 1", dict(momentum=1.0)),
        (ValueError, "weight_decay must be finite", dict(weight_decay=NAN)),
        (ValueError, "ns_coefficients must be triples", dict(ns_coefficients=(1.0, 2.0))),
        (ValueError, "ns_steps must be at least 1", dict(ns_steps=0)),
        (ValueError, "adjust_lr_fn must be one of", dict(adjust_lr_fn="rms")),
        (ValueError, "heads must divide the rows of each weight, 6, got 4", dict(heads=4)),
    ],
)
def test_errors_of_the_optimizer(kind, message, options):
    (p,) = weights(((6, 4),))
    with pytest.raises(kind, match=harness.re.escape(message)):
        lesson.Muon([p], **options)
    with pytest.raises(kind, match=harness.re.escape(message)):
        lesson.Muon([dict(params=[p], **options)])


def test_what_is_no_matrix_is_refused():
    """Other optimizers take such a weight for AdamW, or for SGD, and say nothing."""
    for shape in ((7,), (), (2, 3, 4)):
        with pytest.raises(ValueError, match="Muon is for matrices; give the others to AdamW"):
            lesson.Muon([torch.nn.Parameter(torch.zeros(shape, device=DEVICE))])
    (p,) = weights(((3, 4),))
    optimizer = lesson.Muon([p])
    with pytest.raises(ValueError, match="Muon is for matrices"):
        optimizer.add_param_group(dict(params=[torch.nn.Parameter(torch.zeros(5, device=DEVICE))]))
    assert len(optimizer.param_groups) == 1


def test_a_sparse_gradient_is_refused():
    (p,) = weights(((3, 4),))
    p.grad = torch.eye(3, 4, device=DEVICE).to_sparse()
    with pytest.raises(TypeError, match="params must have dense gradients"):
        lesson.Muon([p]).step()


def test_half_of_the_tiles(monkeypatch):
    """Of 3 by 3 tiles six are computed, for each matrix of a batch."""
    grids = harness.grids(monkeypatch, lesson)
    lesson.symmetric_forward(torch.zeros(2, 40, 8, device=DEVICE), None, 1.0, 0.0, BLOCK=16)
    assert grids == [(12,)]
