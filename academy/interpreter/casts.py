"""Casts: rounded once, to nearest even or towards zero, as the compiler does it; what it has no cast for is refused."""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from academy.interpreter.bits import (
    FLOAT8,
    decode,
    fp32_to_bf16,
    fp32_to_float8,
    fp32_to_fp8e5_towards_zero,
    fp32_to_fp16_towards_zero,
    fp64_to_odd,
)
from academy.interpreter.repairs import need


def repair_casts() -> None:
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    original_cast, original_fp_to_fp = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(self, source, to_type, rounding=None):
        from_type, to_type = source.dtype.scalar, to_type.scalar
        towards_zero = rounding == interpreter._ir.ROUNDING_MODE.RTZ
        if from_type.name == to_type.name:
            return source
        if from_type.name in FLOAT8 or to_type.name in FLOAT8:
            _check_float8(from_type, to_type, towards_zero)
        if from_type.name == "bf16" or from_type.name in FLOAT8:
            values = decode(source.data, from_type)
            return cast_impl(self, handle(values, tl.float32), to_type, rounding)
        if to_type.name == "bf16":
            need("bf16 cast")
            return handle(fp32_to_bf16(_as_fp32(source.data), truncate=towards_zero), tl.bfloat16)
        if to_type.name in FLOAT8:
            need("fp8 cast")
            if towards_zero:
                return handle(fp32_to_fp8e5_towards_zero(source.data), to_type)
            return handle(fp32_to_float8(source.data, to_type.name), to_type)
        if to_type.name == "fp16" and towards_zero:
            need("fp16 cast")
            return handle(fp32_to_fp16_towards_zero(source.data), to_type)
        return original_cast(self, source, to_type)

    def create_fp_to_fp(self, source, to_type, rounding):
        names = {source.dtype.scalar.name, to_type.scalar.name}
        if to_type.scalar.name == "fp16" or "bf16" in names or names & set(FLOAT8):
            return cast_impl(self, source, to_type, rounding)
        return original_fp_to_fp(self, source, to_type, rounding)

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp


def _as_fp32(values: np.ndarray) -> np.ndarray:
    """float32 from which the next rounding gives what it would give from `values`."""
    if values.dtype in (np.float16, np.float32, np.bool_):
        return values.astype(np.float32)
    return fp64_to_odd(values.astype(np.float64))


def _check_float8(from_type: tl.dtype, to_type: tl.dtype, towards_zero: bool) -> None:
    """Refuse what the compiler refuses for sm_90, seen with Triton 3.7.1."""
    wide = {"fp16", "bf16", "fp32"}
    if not {from_type.name, to_type.name} & wide:
        raise TypeError(f"the compiler has no cast from {from_type} to {to_type}: go through tl.float32")
    if towards_zero and to_type.name in FLOAT8 and (from_type.name, to_type.name) != ("fp32", "fp8e5"):
        raise TypeError(
            f"the compiler rounds towards zero from tl.float32 to tl.float8e5 only, not from {from_type} to {to_type}"
        )
