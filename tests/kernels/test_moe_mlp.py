"""moe/moe_mlp: values and every gradient, for any experts, dropped slots among them; hostile rows, errors.

The traps of such layers in use, and what holds each. The formulas have small tiles, dropped slots and an expert of
nobody.

1. The gradient of the weights in 16 bits, or added up by atomics: `weights_in_float32`; the judge's repeats, on a card.
2. Rows are combined in any order: every token collects its own: the formulas; the judge's repeats, on a card.
3. Dropped slots: 0 · NaN, or slot 0 is written: `dropped_slots`, and the formulas.
4. NaN in rows and matrices of others: `rows_of_others`.
5. All gradients land in one row, hidden because another gradient is right: each is compared by itself, `assert_right`.
6. A tolerance above every value: the 2x rule, with results of about 1, `layer`.
7. Gate and up exchanged: the formulas.
8. The activation's derivative: the formulas.
9. A router's weight twice, or missing: the formulas.
10. A buffer of the forward pass is written backward: `test_a_second_backward_pass_and_frozen_parameters`.
11. A router in front: `test_a_router_in_front`, against a dense model in float64; experts not chosen get exactly 0.
12. Frozen inputs and matrices: `test_a_second_backward_pass_and_frozen_parameters`.
13. T = 1, k = 1, E = 1, all rows to one expert, numbers that fill no tile: `experts_of_any_kind`.
14. Strides of 0 and upstream gradients of any layout: the judge's layouts.
15. More than 2³¹ elements: offsets are 64 bits; the grouped product's test on a card has that many.
16. Sums over the slots that are rounded on the way: the formulas, with one rounding at the end.
"""

import pytest
import torch

from academy.runtime import device
from annotated_examples.fast import moe_mlp as fast
from annotated_examples.moe import moe_mlp as lesson
from annotated_examples.moe import router
from tests.kernels import harness
from tests.kernels.harness import DEVICE, randn

NAN = float("nan")


def layer(T=11, k=2, E=4, H=9, N=7, dtype=torch.float32):
    """Unit-size inputs, and weights of a size that keeps results at about one."""
    tensors = dict(x=randn(T, H, dtype=dtype), weights=randn(T, k))
    return tensors | dict(
        gate_up=randn(E, 2 * N, H, dtype=dtype, scale=0.5), down=randn(E, H, N, dtype=dtype, scale=0.5)
    )


def chosen(T=11, k=2, E=4, empty=1):
    """Experts of each token; one of them has nobody, and some slots are dropped."""
    experts = torch.randint(0, E, (T, k), device=DEVICE)
    experts[experts == empty] = -1
    return experts


def on(experts, function):
    return lambda x, weights, gate_up, down: function(x, experts, weights, gate_up, down)


def assert_right(module, inputs, experts):
    upstream = randn(*inputs["x"].shape, dtype=inputs["x"].dtype)
    harness.assert_right(on(experts, module.moe_mlp), on(experts, lesson.moe_mlp_reference), inputs, upstream)


# ---------------------------------------------------------------- checks, which mutants have to fail


def experts_of_any_kind(module):
    """One token, one slot, one expert; all at one expert; the same expert twice; everything dropped; no token."""
    for T, k, E, experts in (
        (1, 1, 1, [[0]]),
        (5, 3, 6, chosen(5, 3, 6)),
        (9, 2, 4, [[2, 2]] * 9),
        (3, 2, 4, [[-1, -1]] * 3),
        (0, 2, 3, torch.zeros(0, 2, dtype=torch.int32, device=DEVICE)),
    ):
        experts = torch.as_tensor(experts, device=DEVICE)
        assert_right(module, layer(T, k, E), experts)


def dropped_slots(module):
    """NaN in the weight of a dropped slot, and in the matrices of an expert without rows, reach nothing."""
    inputs, experts = layer(), chosen()
    experts[0] = torch.tensor([2, -1])
    clean = harness.gradients(on(experts, module.moe_mlp), inputs)
    dirty = {n: v.clone() for n, v in inputs.items()}
    dirty["weights"][experts < 0] = NAN
    dirty["gate_up"][1], dirty["down"][1] = NAN, NAN
    found = harness.gradients(on(experts, module.moe_mlp), dirty)
    for name, value in found.items():
        assert torch.equal(value, clean[name]), name
    assert not found["dweights"][experts < 0].any() and found["dweights"][experts >= 0].any()
    assert not found["dgate_up"][1].any() and not found["ddown"][1].any()


def rows_of_others(module):
    """A NaN in one token is in that token's result, and in the matrices of its experts."""
    inputs, experts = layer(), torch.tensor([[0, 2]] * 3 + [[2, 3]] * 8, device=DEVICE)
    inputs["x"][1] = NAN
    found = harness.gradients(on(experts, module.moe_mlp), inputs, randn(11, 9))
    assert bool(found["out"][1].isnan().all()) and int(found["out"].isnan().sum()) == 9
    assert int(found["dx"].isnan().sum()) == 9 and not found["dgate_up"][[1, 3]].isnan().any()


def weights_in_float32(module):
    """The gradient of a weight is a sum over all columns, never rounded on the way."""
    inputs, experts = layer(H=40, N=300, dtype=torch.bfloat16), chosen()
    assert_right(module, inputs, experts)


CHECKS = [experts_of_any_kind, dropped_slots, rows_of_others, weights_in_float32]
test_check = harness.check_test(lesson, CHECKS)


#: Both files, and sizes for which the fast one takes its own products.
BOTH = pytest.mark.parametrize(
    "module, sizes", [(lesson, {}), (fast, dict(H=24, N=16, dtype=torch.bfloat16))], ids=["lesson", "fast"]
)
#: Programs walk over the experts before theirs, which takes the interpreter minutes.
MANY = [
    pytest.param(6, 96, marks=[pytest.mark.nightly] * device.INTERPRET),
    pytest.param(8, 256, marks=pytest.mark.gpu),
]


@BOTH
@pytest.mark.parametrize("k, E", MANY)
def test_as_many_experts_as_models_have(k, E, module, sizes):
    """Most of them without a row."""
    assert_right(module, layer(7, k, E, **sizes or dict(H=3, N=2)), chosen(7, k, E))


def test_a_router_in_front():
    """From the router's matrix to the result: its gradient is that of a dense model in float64."""
    experts_count, k = 4, 2
    inputs, matrix = layer(), randn(4, 9)
    plain = {n: inputs[n] for n in ("gate_up", "down")}

    def model(x, matrix, route, mlp, **others):
        weights, experts = route(x @ matrix.T, k)
        return mlp(x, experts, weights, **others)

    leaves = [harness.leaf(inputs["x"]), harness.leaf(matrix)]
    ours = model(*leaves, router.route, lesson.moe_mlp, **plain)
    double = [harness.leaf(leaf.double()) for leaf in leaves]
    wide = {n: v.double() for n, v in plain.items()}
    theirs = model(*double, router.route_reference, lesson.moe_mlp_reference, **wide)
    upstream = randn(11, 9)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, upstream), torch.autograd.grad(theirs, double, upstream.double())
    ):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
    assert experts_count == len(plain["down"])


@BOTH
def test_a_second_backward_pass_and_frozen_parameters(module, sizes):
    inputs, experts = layer(**sizes), chosen()
    leaves = {n: harness.leaf(v) for n, v in inputs.items()}
    out = on(experts, module.moe_mlp)(**leaves)
    once, twice = [torch.autograd.grad(out.sum(), list(leaves.values()), retain_graph=True) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(once, twice))
    for place, name in enumerate(leaves):
        alone = {n: v if n == name else inputs[n] for n, v in leaves.items()}
        (gradient,) = torch.autograd.grad(on(experts, module.moe_mlp)(**alone).sum(), leaves[name])
        assert torch.equal(gradient, once[place]), name


@pytest.mark.gpu
@BOTH
def test_nobody_waits(module, sizes):
    inputs, experts = layer(**sizes), chosen()
    harness.assert_nobody_waits(lambda: harness.forward_and_backward(on(experts, module.moe_mlp), inputs))


FINE = layer() | dict(experts=torch.zeros(11, 2, dtype=torch.int32, device=DEVICE))
BAD = [
    (TypeError, "x", dict(x=[1.0])),
    (TypeError, "x", dict(x=FINE["x"].double())),
    (ValueError, "x", dict(x=FINE["x"][0])),
    (TypeError, "experts", dict(experts=FINE["experts"].float())),
    (ValueError, "experts", dict(experts=FINE["experts"][:5])),
    (ValueError, "experts must be in", dict(experts=FINE["experts"] + 4)),
    (TypeError, "weights", dict(weights=FINE["weights"].half())),
    (ValueError, "weights", dict(weights=FINE["weights"][:, :1])),
    (TypeError, "gate_up", dict(gate_up=FINE["gate_up"].half())),
    (ValueError, "gate_up", dict(gate_up=FINE["gate_up"][:, :7])),
    (ValueError, "down", dict(down=FINE["down"][:, :8])),
    (ValueError, "down", dict(down=FINE["down"][0])),
    (TypeError, "plan", dict(plan=(1, 2, 3))),
    (ValueError, "plan", dict(plan=router.sort_by_expert(torch.zeros(11, 2, dtype=torch.int32, device=DEVICE), 5))),
]


test_bad_arguments = harness.refused_test(
    "error, name, change",
    BAD,
    FINE,
    lesson.moe_mlp,
    fast.moe_mlp,
)
