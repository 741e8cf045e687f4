"""What a kernel can't do, refused in words: a part of `academy.interpreter`.

The compiler refuses all of this too. The interpreter lets some of it pass, and says of the rest what went wrong inside
of it.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter

from academy.command import grids, misspelt

TRITON = str(Path(triton.__file__).parent)
_EXAMPLES = {
    "load": "tl.load(x_ptr + offsets, mask=mask)",
    "store": "tl.store(out_ptr + offsets, x, mask=mask)",
}
_POINTER = "a pointer is an address, not the number there: tl.load reads it, as in tl.load(x_ptr + offsets, mask=mask)"


def install() -> None:
    _refuse_indices()
    _refuse_pointers()
    _refuse_wrong_accesses()
    _refuse_calls_without_a_grid()
    _refuse_blocks_in_conditions()
    _refuse_dtypes_of_torch()
    _refuse_functions_of_torch()


def check_grid(kernel: str, grid) -> None:
    """Raises TypeError for a grid that is no tuple, or has a size that is no int, and GridTooLarge for one that a GPU
    doesn't take."""
    if not isinstance(grid, (tuple, list)):
        what = "a grid is a tuple of one to three numbers, or a function that returns one"
        raise TypeError(f"{kernel}[{grid!r}]: {what}; write {kernel}[({grid!r},)](…), with the comma")
    for size in grid:
        if isinstance(size, float):
            raise TypeError(
                f"{kernel}[{tuple(grid)!r}]: there is no part of a program; round up with triton.cdiv(a, b)"
            )
    if much := grids.excess(grid):
        raise grids.GridTooLarge(f"{kernel}: {much}")


def _refuse_indices() -> None:
    """`x[0]`, of which the interpreter says that it can't iterate over an int, `x_ptr[i]`, and `for` over a block."""
    original = tl.tensor.__getitem__

    @functools.wraps(original)
    def getitem(self, slices, *args, **kwargs):
        for index in slices if isinstance(slices, (tuple, list, tl.tuple)) else [slices]:
            whole = isinstance(index, (slice, tl.core.slice)) and index.start is index.stop is index.step is None
            if not whole and getattr(index, "value", index) is not None:
                if self.dtype.is_ptr():
                    raise IndexError("a pointer has no brackets: tl.load(x_ptr + i) reads what x_ptr[i] is in C")
                raise IndexError(
                    "the brackets after a block take only `:` and `None`, as in x[:, None]; Triton has no other "
                    "index. To pick an element, load it by its address, or sum over tl.where(offsets == i, x, 0)"
                )
        return original(self, slices, *args, **kwargs)

    def iterate(self):
        raise TypeError(
            "Python can't go through the numbers of a block, as its own max(x), sum(x) and `for v in x` do: "
            "tl.max(x, axis=0) and tl.sum(x, axis=0) take all lanes at once"
        )

    tl.tensor.__getitem__, tl.tensor.__iter__ = getitem, iterate


def _refuse_pointers() -> None:
    """Arithmetic with addresses in the place of what is stored there, and storing them."""
    owner = semantic.TritonSemantic
    original_check, original_store = owner.check_ptr_type_impl, owner.store

    @functools.wraps(original_check)
    def check(self, *args, **kwargs):
        try:
            return original_check(self, *args, **kwargs)
        except semantic.IncompatibleTypeErrorImpl as error:
            whole = "; offsets are whole numbers, so write a // b, not a / b" if "float" in error.message else ""
            raise TypeError(f"{error.message}: {_POINTER}{whole}") from None

    @functools.wraps(original_store)
    def store(self, ptr, val, *args, **kwargs):
        if ptr.dtype.is_ptr() and val.dtype.is_ptr() and not ptr.dtype.element_ty.is_ptr():
            raise TypeError(f"this stores {val.dtype}, an address: {_POINTER}")
        return original_store(self, ptr, val, *args, **kwargs)

    owner.check_ptr_type_impl, owner.store = check, store


def _refuse_wrong_accesses() -> None:
    """`tl.load(alpha)` of a number that the kernel was given, or has loaded already; a mask or a block beside a single
    address; a mask that is a number, as in `tl.load(x_ptr + offsets, n)`."""
    owner = semantic.TritonSemantic

    def taken(name: str, original):
        @functools.wraps(original)
        def method(self, ptr, *args, **kwargs):
            no_tensor = (bool, int, float, str, list, tuple, type(None))
            if isinstance(ptr, no_tensor) or isinstance(ptr, tl.tensor) and not ptr.dtype.scalar.is_ptr():
                what = f"{ptr.type}" if isinstance(ptr, tl.tensor) else f"{ptr!r}"
                raise TypeError(
                    f"tl.{name} takes addresses, such as x_ptr + offsets, and got {what}. What a kernel was given as a "
                    "number, or has loaded already, is used as it is"
                )
            given = dict(zip(("mask", "other") if name == "load" else ("value", "mask"), args))
            blocks = [word for word, value in given.items() if isinstance(value, tl.tensor) and value.type.is_block()]
            if blocks and ptr.type.is_ptr() and not ptr.type.element_ty.is_block():
                raise ValueError(
                    f"this tl.{name} has one address, and its {blocks[0]} is a block: add offsets to the pointer, as "
                    f"in {_EXAMPLES.get(name, _EXAMPLES['store']).replace('store', name)}"
                )
            mask = given.get("mask")
            if isinstance(mask, tl.tensor) and not mask.dtype.scalar.is_bool():
                raise TypeError(
                    f"the mask of this tl.{name} is {mask.type}, and a mask is True or False for each lane, as "
                    "offsets < n is"
                )
            return original(self, ptr, *args, **kwargs)

        return method

    for name in ("load", "store", *(f"atomic_{each}" for each in "add and max min or xchg xor".split())):
        setattr(owner, name, taken(name, getattr(owner, name)))


#: Launches that are going on.
running: list[str] = []


def _refuse_calls_without_a_grid() -> None:
    """`kernel(x, n)`, which the interpreter runs as if another kernel had called it, and leaves `tl` changed."""
    original = interpreter.InterpretedFunction.__call__

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        if not running:
            raise TypeError(f"a launch says how many programs run: {self.__name__}[(programs,)](…)")
        return original(self, *args, **kwargs)

    interpreter.InterpretedFunction.__call__ = call


def _refuse_blocks_in_conditions() -> None:
    """`if offsets < n:`, which the interpreter takes for true. Triton's own functions ask whether there is a block."""
    original = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor, scope):
        original(tensor, scope)
        plain = tensor.__bool__

        def as_condition(self):
            # There a tensor is an object, and `if other` asks whether one was given: a single 0.0 counts, too.
            if sys._getframe(1).f_code.co_filename == semantic.__file__:
                return True
            if self.handle.data.size > 1 and not sys._getframe(1).f_code.co_filename.startswith(TRITON):
                raise ValueError(
                    "a condition is one truth value, and this is a block of them: tl.where(condition, a, b) chooses "
                    "for each lane, as tl.minimum and tl.maximum do, and a mask switches lanes of a load or a store "
                    "off; `and` and `or` are & and |"
                )
            return plain(self)

        scope.set_attr(tensor, "__bool__", as_condition)

    interpreter._patch_lang_tensor = patch_lang_tensor


def _refuse_dtypes_of_torch() -> None:
    """`x.to(torch.float32)`, of which the interpreter says that it has no attribute `scalar`."""
    owner = semantic.TritonSemantic
    for name, place in (("cast", 1), ("full", 2)):
        setattr(owner, name, _with_own_dtype(getattr(owner, name), place))


def _with_own_dtype(original, place: int):
    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if len(args) > place and isinstance(args[place], (torch.dtype, str, type)):
            given = getattr(args[place], "__name__", str(args[place]))
            name = {"float": "float32", "int": "int32", "bool": "int1"}.get(given, given.removeprefix("torch."))
            raise TypeError(f"kernels have dtypes of their own: write tl.{name}, not {given}")
        return original(self, *args, **kwargs)

    return method


def _refuse_functions_of_torch() -> None:
    """`torch.add(x, y)` with blocks, of which PyTorch says that a tensor must be a Tensor, not a tensor."""

    def refuse(cls, function, types, args=(), kwargs=None):
        name = function.__name__
        raise TypeError(misspelt.host_only("torch", name))

    tl.tensor.__torch_function__ = classmethod(refuse)
