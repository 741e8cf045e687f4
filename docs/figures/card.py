"""The card that the pictures speak of: NVIDIA's numbers, as the guide "How a GPU runs a Triton program" prints them, and
what was measured on one (benchmarks/results)."""

import contextlib
import io
from pathlib import Path

from academy.book import syntax
from academy.results import figures

ROOT = Path(__file__).resolve().parents[2]
#: Data sheet and tuning guide of the NVIDIA H200; tests/site/test_pictures.py compares them with the guide's table.
SMS, WARPS, REGISTERS, SHARED_KB, L2_MB, MEMORY_GB = 132, 64, 65_536, 228, 62.9, 141
BANDWIDTH_TB_S, MATRIX_TFLOP_S, FLOAT32_TFLOP_S = 4.8, 989, 67
#: The clock for which the data sheet's rates are given.
CLOCK_GHZ = 1.83
#: Cycles until a load returns, rounded, as published for an H100: arXiv 2402.13499, table of latencies.
LATENCY = {"shared memory": 30, "L2 cache": 260, "memory": 480}


def measured(key: str) -> float:
    """The number of `[[bench: KEY]]`, without its unit."""
    return float(figures.measured(key, ROOT).split()[0])


def speeds() -> dict[str, float]:
    """What was measured on the card: bytes and matrix operations a second, in units of 10¹²."""
    return {"bytes": measured("device/copy"), "operations": measured("device/matrix")}


def guide(name: str = "gpu"):
    """The functions of that guide's snippets, or with "busy" of its second part. Importing them prints what the guide shows."""
    with contextlib.redirect_stdout(io.StringIO()):
        return syntax.import_path(ROOT / "docs/guides/snippets" / f"{name}.py")
