"""benchmarks/accumulation.py: what it measures, here without a tensor core, and what the guide quotes of it."""

from benchmarks import accumulation


def test_every_product_of_every_sum(monkeypatch):
    """The interpreter adds up in float32: no error beyond that."""
    monkeypatch.setattr(accumulation, "LENGTHS", (128,))
    found = accumulation.errors()
    assert len(found) == len(accumulation.PRODUCTS) * 2
    ours = [value for name, (value, _) in found.items() if not name.startswith("torch")]
    assert len(ours) == 6 and all(0 <= value < 1e-4 for value in ours)
