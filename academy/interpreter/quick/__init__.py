"""Work that the interpreter repeats for every launch, helper call and load, done once; values stay the same."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import linecache
import operator

import torch
import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter

from academy.interpreter.quick import kinds, moves, operators


def quicken() -> None:
    """Spare the interpreter work that it repeats for every launch, helper call and load; values stay the same.

    A launch and every call of a jitted helper look through all of `triton.language` for functions to replace. The list
    is the same every time, so it is kept; inside a launch the functions are already replaced.
    """
    original_patch, original_call = interpreter._patch_lang, interpreter.GridExecutor.__call__
    languages_of: dict[object, tuple[str, ...]] = {}
    changes_for: dict[tuple[str, ...], dict[object, dict[str, object]]] = {}
    never_restored: set[str] = set()
    running: list[set[str]] = []
    nothing = interpreter._LangPatchScope()

    def languages(function) -> tuple[str, ...]:
        if function not in languages_of:
            modules = [m for m in function.__globals__.values() if inspect.ismodule(m)]
            languages_of[function] = tuple(sorted({m.__name__ for m in modules if m in (tl, tl.core)}))
        return languages_of[function]

    def patch_lang(function):
        names = languages(function)
        if running and running[-1]:  # a helper: its launch has replaced everything but perhaps another module
            if all(name in running[-1] or name in never_restored for name in names):
                return nothing
            never_restored.update(names)
            return original_patch(function)
        if running:
            running[-1].update(names)
        if names not in changes_for:
            scope, changes = original_patch(function), dict[object, dict[str, object]]()
            for owner, name, _ in scope._changes:
                changes.setdefault(owner, {})[name] = vars(owner)[name]
            changes_for[names] = changes
            return scope
        return _Replaced(changes_for[names])

    @functools.wraps(original_call)
    def launch(self, *args, **kwargs):
        running.append(set())
        try:
            return original_call(self, *args, **kwargs)
        finally:
            running.pop()

    interpreter._patch_lang = patch_lang
    interpreter.GridExecutor.__call__ = launch

    original_np_dtype = interpreter._get_np_dtype
    names = "int1 int8 uint8 int16 uint16 int32 uint32 int64 uint64 fp16 bf16 fp32 fp64 fp8e4nv fp8e5".split()
    np_dtypes = {name: original_np_dtype(tl.dtype(name)) for name in names}

    def get_np_dtype(dtype):
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        known = np_dtypes.get(element.name)
        return original_np_dtype(dtype) if known is None else known

    interpreter._get_np_dtype = get_np_dtype
    # An overflow would be told by an assertion that only debugging makes, so it was computed for nothing.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)
    interpreter.FunctionRewriter._get_jit_fn_file_line = _file_line
    interpreter._patch_attr = _patch_attr
    kinds.keep_types()
    operators.quicken_operands(semantic.TritonSemantic)
    moves.quicken_casts()
    _pass_tensors()
    _compare_quickly()
    _leave_arguments()
    _check_sizes_quickly()
    interpreter.inspect = _Inspect()


_MISSING = object()


class _Replaced:
    """Attributes of modules and classes, replaced until `restore`: all of a module's at once."""

    def __init__(self, changes: dict[object, dict[str, object]]):
        self.before = []
        for owner, values in changes.items():
            own = vars(owner)
            self.before.append((owner, {name: own.get(name, _MISSING) for name in values}))
            self.put(owner, values)

    def put(self, owner, values: dict[str, object]) -> None:
        if inspect.ismodule(owner) and _MISSING not in values.values():
            vars(owner).update(values)
            return
        for name, value in values.items():
            setattr(owner, name, value) if value is not _MISSING else delattr(owner, name)

    def restore(self) -> None:
        while self.before:
            self.put(*self.before.pop())


def _file_line(rewriter) -> tuple[str, int]:
    """A function's file, and the line of its `def`. The original makes a JITFunction only to ask it, which reads
    the whole function again."""
    code = rewriter.fn.__code__
    lines = linecache.getlines(code.co_filename, rewriter.fn.__globals__)[code.co_firstlineno - 1 :]
    begin = next((number for number, line in enumerate(lines) if line.strip().startswith("def ")), 0)
    return code.co_filename, code.co_firstlineno + begin


def _patch_attr(obj, name, member, builder, scope) -> None:
    """A function of `triton.language`, called without its outer layer, which only asks for `_semantic`."""
    of_builtins = tl.core.builtin(lambda: None).__code__
    inner = member.__wrapped__ if getattr(member, "__code__", None) is of_builtins else member

    def new_member(*args, **kwargs):
        kwargs["_semantic"] = interpreter.interpreter_semantic
        return inner(*args, **kwargs)

    if obj is tl.tensor and name in operators.OPERATORS:
        new_member = operators.quick(name, new_member)
    elif obj is tl.tensor and name in moves.METHODS:
        new_member = moves.METHODS[name](new_member)
    elif obj in (tl, tl.core) and name in moves.FUNCTIONS:
        new_member = moves.FUNCTIONS[name](new_member)
    scope.set_attr(obj, name, new_member)


def _pass_tensors() -> None:
    """A number or block is handed on as it is, which every assignment asks for."""
    owner = semantic.TritonSemantic
    original_to_tensor = owner.to_tensor

    @functools.wraps(original_to_tensor)
    def to_tensor(self, x, *args, **kwargs):
        return x if type(x) is tl.tensor else original_to_tensor(self, x, *args, **kwargs)

    owner.to_tensor = to_tensor


def _leave_arguments() -> None:
    """Tensors of a CPU go to a kernel as they are. For each launch, the interpreter makes a tensor over the same memory
    of every argument, and copies that memory onto itself afterwards."""
    owner = interpreter.GridExecutor
    original_to, original_from = owner._init_args_hst, owner._restore_args_dev

    @functools.wraps(original_to)
    def to_host(self, args, kwargs):
        if all(map(_is_plain, (*args, *kwargs.values()))):
            return [*args], dict(kwargs)
        return original_to(self, args, kwargs)

    @functools.wraps(original_from)
    def from_host(self, args, args_hst, kwargs, kwargs_hst):
        # A recorder hands a kernel copies.
        if any(map(operator.is_not, (*args, *kwargs.values()), (*args_hst, *kwargs_hst.values()))):
            original_from(self, args, args_hst, kwargs, kwargs_hst)

    owner._init_args_hst, owner._restore_args_dev = to_host, from_host


class _Inspect:
    """The module `inspect`, but that what a function takes is found out once, and not twice for each launch."""

    getfullargspec = staticmethod(functools.cache(inspect.getfullargspec))

    def __getattr__(self, name: str):
        return getattr(inspect, name)

    def getcallargs(self, function, /, *positional, **named):
        spec = self.getfullargspec(function)
        given = dict(zip(spec.args, positional))
        known = len(given) == len(positional) and named.keys().isdisjoint(given) and named.keys() <= set(spec.args)
        if known and not (spec.varargs or spec.varkw or spec.kwonlyargs):
            defaults = spec.defaults or ()
            values = {**dict(zip(spec.args[len(spec.args) - len(defaults) :], defaults)), **given, **named}
            if len(values) == len(spec.args):
                return values
        return inspect.getcallargs(function, *positional, **named)  # which says what is wrong


def _is_plain(value) -> bool:
    """Whether it is a number, or a tensor that a kernel can take as it is. (A descriptor has a `base`.)"""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if not hasattr(value, "data_ptr"):
        return not hasattr(value, "base")
    return type(value) is torch.Tensor and value.device.type == "cpu"


def _compare_quickly() -> None:
    """A dtype equals itself, and a number or a tensor has no `constexpr` inside: both are asked a million times in a
    minute, with the same answer."""
    for kind in (tl.dtype, tl.pointer_type):
        kind.__eq__ = _or_the_same(kind.__eq__)
    original = getattr(tl.core, "_unwrap_if_constexpr", None)
    if original is None:  # of a version that nobody has seen: it takes its time
        return
    plain = frozenset([int, float, bool, str, type(None), tl.dtype, tl.tensor])

    @functools.wraps(original)
    def unwrap(o):
        return o if type(o) in plain else original(o)

    tl.core._unwrap_if_constexpr = unwrap


def _check_sizes_quickly() -> None:
    """Of the data of each handle: that no element is wider than its type says."""
    owner = interpreter.TensorHandle
    original = owner.__post_init__

    @functools.wraps(original)
    def check(self):
        if type(self.dtype) is not tl.dtype or self.data.itemsize * 8 > max(self.dtype.primitive_bitwidth, 8):
            original(self)

    owner.__post_init__ = check


def _or_the_same(original):
    @functools.wraps(original)
    def equal(self, other) -> bool:
        return self is other or original(self, other)

    return equal
