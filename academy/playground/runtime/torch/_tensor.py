"""Tensors: bytes, seen through a dtype, a shape and strides. Arithmetic is in `_ops`, gradients in `_autograd`."""

from __future__ import annotations

import builtins
import math

import numpy as np

from . import _autograd
from ._autograd import track
from ._dtypes import OF_NUMPY, bfloat16, boolean, decode, dtype, encode, float16, float32, float64, int32, int64
from ._memory import Block

strided, contiguous_format, preserve_format = "torch.strided", "torch.contiguous_format", "torch.preserve_format"
slice, int_ = builtins.slice, builtins.int


class device:
    def __init__(self, name="cpu", index=None):
        self.type, self.index = str(name).partition(":")[0], index
        if self.type != "cpu":
            raise RuntimeError(f"there is no {self.type} device in a browser: kernels run in Triton's interpreter")

    def __repr__(self):
        return f"device(type='{self.type}')"

    def __str__(self):
        return self.type

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(self.type)


CPU = device("cpu")


class Size(tuple):
    def numel(self):
        return math.prod(self)

    def __getitem__(self, key):
        found = super().__getitem__(key)
        return Size(found) if isinstance(key, slice) else found

    def __repr__(self):
        return f"torch.Size({list(self)})"


#: Called with every tensor whose memory was allocated without a value.
on_empty: list = []


class UntypedStorage:
    """Bytes, and the addresses at which kernels see them."""

    def __init__(self, data: np.ndarray):
        self.data, self.block = data, Block(data)

    def data_ptr(self):
        return self.block.start

    def nbytes(self):
        return self.data.nbytes

    def cpu(self):
        return self

    def copy_(self, other, non_blocking=False):
        self.data[:] = other.data
        return self

    def fill_(self, value):
        self.data[:] = value
        return self


def strides_of(shape) -> tuple[int_, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


def listed(arguments):
    """`f(2, 3)` and `f((2, 3))` mean the same."""
    one = len(arguments) == 1 and isinstance(arguments[0], (tuple, list))
    return tuple(arguments[0]) if one else tuple(arguments)


def new(array: np.ndarray, of: dtype) -> Tensor:
    """A tensor of its own with these stored bits."""
    array = np.array(array, dtype=of.np, order="C", copy=True)
    storage = UntypedStorage(array.reshape(-1).view(np.uint8))
    return Tensor(storage, of, array.shape, strides_of(array.shape))


def values(array, of: dtype | None = None) -> Tensor:
    """A tensor with these numbers, rounded to the dtype."""
    array = np.asarray(array)
    return new(encode(array, of or OF_NUMPY[array.dtype]), of or OF_NUMPY[array.dtype])


class Tensor:
    grad_fn = grad = None
    requires_grad = is_cuda = is_sparse = is_nested = is_meta = False
    is_cpu = True
    layout, device, _version, _output = strided, CPU, 0, 0
    __hash__ = object.__hash__

    def __init__(self, storage, of, shape, strides, offset=0):
        self._storage, self.dtype, self._offset = storage, of, builtins.int(offset)
        self.shape, self._strides = Size(map(builtins.int, shape)), tuple(map(builtins.int, strides))

    # ---- numpy in and out

    @property
    def bits(self) -> np.ndarray:
        """The stored bits: a view."""
        size = self.dtype.itemsize
        if not self._storage.data.nbytes or 0 in self.shape:
            return np.zeros(self.shape, self.dtype.np)
        strides = tuple(stride * size for stride in self._strides)
        return np.ndarray(self.shape, self.dtype.np, self._storage.data, self._offset * size, strides)

    @property
    def numbers(self) -> np.ndarray:
        """The numbers, as a dtype that numpy has."""
        return decode(self.bits, self.dtype)

    def numpy(self):
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if self.numbers.dtype != self.dtype.np:
            raise TypeError(f"Got unsupported ScalarType {self.dtype.name}")
        return self.bits

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.numbers, dtype=dtype)

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self.numbers.reshape(-1)[0].item()

    def tolist(self):
        return self.numbers.tolist()

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return builtins.bool(self.item())

    def __int__(self):
        return builtins.int(self.item())

    def __index__(self):
        return builtins.int(self.item())

    def __float__(self):
        return builtins.float(self.item())

    def __format__(self, spec):
        return format(self.item(), spec) if spec else repr(self)

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self):
        digits = {"float_kind": lambda x: f"{x:.4f}" if x % 1 else f"{x:.0f}."}
        shown = np.array2string(self.numbers, separator=", ", prefix="tensor(", formatter=digits)
        extra = "" if self.dtype in (float32, int64, boolean) else f", dtype={self.dtype}"
        extra += ", grad_fn=<…>" if self.grad_fn else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({shown}{extra})"

    # ---- where it lies

    def data_ptr(self):
        return self._storage.data_ptr() + self._offset * self.dtype.itemsize

    def untyped_storage(self):
        return self._storage

    def storage_offset(self):
        return self._offset

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim=None):
        return self._strides if dim is None else self._strides[dim]

    def element_size(self):
        return self.dtype.itemsize

    def dim(self):
        return len(self.shape)

    ndim = property(dim)
    itemsize = property(element_size)

    def numel(self):
        return math.prod(self.shape)

    def is_contiguous(self, memory_format=None):
        expected = 1
        for size, stride in zip(self.shape[::-1], self._strides[::-1]):
            if size != 1 and stride != expected and self.numel():
                return False
            expected *= size
        return True

    def is_floating_point(self):
        return self.dtype.is_floating_point

    def is_complex(self):
        return False

    is_neg = is_conj = is_complex

    @property
    def is_leaf(self):
        return self.grad_fn is None

    # ---- views

    def _view(self, array: np.ndarray, pull) -> Tensor:
        """The tensor that shows what this numpy view of `bits` shows."""
        size = self.dtype.itemsize
        data = self._storage.data
        at = array.__array_interface__["data"][0] - data.__array_interface__["data"][0] if self.numel() else 0
        strides = [s // size for s in array.strides] if array.size else [*strides_of(array.shape)]
        for axis in reversed(range(len(strides))):  # a new axis of 1, which numpy gives the stride 0
            if array.shape[axis] == 1 and strides[axis] == 0:
                strides[axis] = array.shape[axis + 1] * strides[axis + 1] if axis + 1 < len(strides) else 1
        out = Tensor(self._storage, self.dtype, array.shape, strides, at // size if array.size else 0)
        return track(out, [self], lambda upstream: (pull(upstream),))

    def as_strided(self, size, stride, storage_offset=None):
        return Tensor(
            self._storage, self.dtype, size, stride, self._offset if storage_offset is None else storage_offset
        )

    def view(self, *shape):
        if isinstance(shape[0], dtype):
            array = self.bits.view(shape[0].np)
            strides = [s // shape[0].itemsize for s in array.strides]
            at = self._offset * self.dtype.itemsize // shape[0].itemsize
            return Tensor(self._storage, shape[0], array.shape, strides, at)
        bits = self.bits
        shown = bits.reshape(listed(shape))
        if self.numel() and not np.shares_memory(shown, bits):
            raise RuntimeError("view size is not compatible with input tensor's size and stride: use .reshape(...)")
        return self._view(shown, lambda upstream: upstream.reshape(self.shape))

    def reshape(self, *shape):
        shape = listed(shape)
        shown = self.bits.reshape(shape)
        if self.numel() and np.shares_memory(shown, self.bits):
            return self.view(shape)
        return self.contiguous().view(shape)

    def view_as(self, other):
        return self.view(other.shape)

    def flatten(self, start_dim=0, end_dim=-1):
        end = end_dim % max(self.dim(), 1)
        return self.reshape(*self.shape[:start_dim], math.prod(self.shape[start_dim : end + 1]), *self.shape[end + 1 :])

    def unflatten(self, dim, sizes):
        axis = dim % self.dim()
        return self.view(*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

    def permute(self, *axes):
        axes = [axis % self.dim() for axis in listed(axes)]
        return self._view(self.bits.transpose(axes), lambda upstream: upstream.permute(*np.argsort(axes).tolist()))

    def transpose(self, a, b):
        axes = list(range(self.dim()))
        axes[a], axes[b] = axes[b], axes[a]
        return self.permute(*axes)

    def movedim(self, source, destination):
        axes = list(range(self.dim()))
        axes.insert(destination % self.dim(), axes.pop(source))
        return self.permute(*axes)

    def repeat(self, *sizes):
        sizes = listed(sizes)
        shape = [1] * (len(sizes) - self.dim()) + list(self.shape)
        pairs = [each for pair in zip(sizes, shape) for each in pair]
        apart = self.reshape([each for size in shape for each in (1, size)]).expand(pairs)
        return apart.clone(memory_format=contiguous_format).reshape([n * size for n, size in zip(sizes, shape)])

    def t(self):
        return self.permute(*range(self.dim())[::-1])

    T = property(t)

    @property
    def mT(self):
        return self.transpose(-1, -2)

    def expand(self, *shape):
        shape = listed(shape)
        lead = len(shape) - self.dim()
        shape = [self.shape[i - lead] if size == -1 else size for i, size in enumerate(shape)]
        return self._view(np.broadcast_to(self.bits, shape), lambda upstream: upstream.sum_to_size(self.shape))

    def expand_as(self, other):
        return self.expand(other.shape)

    def unsqueeze(self, dim):
        return self._view(np.expand_dims(self.bits, dim), lambda upstream: upstream.reshape(self.shape))

    def squeeze(self, dim=None):
        gone = range(self.dim()) if dim is None else [dim % self.dim()]
        axes = tuple(axis for axis in gone if self.shape[axis] == 1)
        return self._view(np.squeeze(self.bits, axes), lambda upstream: upstream.reshape(self.shape))

    def chunk(self, chunks, dim=0):
        size = -(-self.shape[dim] // chunks)
        return tuple(self.narrow(dim, at, min(size, self.shape[dim] - at)) for at in range(0, self.shape[dim], size))

    def split(self, size, dim=0):
        sizes = size if isinstance(size, (tuple, list)) else [size] * -(-self.shape[dim] // size)
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return tuple(self.narrow(dim, at, min(n, self.shape[dim] - at)) for at, n in zip(starts, sizes))

    def unbind(self, dim=0):
        return tuple(self.select(dim, i) for i in range(self.shape[dim]))

    def narrow(self, dim, start, length):
        return self[(slice(None),) * (dim % self.dim()) + (slice(start, start + length),)]

    def select(self, dim, index):
        return self[(slice(None),) * (dim % self.dim()) + (index,)]

    def __getitem__(self, key):
        keys = key if isinstance(key, tuple) else (key,)

        def pull(upstream):
            out = self.new_zeros(self.shape)
            summed = np.zeros(self.shape, dtype=np.float64)
            np.add.at(summed, _plain(key), upstream.numbers)
            out.bits[...] = encode(summed, self.dtype)
            return out

        if all(k is None or k is Ellipsis or _is_whole(k) or isinstance(k, slice) for k in keys):
            array = self.bits[(*keys, Ellipsis) if Ellipsis not in [k if k is Ellipsis else 0 for k in keys] else keys]
            return self._view(array, pull)
        return track(new(np.ascontiguousarray(self.bits[_plain(key)]), self.dtype), [self], lambda up: (pull(up),))

    def __setitem__(self, key, value):
        _refuse_in_place(self)
        self.bits[_plain(key)] = encode(value.numbers if isinstance(value, Tensor) else np.asarray(value), self.dtype)

    # ---- copies

    def contiguous(self, memory_format=None):
        return self if self.is_contiguous() else self.clone(memory_format=contiguous_format)

    def clone(self, memory_format=preserve_format):
        """Dense strides in another order are kept, as PyTorch keeps them."""
        bits = self.bits
        order = sorted(range(self.dim()), key=lambda axis: (-self._strides[axis], axis))
        dense = self.numel() > 0 and bits.transpose(order).flags.c_contiguous
        if memory_format == contiguous_format or not dense:
            copied = new(bits, self.dtype)
        else:
            copied = new(bits.transpose(order), self.dtype)
            copied = Tensor(copied._storage, self.dtype, self.shape, self._strides)
        return track(copied, [self], lambda upstream: (upstream,))

    def detach(self):
        return Tensor(self._storage, self.dtype, self.shape, self._strides, self._offset)

    @property
    def data(self):
        return self.detach()

    def cpu(self):
        return self

    def cuda(self, *_):
        return device("cuda")

    def resolve_neg(self):
        return self

    def to(self, *args, dtype=None, device=None, copy=False, **_):
        for argument in args:
            dtype = argument.dtype if isinstance(argument, Tensor) else argument if _is_dtype(argument) else dtype
        if dtype is None or dtype is self.dtype:
            return self.clone() if copy else self
        numbers = self.numbers
        if not dtype.is_floating_point and numbers.dtype.kind == "f":
            with np.errstate(all="ignore"):
                numbers = numbers != 0 if dtype is boolean else numbers.astype(np.int64)
        return track(values(numbers, dtype), [self], lambda upstream: (upstream.to(self.dtype),))

    def type_as(self, other):
        return self.to(other.dtype)

    def float(self):
        return self.to(float32)

    def double(self):
        return self.to(float64)

    def half(self):
        return self.to(float16)

    def bfloat16(self):
        return self.to(bfloat16)

    def int(self):
        return self.to(int32)

    def long(self):
        return self.to(int64)

    def bool(self):
        return self.to(boolean)

    # ---- gradients

    def requires_grad_(self, requires_grad=True):
        if requires_grad and not self.dtype.is_floating_point:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        self.requires_grad = requires_grad
        return self

    def backward(self, gradient=None, retain_graph=None, create_graph=False):
        _autograd.backward([self], [gradient], retain_graph, create_graph)

    def __getattr__(self, name):
        message = "the torch of this page is a small part of PyTorch, without Tensor."
        raise AttributeError((message if name.isidentifier() and name[0] != "_" else "") + name)

    # ---- in place

    def copy_(self, other):
        _refuse_in_place(self)
        self.bits[...] = encode(other.numbers, self.dtype)
        return self

    def fill_(self, value):
        _refuse_in_place(self)
        self.bits[...] = encode(value.numbers if isinstance(value, Tensor) else np.asarray(value), self.dtype)
        return self

    def zero_(self):
        return self.fill_(0)

    def addmm_(self, mat1, mat2, *, beta=1, alpha=1):
        """beta 0 ignores what is there, a NaN too."""
        product = (mat1 @ mat2) * alpha
        return self.copy_(product + self * beta if beta else product)

    def set_(self, storage, storage_offset, size, stride):
        """Make this tensor a view of other bytes."""
        Tensor.__init__(self, storage, self.dtype, size, stride, storage_offset)
        return self

    # ---- new ones like this one

    def new_empty(self, *shape, dtype=None, device=None):
        return empty(*shape, dtype=dtype or self.dtype)

    def new_zeros(self, *shape, dtype=None, device=None):
        return self.new_full(listed(shape), 0, dtype)

    def new_ones(self, *shape, dtype=None, device=None):
        return self.new_full(listed(shape), 1, dtype)

    def new_full(self, shape, value, dtype=None, device=None):
        return values(np.full(tuple(shape), value), dtype or self.dtype)

    def new_tensor(self, data, dtype=None):
        return values(np.asarray(data), dtype or self.dtype)


def _is_dtype(value) -> bool:
    return isinstance(value, dtype)


def _is_whole(key) -> bool:
    return isinstance(key, (builtins.int, np.integer)) and not isinstance(key, builtins.bool)


def _plain(key):
    """An index with numpy's arrays in the place of tensors."""
    if isinstance(key, tuple):
        return tuple(map(_plain, key))
    return key.bits if isinstance(key, Tensor) else np.asarray(key) if isinstance(key, list) else key


def _refuse_in_place(tensor) -> None:
    if tensor.requires_grad and _autograd.is_grad_enabled():
        raise RuntimeError("a tensor that requires grad is used in an in-place operation")


def empty(*size, dtype=None, device=None, **_):
    out = new(np.zeros(listed(size), (dtype or float32).np), dtype or float32)
    for watch in on_empty:
        watch(out)
    return out


def empty_strided(size, stride, dtype=None, device=None):
    span = sum((n - 1) * s for n, s in zip(size, stride)) + 1 if 0 not in size else 0
    return empty(span, dtype=dtype).as_strided(size, stride)


def empty_like(tensor, dtype=None, memory_format=preserve_format, **_):
    """As `Tensor.clone`: dense strides in another order are kept."""
    strides = tensor.clone(memory_format=memory_format).stride()
    return empty(tensor.numel(), dtype=dtype or tensor.dtype).as_strided(tensor.shape, strides)
