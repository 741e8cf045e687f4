"""fast/adamw: what the optimizer remembers is never what was; whole blocks and the rest of a tensor; mutants."""

import copy

import pytest
import torch

from academy.runtime import device
from annotated_examples.fast import adamw as fast
from annotated_examples.optimizers import adamw as lesson
from tests.kernels import harness
from tests.kernels.harness import DEVICE, Mutant
from tests.kernels.test_adamw import CHECKS, as_pytorch, parameters, steps_of_their_own, trained

test_behaviour = harness.check_test(fast, CHECKS)


def moved(params, optimizer):
    params[0].data = params[0].data.clone()


def shorter(params, optimizer):
    """The same tensors, where they were. What lies behind them is nobody's business."""
    whole = params[0].detach()
    for each in (params[0], optimizer.state[params[0]]["exp_avg"], optimizer.state[params[0]]["exp_avg_sq"]):
        each.data = each.data[:3]
    return [whole]


def another_average(params, optimizer):
    state = optimizer.state[params[1]]
    state["exp_avg"] = torch.full_like(state["exp_avg"], 3.0)


def average_moved(params, optimizer):
    """What was there stays somebody's memory: a step that still goes there must be noticed, and not end the process."""
    state = optimizer.state[params[1]]
    optimizer.before = state["exp_avg"].detach()
    state["exp_avg"].data = state["exp_avg"] + 1.0


def average_turned(params, optimizer):
    """Another tensor, in the same memory."""
    state = optimizer.state[params[2]]
    state["exp_avg"] = state["exp_avg"].mT


def loaded(params, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def scheduled(params, optimizer):
    optimizer.param_groups[0]["lr"] /= 2


def frozen(params, optimizer):
    """It has no gradient from now on."""
    optimizer.param_groups[0]["params"] = params[1:]


def turned(params, optimizer):
    params[2].data = params[2].data.mT.contiguous().mT


def turned_where_it_lies(params, optimizer):
    params[2].data = params[2].data.mT


def joined(params, optimizer):
    optimizer.add_param_group({"params": [torch.nn.Parameter(params[1].detach()[:4].clone())]})


CHANGES = [
    moved, shorter, another_average, average_moved, average_turned, loaded, scheduled, frozen, turned,
    turned_where_it_lies, joined,
]  # fmt: skip


def changed_in_between(change, module=fast):
    """Three steps, a change, three steps: the bits of the lesson's."""
    found = []
    for optimizers in (module, lesson):
        torch.manual_seed(0)
        params = parameters([(9,), (2050,), (6, 6), (0,)], torch.float32)
        optimizer = optimizers.AdamW(params, lr=0.1)
        trained(optimizer, params, 3)
        others = change(params, optimizer) or []
        trained(optimizer, [p for group in optimizer.param_groups for p in group["params"]], 3, seed=1)
        found.append(
            [*others, *(p.detach() for p in params), *(x for s in optimizer.state.values() for x in s.values())]
        )
    for ours, its in zip(*found, strict=True):
        torch.testing.assert_close(ours, its, rtol=0 if device.INTERPRET else 1e-6, atol=0)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_remembered(change):
    changed_in_between(change)


def test_a_table_is_made_once(monkeypatch):
    """From the second step on, and the gradients' addresses alone are sent."""
    sent, known = [], fast.on_device
    monkeypatch.setattr(fast, "on_device", lambda numbers, where: sent.append(len(numbers)) or known(numbers, where))
    params = parameters([(9,), (5, 7)], torch.float32)
    trained(fast.AdamW(params), params, 3)
    assert sent == [10, 2, 10, 2, 2]  # the first step by itself, what is kept of it, two more


def test_a_copy_remembers_nothing():
    params = parameters([(9,)], torch.float32)
    optimizer = fast.AdamW(params)
    trained(optimizer, params, 2)
    other = copy.deepcopy(optimizer)
    before = params[0].detach().clone()
    trained(other, other.param_groups[0]["params"], 2)
    assert torch.equal(params[0], before) and not torch.equal(other.param_groups[0]["params"][0], before)


@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_alignment_gives_the_same_bits(offset, dtype):
    found = []
    for start in (0, offset):
        torch.manual_seed(0)
        values, grads = (torch.randn(3000, device=DEVICE).to(dtype) for _ in range(2))
        p = torch.empty(3000 + start, device=DEVICE, dtype=dtype)[start:].copy_(values)
        p = torch.nn.Parameter(p)
        p.grad = grads
        fast.AdamW([p]).step()
        found.append(p.detach())
    assert torch.equal(*found)


def after(change):
    return lambda module: changed_in_between(change, module)


MUTANTS = [
    (as_pytorch, Mutant("the rest is left out", "if whole < end:", "if whole > end:")),
    (as_pytorch, Mutant("a whole block too few", "(end - first) // BLOCK * BLOCK", "(end - first) // CHUNK * BLOCK")),
    (
        steps_of_their_own,
        Mutant(
            "every step is the first's", "tl.load(table_ptr + 3 * tensors + which)", "tl.load(table_ptr + 3 * tensors)"
        ),
    ),
    (after(average_moved), Mutant("addresses", "[x.data_ptr() for x in tensors] == known.places", "True")),
    (after(average_turned), Mutant("which tensors", "all(map(operator.is_, tensors, known.tensors))", "True")),
    (after(turned_where_it_lies), Mutant("turned weights", "all([p.is_contiguous() for p, _ in pairs])", "True")),
    (after(shorter), Mutant("lengths", "[g.numel() for g in grads] == known.lengths", "True")),
]
test_mutant_is_caught = harness.mutant_test(fast, MUTANTS)
