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

A record is a function of the tensors and their addresses, written in Python for this one geometry and compiled: no
loops, no decisions. It holds no tensor. Memory that only kernels see, and of which a view is returned, is allocated as
that view. All memory is allocated anew in each call and given back as soon as the last launch that needs it
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
from torch.autograd import forward_ad as _levels

from academy.runtime import launch
from academy.runtime.device import ASKED
from academy.runtime.checks import peek_interpreter_stack
from academy.runtime.modes import DispatchMode

import triton  # isort: skip

try:
    # How many modes look at operations. (By these names, because each dot costs as much as the question.)
    from torch import Tensor
    from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack

    # What the compiler's guards are made of: dtype, device, shape, strides, flags of several tensors in a microsecond.
    # And what its code allocates with on the current device, in half of the time: `empty(shape, strides, dtype)`.
    from torch._C._dynamo.guards import TensorGuards
    from torch._C._dynamo.guards import _empty_strided_cuda as empty  # type: ignore[attr-defined]
    from torch.nn import Parameter
except ImportError:  # the playground's torch has none, and another version may lack them: then nothing is replayed
    TensorGuards = empty = None  # type: ignore[misc,assignment]

_PLAIN = {int, float, bool, str, torch.dtype, type(None)}
#: Every address in a key is taken modulo this: decisions about alignment are made up to two cache lines.
ALIGNMENT = 256
#: Kinds of calls that differ in nothing that is in the key: in dtypes and strides, for instance.
MOST = 16
#: In a key: autograd records what happens to the next tensor.
_RECORDS = "autograd records"
#: Ways to get memory that nobody has written yet.
_EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
#: Such that is filled with a number at once, and with which; the others have it as their last argument.
_FILLED = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
_FULL = {"full", "full_like", "new_full"}
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
        key: list = [*named]
        tensors: list = []
        try:
            _see((*arguments, *named.values()) if named else arguments, key, tensors)
            addresses = [tensor.data_ptr() for tensor in tensors]
            placed = _placed(addresses)
            if placed is not None and len(set(map(id, tensors))) < len(tensors):
                tensors = _once(tensors, key)
                addresses = [tensor.data_ptr() for tensor in tensors]
                placed = _placed(addresses)
            same = tuple(key)
            known = kinds.get(same, ())
        except (TypeError, RuntimeError):  # another kind of argument: no address, no hash
            return function(*arguments, **named)
        for kind in known:
            if kind.fits(tensors, placed):
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
                launch.keep(kinds, same, [Kind(tensors, placed), *known][:MOST])
        return function(*arguments, **named)

    return call


def _apart() -> bool:
    """Whether something looks at operations or derives them, or this thread is recording."""
    if _len_torch_dispatch_stack() or _len_torch_function_stack() or _levels._current_level >= 0:
        return True
    return peek_interpreter_stack() is not None


def _see(arguments: Iterable, key: list, tensors: list) -> None:
    """Puts the tensors apart from what else is among the arguments, which comes into the key with its type. Of a tensor
    comes its number of elements.

    Raises TypeError for what isn't understood.
    """
    for value in arguments:
        kind = value.__class__
        if kind is Tensor or kind is Parameter:
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

    def __init__(self, tensors: list, placed: tuple | None):
        """Raises TypeError or RuntimeError without a tensor, and if one is nested or sparse."""
        shapes: list = [[*each.shape] for each in tensors]
        strides: list = [[*each.stride()] for each in tensors]
        self.guard = TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
        self.device, self.placed = launch.current_device(), placed
        self.plan: Plan | str = "seen"

    def fits(self, tensors: list, placed: tuple | None) -> bool:
        return self.guard(*tensors) and self.device == launch.current_device() and self.placed == placed


def _placed(addresses: list) -> tuple[list, list] | None:
    """The last bits of the addresses, and which are the same. None if all of these bits are 0 and no two are the same,
    as it is but for parts of tensors."""
    together = 0
    for address in addresses:
        together |= address
    if together % ALIGNMENT == 0 and len(set(addresses)) == len(addresses):
        return None
    return [address % ALIGNMENT for address in addresses], [addresses.index(each) for each in addresses]


def _casts() -> bool:
    """Whether operations convert their arguments."""
    return torch.is_autocast_enabled("cuda")


class Plan:
    """A recorded call: the text of a function of its tensors and their addresses, and the function."""

    def __init__(self, source: str, names: dict[str, Any], hooks: list, settings: list[tuple[Callable, object]]):
        self.source, self.hooks, self.settings = source, hooks, settings
        exec(compile(source, "<a recorded call>", "exec"), names)
        self.call = names["call"]

    def holds(self) -> bool:
        """Whether nobody watches launches, and each setting that was asked for is what it was."""
        if launch.watched():
            return False
        for hooks in self.hooks:
            if hooks:
                return False
        for ask, was in self.settings:
            if ask() != was:
                return False
        return True

    def __call__(self, tensors: list, addresses: list) -> Any:
        return self.call(*tensors, *addresses)


class Frame(Plan):
    """A recorded call that ends in the `apply` of an `autograd.Function`."""


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
    """Writes down operations and launches, as Python. A *root* is a tensor that an address is counted from: an
    argument, or what an operation has made. Root 3 is called t3, its address a3; what comes from outside c0, c1, …"""

    def __init__(self, tensors: list, addresses: list, autograd: bool):
        super().__init__()
        self.autograd, self.inside = autograd, False
        self.frames: list[tuple] = []
        self.roots, self.bases, self.count = [*tensors], [*addresses], len(tensors)
        self.alive: list = []  # what is made isn't given back while the call is recorded: each has its own memory
        #: What is done, the roots that it takes, and those that it makes. Without a text it is memory for one.
        self.steps: list[tuple[str, set[int], range]] = []
        self.names: dict[str, Any] = {}
        self.addressed: set[int] = set()
        self.operated: set[int] = set()
        self.operates = False
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
        name, number, used = function.overloadpacket.__name__, len(self.roots), set[int]()
        fill = _FILLED.get(name, args[-1] if name in _FULL and len(args) > 1 else None)
        if (name in _EMPTY or type(fill) in launch.NUMBERS) and len(new) == 1:
            if new[0].storage_offset():
                raise Unknown("memory that begins somewhere else")
            self.steps.append(("", used, range(number, number + 1)))
            if name not in _EMPTY:
                self.operated.add(number)
                filled = "zero_()" if type(fill) is int and fill == 0 else f"fill_({self.constant(fill)})"
                self.steps.append((f"t{number}.{filled}", used, range(0)))
        else:
            self.operates = True
            given = [self.expression(each, used) for each in args]
            given += [f"{option}={self.expression(each, used)}" for option, each in kwargs.items()]
            made_here = range(number, number + len(new))
            self.operated |= used | set(made_here)
            call = f"{self.named(function)}({', '.join(given)})"
            if new:
                comma = ", " if isinstance(result, tuple | list) else ""
                call = f"{''.join(f't{each}{comma}' for each in made_here)} = {call}"
            self.steps.append((call, used, made_here))
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
        written: list[str] = []
        for value, encode in zip(given, known.encoders or [None] * len(given)):
            if encode is not None:
                # By the address alone, which costs less than to look it up with sizes and strides.
                described = functools.lru_cache(maxsize=256)(
                    lambda address, encode=encode, form=value[1:3]: encode(address, *form)
                )
                written.append(f"{self.named(described)}({self.address(value.base, used)})")
                written += map(self.constant, (*value.shape, *value.strides))
            else:
                written.append(self.value(value, used))
        if not any(known.hooks is hooks for hooks in self.hooks):
            self.hooks.append(known.hooks)
        call = known.written(written + ["None"] * len(known.rest), self.constant, self.named)
        self.steps.append((call, used, range(0)))

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

    def address(self, tensor: torch.Tensor, used: set[int]) -> str:
        number, offset = self.root(tensor)
        used.add(number)
        self.addressed.add(number)
        return f"a{number} + {offset}" if offset else f"a{number}"

    def value(self, value: Any, used: set[int]) -> str:
        """What the driver gets for an argument."""
        if isinstance(value, torch.Tensor):
            return self.address(value, used)
        if isinstance(value, tuple):
            return f"({''.join(self.value(part, used) + ', ' for part in value)})"
        return self.constant(launch.look((value,))[2][0])

    def named(self, value: Any) -> str:
        """A name for what comes from outside."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def constant(self, value: Any) -> str:
        if isinstance(value, torch.Size):
            value = tuple(value)
        if value.__class__ in (int, bool, type(None)):
            return repr(value)
        if value.__class__ is tuple:
            return f"({''.join(self.constant(part) + ', ' for part in value)})"
        return self.named(value)

    def expression(self, value: Any, used: set[int], returned: bool = False) -> str:
        """An argument of an operation, or a result: from the roots."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value, used, returned)
        if isinstance(value, list | tuple):
            kind = value.__class__
            parts = "".join(self.expression(part, used, returned) + ", " for part in value)
            if kind in (list, tuple):
                return f"[{parts}]" if kind is list else f"({parts})"
            return f"{self.named(kind._make if hasattr(kind, '_make') else kind)}(({parts}))"
        if isinstance(value, torch.Generator | torch.Stream):
            raise Unknown("a state of its own")
        if returned and value.__class__ not in _PLAIN:
            raise Unknown(f"a result of type {type(value).__name__}")
        return self.constant(value)

    def tensor(self, value: torch.Tensor, used: set[int], returned: bool) -> str:
        number, offset = self.root(value)
        used.add(number)
        root, size = self.roots[number], value.element_size()
        shape, strides = self.constant(value.shape), self.constant(value.stride())
        whole = (value.shape, value.stride(), size, offset) == (root.shape, root.stride(), root.element_size(), 0)
        if whole and value.dtype != root.dtype:
            return f"t{number}.view({self.named(value.dtype)})"
        if whole and (number >= self.count or value is root or not returned):  # a result may be a view of an argument
            return f"t{number}"
        if value.dtype == root.dtype and offset % size == 0:
            return f"t{number}.as_strided({shape}, {strides}, t{number}.storage_offset() + {offset // size})"
        if (root.storage_offset() * root.element_size() + offset) % size:
            raise Unknown("a view between elements")
        return f"{self.named(_retyped)}(t{number}, {self.named(value.dtype)}, {shape}, {strides}, {offset})"

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
        numbers = {id(tensor): number for number, tensor in enumerate(self.roots)}
        if any(isinstance(value, torch.Tensor) and id(value) not in numbers for value in given):
            raise Unknown("an argument is made from others")
        written = [
            f"t{numbers[id(value)]}" if isinstance(value, torch.Tensor) else self.constant(_lasting(value))
            for value in given
        ]
        call = f"{self.named(kind.apply)}({', '.join(written)})"
        if result is not made:
            several = made if isinstance(made, tuple) else ()
            one = [at for at, each in enumerate(several) if each is result]
            first = isinstance(result, tuple) and len(result) <= len(several)
            if one:
                call += f"[{one[0]}]"
            elif first and type(result) is tuple and all(map(operator.is_, result, several)):
                call += f"[:{len(result)}]"
            else:
                raise Unknown("something is done with the result")
        return Frame(self.source([f"return {call}"]), self.names, [], [(ask, ask()) for ask in ASKED])

    def plan(self, result: Any) -> Plan:
        if self.problem is not None:
            raise Unknown(self.problem)
        if self.autograd:
            return self.frame(result)
        self.as_returned(result)
        later: set[int] = set()
        lines = [f"return {self.expression(result, later, returned=True)}"]
        # What isn't returned is given back behind the last step that uses it, if others follow.
        for step, used, makes in reversed(self.steps):
            done = sorted(number for number in used - later if number >= self.count)
            if done and len(lines) > 1:
                lines.append(f"del {', '.join(f't{number}' for number in done)}")
            later |= used
            lines += [f"a{number} = t{number}.data_ptr()" for number in makes if number in self.addressed]
            lines.append(step or self.allocation(makes[0]))
        asked = {*ASKED, *([_casts] if self.operates else [])}
        return Plan(self.source(lines[::-1]), self.names, self.hooks, [(ask, ask()) for ask in asked])

    def source(self, lines: list[str]) -> str:
        arguments = [f"{kind}{number}" for kind in "ta" for number in range(self.count)]
        self.names["stream"] = launch.current_stream
        begin = f"stream_now = stream({launch.current_device()})"
        body = [begin, *lines] if any("stream_now" in line for line in lines) else lines
        return f"def call({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in body)

    def allocation(self, number: int) -> str:
        one = self.roots[number]
        geometry = f"{self.constant(one.shape)}, {self.constant(one.stride())}"
        if one.is_cuda and one.get_device() == launch.current_device():
            return f"t{number} = {self.named(empty)}({geometry}, {self.named(one.dtype)})"
        options = f"dtype={self.named(one.dtype)}, device={self.named(one.device)}"
        return f"t{number} = {self.named(torch.empty_strided)}({geometry}, {options})"

    def as_returned(self, result: Any) -> None:
        """Memory that only kernels know, and of which a view is returned, is allocated as what is returned."""
        allocated = {makes[0] for step, _, makes in self.steps if not step} - self.operated
        found: dict[int, list[torch.Tensor]] = {}
        for tensor in _tensors(result):
            for number in allocated.intersection(self.memory.get(_memory(tensor), ())):
                found.setdefault(number, []).append(tensor)
        for number, views in found.items():
            view, root = views[0], self.roots[number]
            if len(views) == 1 and not view.storage_offset() and view.numel() and _extent(view) == _extent(root):
                self.roots[number] = view


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


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, torch.Tensor) else []


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (1 + steps) * tensor.element_size()


def _retyped(root: torch.Tensor, dtype: torch.dtype, shape: tuple, strides: tuple, offset: int) -> torch.Tensor:
    begin = root.storage_offset() * root.element_size() + offset
    view = torch.empty(0, dtype=dtype, device=root.device)
    return view.set_(root.untyped_storage(), begin // view.element_size(), shape, strides)
