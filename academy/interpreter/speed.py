"""Work that the interpreter repeats for every launch, helper call and load, done once; values stay the same."""

from __future__ import annotations

import dataclasses
import functools
import inspect

import triton.language as tl
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
    _keep_types()


def _file_line(rewriter) -> tuple[str, int]:
    """A function's file, and the line of its `def`. The original makes a JITFunction only to ask it."""
    lines, first = inspect.getsourcelines(rewriter.fn)
    begin = next((number for number, line in enumerate(lines) if line.strip().startswith("def ")), 0)
    return rewriter.fn.__code__.co_filename, first + begin


def _keep_types() -> None:
    """Build the type of a block, and the shape of a tensor, once for each dtype and shape: a third of the time went
    there.

    Every operation makes both anew, out of `constexpr` objects and checks. They are never changed afterwards.
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
            known[key] = {**vars(self), "_shape_and_numel": []}
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

    tl.block_type.__init__ = block_type
    tl.tensor.__init__ = tensor
