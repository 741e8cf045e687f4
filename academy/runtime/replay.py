"""What a call does on the host, written down once and done again: allocations, launches, and what is returned.

Before a kernel starts, Python checks arguments, chooses tiles, allocates results and launches. For tensors of the same
geometry (dtype, shape, strides, device, alignment) all of that comes out the same each time; only addresses differ. So
the second call of a kind is *recorded*, and from the third on the record is *replayed*: the same allocations, the same
launches with the new addresses, the same views as results. That takes a few microseconds, however much Python the
function has.

    @replayed
    def rope_forward(q, k, cos, sin): …

A function may be replayed if its course depends on nothing but its arguments' geometry and the settings in the key: no
values of tensors, no random numbers in Python, no other streams, no state that it changes in Python. What can be seen
to break that isn't recorded: an operation that waits for a value, memory that came from somewhere else. Such a function
is called, as if there were no decorator. So are all calls in Triton's interpreter, in `torch.compile`, of subclasses of
tensors, inside of a mode of PyTorch's (such as `torch.func`'s transforms, or a profiler's that looks at operations),
and with a hook that watches launches.

Where autograd has to record, a public function checks its arguments and ends in the `apply` of an `autograd.Function`.
Then that is what is written down, with its arguments: the checks need not be made again, and what `apply` calls is
replayed by itself.

A record holds no tensor. Memory is allocated anew in each call and given back as soon as the last launch that needs it
is made, so peak memory is at most that of the call itself.

Names: `replayed`.
Source: CUDA graphs keep a whole sequence too, but with its addresses; see "CUDA Graphs" in NVIDIA's programming guide.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch

from academy.runtime import launch
from academy.runtime.device import ASKED
from academy.runtime.autograd import forward_mode
from academy.runtime.checks import peek_interpreter_stack
from academy.runtime.modes import DispatchMode

import triton  # isort: skip

try:
    # What the compiler's guards are made of: dtype, device, shape, strides, flags of several tensors in a microsecond.
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # the playground's torch has none, and another version may lack them: then nothing is replayed
    TensorGuards = None  # type: ignore[misc,assignment]

_PLAIN = {int, float, bool, str, torch.dtype, type(None)}
#: Every address in a key is taken modulo this: decisions about alignment are made up to two cache lines.
ALIGNMENT = 256
#: Kinds of calls that differ in nothing that is in the key: in dtypes and strides, for instance.
MOST = 16
#: In a key: autograd records what happens to the next tensor.
_RECORDS = "autograd records"
#: Ways to get memory that nobody has written yet.
_EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
#: One call is recorded at a time, and only launches of its thread belong to it.
_LOCK = threading.Lock()


def replayed(function: Callable) -> Callable:
    """`function`, recorded in the second call of a kind and replayed from the third on.

    Args:
        function: of tensors, numbers, names, dtypes, None, and tuples of these, with such results. What it may not do
            is said at the top of this file.
    """
    kinds: dict[tuple, list[Kind]] = {}
    launch.CACHES.append(kinds)

    @functools.wraps(function)
    def call(*arguments, **named):
        if torch.compiler.is_compiling() or not launch.REMEMBERS or _apart():
            return function(*arguments, **named)
        key: list = []
        tensors: list = []
        try:
            _see(arguments, key, tensors)
            if named:
                key += named
                _see(named.values(), key, tensors)
            if len(set(map(id, tensors))) < len(tensors):
                tensors = _once(tensors, key)
            addresses = [tensor.data_ptr() for tensor in tensors]
            same = tuple(key)
            known = kinds.get(same, ())
        except (TypeError, RuntimeError):  # another kind of argument: no address, no hash
            return function(*arguments, **named)
        for kind in known:
            if kind.fits(tensors, addresses):
                plan = kind.plan
                if isinstance(plan, Plan):
                    if plan.holds():
                        return plan(tensors, addresses)
                elif plan == "seen":
                    recorder = _Recorder(tensors, addresses, autograd=_RECORDS in key)
                    result, kind.plan = record(recorder, function, arguments, named)
                    return result
                break
        else:
            with contextlib.suppress(TypeError, RuntimeError):
                launch.keep(kinds, same, [Kind(tensors, addresses), *known][:MOST])
        return function(*arguments, **named)

    return call


def _apart() -> bool:
    """Whether something looks at operations or derives them, or this thread is recording."""
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or forward_mode()
        or peek_interpreter_stack() is not None
    )


def _see(arguments: Iterable, key: list, tensors: list) -> None:
    """Puts the tensors apart from what else is among the arguments, which comes into the key with its type. Of a tensor
    comes its number of elements.

    Raises TypeError for what isn't understood.
    """
    for value in arguments:
        kind = value.__class__
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            if value.requires_grad and torch.is_grad_enabled():
                key.append(_RECORDS)
            key.append(value.numel())  # calls that differ in their tensors' sizes need not be compared
            tensors.append(value)
        elif kind in _PLAIN:
            key += kind, value if value != 0 else str(value)  # 0.0 equals -0.0
        elif kind is list and all(each.__class__ in _PLAIN for each in value):
            key += kind, len(value), *map(type, value), *value
        elif isinstance(value, triton.JITFunction):  # whoever calls this function keeps it
            key += kind, id(value)
        elif isinstance(value, tuple):
            key += kind, len(value)
            _see(value, key, tensors)
        else:
            raise TypeError(f"{kind.__name__} is not replayed")


def _once(tensors: list, key: list) -> list:
    """Each tensor once. Which of the arguments are the same one comes into the key."""
    found: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        found.setdefault(id(tensor), tensor)
    places = list(found)
    key += [places.index(id(tensor)) for tensor in tensors]
    return list(found.values())


class Kind:
    """What is the same in all calls of a kind: the device, the tensors' geometry, how their addresses are aligned and
    which of them are the same. Settings are noted when a function asks for them, in `ASKED`."""

    def __init__(self, tensors: list, addresses: list):
        """Raises TypeError or RuntimeError without a tensor, and if one is nested or sparse."""
        shapes: list = [[*each.shape] for each in tensors]
        strides: list = [[*each.stride()] for each in tensors]
        self.guard = TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
        self.device = launch.current_device()
        self.aligned, self.same = _alignment(addresses), _alike(addresses)
        self.plan: Plan | str = "seen"

    def fits(self, tensors: list, addresses: list) -> bool:
        return (
            self.guard(*tensors)
            and self.device == launch.current_device()
            and self.aligned == _alignment(addresses)
            and self.same == _alike(addresses)
        )


def _alignment(addresses: list) -> list | None:
    """The last bits of the addresses; None if all are 0, as they are but for parts of tensors."""
    together = 0
    for address in addresses:
        together |= address
    return [address % ALIGNMENT for address in addresses] if together % ALIGNMENT else None


def _alike(addresses: list) -> list | None:
    """Which of the addresses are the same, if any are."""
    return [addresses.index(each) for each in addresses] if len(set(addresses)) < len(addresses) else None


def _casts() -> bool:
    """Whether operations convert their arguments."""
    return torch.is_autocast_enabled("cuda")


class Plan:
    """A recorded call: steps, each a function of (tensors, addresses, device), and one that returns the result."""

    def __init__(self, steps: list[Callable], result: Callable, hooks: list, settings: list[tuple[Callable, object]]):
        self.steps, self.result, self.hooks, self.settings = steps, result, hooks, settings

    def holds(self) -> bool:
        """Whether nobody watches launches, and each setting that was asked for is what it was."""
        if launch.watched() or any(self.hooks):
            return False
        return not self.settings or all(ask() == was for ask, was in self.settings)

    def __call__(self, tensors: list, addresses: list) -> Any:
        tensors.append(None)  # a root, too: that of a result which is None
        addresses.append(0)
        device = launch.current_device()
        for step in self.steps:
            step(tensors, addresses, device)
        return self.result(tensors)


class Frame(Plan):
    """A recorded call that ends in the `apply` of an `autograd.Function`: its arguments, those that are tensors as
    (place, number), and which of its results is wanted."""

    def __init__(self, apply: Callable, template: list, places: list, pick: slice | int | None, settings: list):
        self.apply, self.template, self.places, self.pick = apply, template, places, pick
        self.hooks, self.settings = [], settings

    def __call__(self, tensors: list, addresses: list) -> Any:
        values = self.template.copy()
        for place, number in self.places:
            values[place] = tensors[number]
        made = self.apply(*values)
        return made if self.pick is None else made[self.pick]


class Unknown(Exception):
    """Something that can't be replayed."""


def record(recorder: _Recorder, function: Callable, arguments: tuple, named: dict) -> tuple[Any, Plan | str]:
    """Calls the function. Returns its result and a `Plan`, or "no" if it can't be replayed."""
    with _LOCK:
        ASKED.clear()
        run, own = triton.JITFunction.run, vars(torch.autograd.Function)["apply"]  # written in C from torch 2.15 on

        @functools.wraps(run)
        def watched(kernel, *values, grid, warmup, **options):
            compiled = run(kernel, *values, grid=grid, warmup=warmup, **options)
            if launch.RECORDING.recorder is recorder:
                recorder.launched(kernel, values, options, grid, compiled)
            return compiled

        @functools.wraps(torch.autograd.Function.apply)
        def noted(kind, *given, **options):
            apply = functools.partial(own.__get__(None, kind), *given, **options)
            if launch.RECORDING.recorder is not recorder or not recorder.autograd:
                return apply()
            return recorder.framed(kind, given, apply)

        triton.JITFunction.run, torch.autograd.Function.apply = watched, classmethod(noted)
        launch.RECORDING.recorder = recorder
        try:
            with recorder:
                result = function(*arguments, **named)
        finally:
            triton.JITFunction.run, torch.autograd.Function.apply = run, own
            launch.RECORDING.recorder = None
        try:
            return result, recorder.plan(result)
        except Exception:  # likewise
            return result, "no"


class _Recorder(DispatchMode):
    """Writes down operations and launches. A *root* is a tensor that an address is counted from: an argument, or what
    an operation has made."""

    def __init__(self, tensors: list, addresses: list, autograd: bool):
        super().__init__()
        self.autograd, self.inside = autograd, False
        self.frames: list[tuple] = []
        self.roots, self.bases, self.count = [*tensors, None], [*addresses, 0], len(tensors)
        self.alive: list = []  # what is made isn't given back while the call is recorded: each has its own memory
        self.steps: list[tuple[Callable, set[int]]] = []
        self.hooks: list = []
        self.problem: str | None = None
        self.memory: dict[int, list[int]] = {}
        for number, tensor in enumerate(tensors):
            self.memory.setdefault(_memory(tensor), []).append(number)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if self.problem is None and not self.inside:
            try:
                self.operation(function, args, kwargs or {}, result)
            except Exception as error:  # what can't be written down must not fail for it
                self.problem = str(error)
        return result

    def operation(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        made = result if isinstance(result, tuple | list) else (result,)
        if not all(isinstance(each, torch.Tensor) for each in made):
            raise Unknown(f"{function} returns what is no tensor: somebody waits for a value")
        self.alive += made
        new = [each for each in made if _memory(each) not in self.memory]
        if not new and not function._schema.is_mutable:
            return  # a view
        if new and len(new) < len(made):
            raise Unknown(f"{function} returns views and more")
        name = function.overloadpacket.__name__
        if name in _EMPTY and len(new) == 1:
            (one,) = new
            if one.storage_offset():
                raise Unknown("memory that begins somewhere else")
            make = functools.partial(
                torch.empty_strided, tuple(one.shape), one.stride(), dtype=one.dtype, device=one.device
            )
            self.steps.append((_Allocation(make), set()))
        else:
            used: set[int] = set()
            given = [self.template(each, used) for each in args]
            options = {name: self.template(each, used) for name, each in kwargs.items()}
            self.steps.append((_Operation(function, given, options, len(new)), used))
        for each in new:
            self.memory[_memory(each)] = [len(self.roots)]
            self.roots.append(each)
            self.bases.append(each.data_ptr())

    def launched(self, kernel: Any, values: tuple, options: dict, grid: Any, compiled: Any) -> None:
        if self.problem is None and not self.inside:
            try:
                self.kernel(kernel, values, options, grid, compiled)
            except Exception as error:  # likewise
                self.problem = str(error)

    def kernel(self, kernel: Any, values: tuple, options: dict, grid: Any, compiled: Any) -> None:
        remembered = launch.understood(kernel, values, options, grid, compiled)
        if remembered is None:
            raise Unknown(f"{kernel} is launched by Triton")
        known, given = remembered
        used: set[int] = set()
        template: list = []
        fills: list[tuple[int, Callable]] = []
        simple: list[tuple[int, int, int]] = []
        for value, encode in zip(given, known.encoders or [None] * len(given)):
            if encode is not None:
                address = self.address(value.base, used)
                fills.append((len(template), functools.partial(_encoded, encode, address, value.shape, value.strides)))
                template += None, *value.shape, *value.strides
            else:
                fill = self.fill(value, used)
                if fill is not None and fill.func is _address:
                    simple.append((len(template), *fill.args))
                elif fill is not None:
                    fills.append((len(template), fill))
                template.append(None if fill is not None else launch.look((value,))[2][0])
        self.hooks.append(known.hooks)
        self.steps.append((_Launch(known, [*template, *known.rest], simple, fills), used))

    def root(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The number of the root that a tensor lies in, and how many bytes behind its beginning."""
        numbers, address = self.memory.get(_memory(tensor), []), tensor.data_ptr()
        if not numbers or not tensor.numel():
            raise Unknown("a tensor that was there before, or without elements")
        same = [number for number in numbers if self.bases[number] == address]
        if not same and len(numbers) > 1:
            raise Unknown("arguments share memory, and this is a part of one of them")
        number = (same or numbers)[0]
        return number, address - self.bases[number]

    def address(self, tensor: torch.Tensor, used: set[int]) -> functools.partial:
        number, offset = self.root(tensor)
        used.add(number)
        return functools.partial(_address, number, offset)

    def fill(self, value: Any, used: set[int]) -> functools.partial | None:
        """A function of the addresses, or None for what doesn't depend on them."""
        if isinstance(value, torch.Tensor):
            return self.address(value, used)
        if not isinstance(value, tuple):
            return None
        parts = [(self.fill(part, used), part) for part in value]
        if not any(fill for fill, _ in parts):
            return None
        return functools.partial(_filled, [(fill, fill or launch.look((part,))[2][0]) for fill, part in parts])

    def template(self, value: Any, used: set[int]) -> functools.partial:
        """A function of the tensors that makes an argument or a result."""
        if isinstance(value, torch.Tensor):
            number, offset = self.root(value)
            used.add(number)
            root, size = self.roots[number], value.element_size()
            if size == root.element_size() and (value.shape, value.stride(), offset) == (root.shape, root.stride(), 0):
                same = value.dtype == root.dtype
                return functools.partial(_root, number) if same else functools.partial(_viewed, number, value.dtype)
            if value.dtype == root.dtype and offset % size == 0:
                return functools.partial(_strided, number, tuple(value.shape), value.stride(), offset // size)
            if (root.storage_offset() * root.element_size() + offset) % size:
                raise Unknown("a view between elements")
            return functools.partial(_retyped, number, value.dtype, tuple(value.shape), value.stride(), offset)
        if isinstance(value, list | tuple):
            kind = value.__class__
            make = kind._make if hasattr(kind, "_make") else kind
            return functools.partial(_several, make, [self.template(part, used) for part in value])
        if isinstance(value, torch.Generator | torch.Stream):
            raise Unknown("a state of its own")
        return functools.partial(_constant, value)

    def framed(self, kind: type, given: tuple, apply: Callable) -> Any:
        """What a function of autograd's returns. What it does isn't written down."""
        self.inside = True
        try:
            made = apply()
        finally:
            self.inside = False
        self.frames.append((kind, given, made))
        return made

    def frame(self, result: Any) -> Frame:
        """Raises Unknown if the call is more than one `apply` of its arguments."""
        if self.steps or len(self.frames) != 1:
            raise Unknown("autograd records operations")
        ((kind, given, made),) = self.frames
        numbers = {id(tensor): number for number, tensor in enumerate(self.roots[: self.count])}
        places = [(at, numbers.get(id(value))) for at, value in enumerate(given) if isinstance(value, torch.Tensor)]
        if any(number is None for _, number in places):
            raise Unknown("an argument is made from others")
        template = [None if isinstance(value, torch.Tensor) else _lasting(value) for value in given]
        pick: slice | int | None = None
        if result is not made:
            several = made if isinstance(made, tuple) else ()
            one = [at for at, each in enumerate(several) if each is result]
            first = isinstance(result, tuple) and len(result) <= len(several)
            if one:
                (pick,) = one
            elif first and type(result) is tuple and all(map(operator.is_, result, several)):
                pick = slice(len(result))
            else:
                raise Unknown("something is done with the result")
        return Frame(kind.apply, template, places, pick, [(ask, ask()) for ask in ASKED])

    def plan(self, result: Any) -> Plan:
        if self.problem is not None:
            raise Unknown(self.problem)
        if self.autograd:
            return self.frame(result)
        wanted: set[int] = set()
        make = self.result(result, wanted)
        # What isn't returned is given back behind the last step that uses it, if others follow.
        steps: list[Callable] = []
        later = set(wanted)
        for step, used in reversed(self.steps):
            done = sorted(number for number in used - later if number > self.count)
            if done and steps:
                steps.append(functools.partial(_given_back, done))
            later |= used
            steps.append(step)
        asked = {*ASKED, *([_casts] if any(isinstance(step, _Operation) for step, _ in self.steps) else [])}
        return Plan(steps[::-1], make, self.hooks, [(ask, ask()) for ask in asked])

    def result(self, value: Any, used: set[int]) -> Callable:
        """A function of the tensors that returns the result. One that is a root, or several, are picked out at once."""
        if value is None:
            return operator.itemgetter(self.count)
        if isinstance(value, torch.Tensor):
            make = self.template(value, used)
            if make.func is not _root:
                return make
            (number,) = make.args
            if number < self.count and value is not self.roots[number]:  # a view of an argument
                return functools.partial(_strided, number, tuple(value.shape), value.stride(), 0)
            return operator.itemgetter(number)
        if isinstance(value, list | tuple):
            kind = value.__class__
            parts = [self.result(part, used) for part in value]
            numbers: list = [part.__reduce__()[1] if part.__class__ is operator.itemgetter else () for part in parts]
            if kind is tuple and len(parts) > 1 and all(len(each) == 1 for each in numbers):
                return operator.itemgetter(*(number for (number,) in numbers))
            return functools.partial(_several, kind._make if hasattr(kind, "_make") else kind, parts)
        if value.__class__ not in _PLAIN:
            raise Unknown(f"a result of type {type(value).__name__}")
        return functools.partial(_constant, value)


def _lasting(value: Any) -> Any:
    """The value, if it is the same in each call of a kind: a plain one, a function of a module's, several of them.

    Decorated or not. Raises Unknown for others, which may hold a tensor.
    """
    parts = value
    if isinstance(value, functools.partial):
        parts = (value.func, *value.args, *value.keywords.values())
    if isinstance(parts, tuple):
        for part in parts:
            _lasting(part)
    elif value.__class__ not in _PLAIN:
        module, name = sys.modules.get(getattr(value, "__module__", None) or ""), getattr(value, "__qualname__", "")
        known = getattr(module, name, None)
        if known is None or inspect.unwrap(known) is not inspect.unwrap(value):
            raise Unknown(f"an argument of type {type(value).__name__}")
    return value


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class _Allocation:
    def __init__(self, make: Callable):
        self.make = make

    def __call__(self, tensors: list, addresses: list, device: int) -> None:
        made = self.make()
        tensors.append(made)
        addresses.append(made.data_ptr())


class _Operation:
    def __init__(self, function: Callable, args: list, kwargs: dict, makes: int):
        self.function, self.args, self.kwargs, self.makes = function, args, kwargs, makes

    def __call__(self, tensors: list, addresses: list, device: int) -> None:
        kwargs = {name: make(tensors) for name, make in self.kwargs.items()}
        result = self.function(*[make(tensors) for make in self.args], **kwargs)
        if self.makes:
            made = result if isinstance(result, tuple | list) else (result,)
            tensors += made
            addresses += [each.data_ptr() for each in made]


class _Launch:
    """simple: (place among the values, root, bytes behind it); fills: (place, function of the addresses)."""

    def __init__(self, known: Any, template: list, simple: list, fills: list[tuple[int, Callable]]):
        self.run, self.grid, self.template, self.simple, self.fills = known.run, known.grid, template, simple, fills

    def __call__(self, tensors: list, addresses: list, device: int) -> None:
        values = self.template.copy()
        for place, number, offset in self.simple:
            values[place] = addresses[number] + offset
        for place, fill in self.fills:
            values[place] = fill(addresses)
        self.run(self.grid, device, values)


def _given_back(numbers: list[int], tensors: list, addresses: list, device: int) -> None:
    for number in numbers:
        tensors[number] = None


def _address(number: int, offset: int, addresses: list) -> int:
    return addresses[number] + offset


def _filled(parts: list, addresses: list) -> tuple:
    return tuple(fill(addresses) if fill else value for fill, value in parts)


def _encoded(encode: Callable, address: Callable, shape: tuple, strides: tuple, addresses: list) -> Any:
    return encode(address(addresses), shape, strides)


def _root(number: int, tensors: list) -> torch.Tensor:
    return tensors[number]


def _viewed(number: int, dtype: torch.dtype, tensors: list) -> torch.Tensor:
    return tensors[number].view(dtype)


def _strided(number: int, shape: tuple, strides: tuple, offset: int, tensors: list) -> torch.Tensor:
    root = tensors[number]
    return root.as_strided(shape, strides, root.storage_offset() + offset)


def _retyped(number: int, dtype: torch.dtype, shape: tuple, strides: tuple, offset: int, tensors: list) -> torch.Tensor:
    root = tensors[number]
    begin = root.storage_offset() * root.element_size() + offset
    view = torch.empty(0, dtype=dtype, device=root.device)
    return view.set_(root.untyped_storage(), begin // view.element_size(), shape, strides)


def _several(make: Callable, parts: list[Callable], tensors: list) -> Any:
    return make([part(tensors) for part in parts])


def _constant(value: Any, tensors: list) -> Any:
    return value
