"""Work that the interpreter repeats for every launch, helper call and load, done once; values stay the same."""

from __future__ import annotations

import dataclasses
import functools
import inspect

import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter


def quicken() -> None:
    """Spare the interpreter work that it repeats for every launch, helper call and load; values stay the same.

    A launch and every call of a jitted helper look through all of `triton.language` for functions to replace. The list
    is the same every time, so it is kept; inside a launch the functions are already replaced.
    """
    original_patch, original_call = interpreter._patch_lang, interpreter.GridExecutor.__call__
    languages_of: dict[object, tuple[str, ...]] = {}
    changes_for: dict[tuple[str, ...], list[tuple[object, str, object]]] = {}
    never_restored: set[str] = set()
    running: list[set[str]] = []

    def languages(function) -> tuple[str, ...]:
        if function not in languages_of:
            modules = [m for m in function.__globals__.values() if inspect.ismodule(m)]
            languages_of[function] = tuple(sorted({m.__name__ for m in modules if m in (tl, tl.core)}))
        return languages_of[function]

    def patch_lang(function):
        names = languages(function)
        if running and running[-1]:  # a helper: its launch has replaced everything but perhaps another module
            if set(names) - running[-1] - never_restored:
                never_restored.update(names)
                return original_patch(function)
            return interpreter._LangPatchScope()
        if running:
            running[-1].update(names)
        if names not in changes_for:
            scope = original_patch(function)
            changes_for[names] = [(owner, name, vars(owner)[name]) for owner, name, _ in scope._changes]
            return scope
        scope = interpreter._LangPatchScope()
        for owner, name, value in changes_for[names]:
            scope.set_attr(owner, name, value)
        return scope

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
    _pass_equal_types(_keep_types())
    _compare_quickly()


def _file_line(rewriter) -> tuple[str, int]:
    """A function's file, and the line of its `def`. The original makes a JITFunction only to ask it."""
    lines, first = inspect.getsourcelines(rewriter.fn)
    begin = next((number for number, line in enumerate(lines) if line.strip().startswith("def ")), 0)
    return rewriter.fn.__code__.co_filename, first + begin


def _keep_types() -> list:
    """Build the type of a block, and the shape of a tensor, once for each dtype and shape: a third of the time went
    there.

    Every operation makes both anew, out of `constexpr` objects and checks. They are never changed afterwards. Returns
    the shape and size that all numbers share, once there is a number.
    """
    original_block, original_tensor = tl.block_type.__init__, tl.tensor.__init__
    known: dict[tuple, dict] = {}
    of_numbers: list = []  # the shape and size of everything that is no block

    @functools.wraps(original_block)
    def block_type(self, element_ty, shape):
        if type(element_ty) is not tl.dtype:  # pointers to different tensors' types share names
            original_block(self, element_ty, shape)
            return
        sizes = shape.values if isinstance(shape, tl.tuple) else shape
        key = element_ty.name, *[size.value if isinstance(size, tl.constexpr) else size for size in sizes]
        if key not in known:
            original_block(self, element_ty, shape)
            known[key] = {**vars(self), "_shape_and_numel": [], "_alike": {}}
        vars(self).update(known[key])

    @functools.wraps(original_tensor)
    def tensor(self, handle, type):
        kept = vars(type).get("_shape_and_numel") if type.is_block() else of_numbers
        if not kept:
            original_tensor(self, handle, type)
            if kept is not None:
                kept += [self.shape, self.numel]
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = kept

    original_like = tl.block_type.with_element_ty

    @functools.wraps(original_like)
    def with_element_ty(self, scalar_ty):
        alike = vars(self).get("_alike")
        if alike is None or type(scalar_ty) is not tl.dtype:
            return original_like(self, scalar_ty)
        if scalar_ty.name not in alike:
            alike[scalar_ty.name] = original_like(self, scalar_ty)
        return alike[scalar_ty.name]

    tl.block_type.with_element_ty = with_element_ty
    tl.block_type.__init__ = block_type
    tl.tensor.__init__ = tensor
    return of_numbers


def _patch_attr(obj, name, member, builder, scope) -> None:
    """A function of `triton.language`, called without its outer layer, which only asks for `_semantic`."""
    of_builtins = tl.core.builtin(lambda: None).__code__
    inner = member.__wrapped__ if getattr(member, "__code__", None) is of_builtins else member

    def new_member(*args, **kwargs):
        kwargs["_semantic"] = interpreter.interpreter_semantic
        return inner(*args, **kwargs)

    scope.set_attr(obj, name, new_member)


#: Types that an operation between two equal ones keeps, division aside.
_CLOSED = frozenset(["int32", "int64", "fp16", "bf16", "fp32", "fp64"])


def _pass_equal_types(of_numbers: list) -> None:
    """Operands of one type and one shape need neither promotion nor broadcasting, and most operations have such. Of the
    others most are a block and a number."""
    owner = semantic.TritonSemantic
    original = owner.binary_op_type_checking_impl

    @functools.wraps(original)
    def check(self, lhs, rhs, allow_lhs_ptr=False, allow_rhs_ptr=False, arithmetic_check=True, div_or_mod=False):
        # `_keep_types` has one object for each shape.
        if type(lhs) is type(rhs) is tl.tensor and lhs.shape is rhs.shape and not div_or_mod:
            kept = lhs.dtype is rhs.dtype and lhs.dtype.name in _CLOSED
            if kept or (allow_lhs_ptr and lhs.dtype.is_ptr() and rhs.dtype.name in ("int32", "int64")):
                return lhs, rhs
        return original(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    owner.binary_op_type_checking_impl = check
    original_broadcast = owner.broadcast_impl_value

    @functools.wraps(original_broadcast)
    def broadcast(self, lhs, rhs):
        if type(lhs) is type(rhs) is tl.tensor and self is interpreter.interpreter_semantic:
            if lhs.shape is rhs.shape:
                return lhs, rhs
            if of_numbers and rhs.shape is of_numbers[0] and lhs.type.is_block():
                return lhs, splat(self, rhs, lhs.type)
            if of_numbers and lhs.shape is of_numbers[0] and rhs.type.is_block():
                return splat(self, lhs, rhs.type), rhs
        return original_broadcast(self, lhs, rhs)

    def splat(self, number, like):
        """Of the type, the interpreter's builder looks at nothing but the shape."""
        type_of = like.with_element_ty(number.dtype)
        return self.tensor(self.builder.create_splat(type_of, number.handle), type_of)

    owner.broadcast_impl_value = broadcast
    original_cast = owner.cast

    @functools.wraps(original_cast)
    def cast(self, input, dst_ty, *args, **kwargs):
        same = type(input) is tl.tensor and input.dtype is dst_ty
        return input if same else original_cast(self, input, dst_ty, *args, **kwargs)

    owner.cast = cast


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


def _or_the_same(original):
    @functools.wraps(original)
    def equal(self, other) -> bool:
        return self is other or original(self, other)

    return equal
