"""Tables of experiments on a page: what is committed, and a sentence where nothing is."""

import json

import pytest

from academy.book.layout import RESULTS, ROOT
from academy.results import experiments

HERE = {"device": "NVIDIA H100", "date": "2026-01-02", "versions": {"triton": "3.9.0"}}


@pytest.fixture
def shown(tmp_path):
    """`shown(name, content)` -> the lines for a repository in which that is committed."""

    def shown(name, content):
        file = tmp_path / RESULTS / "nvidia-h100/experiments" / f"{name}.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(HERE | content))
        return experiments.markdown(name, tmp_path)

    return shown


@pytest.mark.parametrize("name", experiments.TABLES)
def test_without_results_a_sentence_says_how_to_make_them(name, tmp_path):
    assert experiments.markdown(name, tmp_path) == [
        "", f"Not measured yet: `python benchmarks/{name}.py` does it, on a GPU.", ""]  # fmt: skip
    assert (ROOT / f"benchmarks/{name}.py").is_file()


def test_sanitizers_are_counted_and_what_they_said_is_told(shown):
    rows = [
        dict(function="a.f", sanitizer="gsan", verdict="right", seconds=2.4),
        dict(function="b.g", sanitizer="gsan", verdict="wrong", message="a race in *g*: <4 bytes", seconds=3.0),
        dict(function="a.f", sanitizer="memcheck", verdict="skipped", message="no end", line=None, seconds=9.0),
    ]
    lines = shown("sanitizers", dict(rows=rows))
    assert "| gsan | 1 | 1 |  |  | 5 |" in lines and "| memcheck |  |  |  | 1 | 9 |" in lines
    assert "    | `a.f` | ✓ 2 s | no verdict 9 s |" in lines and "    | `b.g` | found 3 s |  |" in lines
    assert "- `b.g`, gsan: a race in \\*g\\*: &lt;4 bytes" in lines
    assert lines[-2] == "Measured on an NVIDIA H100, 2026-01-02, triton 3.9.0."


def test_the_price_of_invariance(shown):
    value = lambda number, unit="ms": {"value": number, "unit": unit}  # noqa: E731
    values = {"product/1/usual_ms": value(0.05), "product/1/usual_changed": value(7, "elements")}
    values |= {"product/1/invariant_ms": value(0.2), "product/1/invariant_changed": value(0)}
    lines = shown("batch_invariance", dict(values=values | {"product/1/ratio": value(4.0, "x")}))
    assert "| product, 1 | 50 µs | 0.2 ms | 4.00 | 7 |" in lines


def test_what_is_committed_can_be_shown():
    for name in experiments.TABLES:
        assert experiments.markdown(name, ROOT)
