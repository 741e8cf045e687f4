"""PyTorch with a residue beside each float: between a kernel's launches, in a reference, in a formula, in autograd.

`Carrier` is a `TorchDispatchMode`: PyTorch hands it every operation that reaches memory, whoever called it, after
autograd and `vmap` have made plain operations of it. So there is one rule for an operation, and none for a view: a view
shares its storage, beside which the residues are (`memory`). It needs no second torch, and nothing is imported or
replaced while it is off.

Most operations are one of four kinds:

- *moves* put elements elsewhere: the same operation is done with the residues, as int64;
- *sums* with the factor 1 (`sum`, `cumsum`, `index_add` …): the same, and the remainder is taken afterwards;
- *elementwise* ones have a rule in `array.RULES`;
- what is *new* (`zeros`, `arange`, random numbers) is data, exactly the float that it is.

What is none of these is taken apart by PyTorch's own table of decompositions. What that has not either is no residue
(NAR), and counted in `lost` by its name. So is a number with a fraction that leaves for Python, by `.item()`:
what comes back is a float without its residue.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from academy.exact import array
from academy.exact import residues as r
from academy.exact.array import Numbers
from academy.exact.memory import Memory
from academy.runtime.modes import DispatchMode

_MOVES = frozenset(
    """clone copy contiguous _to_copy index gather take scatter index_put index_copy masked_fill
    masked_scatter masked_select repeat repeat_interleave roll flip constant_pad_nd tril triu embedding diag_embed
    slice_scatter select_scatter diagonal_scatter as_strided_scatter unfold_copy new_empty_strided _reshape_copy
    slice_backward select_backward diagonal_backward lift_fresh_copy _unsafe_index narrow_copy""".split()
)
_SUMS = frozenset(
    """cumsum index_add scatter_add embedding_dense_backward unfold_backward trace
    _index_put_impl _unsafe_index_put""".split()
)
_ELEMENTWISE = dict(
    zip(
        names := "neg reciprocal square abs exp exp2 expm1 log log2 log1p sqrt rsqrt sigmoid tanh sinh cosh".split(),
        names,
    )
)
_ELEMENTWISE |= {
    name: name for name in "log10 erf sin cos erfinv floor ceil trunc round sign fmod remainder copysign".split()
}
_ELEMENTWISE |= {"maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "sgn": "sign", "pow": "pow"}
_ELEMENTWISE |= {"mul": "mul", "div": "div", "true_divide": "div"}
_NEW = frozenset(
    """zeros zeros_like ones ones_like new_zeros new_ones arange eye zero rand randn rand_like randn_like normal uniform
    bernoulli exponential randint randint_like random scalar_tensor tril_indices native_dropout multinomial""".split()
)
#: That `array.apply` has marked already.
_MARKED = frozenset([*_ELEMENTWISE, "add", "sub", "rsub"])
#: Whose result is no float.
_COMPARISONS = frozenset("eq ne lt le gt ge".split())
#: Whose result is memory that nobody has written yet.
_EMPTY = frozenset("empty empty_like empty_strided new_empty new_empty_strided resize set".split())
_CHOSEN = {"max": True, "amax": True, "min": False, "amin": False}


class Carrier(DispatchMode):
    """While it is entered, PyTorch's operations carry residues. lost: as in `triton.Following`."""

    def __init__(self, memory: Memory):
        super().__init__()
        self.memory, self.lost = memory, Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name, written, view = _said_of(func)
        if name == "_local_scalar_dense":
            return self._leaves(func, args)
        if view or name in _COMPARISONS and not written:
            return func(*args, **kwargs)
        writes = [kwargs.get(key, args[place] if place < len(args) else None) for place, key in written]
        if func.namespace not in ("aten", "prims") or name in _EMPTY:
            for tensor in _floats((args, kwargs)):
                self.memory.know(tensor)
            out = func(*args, **kwargs)
            for tensor in _floats(out):
                self.memory.know(tensor)
            return out
        if not _floats((args, kwargs)):
            out = func(*args, **kwargs)
            for tensor in _floats(out if not writes else writes):
                if name in _ELEMENTWISE:  # integers over integers
                    (residues,) = self._elementwise(func, name, [tensor], *_mapped(self._numbers, (args, kwargs)))
                    self.memory.put(tensor, residues)
                else:
                    self.memory.put(tensor, self._new(name, tensor, args, kwargs))
            return out
        rule = self._rule(name, func)
        if rule is None:
            return self._taken_apart(func, name, args, kwargs, writes)
        moves = name in _MOVES or name in _SUMS
        given = _mapped(self._residues if moves else self._numbers, (args, kwargs))
        out = func(*args, **kwargs)
        targets = _floats(writes) if writes else _floats(out)
        if not targets:
            return out
        made = rule(func, name, targets, *given)
        had = [each.residues if isinstance(each, Numbers) else each for each in _flat(given)]
        had = [each for each in had if isinstance(each, np.ndarray)]
        for tensor, residues in zip(targets, made):
            if name not in _MARKED:
                residues = r.marks(_floats_of(tensor), array.spread(residues, (*tensor.shape, r.COUNT)))
            self.memory.put(tensor, residues, mine=not any(np.may_share_memory(residues, each) for each in had))
        return out

    # ---------------------------------------------------------------- operands
    def _numbers(self, value: Any) -> Any:
        """A tensor of floats as `Numbers`, another tensor as it is; a Python float stays."""
        if _is_float(value):
            return Numbers(_floats_of(value), self.memory.of(value))
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        return value

    def _residues(self, value: Any) -> Any:
        if _is_float(value):
            return self.memory.of(value)
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    def _operand(self, value: Any) -> Numbers:
        if isinstance(value, Numbers):
            return value
        if isinstance(value, torch.Tensor):
            return array.of(value.numpy())
        return Numbers(
            np.array(value, np.float64), r.literal(value) if isinstance(value, float) else r.whole(np.array(value))
        )

    # ---------------------------------------------------------------- rules
    def _rule(self, name: str, func: Any) -> Callable | None:
        if name in _MOVES:
            return self._move
        if name in _SUMS:
            return self._sum
        if name in _ELEMENTWISE:
            return self._elementwise
        return getattr(self, f"_do_{name}", None)

    def _new(self, name: str, tensor: torch.Tensor, args: tuple, kwargs: dict) -> np.ndarray:
        """Made of no float: data, or one number everywhere."""
        if name in ("zeros", "new_zeros", "zeros_like"):
            return r.full(tuple(tensor.shape), np.uint64(0))
        if name == "_to_copy" and args[0].dtype == torch.bool:
            return r.whole(args[0].numpy())
        numbers = [each for each in (*args, *kwargs.values()) if type(each) is float]
        if name in ("full", "full_like", "new_full", "fill", "scalar_tensor", "masked_fill") and numbers:
            return r.full(tuple(tensor.shape), r.literal(numbers[-1]))
        return r.embed(_floats_of(tensor))

    def _each_prime(self, func: Any, args: tuple, kwargs: dict, of: Callable) -> list[np.ndarray]:
        """The operation on residues as int64, prime by prime. of: what is taken of an array of residues."""
        kwargs = {key: value for key, value in kwargs.items() if key not in ("dtype", "out", "memory_format", "layout")}
        outs = []
        for prime in range(r.COUNT):

            def taken(value: Any, prime: int = prime) -> Any:
                if isinstance(value, np.ndarray):
                    return torch.from_numpy(np.array(of(value)[..., prime], order="C").view(np.int64))
                if type(value) is float:
                    return int(np.array(r.literal(value)[prime]).view(np.int64))
                return value

            own_args, own_kwargs = _mapped(taken, (args, kwargs))
            own_args = tuple(None if isinstance(each, torch.dtype) else each for each in own_args)
            out = func(*own_args, **own_kwargs)
            outs.append(out.numpy().view(np.uint64))
        return outs

    def _do_index_select(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        x, axis, index = args
        made = x.residues.take(index.reshape(-1).numpy(), axis % x.floats.ndim) if x.floats.ndim else x.residues
        return [made.reshape(*targets[0].shape, r.COUNT)]

    def _do_cat(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        parts, axis = [self._operand(each).residues for each in args[0]], _named(func, args, kwargs).get("dim", 0)
        if len({each.ndim for each in parts}) > 1:  # an empty one of no shape
            parts = [each for each in parts if each.size]
        return [np.concatenate(parts, axis % (parts[0].ndim - 1))]

    def _do_stack(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        parts, axis = [self._operand(each).residues for each in args[0]], _named(func, args, kwargs).get("dim", 0)
        return [np.stack(parts, axis % parts[0].ndim)]

    def _move(self, func: Any, name: str, targets: list, args: tuple, kwargs: dict) -> list[np.ndarray]:
        if name in ("copy", "_to_copy"):
            source, to = args[1 if name == "copy" else 0], targets[0]
            if isinstance(source, np.ndarray) and to.itemsize > 1:  # rounding to float8 is a choice
                return [source]
            return [r.embed(_floats_of(to)) if isinstance(source, np.ndarray) else r.whole(source.numpy())]
        if name in ("index_put", "_index_put_impl") and (kwargs.get("accumulate") or (len(args) > 3 and args[3])):
            return self._sum(func, name, targets, args, kwargs)
        if func._schema.name.endswith("_") and not name.endswith("_"):
            func = _functional(func)
        return [np.stack(self._each_prime(func, args, kwargs, lambda value: value), -1)]

    def _sum(self, func: Any, name: str, targets: list, args: tuple, kwargs: dict) -> list[np.ndarray]:
        if func._schema.name.endswith("_") and not name.endswith("_"):
            func = _functional(func)
        numbers = self._each_prime(func, args, kwargs, lambda value: value & r.NUMBER)
        out = np.stack(numbers, -1) % r.M
        values = [each for each in _flat((args, kwargs)) if isinstance(each, np.ndarray)]
        if any((each > r.NUMBER).any() for each in values):
            for mark, test in ((r.LOST, r.turned), (r.NAR, r.marked)):
                hit = (
                    np.stack(
                        self._each_prime(func, args, kwargs, lambda value, test=test: test(value).astype(np.uint64)), -1
                    )
                    > 0
                )
                out = np.where(hit, mark if mark == r.NAR else out | mark, out)
        return [out]

    def _elementwise(self, func: Any, name: str, targets: list, args: tuple, kwargs: dict) -> list[np.ndarray]:
        rule = _ELEMENTWISE[name]
        if mode := kwargs.get("rounding_mode"):
            return [array.apply("trunc" if mode == "trunc" else "floor", _floats_of(targets[0]))]
        floats = _floats_of(targets[0])
        count = 2 if rule in ("mul", "div", "max", "min", "pow", "fmod", "remainder", "copysign") else 1
        return [array.apply(rule, floats, *map(self._operand, args[:count]))]

    def _added(self, targets, args, kwargs, sign: int = 1) -> list[np.ndarray]:
        a, b = map(self._operand, args[:2])
        if (alpha := kwargs.get("alpha", 1)) != 1:
            b = Numbers(b.floats, r.mul(b.residues, self._operand(alpha).residues))
        return [array.apply("add" if sign > 0 else "sub", _floats_of(targets[0]), a, b)]

    def _do_add(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return self._added(targets, args, kwargs)

    def _do_sub(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return self._added(targets, args, kwargs, -1)

    def _do_rsub(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return self._added(targets, (args[1], args[0]), kwargs, -1)

    def _do_where(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        condition, a, b = args[0].numpy(), *map(self._operand, args[1:3])
        return [array.choose(condition, a.residues, b.residues)]

    def _do_sum(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        named = _named(func, args, kwargs)
        x = named["self"].residues
        return [r.total(x, _axes(named.get("dim"), x.ndim - 1), bool(named.get("keepdim")))]

    def _do_mean(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        named = _named(func, args, kwargs)
        x = named["self"].residues
        axes, keep = _axes(named.get("dim"), x.ndim - 1), bool(named.get("keepdim"))
        return [r.mul(r.total(x, axes, keep), _one_over(x, axes))]

    def _do_var(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        named = _named(func, args, kwargs)
        x = named["self"].residues
        axes, keep = _axes(named.get("dim"), x.ndim - 1), bool(named.get("keepdim"))
        lost = named["correction"] if named.get("correction") is not None else named.get("unbiased", True)
        mean = r.mul(r.total(x, axes, True), _one_over(x, axes))
        away = r.add(x, r.minus(mean))
        out = r.mul(r.total(r.mul(away, away), axes, keep), _one_over(x, axes, int(lost)))
        return [out, mean.reshape(out.shape)]

    _do_var_mean = _do_var

    def _do_prod(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        named = _named(func, args, kwargs)
        x = named["self"].residues
        x, axis = (x, named["dim"]) if "dim" in named else (x.reshape(-1, r.COUNT), 0)
        axis %= x.ndim - 1
        if not x.shape[axis]:
            return [r.full(tuple(targets[0].shape), np.uint64(1))]
        return [r.running(x, axis, r.mul).take(-1, axis).reshape(*targets[0].shape, r.COUNT)]

    def _do_cumprod(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        x = args[0].residues
        return [r.running(x, args[1] % (x.ndim - 1), r.mul)]

    def _do_mm(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [r.matmul(args[0].residues, args[1].residues)]

    _do_bmm = _do_mm

    def _do_mv(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [r.matmul(args[0].residues, args[1].residues[:, None])[:, 0]]

    def _do_dot(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [r.total(r.mul(args[0].residues, args[1].residues), 0)]

    _do_vdot = _do_dot

    def _do_addmm(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        start, a, b = args[:3]
        product = r.mul(r.matmul(a.residues, b.residues), self._operand(kwargs.get("alpha", 1)).residues)
        beta = kwargs.get("beta", 1)  # of 0: whatever the start is, it isn't looked at
        return [r.add(r.mul(start.residues, self._operand(beta).residues), product) if beta else product]

    _do_baddbmm = _do_addmm

    def _do_addcmul(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        start, a, b = map(self._operand, args[:3])
        value = self._operand(kwargs.get("value", 1)).residues
        return [r.add(start.residues, r.mul(value, r.mul(a.residues, b.residues)))]

    def _do_addcdiv(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        start, a, b = map(self._operand, args[:3])
        value = self._operand(kwargs.get("value", 1)).residues
        return [r.add(start.residues, r.mul(value, r.mul(a.residues, r.inverse(b.residues))))]

    def _do_relu(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [array.choose(args[0].floats > 0, args[0].residues, np.uint64(0))]

    def _do_clamp(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        bounds = dict(zip(("min", "max"), args[1:3])) | kwargs
        residues, floats = args[0].residues, _floats_of(targets[0])
        for key, side in (("min", np.less), ("max", np.greater)):
            if (bound := bounds.get(key)) is not None:
                limit = self._operand(bound)
                outside = side(args[0].floats, limit.floats)
                residues = array.choose(outside, *np.broadcast_arrays(limit.residues, residues))
        return [np.broadcast_to(residues, (*floats.shape, r.COUNT))]

    def _do_clamp_min(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return self._do_clamp(func, name, targets, (args[0], args[1], None), kwargs)

    def _do_clamp_max(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return self._do_clamp(func, name, targets, (args[0], None, args[1]), kwargs)

    def _do_fill(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [r.full(tuple(targets[0].shape), self._operand(args[1]).residues)]

    def _do_zero(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [r.embed(_floats_of(targets[0]))]

    def _do_full_like(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return self._do_fill(func, name, targets, args, kwargs)

    def _do_new_full(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        return [r.full(tuple(targets[0].shape), self._operand(args[2]).residues)]

    def _extremum(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        named = _named(func, args, kwargs)
        if "other" in named:
            return [array.apply(name, _floats_of(targets[0]), *map(self._operand, args[:2]))]
        x = named["self"]
        for axis in _axes(named.get("dim"), x.floats.ndim):
            floats = x.floats.max(axis, keepdims=True) if _CHOSEN[name] else x.floats.min(axis, keepdims=True)
            x = Numbers(floats, array.extremum(x, axis, _CHOSEN[name], keepdims=True))
        return [x.residues.reshape(*targets[0].shape, r.COUNT)]

    _do_max = _do_amax = _do_min = _do_amin = _extremum

    def _do_frexp(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        floats, residues = args[0]
        return [r.mul(residues, r.two_to_the(-np.frexp(floats)[1]))]

    def _do_sort(self, func, name, targets, args, kwargs) -> list[np.ndarray]:
        floats, residues = args[0]
        places = func(torch.from_numpy(np.array(floats)), *args[1:], **kwargs)[1].numpy()
        axis = _named(func, args, kwargs).get("dim", -1) % max(1, floats.ndim)
        return [np.take_along_axis(residues, places[..., None], axis)]

    _do_topk = _do_sort

    # ---------------------------------------------------------------- the rest
    def _taken_apart(self, func: Any, name: str, args: tuple, kwargs: dict, writes: list) -> Any:
        apart = None if writes or name in ("zeros_like", "ones_like") else _decompositions().get(func)
        if apart is not None:
            with self:
                return apart(*args, **kwargs)
        out = func(*args, **kwargs)
        for tensor in _floats(writes if writes else out):
            if name not in _NEW:
                self.lost[name] += 1
                self.memory.put(tensor, r.marks(_floats_of(tensor), r.full(tuple(tensor.shape), r.NAR)))
            else:
                self.memory.put(tensor, r.embed(_floats_of(tensor)))
        return out

    def _leaves(self, func: Any, args: tuple) -> Any:
        """A number leaves for Python, where nobody sees what becomes of it."""
        out = func(*args)
        if type(out) is float and not out.is_integer():
            self.lost["item"] += 1
        return out


@functools.cache
def _said_of(func: Any) -> tuple[str, list[tuple[int, str]], bool]:
    """An operation's name, place and name of each argument that it writes to, and whether its result is a view."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    name = name.rstrip("_") if name.endswith("_") and not name.endswith("__") else name
    writes = [
        (at, each.name) for at, each in enumerate(schema.arguments) if each.alias_info and each.alias_info.is_write
    ]
    return name, writes, not writes and any(each.alias_info is not None for each in schema.returns)


def _named(func: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    return dict(zip((each.name for each in func._schema.arguments), args)) | kwargs


def _axes(said: Any, count: int) -> tuple[int, ...]:
    """Axes counted from the front; all, if none is named."""
    said = [said] if isinstance(said, int) else said
    return tuple(axis % count for axis in (said or range(count)) if count)


def _one_over(x: np.ndarray, axes: tuple[int, ...], less: int = 0) -> np.ndarray:
    """One over the number of elements along some axes, less a few."""
    return r.inverse(r.whole(np.array(math.prod(x.shape[axis] for axis in axes) - less)))


@functools.cache
def _decompositions() -> dict:
    """PyTorch's own: an operation -> a function of simpler ones."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}


def _functional(func: Any) -> Any:
    """`aten.index_add` of `aten.index_add_`."""
    packet = getattr(torch.ops.aten, func._schema.name.partition("::")[2].rstrip("_"))
    return getattr(packet, func._overloadname)


#: Types whose elements are numbers, one by one. (Others are packed, or only scales.)
_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2}


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _DTYPES


def _floats(values: Any) -> list[torch.Tensor]:
    return list(filter(_is_float, _flat(values)))


# `torch.utils._pytree` does these as well, and takes longer than most operations.
def _flat(values: Any) -> Iterator[Any]:
    """What lies in tuples, lists and mappings."""
    if isinstance(values, (tuple, list)) and not isinstance(values, Numbers):
        for each in values:
            yield from _flat(each)
    elif isinstance(values, dict):
        for each in values.values():
            yield from _flat(each)
    else:
        yield values


def _mapped(function: Callable, values: Any) -> Any:
    """The same tuples, lists and mappings, of results."""
    if type(values) in (tuple, list):
        return type(values)(_mapped(function, each) for each in values)
    if type(values) is dict:
        return {key: _mapped(function, each) for key, each in values.items()}
    return function(values)


def _floats_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


@contextlib.contextmanager
def carrying(memory: Memory) -> Iterator[Carrier]:
    """While this lasts, PyTorch's operations carry residues."""
    with Carrier(memory) as carrier:
        yield carrier
