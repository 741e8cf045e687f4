"""Optimizers are measured alike, and the page quotes numbers that are written; so is how fast the model writes."""

import dataclasses
import json
import re

import pytest
import torch

from academy.runtime import device
from academy.bench import experiment
from academy.results import experiments, figures, training
from annotated_examples.capstone import generate, options
from benchmarks import capstone_generate, capstone_optimizers
from tests.kernels.harness import ROOT

SMALL = dataclasses.replace(capstone_optimizers.TOY, config=dataclasses.replace(options.SMALL, p=0.0, layers=1))


def test_a_run_begins_with_the_seed_s_weights_whoever_trains():
    """The first loss is one of the weights and the batch alone; the next one shows the optimizer."""
    runs = [capstone_optimizers.curve(SMALL, "kda", who, 2, 0) for who in ("adamw", "adamw of PyTorch", "muon")]
    other = capstone_optimizers.curve(SMALL, "kda", "adamw of PyTorch", 1, 1)
    assert len({run[0] for run in runs}) == 1 and runs[0][1] != runs[2][1] and other[0] != runs[0][0]


def test_what_is_said_of_curves():
    losses = {"a: adamw": [[9.0, 3.0], [9.0, 5.0]], "a: adamw of PyTorch": [[9.0, 3.5], [9.0, 4.0]]}
    values = {name: value for name, (value, _) in capstone_optimizers.said(losses).items()}
    assert values["a: adamw/loss"] == 6.5 and values["a: adamw/loss_spread"] == 1.0
    assert values["a: adamw/apart"] == (0.5 + 1.0) / 4 and "a: adamw of PyTorch/apart" not in values


def test_every_pair_is_there():
    for form in capstone_optimizers.FORMS.values():
        options.Config(**form)
    pairs = [
        who for who in capstone_optimizers.TRAINED if who + capstone_optimizers.THEIRS in capstone_optimizers.TRAINED
    ]
    assert pairs == ["adamw", "muon"]


def test_what_was_measured_before_stays(tmp_path, monkeypatch):
    """The command, twice, with a part each time."""
    monkeypatch.setattr(experiment, "machine", lambda: "Some machine")
    monkeypatch.setattr(capstone_optimizers, "TOY", SMALL)
    monkeypatch.setattr(capstone_optimizers, "REAL", SMALL)
    monkeypatch.setattr(capstone_optimizers, "times", lambda *_: {})
    pair = {who: capstone_optimizers.TRAINED[who] for who in ("adamw", "adamw of PyTorch")}
    monkeypatch.setattr(capstone_optimizers, "TRAINED", pair)
    for form in ("attention", "kda"):
        command = ["x", "--only", form, "--steps", "2", "--seeds", "1", "--results", str(tmp_path)]
        monkeypatch.setattr("sys.argv", command)
        assert capstone_optimizers.main() == 0
    content = json.loads((tmp_path / "some-machine/experiments/capstone_optimizers.json").read_text("utf-8"))
    assert list(content["losses"]) == [f"{form}: {who}" for form in ("attention", "kda") for who in pair]
    assert content["device"] == "Some machine" and content["values"]["kda: adamw/apart"]["value"] < 1e-4


def test_a_number_of_steps_that_cannot_be(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["x", "--seeds", "0"])
    with pytest.raises(SystemExit):
        capstone_optimizers.main()
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err


def test_a_chart_for_each_form(tmp_path):
    losses = {f"{form}: {who}": [[5.0, 4.0]] for form in ("attention", "kda") for who in ("adamw", "muon")}
    content = dict(device="Triton's interpreter", date="2026-01-02", versions={"torch": "2.13"}, batch=4, losses=losses)
    content["values"] = {"kda: muon/loss": {"value": 4.0, "unit": ""}, "kda: muon/apart": {"value": 1e-3, "unit": ""}}
    path = tmp_path / "benchmarks/results/triton-s-interpreter/experiments/capstone_optimizers.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    page = "".join(training.pieces("capstone_optimizers", tmp_path))
    assert page.count("<svg") >= 2 and "KDA: loss over the steps" in page and "Attention: loss" in page
    assert "Measured in Triton's interpreter, 2026-01-02" in page
    assert "from PyTorch" in page and "peak memory" not in page, "a column without a number"


def test_every_number_quoted_is_one_that_is_written():
    text = " ".join((ROOT / "annotated_examples/capstone/optimizers.py").read_text("utf-8").split())
    quoted = re.findall(r"\[\[bench: (capstone_optimizers/[^\]]+)\]\]", text)
    assert quoted and all(figures.measured(key, ROOT) not in (None, figures.NOT_YET) for key in quoted)


# ---------------------------------------------------------------- how fast it writes


@pytest.mark.parametrize(("mixer", "bits"), generate.KEPT)
def test_writing_is_measured(mixer, bits):
    config = dataclasses.replace(options.SMALL, layers=1)
    wanted = generate.Options(tokens=3, page_size=4)
    model = capstone_generate.trained(config, mixer, 0, torch.float32)
    found = capstone_generate.measure(model, 2, bits, 5, wanted)
    assert found["prefill"][0] > 0 and found["decode"][0] > 0
    rows, D = 2 * config.key_heads, 8
    kept = {("attention", None): rows * D * 4, ("attention", 8): rows * (D + 4), ("attention", 4): rows * (D // 2 + 8)}
    assert found["bytes"][0] == (kept | {("latent", None): 4 * (config.rank + D)})[mixer, bits]
    assert ("same" in found) == bool(bits) and 0.5 <= found.get("same", [1])[0] <= 1


def test_a_line_for_each_number_of_texts(tmp_path):
    value = lambda number: {"value": number, "unit": ""}  # noqa: E731
    kinds = ("latent", "attention, 8 bits")
    names = [f"{kind}/{texts}/{what}" for kind in kinds for texts in (1, 8) for what in ("prefill", "decode", "bytes")]
    values = {name: value(1234.5) for name in names} | {"attention, 8 bits/8/same": value(0.9876)}
    lines = experiments.capstone_generate(dict(values=values))
    assert "| latent | 8 | 1,234 | 1,234 | 1,234 | – |" in lines
    assert "| attention, 8 bits | 8 | 1,234 | 1,234 | 1,234 | 98.8% |" in lines


@pytest.mark.skipif(not device.INTERPRET, reason="there is a card")
def test_without_a_card_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["capstone_generate.py"])
    assert capstone_generate.main() == 2 and "need a GPU" in capsys.readouterr().err
