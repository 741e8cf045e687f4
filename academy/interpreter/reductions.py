"""Reductions, scans and histograms: along any axis, in a tree, rounded once."""

from __future__ import annotations

import functools

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from academy.interpreter.bits import bf16_to_fp32, fp32_to_bf16
from academy.interpreter.repairs import need


def repair_reductions() -> None:
    _repair_axis()
    for name in ("sum", "min_max"):
        _through_fp32(interpreter.ReduceOps, name)
    interpreter.ScanOps.cumsum = _rounded_once(np.cumsum)
    interpreter.ScanOps.cumprod = _rounded_once(np.cumprod)
    interpreter.ReduceOps.generic_reduce = _tree_reduce
    interpreter.ScanOps.generic_scan = _tree_scan
    interpreter.InterpreterBuilder.create_histogram = _histogram


def _repair_axis() -> None:
    """An axis counted from the end, which the interpreter's own loops take for no axis at all."""
    owner = interpreter.ReduceScanOpInterface
    original = owner.apply

    @functools.wraps(original)
    def apply(self, operands):
        axis = getattr(self.axis, "value", self.axis)  # of a tl.constexpr
        count = len((operands[0] if isinstance(operands, tuple) else operands).shape)
        if axis is not None and axis < 0:
            if axis < -count:
                raise ValueError(f"axis {axis} of a block with {count} dimensions: it has -{count} to {count - 1}")
            axis += count
        self.axis = axis
        return original(self, operands)

    owner.apply = apply


def _block(data: np.ndarray, dtype: tl.dtype) -> tl.tensor:
    handle = interpreter.TensorHandle(data, dtype)
    return tl.tensor(handle, tl.block_type(dtype, list(data.shape)) if data.shape else dtype)


def _through_fp32(owner, name: str) -> None:
    original = getattr(owner, name)

    def narrowed(result):
        if result.dtype.name != "fp32":  # the index of an argmax
            return result
        bits = interpreter.TensorHandle(fp32_to_bf16(result.handle.data), tl.bfloat16)
        return tl.tensor(bits, tl.block_type(tl.bfloat16, list(result.shape)) if result.shape else tl.bfloat16)

    @functools.wraps(original)
    def method(self, operand, *args, **kwargs):
        block = operand[0] if isinstance(operand, tuple) else operand
        if block.dtype.name != "bf16":
            return original(self, operand, *args, **kwargs)
        need("bf16 reduction")
        result = original(self, _block(bf16_to_fp32(block.handle.data), tl.float32), *args, **kwargs)
        return type(result)(map(narrowed, result)) if isinstance(result, (tuple, list)) else narrowed(result)

    setattr(owner, name, method)


def _rounded_once(function):
    """A sum in float32 depends on the order, and a GPU's is a tree: in float64 and rounded once, it is nobody's."""

    def cumulative(self, block):
        data, name = block.handle.data, block.dtype.name
        if name == "bf16":
            need("bf16 reduction")
            return [_block(fp32_to_bf16(function(bf16_to_fp32(data), axis=self.axis, dtype=np.float64)), tl.bfloat16)]
        wide = np.float64 if data.dtype.kind == "f" else data.dtype
        return [_block(function(data, axis=self.axis, dtype=wide).astype(data.dtype), block.dtype)]

    return cumulative


def _combined(operation: str, function, left: list, right: list, dtypes: list) -> list[np.ndarray]:
    """What the combine function makes of two parts of each operand."""
    operands = [_block(data, dtype) for part in (left, right) for data, dtype in zip(part, dtypes)]
    results = function.fn(*operands)
    results = results if isinstance(results, (tuple, list, tl.tuple)) else (results,)
    if len(results) != len(left):
        raise ValueError(f"tl.{operation}: the combine function returns {len(results)} values for {len(left)} operands")
    combined = []
    for place, (result, data, dtype) in enumerate(zip(results, left, dtypes)):
        if isinstance(result, tl.tensor):
            if result.dtype.name != dtype.name:
                raise TypeError(
                    f"tl.{operation}: the combine function gets {dtype} as operand {place} and returns {result.dtype}; "
                    f"the compiler wants the same type: add .to({dtype})"
                )
            result = result.handle.data
        combined.append(np.broadcast_to(np.asarray(result, dtype=data.dtype), data.shape))
    return combined


def _tree_scan(self, blocks) -> list:
    """In log2(n) rounds, each of which combines every element with the one 1, 2, 4, … places before it. (Hillis and
    Steele, "Data parallel algorithms", 1986.) A loop would call the combine function for each element."""
    need("scan")
    dtypes, axis = [block.dtype for block in blocks], self.axis
    values = [block.handle.data for block in blocks]
    size, distance = values[0].shape[axis], 1
    while distance < size:
        behind = [np.roll(data, distance, axis) for data in values]
        combined = _combined("associative_scan", self.combine_fn, behind, values, dtypes)
        place = np.arange(size).reshape([size if d == axis else 1 for d in range(values[0].ndim)])
        values = [np.where(place < distance, data, new) for data, new in zip(values, combined)]
        distance *= 2
    return [_block(data, dtype) for data, dtype in zip(values, dtypes)]


def _tree_reduce(self, blocks) -> list:
    """Neighbours are combined until one is left: log2(n) calls of the combine function, elements in their order."""
    need("scan")
    dtypes = [block.dtype for block in blocks]
    shape = blocks[0].handle.data.shape
    values = [block.handle.data if self.axis is not None else block.handle.data.reshape(-1) for block in blocks]
    values = [np.moveaxis(data, self.axis or 0, -1) for data in values]
    while values[0].shape[-1] > 1:
        left, right = ([np.ascontiguousarray(data[..., half::2]) for data in values] for half in (0, 1))
        values = _combined("reduce", self.combine_fn, left, right, dtypes)
    values = [data[..., 0] for data in values]
    if self.keep_dims:
        whole = (1,) * len(shape)
        values = [data.reshape(whole) if self.axis is None else np.expand_dims(data, self.axis) for data in values]
    return [self.to_tensor(data if data.ndim else data.item(), dtype) for data, dtype in zip(values, dtypes)]


def _histogram(self, block, bins: int, mask=None):
    """How many elements are 0, 1, …, bins - 1. Others are in no bin; NumPy counts `bins` in the last one."""
    need("histogram")
    inside = (block.data >= 0) & (block.data < bins)
    if mask is not None:
        inside = inside & mask.data
    counts = np.bincount(block.data[inside].astype(np.int64), minlength=bins)
    return interpreter.TensorHandle(counts.astype(np.int32), tl.int32)
