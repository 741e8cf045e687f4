"""The GPT with our optimizers: the first steps are PyTorch's, and who gets which weight."""

import dataclasses
from functools import partial

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from academy.judge.mutants import import_source
from annotated_examples.capstone import gpt, optimizers, options
from annotated_examples.optimizers.muon import NEWTON_SCHULZ, orthogonalize_reference
from tests.kernels.harness import ROOT

SOURCE = (ROOT / "annotated_examples/capstone/optimizers.py").read_text("utf-8")
SMALL = dataclasses.replace(options.SMALL, p=0.0)
LR = 3e-3


def mutant(old, new):
    assert SOURCE.count(old) == 1
    return import_source(SOURCE.replace(old, new), "mutant_of_optimizers")


def model_of(**changes):
    torch.manual_seed(0)
    return gpt.GPT(dataclasses.replace(SMALL, **changes), options.PLAIN).to(device.DEVICE)


def first_gradients(steps):
    """Weights at the start, and the gradients of the first steps with PyTorch's AdamW, by name."""
    model = model_of()
    begin = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer, found = gpt.adamw(model, LR), []
    for _, (tokens, labels) in zip(range(steps), gpt.batches(SMALL, 2)):
        model(tokens, labels).backward()
        found.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    return begin, found


def moved(optimizer, begin, gradients, dtype=torch.float32):
    """How far the same gradients move each weight. In float64 the truth."""
    model = model_of().to(dtype)
    stepping = optimizer(model, LR)
    for each in gradients:
        for name, weight in model.named_parameters():
            weight.grad = each[name].to(dtype)
        stepping.step()
    return {name: weight.detach().double() - begin[name].double() for name, weight in model.named_parameters()}


class ExactMuon:
    """Muon in float64 as its page says, with a polynomial that nothing is rounded in."""

    def __init__(self, weights, lr):
        self.weights, self.lr, self.averages = weights, lr, [torch.zeros_like(weight) for weight in weights]

    def step(self):
        for weight, average in zip(self.weights, self.averages):
            average += 0.05 * (weight.grad - average)
            update = orthogonalize_reference(weight.grad + 0.95 * (average - weight.grad))
            weight.data *= 1 - self.lr * 0.1
            weight.data -= self.lr * 0.2 * max(weight.shape) ** 0.5 * update


def exact_muon(model, lr):
    those = [weight for weight, _ in optimizers.matrices(model)]
    taken = {id(weight) for weight in those}
    others = [weight for weight in model.parameters() if id(weight) not in taken]
    adamw = torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    return optimizers.Several(ExactMuon(those, lr), adamw)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_first_steps_are_those_of_pytorch(name):
    """Three steps with the same gradients. Each weight moves where float64 says, with no more than twice the error of
    PyTorch's optimizer. What AdamW does with a gradient is far below that of a weight's last bit, and so is its error:
    what is compared is the way that a weight went, and PyTorch's way has the same rounding of the weight."""
    begin, gradients = first_gradients(3)
    exactly = exact_muon if name == "muon" else gpt.adamw
    exact = moved(exactly, begin, gradients, torch.float64)
    ours, theirs = (
        moved(partial(optimizers.optimizer_of, name=name, whose=whose), begin, gradients)
        for whose in (optimizers.OURS, optimizers.PYTORCH)
    )
    for weight in exact:
        accuracy.check(weight, ours[weight], theirs[weight], exact[weight])


def test_first_updates_of_muon_differ_as_the_page_says():
    """By some hundredths of their size, up to a fifth: rounding is magnified where a singular value is small."""
    begin, gradients = first_gradients(1)
    ours, theirs = (
        moved(partial(optimizers.optimizer_of, name="muon", whose=whose), begin, gradients)
        for whose in (optimizers.OURS, optimizers.PYTORCH)
    )
    names = [name for name in ours if name.rsplit(".", 1)[-1] in optimizers.MATRICES]
    apart = [((ours[name] - theirs[name]).norm() / theirs[name].norm()).item() for name in names]
    assert len(apart) == 8 and 0.05 < min(apart) and max(apart) < 0.4
    a = NEWTON_SCHULZ[0][0]
    assert "by 3.4, five of them by nearly 500" in SOURCE and round(a, 1) == 3.4 and 450 < a**5 < 500


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_first_losses_are_those_of_pytorch(name):
    """Of training: gradients come from weights that were moved before. A step changes far more than they differ by."""
    losses = []
    for whose in (optimizers.OURS, optimizers.PYTORCH):
        optimizer = partial(optimizers.optimizer_of, name=name, whose=whose)
        losses.append(gpt.train(model_of(), gpt.batches(SMALL, 2), 4, LR, optimizer))
    ours, theirs = losses
    assert ours[0] == theirs[0] and ours == pytest.approx(theirs, abs=1e-5 if name == "adamw" else 1e-3)


def check_every_weight_once(module):
    """In each form, with each optimizer: no weight is forgotten, and none gets two steps."""
    for form in (dict(), dict(feed_forward="experts"), dict(mixer="latent"), dict(mixer="kda"), dict(streams=2)):
        model = model_of(**form)
        for name in module.OPTIONS:
            several = module.optimizer_of(model, LR, name)
            groups = [group for optimizer in several.optimizers for group in optimizer.param_groups]
            taken = [id(weight) for group in groups for weight in group["params"]]
            assert sorted(taken) == sorted(map(id, model.parameters())), (form, name)


def check_which_are_matrices(module):
    for form, expected in (
        (dict(mixer="kda", feed_forward="experts"), {"mixer.project", "mixer.out"}),
        (
            dict(mixer="latent", layers=1),
            {"mixer.project", "mixer.up", "mixer.out", "feed_forward.gate_up", "feed_forward.down"},
        ),
        (dict(streams=2), {"mixer.qkv", "mixer.out", "feed_forward.gate_up", "feed_forward.down"}),
        (dict(), {"mixer.qkv", "mixer.out", "feed_forward.gate_up", "feed_forward.down"}),
    ):
        model = model_of(**form)
        those = {id(weight) for weight, _ in module.matrices(model)}
        names = {name.split(".", 2)[2] for name, weight in model.named_parameters() if id(weight) in those}
        assert names == expected


def check_parts_are_matrices_of_their_own(module):
    """A step of the model is that of a list of single matrices, to the last bit."""
    model = model_of()
    tokens, labels = next(gpt.batches(SMALL, 2))
    model(tokens, labels).backward()
    head = SMALL.width // SMALL.heads
    weight, several = model.blocks[0].mixer.qkv, module.optimizer_of(model, LR, "muon_parts")
    alone = []
    for rows, gradient in zip(weight.detach().split(head), weight.grad.split(head)):
        alone.append(torch.nn.Parameter(rows.clone()))
        alone[-1].grad = gradient.clone()
    assert len(alone) == SMALL.heads + 2 * SMALL.key_heads
    module.Muon(alone, lr=LR, weight_decay=0.1, adjust_lr_fn="match_rms_adamw").step()
    several.step()
    assert torch.equal(weight.detach(), torch.cat(alone).detach())


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_every_weight_once, "if id(weight) not in taken", ""),
        (check_which_are_matrices, '    "project": lambda c: 1,', '    "project": lambda c: 1, "step": lambda c: 1,'),
        (check_which_are_matrices, " and weight.dim() == 2]", "]"),
        (check_parts_are_matrices_of_their_own, "c.heads + 2 * c.key_heads", "c.heads"),
    ],
    ids=["two steps", "tables", "experts", "heads of queries"],
)
def test_what_would_be_another_optimizer(check, old, new):
    check(optimizers)
    with pytest.raises(AssertionError):
        check(mutant(old, new))


@pytest.mark.parametrize(
    ("name", "whose", "message"),
    [
        ("sgd", optimizers.OURS, "optimizer must be "),
        ("muon_parts", optimizers.PYTORCH, "optimizer must be 'adamw' or 'muon' with PyTorch's"),
    ],
)
def test_an_option_that_there_is_not(name, whose, message):
    with pytest.raises(ValueError, match=message):
        optimizers.optimizer_of(model_of(), LR, name, whose)


def test_zero_grad_reaches_all():
    model = model_of()
    tokens, labels = next(gpt.batches(SMALL, 2))
    model(tokens, labels).backward()
    optimizers.optimizer_of(model, LR, "muon").zero_grad()
    assert all(weight.grad is None for weight in model.parameters())
