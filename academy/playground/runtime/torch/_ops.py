"""Arithmetic, functions and reductions with their derivatives.

Each computes in the dtype that PyTorch computes in (bfloat16 and float16 in float32) and rounds once. Every function
here is a function of `torch`; those in `METHODS` are methods of tensors as well.
"""

from __future__ import annotations

import builtins
import functools
import math

import numpy as np

from ._autograd import track
from ._dtypes import OF_NUMPY, bfloat16, boolean, encode, float16, float32, float64, int32, int64, promoted
from ._tensor import Tensor, new, strides_of, values

_NARROW = (float16, bfloat16)


def _of_number(number):
    return boolean if isinstance(number, builtins.bool) else int64 if isinstance(number, (int, np.integer)) else float32


def result_type(*operands):
    tensors = [value for value in operands if isinstance(value, Tensor)]
    numbers = [_of_number(value) for value in operands if not isinstance(value, Tensor)]
    dims, scalars = ([t.dtype for t in tensors if builtins.bool(t.dim()) == has] for has in (True, False))
    return promoted(dims, scalars, numbers)


def _numbers(value, work):
    return (value.numbers if isinstance(value, Tensor) else np.asarray(value)).astype(work.np, copy=False)


def _work(of):
    return float32 if of in _NARROW else of


def _summed(gradient, like):
    """A gradient of a broadcast operand: summed over what was broadcast, in its dtype."""
    return gradient.sum_to_size(like.shape).to(like.dtype) if isinstance(like, Tensor) else None


def _like_operand(out: np.ndarray, of, operand) -> Tensor:
    """An elementwise result lies as its operand does, if that one is a dense transposed tensor."""
    result = new(encode(out, of), of)
    if not isinstance(operand, Tensor) or operand.shape != result.shape or operand.is_contiguous():
        return result
    strides = operand.clone().stride()
    if strides == strides_of(operand.shape):
        return result
    placed = Tensor(result.untyped_storage(), of, result.shape, strides)
    placed.bits[...] = encode(out, of)
    return placed


def _binary(function, first, second, pull=None, floats=False, compares=False):
    of = result_type(first, second)
    if floats and not of.is_floating_point:
        of = float32
    work = _work(of)
    with np.errstate(all="ignore"):
        out = function(_numbers(first, work), _numbers(second, work))
    result = _like_operand(out, boolean if compares else of, first if isinstance(first, Tensor) else second)
    if pull is None:
        return result
    return track(
        result, [first, second], lambda up: tuple(_summed(g, x) for g, x in zip(pull(up, result), (first, second)))
    )


def _unary(function, x, pull=None):
    of = x.dtype if x.dtype.is_floating_point else float32
    with np.errstate(all="ignore"):
        result = _like_operand(function(_numbers(x, _work(of))), of, x)
    return result if pull is None else track(result, [x], lambda up: (pull(up, result).to(x.dtype),))


# ---- two operands


def add(input, other, *, alpha=1):
    scaled = other if alpha == 1 else other * alpha
    return _binary(np.add, input, scaled, lambda up, _: (up, up))


def sub(input, other, *, alpha=1):
    scaled = other if alpha == 1 else other * alpha
    return _binary(np.subtract, input, scaled, lambda up, _: (up, -up))


def mul(input, other):
    return _binary(np.multiply, input, other, lambda up, _: (up * other, up * input))


def div(input, other):
    pull = lambda up, _: (up / other, -up * input / (other * other))
    return _binary(np.true_divide, input, other, pull, floats=True)


def floor_divide(input, other):
    return _binary(np.floor_divide, input, other)


def remainder(input, other):
    return _binary(np.mod, input, other, lambda up, _: (up, -up * floor_divide(input, other)))


def pow(input, exponent):
    pull = lambda up, out: (up * exponent * input ** (exponent - 1), up * out * log(values(input)))
    if not isinstance(exponent, Tensor):
        pull = lambda up, _: (up * exponent * input ** (exponent - 1), None)
    return _binary(np.power, input, exponent, pull)


def maximum(input, other):
    return _binary(np.maximum, input, other, lambda up, _: (up * (input >= other), up * (other > input)))


def minimum(input, other):
    return _binary(np.minimum, input, other, lambda up, _: (up * (input <= other), up * (other < input)))


def logaddexp(input, other):
    pull = lambda up, out: (up * exp(input - out), up * exp(other - out))
    return _binary(np.logaddexp, input, other, pull)


def bitwise_and(input, other):
    return _binary(np.bitwise_and, input, other)


def bitwise_or(input, other):
    return _binary(np.bitwise_or, input, other)


def bitwise_xor(input, other):
    return _binary(np.bitwise_xor, input, other)


def bitwise_left_shift(input, other):
    return _binary(np.left_shift, input, other)


def bitwise_right_shift(input, other):
    return _binary(np.right_shift, input, other)


def eq(input, other):
    return _binary(np.equal, input, other, compares=True)


def ne(input, other):
    return _binary(np.not_equal, input, other, compares=True)


def lt(input, other):
    return _binary(np.less, input, other, compares=True)


def le(input, other):
    return _binary(np.less_equal, input, other, compares=True)


def gt(input, other):
    return _binary(np.greater, input, other, compares=True)


def ge(input, other):
    return _binary(np.greater_equal, input, other, compares=True)


# ---- one operand


def neg(input):
    out = new(encode(-input.numbers, input.dtype), input.dtype)
    return track(out, [input], lambda up: (-up,))


def bitwise_not(input):
    return new(~input.bits, input.dtype)


logical_not = bitwise_not


def abs(input):
    out = new(encode(np.abs(input.numbers), input.dtype), input.dtype)
    return track(out, [input], lambda up: (up * sign(input),))


def sign(input):
    return new(encode(np.sign(input.numbers), input.dtype), input.dtype)


def exp(input):
    return _unary(np.exp, input, lambda up, out: up * out)


def exp2(input):
    return _unary(np.exp2, input, lambda up, out: up * out * math.log(2))


def log(input):
    return _unary(np.log, input, lambda up, _: up / input)


def log2(input):
    return _unary(np.log2, input, lambda up, _: up / (input * math.log(2)))


def log1p(input):
    return _unary(np.log1p, input, lambda up, _: up / (input + 1))


def sqrt(input):
    return _unary(np.sqrt, input, lambda up, out: up / (2 * out))


def rsqrt(input):
    return _unary(lambda x: 1 / np.sqrt(x), input, lambda up, out: -up * out**3 / 2)


def reciprocal(input):
    return _unary(np.reciprocal, input, lambda up, out: -up * out * out)


def sin(input):
    return _unary(np.sin, input, lambda up, _: up * cos(input))


def cos(input):
    return _unary(np.cos, input, lambda up, _: -up * sin(input))


def tanh(input):
    return _unary(np.tanh, input, lambda up, out: up * (1 - out * out))


def sigmoid(input):
    return _unary(lambda x: 1 / (1 + np.exp(-x)), input, lambda up, out: up * out * (1 - out))


def erf(input):
    pull = lambda up, _: up * exp(-input * input) * (2 / math.sqrt(math.pi))
    return _unary(_each(math.erf), input, pull)


def relu(input):
    out = new(encode(np.maximum(input.numbers, 0), input.dtype), input.dtype)
    return track(out, [input], lambda up: (up * (input > 0),))


def square(input):
    return input * input


def floor(input):
    return _unary(np.floor, input) if input.is_floating_point() else input.clone()


def ceil(input):
    return _unary(np.ceil, input) if input.is_floating_point() else input.clone()


def round(input):
    return _unary(np.rint, input) if input.is_floating_point() else input.clone()


def isnan(input):
    return values(np.isnan(input.numbers))


def isinf(input):
    return values(np.isinf(input.numbers))


def isposinf(input):
    return values(np.isposinf(input.numbers))


def isneginf(input):
    return values(np.isneginf(input.numbers))


def nonzero(input):
    return values(np.argwhere(input.numbers).T, int64).t()


def isfinite(input):
    return values(np.isfinite(input.numbers))


def clamp(input, min=None, max=None):
    low, high = (each.numbers if isinstance(each, Tensor) else each for each in (min, max))
    out = values(np.clip(input.numbers, low, high), input.dtype)
    return track(out, [input], lambda up: (up * (input == out),))


def _each(function):
    """A function of one number, of every number."""
    return lambda x: np.array([function(each) for each in x.reshape(-1).tolist()], dtype=np.float64).reshape(x.shape)


# ---- choosing


def where(condition, input, other):
    of = result_type(input, other)
    out = values(np.where(condition.bits, _numbers(input, of_work := _work(of)), _numbers(other, of_work)), of)
    return track(out, [input, other], lambda up: (_summed(up * condition, input), _summed(up * ~condition, other)))


def masked_fill(input, mask, value):
    number = value.item() if isinstance(value, Tensor) else value
    kept = np.where(np.broadcast_to(mask.bits, input.shape), number, input.numbers)
    return track(values(kept, input.dtype), [input], lambda up: (masked_fill(up, mask, 0),))


def gather(input, dim, index):
    out = new(np.take_along_axis(input.bits, index.bits, dim), input.dtype)

    def pull(up):
        summed = np.zeros(input.shape)
        place = list(np.indices(index.shape))
        place[dim] = index.bits
        np.add.at(summed, tuple(place), up.numbers)
        return (values(summed, input.dtype),)

    return track(out, [input], pull)


def index_select(input, dim, index):
    return input[(slice(None),) * (dim % input.dim()) + (index,)]


def tril(input, diagonal=0):
    kept = np.tril(np.ones(input.shape, dtype=np.bool_), diagonal)
    return input.masked_fill(values(~kept), 0)


def triu(input, diagonal=0):
    kept = np.triu(np.ones(input.shape, dtype=np.bool_), diagonal)
    return input.masked_fill(values(~kept), 0)


def flip(input, dims):
    return track(new(np.flip(input.bits, dims), input.dtype), [input], lambda up: (flip(up, dims),))


def roll(input, shifts, dims=None):
    out = new(np.roll(input.bits, shifts, dims), input.dtype)
    back = tuple(-n for n in shifts) if isinstance(shifts, tuple) else -shifts
    return track(out, [input], lambda up: (roll(up, back, dims),))


def repeat_interleave(input, repeats=None, dim=None):
    if repeats is None:  # each index as often as its number says
        return new(np.repeat(np.arange(len(input.numbers)), input.numbers), int64)
    dim %= input.dim()
    shape = input.shape
    wide = input.unsqueeze(dim + 1).expand(*shape[: dim + 1], repeats, *shape[dim + 1 :])
    return wide.reshape(*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])


def cat(tensors, dim=0):
    of = result_type(*tensors)
    out = new(np.concatenate([encode(each.numbers, of) for each in tensors], axis=dim), of)
    sizes = [each.shape[dim] for each in tensors]
    return track(out, list(tensors), lambda up: up.split(sizes, dim))


def stack(tensors, dim=0):
    dim = dim % (tensors[0].dim() + 1)
    return cat([each.unsqueeze(dim) for each in tensors], dim)


# ---- reductions


def _axes(input, dim):
    if dim is None:
        return tuple(range(input.dim()))
    return tuple(axis % input.dim() for axis in (dim if isinstance(dim, (tuple, list)) else [dim]))


def _spread(reduced, input, axes, keepdim):
    """A reduced tensor, shown in the input's shape."""
    if not keepdim:
        for axis in sorted(axes):
            reduced = reduced.unsqueeze(axis)
    return reduced.expand(input.shape)


def sum(input, dim=None, keepdim=False, *, dtype=None):
    axes = _axes(input, dim)
    of = dtype or (input.dtype if input.is_floating_point() else int64)
    work = np.float64 if of.is_floating_point else of.np
    out = values(np.asarray(input.numbers).sum(axis=axes, keepdims=keepdim, dtype=work), of)
    return track(out, [input], lambda up: (_spread(up, input, axes, keepdim).to(input.dtype),))


def mean(input, dim=None, keepdim=False, *, dtype=None):
    count = math.prod(input.shape[axis] for axis in _axes(input, dim))
    of = dtype or input.dtype
    return (sum(input, dim, keepdim, dtype=float64) / count if count else sum(input, dim, keepdim) / 0).to(of)


def var(input, dim=None, keepdim=False, *, correction=1, unbiased=None):
    correction = correction if unbiased is None else int(unbiased)
    count = math.prod(input.shape[axis] for axis in _axes(input, dim))
    centered = input.double() - input.double().mean(dim, keepdim=True)
    return (sum(centered * centered, dim, keepdim) / (count - correction)).to(input.dtype)


def std(input, dim=None, keepdim=False, *, correction=1, unbiased=None):
    wide = var(input.double(), dim, keepdim, correction=correction, unbiased=unbiased)
    return sqrt(wide).to(input.dtype)


def norm(input):
    return sqrt(sum(input.double() * input.double())).to(input.dtype)


def diagonal(input, offset=0):
    """A view of the diagonal of a matrix."""
    rows, columns = input.stride()
    down, right = builtins.max(-offset, 0), builtins.max(offset, 0)
    length = builtins.max(0, builtins.min(input.shape[0] - down, input.shape[1] - right))
    at = input.storage_offset() + down * rows + right * columns
    return input.detach().as_strided((length,), (rows + columns,), at)


def prod(input, dim=None):
    of = input.dtype if input.is_floating_point() else int64
    return values(input.numbers.astype(np.float64 if of.is_floating_point else of.np).prod(axis=dim), of)


def _extreme(function, input, dim, keepdim):
    axes = _axes(input, dim)
    out = values(function(input.numbers, axis=axes, keepdims=keepdim), input.dtype)

    def pull(up):
        hit = input == _spread(out, input, axes, keepdim)
        return ((_spread(up / hit.sum(dim=axes, keepdim=keepdim), input, axes, keepdim) * hit).to(input.dtype),)

    return track(out, [input], pull)


def amax(input, dim=None, keepdim=False):
    return _extreme(np.max, input, dim, keepdim)


def amin(input, dim=None, keepdim=False):
    return _extreme(np.min, input, dim, keepdim)


def argmax(input, dim=None, keepdim=False):
    return values(np.argmax(input.numbers, axis=dim, keepdims=keepdim), int64)


def argmin(input, dim=None, keepdim=False):
    return values(np.argmin(input.numbers, axis=dim, keepdims=keepdim), int64)


class Pair(tuple):
    values = property(lambda self: self[0])
    indices = property(lambda self: self[1])


def _found_at(index_of, input, dim, keepdim):
    """The elements along `dim` that argmax or argmin points to, and where they are."""
    index = index_of(input, dim, True)
    found = gather(input, dim, index)
    return Pair((found, index) if keepdim else (found.squeeze(dim), index.squeeze(dim)))


def max(input, dim=None, keepdim=False):
    if isinstance(dim, Tensor):
        return maximum(input, dim)
    return amax(input) if dim is None else _found_at(argmax, input, dim, keepdim)


def min(input, dim=None, keepdim=False):
    if isinstance(dim, Tensor):
        return minimum(input, dim)
    return amin(input) if dim is None else _found_at(argmin, input, dim, keepdim)


def all(input, dim=None, keepdim=False):
    return values(np.all(input.numbers, axis=dim, keepdims=keepdim))


def any(input, dim=None, keepdim=False):
    return values(np.any(input.numbers, axis=dim, keepdims=keepdim))


def cumsum(input, dim):
    of = input.dtype if input.is_floating_point() else int64
    out = values(np.cumsum(input.numbers, axis=dim, dtype=np.float64 if of.is_floating_point else of.np), of)
    return track(out, [input], lambda up: (flip(cumsum(flip(up, [dim]), dim), [dim]),))


def sort(input, dim=-1, descending=False, stable=False):
    """Always stable; a NaN is the largest."""
    numbers = np.flip(input.numbers, dim) if descending else input.numbers
    order = np.argsort(numbers, axis=dim, kind="stable")
    order = values(input.shape[dim] - 1 - np.flip(order, dim) if descending else order, int64)
    return Pair((gather(input, dim, order), order))


def searchsorted(sorted_sequence, input, *, right=False, out_int32=False):
    """Of a sequence of one dimension."""
    found = np.searchsorted(sorted_sequence.numbers, input.numbers, side="right" if right else "left")
    return values(found, int32 if out_int32 else int64)


def logsumexp(input, dim, keepdim=False):
    axes = _axes(input, dim)
    top = input.detach().amax(axes, keepdim=True)
    top = where(isfinite(top), top, 0.0)
    total = log(sum(exp(input - top), axes, keepdim=True)) + top
    return total if keepdim else total.reshape([n for axis, n in enumerate(input.shape) if axis not in axes])


def softmax(input, dim, dtype=None):
    wide = input.to(dtype or input.dtype)
    shifted = exp(wide.double() - wide.detach().double().amax(dim, keepdim=True))
    return (shifted / sum(shifted, dim, keepdim=True)).to(wide.dtype)


def log_softmax(input, dim, dtype=None):
    wide = input.to(dtype or input.dtype)
    return (wide.double() - logsumexp(wide.double(), dim, keepdim=True)).to(wide.dtype)


# ---- products


def matmul(input, other):
    if input.dtype is not other.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {input.dtype} != {other.dtype}")
    of = input.dtype
    work = np.float64 if of.is_floating_point else of.np
    out = values(np.matmul(input.numbers.astype(work), other.numbers.astype(work)), of)

    def pull(up):
        a, b = (x.unsqueeze(0) if x.dim() == 1 else x for x in (input, other))
        b = other.unsqueeze(1) if other.dim() == 1 else b
        up = up.unsqueeze(-1) if other.dim() == 1 else up
        up = up.unsqueeze(-2) if input.dim() == 1 else up
        left, right = matmul(up, b.mT), matmul(a.mT, up)
        return left.sum_to_size(a.shape).reshape(input.shape), right.sum_to_size(b.shape).reshape(other.shape)

    return track(out, [input, other], pull)


mm = bmm = matmul


def addmm(input, mat1, mat2):
    return input + matmul(mat1, mat2)


def outer(input, vec2):
    return input.unsqueeze(1) * vec2.unsqueeze(0)


def einsum(equation, *operands):
    work = [each.numbers.astype(np.float64) for each in operands]
    if _tracked(operands):
        raise NotImplementedError("the browser's torch has no gradient of einsum: write it with matmul")
    return values(np.einsum(equation, *work), result_type(*operands))


def _tracked(operands):
    return builtins.any(each.requires_grad for each in operands)


# ---- comparing


def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return builtins.bool(np.allclose(input.numbers, other.numbers, rtol, atol, equal_nan))


def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return values(np.isclose(input.numbers, other.numbers, rtol, atol, equal_nan))


def equal(input, other):
    return input.shape == other.shape and builtins.bool(np.array_equal(input.numbers, other.numbers))


def is_tensor(obj):
    return isinstance(obj, Tensor)


def sum_to_size(input, *size):
    """As `Tensor.sum_to_size`: over leading dimensions, and those of one element."""
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    if tuple(input.shape) == size:
        return input
    lead = input.dim() - len(size)
    axes = [*range(lead), *(lead + i for i, n in enumerate(size) if n == 1 and input.shape[lead + i] != 1)]
    return sum(input, axes, keepdim=True).reshape(size)


# ---- making tensors


def _of_data(data):
    if isinstance(data, np.ndarray) or isinstance(data, np.generic):
        return OF_NUMPY[data.dtype]
    kind = np.asarray(data).dtype.kind
    return boolean if kind == "b" else float32 if kind == "f" else int64


def _unpacked(data):
    """Nested lists, with numbers in the place of 0-d tensors."""
    if isinstance(data, Tensor):
        return data.tolist()
    return [_unpacked(each) for each in data] if isinstance(data, (list, tuple)) else data


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    of = dtype or (data.dtype if isinstance(data, Tensor) else None)
    data = _unpacked(data)
    array = np.asarray(data, dtype=np.float32 if isinstance(data, list) and not data else None)
    return values(array, of or _of_data(data if len(np.shape(data)) == 0 or array.size else array)).requires_grad_(
        requires_grad
    )


def as_tensor(data, dtype=None, device=None):
    return data.to(dtype or data.dtype) if isinstance(data, Tensor) else tensor(data, dtype=dtype)


def from_numpy(array):
    """A tensor that shares the array's bytes."""
    if not array.flags.c_contiguous:
        return new(array, OF_NUMPY[array.dtype])
    from ._tensor import UntypedStorage

    return Tensor(
        UntypedStorage(array.reshape(-1).view(np.uint8)), OF_NUMPY[array.dtype], array.shape, strides_of(array.shape)
    )


def full(size, fill_value, *, dtype=None, device=None):
    return values(np.full(tuple(size), fill_value), dtype or _of_number(fill_value))


def full_like(input, fill_value, *, dtype=None, device=None):
    return full(input.shape, fill_value, dtype=dtype or input.dtype)


def zeros(*size, dtype=None, device=None, requires_grad=False):
    return full(_size(size), 0.0, dtype=dtype or float32).requires_grad_(requires_grad)


def ones(*size, dtype=None, device=None, requires_grad=False):
    return full(_size(size), 1.0, dtype=dtype or float32).requires_grad_(requires_grad)


def _size(size):
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size


def zeros_like(input, *, dtype=None, device=None):
    return full_like(input, 0, dtype=dtype)


def ones_like(input, *, dtype=None, device=None):
    return full_like(input, 1, dtype=dtype)


def eye(n, m=None, *, dtype=None, device=None):
    return values(np.eye(n, m), dtype or float32)


def arange(*bounds, dtype=None, device=None, requires_grad=False):
    array = np.arange(*bounds)
    return values(array, dtype or (float32 if array.dtype.kind == "f" else int64)).requires_grad_(requires_grad)


def linspace(start, end, steps, *, dtype=None, device=None):
    return values(np.linspace(start, end, steps), dtype or float32)


#: Functions that are methods of tensors as well.
METHODS = """add sub mul div pow remainder floor_divide maximum minimum eq ne lt le gt ge neg abs sign exp exp2 log log2
    log1p sqrt rsqrt reciprocal sin cos tanh sigmoid erf relu square floor ceil round isnan isinf isposinf isneginf
    isfinite nonzero norm diagonal clamp masked_fill gather index_select tril triu roll repeat_interleave sum mean
    var std prod amax amin argmax argmin max min all any cumsum sort logsumexp softmax log_softmax matmul mm bmm
    allclose isclose equal sum_to_size""".split()
_OPERATORS = {
    "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floor_divide, "mod": remainder, "pow": pow,
    "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lshift": bitwise_left_shift,
    "rshift": bitwise_right_shift, "matmul": matmul,
}  # fmt: skip
#: With `_` behind their names they change the tensor itself; `+=` and its like are the same.
IN_PLACE = """add sub mul div pow remainder floor_divide neg abs sign exp exp2 log sqrt rsqrt reciprocal sin cos tanh
    sigmoid relu square floor ceil round clamp masked_fill""".split()
_REDUCTIONS = "sum mean var std prod amax amin argmax argmin max min all any cumsum".split()
_COMPARISONS = dict(eq=eq, ne=ne, lt=lt, le=le, gt=gt, ge=ge)
_CHANGING = "add sub mul truediv floordiv mod pow and or xor".split()
_OPERANDS = (Tensor, int, float, np.number)


def _method(function, turned=False):
    def method(self, other):
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return function(other, self) if turned else function(self, other)

    return method


def _in_place(function):
    def method(self, *args, **kwargs):
        out = function(self, *args, **kwargs)
        if out.dtype.is_floating_point > self.dtype.is_floating_point or self.dtype is boolean is not out.dtype:
            raise RuntimeError(f"result type {out.dtype} can't be cast to the desired output type {self.dtype}")
        if out.requires_grad and not self.requires_grad:
            raise NotImplementedError("the browser's torch can't differentiate an in-place operation: write y = y + x")
        return self.copy_(out)

    return method


def _with_other_names(function):
    """`axis` and `keepdims`, which PyTorch takes as well."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        for other, name in (("axis", "dim"), ("keepdims", "keepdim")):
            if other in kwargs:
                kwargs[name] = kwargs.pop(other)
        return function(*args, **kwargs)

    return call


def _install() -> None:
    for name in _REDUCTIONS:
        globals()[name] = _with_other_names(globals()[name])
    for name in METHODS:
        setattr(Tensor, name, globals()[name])
    for name, function in _OPERATORS.items():
        setattr(Tensor, f"__{name}__", _method(function))
        setattr(Tensor, f"__r{name}__", _method(function, turned=True))
    for name in IN_PLACE:
        setattr(Tensor, f"{name}_", _in_place(globals()[name]))
    for name in _CHANGING:
        setattr(Tensor, f"__i{name}__", _in_place(_OPERATORS[name]))
    for name, function in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _method(function))
    Tensor.__neg__, Tensor.__invert__, Tensor.__abs__ = neg, bitwise_not, abs
    Tensor.__pos__ = lambda self: self
    Tensor.flip = lambda self, *dims: flip(self, dims[0] if isinstance(dims[0], (tuple, list)) else dims)


_install()
_HELPERS = ["Pair", "encode", "new", "promoted", "strides_of", "sum_to_size", "track", "values"]
__all__ = [
    name
    for name, entry in list(globals().items())
    if callable(entry) and not isinstance(entry, type) and name[0] != "_" and name not in _HELPERS
]
