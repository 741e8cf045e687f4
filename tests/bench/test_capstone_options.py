"""The forms of the capstone are measured alike, and the page quotes numbers that are written."""

import dataclasses

import pytest
import torch

from annotated_examples.capstone import options
from benchmarks import capstone, capstone_options

SMALL = dataclasses.replace(options.SMALL, layers=1, experts=4)


@pytest.fixture(autouse=True)
def plain_operations(monkeypatch):
    """What is measured is the script, not the kernels."""
    monkeypatch.setattr(options, "OURS", options.PLAIN)


def test_the_first_form_is_the_one_without_options():
    first, *others = capstone_options.FORMS.values()
    assert next(iter(capstone_options.FORMS)) == capstone_options.BASE and first == {} and all(others)
    assert len({str(form) for form in others}) == len(others)
    for form in others:
        options.Config(**form)  # and each is one that there is


def test_the_curve_is_the_cross_entropy_and_training_minimizes_all():
    training = capstone_options.FormTraining(dataclasses.replace(SMALL, feed_forward="experts"), 2)
    training.model.eval()  # without dropout
    total, shown = training.losses()
    first, *terms = training.model.losses(training.tokens, training.labels)
    assert torch.equal(shown, first) and len(terms) == 2 and torch.equal(total, first + terms[0] + terms[1])
    assert training.mean_balance() == pytest.approx(terms[0].item() / training.config.balance)


def test_a_restarted_form_is_the_same_run():
    config = dataclasses.replace(SMALL, p=0.0, feed_forward="experts")
    run = capstone_options.FormTraining(config, 2)
    first, again, other = (capstone.losses(run, run, 2, seed) for seed in (0, 0, 1))
    assert first == again != other


def test_a_form_is_measured():
    values, curves = capstone_options.measure(dataclasses.replace(SMALL, feed_forward="experts"), 3, 2, batch=2)
    assert [len(curve) for curve in curves] == [3, 3]
    # 1 where all get the same. It may be less: the experts that are chosen more often needn't be the likelier ones on
    # average. (Which it is depends on the text, and that is this repository's.)
    assert 0 < values["balance"][0] <= SMALL.experts
    assert values["loss"][0] == pytest.approx(sum(map(sum, curves)) / 6) and values["loss_spread"][0] > 0
    dense, _ = capstone_options.measure(SMALL, 1, 1, batch=2)
    assert "balance" not in dense and dense["parameters"] < values["parameters"]
