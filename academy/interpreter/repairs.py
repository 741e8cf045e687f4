"""What is repaired, and which of it the kernels needed."""

from __future__ import annotations

#: What is repaired: key -> the semantics that a kernel gets.
REPAIRS = {
    "bf16": "bfloat16 arithmetic is done in float32 and rounded once, to nearest even",
    "bf16 cast": "casts and stores to bfloat16 round to nearest even instead of cutting digits off",
    "bf16 dot": "tl.dot of bfloat16 blocks multiplies their values, with a float32 accumulator",
    "bf16 reduction": "reductions and scans of bfloat16 add in float32 and round the result once",
    "bf16 atomic": "atomic add on bfloat16 rounds after every addition",
    "fp8 cast": "casts to float8 round to nearest even and saturate, or round towards zero where that is asked for",
    "fp16 cast": "casts to float16 towards zero end at the largest number and keep subnormal ones",
    "scan": "tl.associative_scan and tl.reduce combine in a tree, along any axis",
    "histogram": "tl.histogram counts no number beyond its last bin",
    "libdevice": "libdevice functions are computed in float64 and rounded once",
    "nan": "tl.minimum, tl.maximum and tl.clamp ignore a NaN operand, as the hardware does",
}

_used: set[str] = set()


def need(repair: str) -> None:
    """A kernel needed this one of `REPAIRS`."""
    _used.add(repair)


def used(reset: bool = False) -> list[str]:
    """Keys of the `REPAIRS` that kernels have needed since the start or the last reset, in the order of `REPAIRS`."""
    names = [name for name in REPAIRS if name in _used]
    if reset:
        _used.clear()
    return names
