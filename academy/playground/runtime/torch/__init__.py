"""The part of PyTorch that the lessons' launchers, examples and exercises use, over numpy. It is not PyTorch.

Each function is tested against torch itself, in tests/playground. What is missing raises AttributeError or
NotImplementedError. There is one device, the CPU, and there are first derivatives only.
"""

from __future__ import annotations

import functools as _functools
import math as _math
import sys as _sys
import types as _types

from . import _autograd, _ops
from ._autograd import enable_grad, is_grad_enabled, no_grad
from ._dtypes import (
    bfloat16,
    complex64,
    complex128,
    dtype,
    finfo,
    float4_e2m1fn_x2,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._dtypes import boolean as bool
from ._ops import *
from ._ops import abs, all, any, max, min, pow, round, sum
from ._tensor import (
    Size,
    Tensor,
    UntypedStorage,
    contiguous_format,
    device,
    empty,
    empty_like,
    empty_strided,
    preserve_format,
    strided,
)

__version__ = "0 (the browser's)"
inf, nan, pi = _math.inf, _math.nan, _math.pi
float, double, half, int, long = float32, float64, float16, int32, int64


class OutOfMemoryError(RuntimeError):
    """What the real one raises where a card's memory is full. Here nobody does; the judge asks for it by name."""


def _module(name, **entries):
    module = _types.ModuleType(f"{__name__}.{name}")
    vars(module).update(entries)
    _sys.modules[module.__name__] = module
    owner, _, last = name.rpartition(".")
    setattr(_sys.modules[f"{__name__}.{owner}" if owner else __name__], last, module)


def _asks(function):
    """As PyTorch does: an argument that is no tensor, and has a `__torch_function__`, says what becomes of the call. A
    block in a kernel says what to write there."""

    @_functools.wraps(function)
    def call(*args, **kwargs):
        for each in args:
            if not isinstance(each, Tensor) and (own := getattr(type(each), "__torch_function__", None)):
                return own(call, (type(each),), args, kwargs)
        return function(*args, **kwargs)

    return call


for _name, _function in list(globals().items()):
    if isinstance(_function, _types.FunctionType) and _function.__module__ == _ops.__name__:
        globals()[_name] = _asks(_function)


def _unchanged(function=None, *_, **__):
    """A decorator that changes nothing, with or without arguments."""
    return function if callable(function) else lambda decorated: decorated


def manual_seed(seed):
    """Nothing is drawn here: examples use no random numbers."""


def set_num_threads(number):
    """There is one."""


def flatten(input, start_dim=0, end_dim=-1):
    return input.flatten(start_dim, end_dim)


def reshape(input, shape):
    return input.reshape(shape)


def transpose(input, dim0, dim1):
    return input.transpose(dim0, dim1)


def unsqueeze(input, dim):
    return input.unsqueeze(dim)


def squeeze(input, dim=None):
    return input.squeeze(dim)


def chunk(input, chunks, dim=0):
    return input.chunk(chunks, dim)


def split(tensor, split_size_or_sections, dim=0):
    return tensor.split(split_size_or_sections, dim)


def clone(input):
    return input.clone()


# ---- torch.nn.functional


def _gelu(input, approximate="none"):
    if approximate == "tanh":
        return 0.5 * input * (1 + _ops.tanh(_math.sqrt(2 / _math.pi) * (input + 0.044715 * input**3)))
    return 0.5 * input * (1 + _ops.erf(input / _math.sqrt(2)))


def _silu(input):
    return input * _ops.sigmoid(input)


def _leaky_relu(input, negative_slope=0.01):
    return _ops.where(input > 0, input, input * negative_slope)


def _normalized(input, shape, weight, bias, eps, centered):
    axes, wide = [-1 - i for i in range(len(shape))], input.double()
    middle = wide - wide.mean(axes, keepdim=True) if centered else wide
    out = middle * _ops.rsqrt((middle * middle).mean(axes, keepdim=True) + eps)
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(input.dtype)


def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _normalized(input, normalized_shape, weight, bias, eps, True)


def _rms_norm(input, normalized_shape, weight=None, eps=None):
    return _normalized(input, normalized_shape, weight, None, finfo(input.dtype).eps if eps is None else eps, False)


def _cross_entropy(input, target, ignore_index=-100, reduction="mean"):
    valid = target != ignore_index
    picked = _ops.log_softmax(input, -1).gather(1, _ops.where(valid, target, 0).long().unsqueeze(1)).squeeze(1)
    losses = _ops.where(valid, -picked, 0.0)
    return losses if reduction == "none" else losses.sum() / (valid.sum() if reduction == "mean" else 1)


def _linear(input, weight, bias=None):
    out = input @ weight.t()
    return out if bias is None else out + bias


def _pad(input, pad, mode="constant", value=0.0):
    widths = [(0, 0)] * input.dim()
    for axis in range(len(pad) // 2):
        widths[-1 - axis] = (pad[2 * axis], pad[2 * axis + 1])
    out = _ops.full([n + a + b for n, (a, b) in zip(input.shape, widths)], value, dtype=input.dtype)
    inside = tuple(slice(a, a + n) for n, (a, _) in zip(input.shape, widths))
    out[inside] = input.detach()
    return _autograd.track(out, [input], lambda upstream: (upstream[inside],))


_module("nn")
_module(
    "nn.functional",
    relu=_ops.relu, softmax=_ops.softmax, log_softmax=_ops.log_softmax, sigmoid=_ops.sigmoid, tanh=_ops.tanh,
    gelu=_gelu, silu=_silu, leaky_relu=_leaky_relu, layer_norm=_layer_norm, rms_norm=_rms_norm,
    cross_entropy=_cross_entropy, linear=_linear, pad=_pad,
)  # fmt: skip


# ---- torch.special: what libdevice computes on the CPU


def _erfcx(x):
    return _math.exp(x * x) * _math.erfc(x) if x < 25 else 1 / (x * _math.sqrt(_math.pi))


def _ndtri(p):
    """The quantile of the normal distribution."""
    from statistics import NormalDist

    if not 0 < p < 1:
        return -_math.inf if p == 0 else _math.inf if p == 1 else _math.nan
    return NormalDist().inv_cdf(p)


def _lgamma(x):
    return _math.inf if x <= 0 and x == _math.floor(x) or _math.isinf(x) else _math.lgamma(x)


def _special(function):
    return lambda input: _ops._unary(_ops._each(function), input)


erfc, lgamma = _special(_math.erfc), _special(_lgamma)
erfinv = _special(lambda x: _ndtri((x + 1) / 2) / _math.sqrt(2))
_module(
    "special",
    erf=_ops.erf, erfc=erfc, erfinv=erfinv, lgamma=lgamma, erfcx=_special(_erfcx), ndtri=_special(_ndtri),
    ndtr=_special(lambda x: _math.erfc(-x / _math.sqrt(2)) / 2),
)  # fmt: skip


# ---- the rest: asked for at import, or with one answer here


class _Operator:
    """A custom operator that is only ever called: nothing is compiled here."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    register_fake = register_autograd = lambda self, *args, **_: args[0] if args else lambda decorated: decorated


def _custom_op(name, function=None, *, mutates_args=(), schema=None):
    return _Operator(function) if function else _Operator


def _is_false(*_):
    return False


_module("autograd", Function=_autograd.Function, grad=_autograd.grad, backward=_autograd.backward)
_module("autograd.function", Function=_autograd.Function)
_module(
    "autograd.graph",
    increment_version=lambda tensors: None,
    saved_tensors_hooks=_autograd.saved_tensors_hooks,
)
_module(
    "autograd.forward_ad",
    _current_level=-1,
    unpack_dual=lambda tensor: _types.SimpleNamespace(primal=tensor, tangent=None),
)
_module("compiler", is_compiling=_is_false, disable=_unchanged, assume_constant_result=_unchanged)
_module("cuda", is_available=_is_false, is_current_stream_capturing=_is_false)
_module("library", custom_op=_custom_op)
_module("testing")
_module("backends")
_module("backends.cuda")
_module("backends.cuda.matmul", allow_tf32=False, fp32_precision="none")
_module("_C")
_module("_C._autograd", _get_current_graph_task_keep_graph=lambda: _autograd._keep_graph)
compile = _unchanged


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"the torch of this page is a small part of PyTorch, without torch.{name}")
