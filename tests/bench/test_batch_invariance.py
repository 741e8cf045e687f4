"""What batch invariance costs: the calls that are compared, and what is counted of them."""

import torch

from benchmarks import batch_invariance as experiment
from tests.bench.fake import FakeGpu


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


def test_the_script_measures_the_calls_that_are_named(monkeypatch, tmp_path):
    """A clock hands on what was prepared for a call; these calls have nothing prepared."""
    counts = []
    one = dict.fromkeys(("usual", "invariant"), lambda count: counts.append(count) or torch.zeros(count, 2))
    monkeypatch.setattr(experiment.device, "INTERPRET", False)
    monkeypatch.setattr(experiment.experiment, "machine", lambda: "NVIDIA Fake 1")
    for name, replacement in (("Gpu", FakeGpu), ("products", lambda: one), ("decoding", lambda: one)):
        monkeypatch.setattr(experiment, name, replacement)
    monkeypatch.setattr("sys.argv", ["batch_invariance.py", "--processes", "0", "--results", str(tmp_path)])
    experiment.main()
    assert {*counts} == {*experiment.ROWS, *experiment.SEQUENCES} and len(list(tmp_path.rglob("*.json"))) == 1


def test_a_part_of_the_search_is_compiled(monkeypatch):
    """Here the search has one configuration, so the second part has none."""
    from annotated_examples.fast import matmul

    for part, calls in ((0, 4), (1, 0)):
        kernel = matmul.tuned_descriptor_kernel
        monkeypatch.setattr(kernel, "configs", list(kernel.configs[:1]))
        monkeypatch.setattr(experiment, "TILES", dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16))
        configurations = kernel.configs
        assert experiment.compile_part(part, 2, (1, 24), 32) == calls
        kernel.configs = configurations
