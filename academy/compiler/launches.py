"""What a launch is, as far as the compiler cares: the kernel, what each argument is, and the options.

A launch that was seen in Triton's interpreter can be compiled in another process: `described` turns it into data that
JSON can hold, and `arguments` turns that into arguments for which Triton compiles the same kernel. Of a tensor remain
its dtype and how its address lies to multiples of 16, since no more of it reaches the compiler.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from academy.runtime import device  # before triton

import torch  # isort: skip
import triton  # isort: skip
import triton.language as tl  # isort: skip
from triton.runtime import interpreter  # isort: skip
from triton.tools.tensor_descriptor import TensorDescriptor  # isort: skip

#: Options of a launch that change what is compiled; the interpreter passes over them.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "launch_pdl")

#: Triton's short names of dtypes -> what `triton.language` calls them.
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
_DTYPES |= {"fp8e4nv": "float8e4nv", "fp8e5": "float8e5", "fp8e4b15": "float8e4b15", "fp8e4b8": "float8e4b8"}


def described(kernel: Any, args: tuple, kwargs: dict) -> dict:
    """A launch as data: {"kernel": name, "module": …, "file": …, "arguments": {parameter: …}, "options": {…}}.

    Args:
        kernel: the function that was decorated, or what `triton.jit` made of it.
        args, kwargs: of the launch, options among them.

    Raises TypeError for an argument that no kernel can take.
    """
    function = inspect.unwrap(getattr(kernel, "fn", kernel))
    bound = inspect.signature(function).bind_partial(*args, **{n: v for n, v in kwargs.items() if n not in OPTIONS})
    bound.apply_defaults()
    return dict(
        kernel=function.__name__,
        module=function.__module__,
        file=function.__code__.co_filename,
        arguments={name: _data(name, value) for name, value in bound.arguments.items()},
        options={name: value for name, value in kwargs.items() if name in OPTIONS and value is not None},
    )


def _data(name: str, value: Any) -> Any:
    if isinstance(value, tl.constexpr):
        value = value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if _is_layout(value):
        return {"layout": type(value).__name__, "fields": {n: _data(n, v) for n, v in _fields(value).items()}}
    if _is_gluons(value):
        fields = dict(block=list(value.block_shape), padding=getattr(value, "padding", "zero"))
        return {"tiles": _dtype(value.base.dtype), **fields, "of": _data(name, value.layout)}
    if isinstance(value, TensorDescriptor):
        return {"descriptor": _dtype(value.base.dtype), "block": list(value.block_shape), "padding": value.padding}
    if hasattr(value, "data_ptr"):
        return {"tensor": _dtype(value.dtype), "offset": value.data_ptr() % 16}
    if isinstance(value, (tuple, list, tl.tuple)):
        kind = type(value)
        named = {"named": _name(kind)} if hasattr(kind, "_fields") else {}  # the kernel asks for its fields
        return {"tuple": [_data(name, item) for item in value], **named}
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    function = getattr(value, "fn", value)
    if callable(function) and hasattr(function, "__qualname__"):
        return _name(function)
    raise TypeError(f"{name}: a kernel can't take {type(value).__name__} as an argument")


def _name(what: Any) -> dict[str, str]:
    return {"function": what.__qualname__, "module": what.__module__}


def _is_layout(value: Any) -> bool:
    return type(value).__module__.endswith("gluon.language._layouts")


def _fields(layout: Any) -> dict[str, Any]:
    return {field.name: getattr(layout, field.name) for field in dataclasses.fields(layout) if field.init}


def _is_gluons(value: Any) -> bool:
    """A tensor descriptor with a layout."""
    return type(value).__name__ == "TensorDescriptor" and hasattr(value, "layout")


def _gluon() -> Any:
    return importlib.import_module("triton.experimental.gluon.language")


def _field(data: Any, namespace: dict) -> Any:
    """Of a layout: its lists are lists, not tuples."""
    if isinstance(data, dict) and "tuple" in data:
        return [_field(item, namespace) for item in data["tuple"]]
    return _value(data, namespace)


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def arguments(launch: dict, namespace: dict) -> dict[str, Any]:
    """Arguments by name, for which Triton compiles what it would have compiled for the launch that was described.

    namespace: of the file; functions are looked for there, then in their module.
    """
    return {name: _value(data, namespace) for name, data in launch["arguments"].items()}


def _value(data: Any, namespace: dict) -> Any:
    if not isinstance(data, dict):
        return data
    if "descriptor" in data:
        block = data["block"]
        base = torch.empty([max(size, 16) for size in block], dtype=getattr(torch, data["descriptor"]))
        return TensorDescriptor(base, list(base.shape), list(base.stride()), block, data["padding"])
    if "layout" in data:
        return getattr(_gluon(), data["layout"])(**{n: _field(v, namespace) for n, v in data["fields"].items()})
    if "tiles" in data:
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as Tiles

        base = torch.empty([max(size, 16) for size in data["block"]], dtype=getattr(torch, data["tiles"]))
        made = Tiles(base, list(base.shape), list(base.stride()), data["block"], _value(data["of"], namespace))
        if data["padding"] != "zero":
            made = dataclasses.replace(made, padding=data["padding"])
        return made
    if "tensor" in data:
        dtype = getattr(torch, data["tensor"])
        return torch.empty(64, dtype=dtype)[data["offset"] // dtype.itemsize :]
    if "tuple" in data:
        items = [_value(item, namespace) for item in data["tuple"]]
        return _value(data["named"], namespace)(*items) if "named" in data else tuple(items)
    if "dtype" in data:
        return getattr(tl, str(_DTYPES.get(data["dtype"], data["dtype"])))
    found = namespace.get(data["function"])
    return found if found is not None else getattr(importlib.import_module(data["module"]), data["function"])


@contextlib.contextmanager
def noted() -> Iterator[list[dict]]:
    """The launches of kernels that are interpreted or simulated inside, described, each kind once.

    Raises RuntimeError where kernels are compiled anyway.
    """
    if not device.INTERPRET:
        raise RuntimeError("kernels are compiled here, not interpreted: there is nothing to note")
    found: list[dict] = []

    def around(original):
        def run(kernel, *args, grid, warmup, **kwargs):
            launch = described(kernel, args, kwargs)
            if launch not in found:
                found.append(launch)
            return original(kernel, *args, grid=grid, warmup=warmup, **kwargs)

        return run

    with contextlib.ExitStack() as stack:
        for kind in (interpreter.InterpretedFunction, triton.JITFunction):  # the second: Gluon's
            stack.callback(setattr, kind, "run", kind.run)
            kind.run = around(kind.run)
        yield found
