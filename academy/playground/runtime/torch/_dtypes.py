"""dtypes, which of them a result has, and the formats that numpy lacks: bfloat16 and float8, kept as bits."""

from __future__ import annotations

import numpy as np


class dtype:
    def __init__(self, name: str, numpy_name: str, is_floating_point: bool = False):
        self.name, self.np, self.is_floating_point = name, np.dtype(numpy_name), is_floating_point
        self.itemsize, self.is_complex = self.np.itemsize, False

    def __repr__(self):
        return f"torch.{self.name}"


float64, float32, float16 = dtype("float64", "f8", True), dtype("float32", "f4", True), dtype("float16", "f2", True)
bfloat16 = dtype("bfloat16", "u2", True)
float8_e4m3fn, float8_e5m2 = dtype("float8_e4m3fn", "u1", True), dtype("float8_e5m2", "u1", True)
# Bytes with a name: nothing is computed in them, in PyTorch either.
float8_e8m0fnu, float4_e2m1fn_x2 = dtype("float8_e8m0fnu", "u1", True), dtype("float4_e2m1fn_x2", "u1", True)
int64, int32, int16, int8 = (dtype(name, name) for name in ("int64", "int32", "int16", "int8"))
uint8, uint16, uint32, uint64 = (dtype(name, name) for name in ("uint8", "uint16", "uint32", "uint64"))
boolean = dtype("bool", "?")
complex64, complex128 = dtype("complex64", "c8"), dtype("complex128", "c16")

OF_NUMPY = {
    each.np: each
    for each in (float64, float32, float16, int64, int32, int16, int8, uint8, uint16, uint32, uint64, boolean)
}
_INTEGERS = [boolean, uint8, int8, int16, int32, int64]
_FLOATS = [float16, bfloat16, float32, float64]


def promote_types(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if a.is_floating_point != b.is_floating_point:
        return a if a.is_floating_point else b
    if a.is_floating_point:
        return float32 if {a, b} == {float16, bfloat16} else max(a, b, key=_FLOATS.index)
    if uint8 in (a, b) and int8 in (a, b):
        return int16
    return max(a, b, key=_INTEGERS.index)


def promoted(dims: list[dtype], scalars: list[dtype], numbers: list[dtype]) -> dtype:
    """The dtype of a result of tensors, 0-d tensors and Python numbers: a later group only decides by its kind."""
    result = None
    for group in (dims, scalars, numbers):
        mine = None
        for each in group:
            mine = each if mine is None else promote_types(mine, each)
        if result is None or mine is None:
            result = result or mine
        elif (mine.is_floating_point and not result.is_floating_point) or result is boolean:
            result = promote_types(result, mine)
    assert result is not None
    return result


# ---- formats that numpy lacks


def _fields(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """The number behind each of the 256 patterns of an 8-bit float."""
    bits = np.arange(256)
    exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    subnormal = mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    return np.where(bits < 128, 1, -1) * np.where(exponent == 0, subnormal, normal)


def _float8_values() -> dict[dtype, np.ndarray]:
    e4m3, e5m2 = _fields(4, 3), _fields(5, 2)
    e4m3[[0x7F, 0xFF]] = np.nan
    e5m2[[0x7C, 0xFC]] = np.inf, -np.inf
    e5m2[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return {float8_e4m3fn: e4m3.astype(np.float32), float8_e5m2: e5m2.astype(np.float32)}


_FLOAT8 = _float8_values()


def decode(bits: np.ndarray, of: dtype) -> np.ndarray:
    """The numbers that stored bits stand for; bfloat16 and float8 as float32."""
    if of is bfloat16:
        return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)
    return _FLOAT8[of][bits] if of in _FLOAT8 else bits


def encode(values: np.ndarray, to: dtype) -> np.ndarray:
    """Numbers as a tensor of this dtype stores them, rounded to the nearest one, ties to even."""
    values = np.asarray(values)
    if to is bfloat16:
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        rounded = (bits + ((bits >> 16 & 1) + np.uint32(0x7FFF)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).reshape(values.shape)
    if to in _FLOAT8:
        return _encode_float8(values.astype(np.float32), to)
    with np.errstate(all="ignore"):
        return values.astype(to.np)


def _encode_float8(values: np.ndarray, to: dtype) -> np.ndarray:
    """Past the largest number: infinity where the format has one, else that number."""
    last = 0x7E if to is float8_e4m3fn else 0x7C
    steps = _FLOAT8[to][: last + 1].astype(np.float64)
    if not np.isfinite(steps[last]):
        steps[last] = 2 * steps[last - 1] - steps[last - 2]  # what the next number would be
    size = np.abs(values).astype(np.float64)
    above = np.searchsorted(steps, size).clip(1, last)
    middle = (steps[above - 1] + steps[above]) / 2
    code = np.where((size > middle) | ((size == middle) & (above % 2 == 0)), above, above - 1)
    code = np.where(np.isnan(values), 0x7F, np.where(size > steps[last], last, code))
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8).reshape(np.shape(values))


class finfo:
    def __init__(self, of: dtype):
        if of in _FLOAT8:
            self.max, self.eps = (448.0, 0.125) if of is float8_e4m3fn else (57344.0, 0.25)
            self.tiny = 2.0**-6 if of is float8_e4m3fn else 2.0**-14
        elif of is bfloat16:
            self.max, self.eps, self.tiny = 3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38
        else:
            info = np.finfo(of.np)
            self.max, self.eps, self.tiny = float(info.max), float(info.eps), float(info.tiny)
        self.min, self.smallest_normal, self.bits, self.dtype = -self.max, self.tiny, 8 * of.itemsize, of.name


class iinfo:
    def __init__(self, of: dtype):
        info = np.iinfo(of.np)
        self.max, self.min, self.bits, self.dtype = int(info.max), int(info.min), 8 * of.itemsize, of.name
