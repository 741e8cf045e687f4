"""The guide to measuring: the code that it shows runs, and the numbers that it works out by hand are right."""

import pytest
import torch

from benchmarks import measuring
from operations import layernorm
from tests.kernels.harness import ROOT

GUIDE = (ROOT / "docs" / "guides" / "measuring.md").read_text("utf-8")
SOURCE = (ROOT / "benchmarks" / "measuring.py").read_text("utf-8")


def test_the_roofline_by_hand():
    assert (
        f"The two results are {measuring.layernorm_us:.0f} µs for LayerNorm and {measuring.matmul_us:.0f} µs" in GUIDE
    )
    values = measuring.rows * measuring.width
    per_byte = 2 * measuring.n**3 / (3 * 2 * measuring.n**2)
    operations = layernorm.cost((measuring.rows, measuring.width), torch.bfloat16)["forward"]["operations"]
    assert "8 * rows * width, FLOAT32_RATE" in SOURCE and operations == 8 * values
    text = " ".join(GUIDE.split())
    assert f"LayerNorm does {operations / (2 * 2 * values):.0f} operations for each byte" in text
    assert f"the matrix product {per_byte:.0f}." in text
    float32, matrix = (rate / measuring.BANDWIDTH for rate in (measuring.FLOAT32_RATE, measuring.MATRIX_RATE))
    assert f"67 over 4.8 is about {float32:.0f} operations per byte" in text
    assert f"989 over 4.8, about {matrix:.0f} operations per byte" in text
    assert f"A LayerNorm that takes {2 * round(measuring.layernorm_us)} µs at this size" in GUIDE


def test_the_lesson_counts_the_operations_that_its_benchmark_counts():
    costs = layernorm.cost((2, 512), torch.bfloat16)
    forward, backward = (costs[which]["operations"] // 1024 for which in ("forward", "backward"))
    lesson = (ROOT / "annotated_examples" / "classics" / "layernorm.py").read_text("utf-8")
    assert f"{forward} and {backward} operations" in " ".join(lesson.split())


@pytest.mark.gpu
def test_the_experiments_show_what_the_guide_says():
    values = {name: entry["value"] for name, entry in measuring.run().items()}
    assert values["first_call"] > 5 * values["later_call"]
    assert values["returned"] / 1e3 < 0.5 * values["done"]
    assert values["with_head_start"] < values["without_head_start"]
    assert values["zeros_rate"] > values["random_rate"]
    assert values["warm_copy"] > 1.2 * values["cold_copy"]
    assert values["quickest"] <= values["median"] <= values["slowest"]
