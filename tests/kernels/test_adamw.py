"""optimizers/adamw: many tensors in one launch, the correction of the averages, what PyTorch's optimizer does; errors, mutants."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import pytest
import torch

from annotated_examples.optimizers import adamw as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant, randn

MUTANTS = [
    Mutant("decay after the step", "updated = (1.0 - lr * decay) * p - lr / c1 * m / (tl.sqrt(v) / tl.sqrt(c2) + eps)", "updated = (1.0 - lr * decay) * (p - lr / c1 * m / (tl.sqrt(v) / tl.sqrt(c2) + eps))"),
    Mutant("eps under the root", "tl.sqrt(v) / tl.sqrt(c2) + eps", "tl.sqrt(v / c2 + eps)"),
    Mutant("decay added to the gradient", "m = part_of_the_way(m, g, new1)", "g += decay * p\n        m = part_of_the_way(m, g, new1)"),
    Mutant("the whole way from the old average", "share < 0.5", "share < 2.0"),
    Mutant("the power in float32", "tl.cast(new, tl.float64)", "tl.cast(new, tl.float32)"),
    Mutant("every length is the first tensor's", "tl.load(table_ptr + 5 * tensors + which)", "tl.load(table_ptr + 5 * tensors)"),
    Mutant("every step is the first tensor's", "tl.load(table_ptr + 4 * tensors + which)", "tl.load(table_ptr + 4 * tensors)"),
    Mutant("an empty tensor ends the list", "which = torch.repeat_interleave(counts)", "which = torch.repeat_interleave(counts * (counts.cumprod(0) > 0))"),
    Mutant("the average of squares as a difference", "v = beta2 * v + new2 * (g * g)", "v += new2 * (g * g - v)"),
    Mutant("the old average by the complement of a complement", "beta2 * v +", "(1.0 - new2) * v +"),
    Mutant("a copy isn't copied back", "before.copy_(after)", "pass"),
    Mutant("a bfloat16 weight decays by itself", "p = tl.load(p_ptr + offs, mask=mask, other=0.0).to(tl.float32)", "p = tl.load(p_ptr + offs, mask=mask, other=0.0)\n        p = (p * (1.0 - lr * decay)).to(DTYPE).to(tl.float32) / (1.0 - lr * decay)"),
]  # fmt: skip
#: Nothing, one element, and one below, at and above a block of 2048, and above a chunk. The shortest comes first, so that
#: no mutant writes behind a tensor.
SHAPES = [(), (5, 7), (0,), (2047,), (2, 0, 3), (2048,), (2049,), (8192 + 2049,)]


def parameters(shapes, dtype, turned=False):
    made = [randn(*shape, dtype=dtype) for shape in shapes]
    return [torch.nn.Parameter(x.mT.contiguous().mT if turned and x.dim() == 2 else x) for x in made]


def trained(optimizer, params, steps, scale=1.0, seed=0):
    """Gradients are drawn in float32 and rounded, so that those of float64 weights are the same numbers."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params:
            grad = scale * torch.randn(p.shape, generator=generator)
            p.grad = grad.to(p.original if hasattr(p, "original") else p.dtype).to(DEVICE, p.dtype)
        optimizer.step()


def in_float64(params):
    found = [torch.nn.Parameter(p.detach().double()) for p in params]
    for wide, p in zip(found, params):
        wide.original = p.dtype
    return found


def assert_as_pytorch(module, shapes=SHAPES, dtype=torch.float32, steps=5, turned=False, scale=1.0, **options):
    """No further from float64 than twice PyTorch's fused step, or one rounding a step."""
    ours = parameters(shapes, dtype, turned)
    theirs, exact = [torch.nn.Parameter(p.detach().clone()) for p in ours], in_float64(ours)
    trained(module.AdamW(ours, **options), ours, steps, scale)
    # PyTorch's fused step takes weights and gradients by their places in memory, whatever their strides are.
    trained(torch.optim.AdamW(theirs, fused=not turned, **options), theirs, steps, scale)
    trained(torch.optim.AdamW(exact, **options), exact, steps, scale)
    for one, other, right in zip(ours, theirs, exact):
        if right.numel():
            error, allowed = ((x.double() - right).abs().max() for x in (one, other))
            assert error <= 2 * allowed + torch.finfo(dtype).eps * right.abs().max(), f"{tuple(right.shape)}: {error}"


def small_after_large(module):
    """With betas near 0 both averages forget a large gradient at once."""
    p, m, v = (torch.zeros(3, device=DEVICE) for _ in range(3))
    step = torch.zeros((), device=DEVICE)
    for size in (1e9, 1e3):
        options = dict(lr=0.1, betas=(0.0, 1e-9), eps=0.0, weight_decay=0.0)
        module.adamw_([p], [torch.full_like(p, size)], [m], [v], step, **options)
    torch.testing.assert_close(m, torch.full_like(m, 1e3), rtol=1e-5, atol=0)
    torch.testing.assert_close(v, torch.full_like(v, 1001e6), rtol=1e-5, atol=0)  # 10⁻⁹ of 10¹⁸, and 10⁶


def steps_of_their_own(module):
    """A weight that joins later has its own count: PyTorch keeps one for each."""
    ours, theirs = (parameters([(3,), (4,)], torch.float32) for _ in range(2))
    for one, other in zip(ours, theirs):
        other.data.copy_(one.data)
    optimizers = module.AdamW(ours, lr=0.1), torch.optim.AdamW(theirs, lr=0.1)
    for round in range(3):
        for params, optimizer in zip((ours, theirs), optimizers):
            params[0].grad = torch.full((3,), 0.3, device=DEVICE)
            params[1].grad = None if round == 0 else torch.full((4,), -0.2, device=DEVICE)
            optimizer.step()
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other)


def small_weights_decay(module):
    """bfloat16 weights near 1, a step of 0.2 % and a decay of 0.1 %: rounded once they move, rounded apart they don't."""
    p = torch.full((64,), 0.99, dtype=torch.bfloat16, device=DEVICE)
    averages = [torch.zeros(64, device=DEVICE) for _ in range(2)]
    grad, before = torch.full_like(p, 1.0), p.clone()
    options = dict(lr=1.5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.5)
    module.adamw_([p], [grad], [averages[0]], [averages[1]], torch.zeros((), device=DEVICE), **options)
    assert bool((p < before).all())


def as_pytorch(module):
    for beta2 in (0.95, 0.9999):
        assert_as_pytorch(module, betas=(0.9, beta2), lr=1e-2, weight_decay=0.1)
    assert_as_pytorch(module, shapes=[(37, 50)], dtype=torch.bfloat16, steps=1, lr=1e-2, weight_decay=0.1)
    assert_as_pytorch(module, shapes=[(5, 7), (9, 4)], turned=True, lr=1e-2)
    assert_as_pytorch(module, shapes=[(50,)], scale=1e-7, lr=1e-2)  # where ε matters


CHECKS = [as_pytorch, small_after_large, steps_of_their_own, small_weights_decay]
OF_CHECK = {
    "every step is": steps_of_their_own,
    "as a difference": small_after_large,
    "complement of": small_after_large,
    "decays by itself": small_weights_decay,
}

test_behaviour = harness.check_test(lesson, CHECKS)
test_mutant_is_caught = harness.mutant_test(
    lesson, [(next((c for part, c in OF_CHECK.items() if part in m.name), as_pytorch), m) for m in MUTANTS]
)


def test_a_learning_rate_of_zero_in_memory():
    """PyTorch's capturable step divided by it once: pytorch#97004."""
    (p,), lr = parameters([(9,)], torch.float32), torch.zeros((), device=DEVICE)
    before, optimizer = p.detach().clone(), lesson.AdamW([p], lr=lr)
    trained(optimizer, [p], 2)
    assert torch.equal(p, before)
    lr.fill_(0.1)
    trained(optimizer, [p], 1)
    assert not torch.equal(p, before) and bool(p.isfinite().all())


def test_what_was_saved_is_loaded_without_rounding():
    """PyTorch's `load_state_dict` gives the averages the dtype of the weight."""
    (p,) = parameters([(33,)], torch.bfloat16)
    optimizer = lesson.AdamW([p])
    trained(optimizer, [p], 3)
    other = lesson.AdamW([torch.nn.Parameter(p.detach().clone())])
    other.load_state_dict(optimizer.state_dict())
    (loaded,), (saved,) = other.state.values(), optimizer.state.values()
    for name, value in saved.items():
        assert loaded[name].dtype is torch.float32 and torch.equal(loaded[name], value), name
        assert loaded[name] is not value


def test_an_overwritten_weight_is_noticed():
    (p,) = parameters([(4,)], torch.float32)
    loss = (p * p).sum()
    trained(lesson.AdamW([p]), [p], 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_one_launch_for_each_dtype(monkeypatch):
    grids = harness.grids(monkeypatch, lesson)
    params = parameters([(5, 7), (0,), (8193,)], torch.float32) + parameters([(3,)], torch.bfloat16)
    trained(lesson.AdamW(params), params, 1)
    assert grids == [(3,), (1,)]


P, M = torch.ones(3, device=DEVICE), torch.zeros(3, device=DEVICE)
GOOD = dict(params=[P], grads=[M], exp_avgs=[M + 1], exp_avg_sqs=[M + 2], steps=torch.zeros((), device=DEVICE), lr=0.1)
WRONG = [
    (TypeError, "params must be a list of tensors, got Tensor", dict(params=P)),
    (ValueError, "grads must have one tensor for each of the 1 of params, got 2", dict(grads=[M, M])),
    (
        TypeError,
        "params[0] must be one of float32, bfloat16, got float64",
        dict(params=[P.double()], grads=[M.double()]),
    ),
    (TypeError, "grads[0] must have the dtype of params[0], float32, got bfloat16", dict(grads=[M.bfloat16()])),
    (ValueError, "grads[0] must have the shape of params[0], (3,), got (2,)", dict(grads=[M[:2]])),
    (TypeError, "exp_avgs[0] must be one of float32, got bfloat16", dict(exp_avgs=[M.bfloat16()])),
    (ValueError, "steps[0] must have shape ()", dict(steps=[M[:1]])),
    (ValueError, "steps must have shape ()", dict(steps=M[:1])),
    (ValueError, "must not be expanded", dict(params=[P[:1].expand(3)])),
    (ValueError, "must be different tensors", dict(exp_avgs=[M], exp_avg_sqs=[M])),
    (ValueError, "lr must be", dict(lr=-0.1)),
    (TypeError, "lr must be one of float32, got float64", dict(lr=M.double()[0])),
    (ValueError, "betas[1] must be below 1, got 1.0", dict(betas=(0.9, 1.0))),
    (ValueError, "eps must be", dict(eps=-1e-8)),
    (ValueError, "weight_decay must be", dict(weight_decay=float("nan"))),
]


@pytest.mark.parametrize(("error", "message", "changed"), WRONG, ids=[message for _, message, _ in WRONG])
def test_bad_arguments_change_nothing(error, message, changed):
    given = GOOD | changed
    written = [x for name in ("params", "exp_avgs", "exp_avg_sqs") for x in given[name]]
    before = [x.clone() for x in written]
    with pytest.raises(error, match=harness.re.escape(message)):
        lesson.adamw_(**given)
    assert all(torch.equal(x, old) for x, old in zip(written, before)) and not any(
        map(torch.any, [*given["steps"]] if isinstance(given["steps"], list) else [given["steps"]])
    )


@pytest.mark.gpu
def test_offsets_past_32_bits():
    """A tensor of more than 2³¹ elements: its last ones must move, too."""
    p = torch.nn.Parameter(torch.ones(2**31 + 1000, dtype=torch.bfloat16, device=DEVICE))
    p.grad = torch.ones_like(p)
    lesson.AdamW([p], lr=0.5, weight_decay=0.0).step()  # the first step has the size of lr
    assert bool((p.detach()[-2000:] == 0.5).all())
