"""What the interpreter keeps as raw bits, bfloat16 and float8, and the numbers that they stand for."""

from __future__ import annotations

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

FLOAT8 = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
#: Bits of a NaN, for the types that the interpreter keeps as bits.
NAN_BITS = {"bf16": 0x7FC0, "fp8e4nv": 0x7F, "fp8e5": 0x7E}


def is_bf16(handle) -> bool:
    return isinstance(handle, interpreter.TensorHandle) and handle.dtype.scalar.name == "bf16"


def is_float8(handle) -> bool:
    return isinstance(handle, interpreter.TensorHandle) and handle.dtype.scalar.name in FLOAT8


def bf16_to_fp32(bits: np.ndarray) -> np.ndarray:
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def fp32_to_bf16(values: np.ndarray, truncate: bool = False) -> np.ndarray:
    """Bits of the nearest bfloat16 (ties to even), or of the next one towards zero."""
    bits = np.array(values, dtype=np.float32).view(np.uint32)
    nan = np.isnan(values)
    if not truncate:
        bits = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    bits = (bits >> 16).astype(np.uint16)
    return np.where(nan, np.uint16(0x7FC0), bits) if nan.any() else bits


def fp64_to_odd(values: np.ndarray) -> np.ndarray:
    """float64 as float32 for a second rounding to fewer digits: where a digit is lost, the last bit becomes 1, so that
    the second rounding sees no tie where there is none."""
    rounded = values.astype(np.float32)
    bits = rounded.view(np.uint32).copy()
    bits -= np.abs(rounded) > np.abs(values)  # back towards zero
    bits |= (rounded != values) & ~np.isnan(values)
    return bits.view(np.float32)


def fp32_to_fp16_towards_zero(values: np.ndarray) -> np.ndarray:
    """The next float16 towards zero: a number too large becomes the largest one, an infinity stays."""
    nearest = values.astype(np.float16)
    bits = nearest.view(np.uint16) - (np.abs(nearest.astype(np.float32)) > np.abs(values))
    return bits.astype(np.uint16).view(np.float16)


def fp32_to_fp8e5_towards_zero(values: np.ndarray) -> np.ndarray:
    """As the compiler does it: the upper byte of the next float16 towards zero. Unlike rounding to nearest, it keeps an
    infinity."""
    return (fp32_to_fp16_towards_zero(values).view(np.uint16) >> 8).astype(np.uint8)


def float8_to_fp32(bits: np.ndarray, name: str) -> np.ndarray:
    return torch.from_numpy(np.array(bits, dtype=np.uint8)).view(FLOAT8[name]).float().numpy()


def fp32_to_float8(values: np.ndarray, name: str) -> np.ndarray:
    largest = torch.finfo(FLOAT8[name]).max
    clamped = torch.from_numpy(np.array(values, dtype=np.float32)).clamp(-largest, largest)
    return clamped.to(FLOAT8[name]).view(torch.uint8).numpy()


def widened(handle):
    """A bfloat16 handle as float32; anything else as it is."""
    return interpreter.TensorHandle(bf16_to_fp32(handle.data), tl.float32) if is_bf16(handle) else handle


def narrowed(handle):
    """A float32 result as bfloat16, a truth value as int1."""
    if handle.data.dtype == np.bool_:
        return interpreter.TensorHandle(handle.data, tl.int1)
    return interpreter.TensorHandle(fp32_to_bf16(handle.data), tl.bfloat16)


def decode(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """The numbers in an interpreter payload: bfloat16 and float8 bits become float32, the rest is returned as it is."""
    name = dtype.scalar.name
    if name == "bf16":
        return bf16_to_fp32(data)
    if name in FLOAT8:
        return float8_to_fp32(data, name)
    return data


def undefined_lanes(shape: tuple[int, ...], dtype: tl.dtype) -> np.ndarray:
    """An interpreter payload of a value that a GPU leaves undefined: NaN, or for integers 0xA5 in every byte.

    An integer of a single byte is 0xFF: as the exponent of a microscaled block that is NaN, too.
    """
    np_dtype = interpreter._get_np_dtype(dtype)
    if dtype.is_floating():
        return np.full(shape, NAN_BITS.get(dtype.name, np.nan), dtype=np_dtype)
    if np_dtype == np.bool_:
        return np.zeros(shape, dtype=bool)
    filler = b"\xff" if np_dtype.itemsize == 1 else b"\xa5" * np_dtype.itemsize
    return np.full(shape, np.frombuffer(filler, dtype=np_dtype)[0])
