"""Loads whose masked lanes are undefined, atomics on bfloat16, and descriptors in a browser."""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from academy.interpreter.bits import bf16_to_fp32, fp32_to_bf16, is_bf16, undefined_lanes
from academy.interpreter.repairs import need


def repair_atomics() -> None:
    """Additions to bfloat16, and exchanges of floats, which are moves of their bits."""
    builder, native, handle = interpreter.InterpreterBuilder, interpreter._interpreter, interpreter.TensorHandle
    original = builder.create_atomic_rmw

    def create_atomic_rmw(self, operation, pointer, value, mask, *args, **kwargs):
        bits = {32: np.int32, 64: np.int64}.get(value.dtype.scalar.primitive_bitwidth)
        if operation == interpreter._ir.ATOMIC_OP.XCHG and value.dtype.is_floating() and bits:
            whole = handle(np.ascontiguousarray(value.data).view(bits), tl.int32 if bits is np.int32 else tl.int64)
            before = original(self, operation, pointer, whole, mask, *args, **kwargs)
            return handle(before.data.view(value.data.dtype), value.dtype.scalar)
        if not is_bf16(value) or operation != interpreter._ir.ATOMIC_OP.FADD:
            return original(self, operation, pointer, value, mask, *args, **kwargs)
        need("bf16 atomic")
        shape = pointer.data.shape
        addresses = pointer.data.reshape(-1)
        lanes = np.flatnonzero(np.broadcast_to(mask.data, shape))
        addends = np.broadcast_to(bf16_to_fp32(value.data), shape).reshape(-1)
        before = np.zeros(addresses.size, np.uint16)
        while lanes.size:  # those that add to one element one after the other, each in another round
            first = np.unique(addresses[lanes], return_index=True)[1]
            now = lanes[first]
            places, all_of_them = addresses[now], np.ones(now.size, bool)
            before[now] = native.load(places, all_of_them, np.zeros(now.size, np.uint16), np.dtype(np.uint16))
            native.store(places, fp32_to_bf16(bf16_to_fp32(before[now]) + addends[now]), all_of_them)
            lanes = np.delete(lanes, first)
        return handle(before.reshape(shape), tl.bfloat16)

    builder.create_atomic_rmw = create_atomic_rmw


def repair_descriptors() -> None:
    """Offsets times strides in 64 bits, in a browser too: there numpy counts with 32."""
    owner, handle = interpreter.TensorDescHandle, interpreter.TensorHandle
    original = owner.materialize_pointers

    def materialize_pointers(self, offsets):
        return original(self, [handle(each.data.astype(np.int64), tl.int64) for each in offsets])

    owner.materialize_pointers = materialize_pointers


def repair_loads() -> None:
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    original = builder.create_masked_load

    def create_masked_load(self, pointers, mask, other, *args, **kwargs):
        if other is None and not np.all(mask.data):  # a block pointer's mask is a bare array
            dtype = pointers.get_element_ty()
            other = handle(undefined_lanes(np.shape(pointers.data), dtype), dtype)
        return original(self, pointers, mask, other, *args, **kwargs)

    builder.create_masked_load = create_masked_load
