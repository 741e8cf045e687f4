"""The guide to measuring: the code that it shows runs, and the numbers that it works out by hand are right."""

import re

import pytest

from benchmarks import measuring
from tests.kernels.harness import ROOT

GUIDE = (ROOT / "docs" / "guides" / "measuring.md").read_text("utf-8")
SOURCE = (ROOT / "benchmarks" / "measuring.py").read_text("utf-8")


def test_the_roofline_by_hand():
    assert (
        f"The two results are {measuring.layernorm_us:.0f} µs for LayerNorm and {measuring.matmul_us:.0f} µs" in GUIDE
    )
    values = measuring.rows * measuring.width
    per_byte = 2 * measuring.n**3 / (3 * 2 * measuring.n**2)
    assert 8 * values / (2 * 2 * values) == 2 and "it does two" in GUIDE
    assert f"The matrix product does {per_byte:.0f}." in GUIDE
    ridge = measuring.MATRIX_RATE / measuring.BANDWIDTH
    assert f"989 over 4.8 is about {ridge:.0f} operations" in GUIDE
    assert f"A LayerNorm that takes {2 * round(measuring.layernorm_us)} µs at this size" in GUIDE


def test_every_piece_of_code_that_is_shown_exists():
    shown = re.findall(r'--8<-- "benchmarks/measuring.py:(\w+)"', GUIDE)
    assert len(shown) == len(set(shown)) == len(re.findall(r"^```python$", GUIDE, re.M))
    for name in shown:
        assert f"[start:{name}]" in SOURCE and f"[end:{name}]" in SOURCE
    assert set(shown) == set(re.findall(r"\[start:(\w+)\]", SOURCE)), "code that isn't shown"


def test_every_number_quoted_is_one_of_the_experiments():
    quoted = set(re.findall(r"\[\[bench: measuring/(\w+)\]\]", GUIDE))
    body = SOURCE[SOURCE.index("def run()") :]
    assert quoted == set(re.findall(r'"(\w+)": \(', body)) | {"quickest", "median", "mean", "slowest"}


@pytest.mark.gpu
def test_the_experiments_show_what_the_guide_says():
    values = {name: entry["value"] for name, entry in measuring.run().items()}
    assert values["first_call"] > 5 * values["later_call"]
    assert values["returned"] / 1e3 < 0.5 * values["done"]
    assert values["with_head_start"] < values["without_head_start"]
    assert values["zeros_rate"] > values["random_rate"]
    assert values["warm_copy"] > 1.2 * values["cold_copy"]
    assert values["quickest"] <= values["median"] <= values["slowest"]
