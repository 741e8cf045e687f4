"""Argument checks for public functions. Each error names the argument, what was passed, and what is allowed.

They run before anything is launched or written. A wrong type raises `TypeError`, a wrong value `ValueError`. Together
they cost a few microseconds: host time is part of what a small kernel costs.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterable, Sequence

import torch

from academy.runtime import autograd
from academy.runtime.device import ASKED, INTERPRET

try:
    from torch._C._functorch import is_functorch_wrapped_tensor, peek_interpreter_stack
except ImportError:  # the playground's torch has no transforms

    def peek_interpreter_stack():  # type: ignore[misc]
        return None


#: What the kernels compute in, unless a kernel says otherwise.
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
#: True of a tensor on the device where kernels run. (To compare `value.device.type` takes several times as long.)
HERE = "is_cpu" if INTERPRET else "is_cuda"
STRIDED = torch.strided
_USUAL = operator.attrgetter(HERE, "layout", "is_nested")
#: Kernels get numbers as float32.
LARGEST = torch.finfo(torch.float32).max
#: Below it Triton would take a number for a float64, and compute with that.
SMALLEST = torch.finfo(torch.float32).tiny
#: Triton's largest block, in elements.
LARGEST_BLOCK = 2**20
#: Programs that CUDA launches along the second and the third axis of a grid. (Along the first it is 2³¹ − 1.)
MOST_PROGRAMS = 65_535


def looks_at_values() -> bool:
    """Whether checks look at values, too, for which a GPU has to be waited for: in the interpreter, and on a GPU with
    `ACADEMY_DEBUG=1` in the environment. Not inside of `torch.compile`."""
    if torch.compiler.is_compiling():
        return False
    ASKED.add(looks_at_values)
    return INTERPRET or os.environ.get("ACADEMY_DEBUG") == "1"


def tensors(**named: torch.Tensor) -> None:
    """Each must be a dense `torch.Tensor` on the device where kernels run, not a lazily negated or conjugated view, and
    not inside a transform of `torch.func`."""
    compiling = torch.compiler.is_compiling()
    transform = None if compiling else peek_interpreter_stack()
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
        if transform is not None and is_functorch_wrapped_tensor(value):
            raise NotImplementedError(_inside(transform, name))
        if not getattr(value, HERE):
            raise ValueError(_wrong_device(name, value))
        if value.layout is not STRIDED or value.is_nested:
            raise TypeError(_not_dense(name, value))
        if not compiling and value.is_neg():  # such as `z.conj().imag`
            raise ValueError(f"{name} must not be a lazily negated view: pass {name}.resolve_neg()")


def optional_tensors(**named: torch.Tensor | None) -> None:
    """Like `tensors`, but an argument that was left out (`None`) passes."""
    tensors(**{name: value for name, value in named.items() if value is not None})


def number_tensor(name: str, value: torch.Tensor) -> None:
    """A 0-d tensor of a real number, on any device that holds one."""
    if value.layout is not STRIDED or value.is_nested:
        raise TypeError(_not_dense(name, value))
    if value.dim() or value.dtype is torch.bool or value.is_complex():
        raise ValueError(
            f"{name} must be a number or a 0-d tensor of one, got {value.dtype} of shape {tuple(value.shape)}"
        )
    if value.is_meta:
        raise ValueError(f"{name} must be a number or a 0-d tensor of one, got a tensor on meta, which holds none")


def _inside(transform, name: str) -> str:
    kind = str(transform.key()).rpartition(".")[2]
    names = {"Grad": "torch.func.grad, vjp and jacrev", "Jvp": "torch.func.jvp and jacfwd", "Vmap": "torch.func.vmap"}
    instead = "give it a batch dimension" if kind == "Vmap" else "torch.autograd.grad and backward() differentiate it"
    return f"{name} is inside a transform: {names.get(kind, kind)} can't look into a kernel; {instead}"


def _not_dense(name: str, value: torch.Tensor) -> str:
    kind = "a nested tensor" if value.is_nested else f"layout {value.layout}"
    return f"{name} must be a dense (strided) tensor, got {kind}"


def _wrong_device(name: str, value: torch.Tensor) -> str:
    if INTERPRET:
        return f"{name} is on {value.device}, but kernels run in Triton's interpreter here: pass a CPU tensor"
    return (
        f"{name} is on {value.device}, but kernels are compiled for the GPU here: pass a CUDA tensor, "
        "or set TRITON_INTERPRET=1 before starting Python to run on the CPU"
    )


def lists_of_tensors(**named: Sequence[torch.Tensor]) -> None:
    """Each must be a list or tuple of tensors, as many as the first has, each as `tensors` wants it.

    A model has hundreds: one takes half a microsecond, and gets a name only if it is wrong.
    """
    compiling = torch.compiler.is_compiling()
    inside = not compiling and peek_interpreter_stack() is not None
    first = next(iter(named))
    for name, some in named.items():
        if not isinstance(some, (list, tuple)):
            raise TypeError(f"{name} must be a list of tensors, got {type(some).__name__}")
        if len(some) != len(named[first]):
            count = len(named[first])
            raise ValueError(f"{name} must have one tensor for each of the {count} of {first}, got {len(some)}")
        if not compiling and not inside and set(map(type, some)) <= {torch.Tensor, torch.nn.Parameter}:
            if set(map(_USUAL, some)) <= {(True, STRIDED, False)} and not any(map(torch.Tensor.is_neg, some)):
                continue
        for at, value in enumerate(some):  # which asks the same, and takes several times as long
            usual = isinstance(value, torch.Tensor) and getattr(value, HERE) and value.layout is STRIDED
            if inside or not usual or value.is_nested or not compiling and value.is_neg():
                tensors(**{f"{name}[{at}]": value})


def dtypes(allowed: Iterable[torch.dtype] = FLOATS, **named: torch.Tensor | None) -> None:
    """Each tensor's dtype must be one of `allowed`."""
    for name, value in named.items():
        if value is not None and value.dtype not in allowed:
            raise TypeError(f"{name} must be one of {_names(allowed)}, got {_short(value.dtype)}")


def same_dtype(**named: torch.Tensor | None) -> None:
    """All tensors must have the dtype of the first."""
    (first, reference), *rest = ((n, v) for n, v in named.items() if v is not None)
    for name, value in rest:
        if value.dtype != reference.dtype:
            raise TypeError(
                f"{name} must have the dtype of {first}, {_short(reference.dtype)}, got {_short(value.dtype)}"
            )


def same_shape(**named: torch.Tensor) -> None:
    """All tensors must have the shape of the first."""
    (first, reference), *rest = named.items()
    for name, value in rest:
        if value.shape != reference.shape:
            raise ValueError(
                f"{name} must have the shape of {first}, {tuple(reference.shape)}, got {tuple(value.shape)}"
            )


def shape(name: str, value: torch.Tensor | None, expected: tuple[int, ...], meaning: str = "") -> None:
    """`value` (if given) must have exactly this shape; `meaning` says where the numbers come from."""
    if value is not None and value.shape != expected:
        note = f" ({meaning})" if meaning else ""
        raise ValueError(f"{name} must have shape {tuple(expected)}{note}, got {tuple(value.shape)}")


def dimensions(name: str, value: torch.Tensor, allowed: int | range, meaning: str = "") -> None:
    """The number of dimensions must be `allowed`, or one of a range, which names two or has no end."""
    count = value.dim()
    if count != allowed and (isinstance(allowed, int) or count not in allowed):
        few = [allowed] if isinstance(allowed, int) else list(allowed[:3])
        wanted = " or ".join(map(str, few)) if len(few) < 3 else f"at least {few[0]}"
        note = f" ({meaning})" if meaning else ""
        raise ValueError(f"{name} must have {wanted} dimensions{note}, got shape {tuple(value.shape)}")


def choice(name: str, value: object, allowed: Collection[object]) -> None:
    """`value` must be one of `allowed`, of the same type: `True` and `1.0` don't pass as 1."""
    for option in allowed:  # the usual case, a fraction of a microsecond: small numbers, names and dtypes are shared
        if value is option:
            return
    if not any(_is_same(value, option) for option in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _is_same(value: object, option: object) -> bool:
    return isinstance(value, type(option)) and isinstance(value, bool) == isinstance(option, bool) and value == option


def number(name: str, value: object, *, at_least: float | None = None, above: float | None = None) -> None:
    """`value` must be a finite int or float (not a bool) that float32 can hold with all its digits, at least or above a
    bound."""
    usual = type(value) is float and above is None and at_least in (None, 0)
    if usual and (SMALLEST <= value <= LARGEST or value == 0):  # an epsilon, a scale
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{name} must be finite, got {value}")
    if abs(value) > LARGEST:
        raise ValueError(f"{name} must fit into float32, got {value}")
    if 0 < abs(value) < SMALLEST:
        raise ValueError(f"{name} must be 0 or at least {SMALLEST:.3g} in size, got {value}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must fit into 64 bits, or be a float, got {value}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    if above is not None and value <= above:
        raise ValueError(f"{name} must be above {above}, got {value}")


def whole_number(name: str, value: object, *, at_least: int = -(2**63), at_most: int = 2**63 - 1) -> None:
    """`value` must be an int (not a bool) from `at_least` to `at_most`; without them, one of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    if value > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {value}")


def power_of_two(**named: int | None) -> None:
    """Tile sizes: each must be a power of two (`tl.arange` allows nothing else) that a block can have. `None` (tuned)
    passes."""
    for name, value in named.items():
        if value is None:
            continue
        whole_number(name, value, at_most=LARGEST_BLOCK)
        if value < 1 or value & (value - 1):
            raise ValueError(f"{name} must be a power of two, got {value}")


def programs(name: str, what: str, count: int, each: int = 1) -> None:
    """`name` has `count` rows, columns or heads (`what`), of which a program on a grid's second or third axis takes
    `each`: there must be programs enough."""
    if count > MOST_PROGRAMS * each:
        note = f"{MOST_PROGRAMS:,} programs" + (f" of {each:,} each" if each > 1 else "")
        raise ValueError(
            f"{name} must have at most {MOST_PROGRAMS * each:,} {what}, got {count:,}: a launch has {note}"
        )


def positive(**named: int) -> None:
    """Counts: each must be a whole number of at least 1 that fits into 32 bits."""
    for name, value in named.items():
        whole_number(name, value, at_least=1, at_most=2**31 - 1)


def no_gradient(function: str, **named: torch.Tensor | None) -> None:
    """For forward-only functions: raise instead of returning a result that silently has no gradient or tangent."""
    for name, value in named.items():
        if value is None or not autograd.needs_frame(value):
            continue
        if value.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} requires a gradient, but {function} has no backward pass: "
                f"pass {name}.detach() or call it under torch.no_grad()"
            )
        raise ValueError(f"{name} carries a forward-mode tangent, but {function} computes none: pass its primal")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _names(allowed: Iterable[torch.dtype]) -> str:
    return ", ".join(map(_short, allowed))
