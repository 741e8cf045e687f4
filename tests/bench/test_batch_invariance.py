"""What batch invariance costs: the calls that are compared, and what is counted of them."""

import torch

from benchmarks import batch_invariance as experiment


def test_the_form_that_is_called_invariant_is(monkeypatch):
    monkeypatch.setattr(experiment, "TILES", dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16))
    assert experiment.changed(experiment.products(24, 32)["invariant"], (1, 24)) == {1: 0, 24: 0}
    calls = experiment.decoding(3, 700)
    assert experiment.changed(calls["invariant"], (1, 3)) == {1: 0, 3: 0}


def test_elements_that_change_are_counted():
    call = lambda count: torch.full((count, 4), 1.0) + (count < 3) * torch.tensor([0.0, 1.0, 0.0, 1.0])  # noqa: E731
    assert experiment.changed(call, (1, 3)) == {1: 2, 3: 0}


def test_each_value_has_its_ratio(monkeypatch):
    times = iter(range(1, 99))
    one = dict(usual=lambda count: torch.zeros(count, 2))
    one["invariant"] = one["usual"]
    monkeypatch.setattr(experiment, "products", lambda: one)
    monkeypatch.setattr(experiment, "decoding", lambda: one)
    found = experiment.values(lambda call: float(next(times)))
    assert found["product/1/ratio"] == (6.0, "x") and found["decoding/64/usual_changed"] == (0, "elements")
