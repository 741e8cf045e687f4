"""benchmarks/accumulation.py: what it measures, here without a tensor core, and what the guide quotes of it."""

import re

from benchmarks import accumulation
from tests.kernels.harness import ROOT


def test_every_product_of_every_sum(monkeypatch):
    """The interpreter adds up in float32: no error beyond that."""
    monkeypatch.setattr(accumulation, "LENGTHS", (128,))
    found = accumulation.errors()
    assert len(found) == len(accumulation.PRODUCTS) * 2
    ours = [value for name, (value, _) in found.items() if not name.startswith("torch")]
    assert len(ours) == 6 and all(0 <= value < 1e-4 for value in ours)


def test_the_guide_quotes_what_is_measured():
    quoted = re.findall(
        r"\[\[bench: accumulation/([^\]]+)\]\]", (ROOT / "docs/guides/low-precision.md").read_text("utf-8")
    )
    names = {
        f"{product}/{K}/{kind}"
        for product in accumulation.PRODUCTS for K in accumulation.LENGTHS for kind in accumulation.DATA
    }  # fmt: skip
    assert len(quoted) >= 15 and set(quoted) <= names
