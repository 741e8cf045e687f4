"""The training of the capstone is measured without its first steps, and its profile is told apart by operation."""

import pytest
import torch

from academy.runtime import device
from academy.bench import experiment
from academy.judge.mutants import import_source
from academy.results import figures, store, training
from annotated_examples.capstone.gpt import OURS, PLAIN, SMALL
from benchmarks import capstone
from tests.kernels.harness import ROOT

SOURCE = (ROOT / "benchmarks/capstone.py").read_text("utf-8")


def mutant(old, new):
    assert SOURCE.count(old) == 1
    return import_source(SOURCE.replace(old, new), "mutant_of_capstone")


def check_first_steps_do_not_count(module):
    """A step that takes 50 ms the first four times, and 2 ms from then on."""
    done, seconds = 0, 0.0

    def step():
        nonlocal done, seconds
        done += 1
        seconds += 0.050 if done <= 4 else 0.002

    assert module.milliseconds(step, lambda: seconds) == pytest.approx(2.0)


def check_every_contestant_starts_alike(module):
    runs = [module.Training(operations, False, SMALL, 2) for operations in (PLAIN, OURS)]
    with torch.no_grad():
        for parameter in runs[0].model.parameters():
            parameter.add_(1.0)
    for run in runs:
        run.restart(3)
    first, second = (run.model.state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_first_steps_do_not_count, "for _ in range(warmup):", "for _ in range(0):"),
        (check_every_contestant_starts_alike, "torch.manual_seed(seed)", "pass"),
        (check_every_contestant_starts_alike, "value.copy_(fresh[name])", "pass"),
    ],
    ids=["the first steps are timed", "other weights", "weights of the run before"],
)
def test_what_would_make_the_measurement_meaningless(check, old, new):
    check(capstone)
    with pytest.raises(AssertionError):
        check(mutant(old, new))


def test_a_restarted_run_is_the_same_run():
    run = capstone.Training(PLAIN, False, SMALL, 2)
    first, again, other = (capstone.losses(run, run, 2, seed) for seed in (0, 0, 1))
    assert first == again != other


def test_the_profile_knows_which_operation_a_gradient_belongs_to():
    """Counted in products and nodes, which don't depend on the machine."""
    run = capstone.Training(capstone.scoped(PLAIN), False, SMALL, 2)
    events = capstone.profiled(run)
    products = capstone.by_operation(events, lambda event: float(event.name == "aten::mm"))
    # Four weights a layer, two gradients for each; and those of the last product.
    assert products == {"linear": {"forward": 8.0, "backward": 16.0}, "loss": {"forward": 1.0, "backward": 2.0}}
    nodes = capstone.by_operation(events, lambda event: float("SiluBackward" in event.name))
    assert list(nodes) == ["gate"] and nodes["gate"]["forward"] == 0
    steps = capstone.by_operation(events, lambda event: float("adamw" in event.name))
    assert list(steps) == ["optimizer"]


def test_the_ladder_ends_with_our_operations():
    replaced = [field for fields, _ in capstone.LADDER.values() for field in fields]
    assert sorted(replaced) == sorted(vars(PLAIN)) and not next(iter(capstone.LADDER.values()))[0]


def test_curves_and_a_table(tmp_path):
    assert "Not measured yet" in "".join(training.pieces("capstone", tmp_path))
    values = {"ours/step": 30.0, "ours/loss": 2.5, "ours, compiled/step": None}
    content = dict(device="NVIDIA H200", date="2026-01-02", versions={"torch": "2.11"}, batch=16)
    content["values"] = {name: {"value": value, "unit": "ms"} for name, value in values.items()}
    content["losses"] = {"eager": [[5.0, 4.0], [6.0, 4.0]], "ours": [[5.0, 4.0]]}
    store.write(tmp_path / "benchmarks/results/nvidia-h200/experiments/capstone.json", content)
    page = "".join(training.pieces("capstone", tmp_path))
    assert (
        "<svg" in page
        and "NVIDIA H200, 2026-01-02, torch 2.11," in page
        and "mean of 2 runs" in page
        and "<td>30 ms</td>" in page
        and figures.NOT_YET in page
    )
    assert "over the steps, one run" in training.curves(content | {"losses": {"ours": [[5.0, 4.0]]}}, "", "capstone")
    assert figures.measured("capstone/ours/step", tmp_path) == "30 ms"
    assert figures.measured("capstone/ours, compiled/step", tmp_path) == figures.NOT_YET


@pytest.mark.skipif(not device.INTERPRET, reason="there is a card")
def test_without_a_card_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["capstone.py"])
    assert capstone.main() == 2 and "needs a CUDA device" in capsys.readouterr().err


def test_what_an_earlier_run_wrote_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "machine", lambda: "NVIDIA Fake 1")
    assert experiment.kept("fake", tmp_path, "values", "failed") == {"values": {}, "failed": {}}
    experiment.write_experiment("fake", tmp_path, {"values": {"a": 1}, "links": "NV18"})
    found = experiment.kept("fake", tmp_path, "values", "failed")
    assert (found["values"], found["failed"], found["links"]) == ({"a": 1}, {}, "NV18")
