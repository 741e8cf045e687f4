r"""What is judged: a function, its reference in plain PyTorch, and how inputs for them are made.

A file needs a function and its reference, and says what the arguments look like:

```python
INPUTS = {"x": "rows cols", "weight": "cols", "labels": "rows: int64 below cols", "causal": (False, True)}

def my_function(x, weight, labels, causal=False): ...
def my_function_reference(x, weight, labels, causal=False): ...
```

- A string is a tensor: its dims, named or numbers (`"2*cols"` and `"cols/2"` too), and after a colon what is special
  about it: a dtype (`cols: float32`), else it has the floating dtype that is being tried; `below cols`, integers from 0
  to one less; `positive`, numbers from about 2⁻⁶ to 2⁶, and `nonnegative`, zeros among them. (Where the reference gives
  a number for it, a zero is tried as a `positive` number, too.)
- `"... cols"` is a tensor with any leading dims: one, and in some trials none or several.
- A tuple holds values that are tried in turn, anything else is handed on as it is. What `INPUTS` doesn't name keeps its
  default.
- Where a file has several functions, `INPUTS = {"my_function": {…}, "other": {…}}`.
- `SIZES = {"cols": (16, 64, 128)}`: the only sizes that a dim may have. `DTYPES = ("float32", "bfloat16")`.
- `BATCH_INVARIANT = ("rows",)`: a row of this dim is promised to have the same bits in any batch.
- `STRICT = True`: arguments that don't fit are refused, which is promised, too.
- Instead of `INPUTS`, a function `my_function_inputs(rows, cols)` may return the arguments by name, for sizes of its
  choice of names. Floating tensors in float32 get the dtype that is tried.

An argument that the reference writes to, the function must write to as well, with the same values, and leave alone
what lies between and around. `my_function_` beside these two, with the same arguments, is judged as `my_function` in
place: its first argument must hold the result afterwards.

Without INPUTS, each argument that has no default is a tensor of shape (rows, cols).
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from academy.runtime.device import DEVICE
from academy.book import syntax
from academy.files import cache

DTYPES = ("float32", "float16", "bfloat16")
REFERENCE = "_reference"
#: Leading dims, as many as there are.
ANY = "..."
_DIM = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?:/(\d+))?|(\d+)")
_MOST_OPTIONS = 8


class Unusable(ValueError):
    """The file, or what it says about its inputs, can't be judged; the message says what to write."""


@dataclass(frozen=True)
class Tensor:
    """One tensor argument, as its string says. dims: (factor, name, divisor), or a number."""

    dims: tuple[tuple[int, str, int] | int, ...]
    dtype: str = ""
    below: str = ""
    sign: str = ""

    @classmethod
    def parse(cls, name: str, text: str) -> Tensor:
        """Raises Unusable, naming the argument, where the text is not as this module's docstring says."""
        shape, _, words = text.partition(":")
        dims: list[tuple[int, str, int] | int] = []
        for place, part in enumerate(shape.split()):
            if part == ANY and not place:
                dims.append((1, ANY, 1))
                continue
            match = _DIM.fullmatch(part)
            if not match:
                raise Unusable(f'INPUTS of {name}: {part!r} is no dim; write "rows cols", "2*cols", "cols/2" or "64"')
            factor, dim, divisor, number = match.groups()
            dims.append(int(number) if number else (int(factor or 1), dim, int(divisor or 1)))
        said = re.fullmatch(
            r"\s*(?P<dtype>\w*?)\s*(?:below\s+(?P<below>\w+)|(?P<sign>positive|nonnegative))?\s*", words
        )
        dtype = said["dtype"] if said else words.strip()
        if not said or dtype and not isinstance(getattr(torch, dtype, None), torch.dtype):
            wanted = 'a dtype, as "rows: int64 below cols" or "cols: float32", or the word "positive" or "nonnegative"'
            raise Unusable(f"INPUTS of {name}: after the colon stands {words.strip()!r}, and should stand {wanted}")
        below = said["below"] or ""
        return cls(tuple(dims), dtype or ("int64" if below else ""), below, said["sign"] or "")

    def names(self) -> list[str]:
        return [dim[1] for dim in self.dims if isinstance(dim, tuple)]

    def shape(self, sizes: dict[str, int]) -> list[int]:
        return [dim if isinstance(dim, int) else dim[0] * sizes[dim[1]] // dim[2] for dim in self.dims]

    def make(self, sizes: dict[str, int], generator: torch.Generator) -> torch.Tensor:
        """On the CPU; a floating one in float64."""
        shape = self.shape(sizes)
        dtype = getattr(torch, self.dtype) if self.dtype else None
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if dtype is not None and not dtype.is_floating_point:
            below = int(self.below) if self.below.isdigit() else sizes.get(self.below, 100)
            return torch.randint(max(below, 1), shape, generator=generator, dtype=dtype)
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if not self.sign:
            return values
        zero = torch.rand(shape, generator=generator) < (0.25 if self.sign == "nonnegative" else 0.0)
        return torch.where(zero, 0.0, 2.0 ** (2 * values))


@dataclass
class Subject:
    """A function, its reference, and inputs for them.

    tensors: what the strings of INPUTS say. options: arguments that are no tensors -> values to try. maker: a function
    from sizes to arguments, in place of both. sizes: those that a dim is confined to.
    """

    name: str
    function: Callable
    reference: Callable
    file: str = ""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    options: dict[str, tuple] = field(default_factory=dict)
    maker: Callable[..., dict] | None = None
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: tuple[str, ...] = DTYPES
    #: Products of eight-bit floats are summed inside, as exactly as the GPU does that. (Of inputs of eight bits that is
    #: known without.)
    codes: bool = False
    #: Dims whose rows have the same bits in any batch, as is promised.
    batch_invariant: tuple[str, ...] = ()
    #: Arguments that don't fit are refused, as is promised.
    strict: bool = False
    #: Its reference is that of the function without the `_`.
    derived: bool = False
    #: Gives the same subject in another process; None where none can.
    origin: Callable[[], Subject] | None = None

    @property
    def dims(self) -> list[str]:
        """Names of dims, in the order in which they are met."""
        if self.maker:
            found = inspect.signature(self.maker).parameters.values()
            return [each.name for each in found if each.default is each.empty]
        return list(dict.fromkeys(name for tensor in self.tensors.values() for name in tensor.names()))

    def combinations(self) -> list[dict[str, Any]]:
        """Values of the options that are tried together: all combinations, or the first of many."""
        found: list[dict[str, Any]] = [{}]
        for name, values in self.options.items():
            found = [{**one, name: value} for one in found for value in values]
        return found[:_MOST_OPTIONS]

    @property
    def ranks(self) -> list[int]:
        """Of the first tensor, if it had one leading dim less, one more, or two more."""
        dims = next(iter(self.tensors.values())).dims if self.tensors else ()
        known = len(dims) if dims and isinstance(dims[0], tuple) else 9
        return [rank for rank in (known - 1, known + 1, known + 2) if 0 < rank <= 4]

    def with_rank(self, rank: int) -> Subject:
        """The same with so many dims of the first tensor: in all tensors that begin with the dim that it begins with,
        that dim is left out, or dims of 2 are put before it."""
        first = next(iter(self.tensors.values())).dims
        leading = first[0][1] if isinstance(first[0], tuple) else ""
        tensors = dict(self.tensors)
        for name, tensor in tensors.items():
            if tensor.dims and isinstance(tensor.dims[0], tuple) and tensor.dims[0][1] == leading:
                tensors[name] = replace(tensor, dims=(2,) * (rank - len(first)) + tensor.dims[rank < len(first) :])
        return replace(self, tensors=tensors)

    def make(
        self, sizes: dict[str, int], dtype: torch.dtype, seed: int, scale: float = 1.0, offset: float = 0.0
    ) -> dict[str, Any]:
        """The arguments by name, without the options, contiguous on the device."""
        generator = torch.Generator().manual_seed(seed)
        if self.maker:
            torch.manual_seed(seed)
            made = self.maker(**sizes)
            if not isinstance(made, dict):
                raise Unusable(f"{self.name}_inputs returns {type(made).__name__}, and should return a dict")
            return {name: self._converted(value, dtype, scale, offset) for name, value in made.items()}
        found = {}
        for name, tensor in self.tensors.items():
            value = tensor.make(sizes, generator)
            if value.is_floating_point():
                value = value * scale + (abs(offset) if tensor.sign else offset)
                value = value.to(getattr(torch, tensor.dtype) if tensor.dtype else dtype)
            found[name] = value.to(DEVICE)
        return found

    def _converted(self, value: Any, dtype: torch.dtype, scale: float, offset: float) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype == torch.float32:
            offset = abs(offset) if bool((value >= 0).all()) else offset  # it may have to be so
            value = (value.double() * scale + offset).to(dtype)
        return value.to(DEVICE)


def from_file(path: Path, names: list[str] | None = None) -> list[Subject]:
    """The functions of a file that have a reference, or those that are named. The file is executed.

    Raises:
        Unusable: there is none, or what it says about inputs is not as this module's docstring says.
        Exception: what the file raises when it is imported.
    """
    found = of_module(syntax.import_file(path.resolve(), cache.ROOT), str(path), names)
    for subject in found:
        subject.origin = functools.partial(_named, path.resolve(), subject.name)
    return found


def _named(path: Path, name: str) -> Subject:
    return from_file(path, [name])[0]


def of_module(module: ModuleType, file: str, names: list[str] | None = None) -> list[Subject]:
    has = [name.removesuffix(REFERENCE) for name in vars(module) if name.endswith(REFERENCE)]
    has = [name for name in has if callable(getattr(module, name, None))]
    beside = [f"{name}_" for name in has if _in_place_of(module, name)]
    if missing := [name for name in names or () if name not in [*has, *beside]]:
        what = "no such function" if not hasattr(module, missing[0]) else f"no function {missing[0]}{REFERENCE}"
        raise Unusable(f"{file}: {what}: a function `{missing[0]}` needs its reference in PyTorch beside it")
    if not has:
        raise Unusable(
            f"{file} has no pair of functions `name` and `name{REFERENCE}`: the kernel's function, "
            f"and the same in plain PyTorch"
        )
    return [_subject(module, name, file) for name in names or [*has, *beside]]


def _in_place_of(module: ModuleType, name: str) -> bool:
    """Whether `name_` is there, without a reference of its own: by PyTorch's convention the same in place."""
    function = getattr(module, f"{name}_", None)
    if not inspect.isfunction(function) or hasattr(module, f"{name}_{REFERENCE}"):
        return False
    return [*inspect.signature(function).parameters] == [*inspect.signature(getattr(module, name)).parameters]


def _in_place(reference: Callable) -> Callable:
    """What the reference gives, written into its first argument."""
    first = next(iter(inspect.signature(reference).parameters))

    @functools.wraps(reference)
    def function_(**given: Any) -> torch.Tensor:
        return given[first].copy_(reference(**given))

    return function_


def _subject(module: ModuleType, name: str, file: str) -> Subject:
    own = name if hasattr(module, name + REFERENCE) else name.removesuffix("_")
    reference = getattr(module, own + REFERENCE)
    said = getattr(module, "INPUTS", None)
    if isinstance(said, dict) and said and all(isinstance(value, dict) for value in said.values()):
        said = said.get(own)
    subject = of_functions(
        getattr(module, name),
        reference if own == name else _in_place(reference),
        getattr(module, f"{own}_inputs", None) or said,
        name=name,
        sizes=getattr(module, "SIZES", {}),
        dtypes=getattr(module, "DTYPES", DTYPES),
    )
    subject.file, subject.derived = file, own != name
    promised = getattr(module, "BATCH_INVARIANT", ())
    subject.batch_invariant = (promised,) if isinstance(promised, str) else tuple(promised)
    subject.strict = bool(getattr(module, "STRICT", False))
    if unknown := set(subject.batch_invariant) - set(subject.dims):
        raise Unusable(f"BATCH_INVARIANT names {min(unknown)!r}, which is no dim of {name}: {', '.join(subject.dims)}")
    return subject


def of_functions(
    function: Callable,
    reference: Callable,
    inputs: dict[str, Any] | Callable[..., dict] | None = None,
    *,
    name: str = "",
    sizes: dict[str, Any] | None = None,
    dtypes: tuple[str, ...] = DTYPES,
) -> Subject:
    """inputs: as `INPUTS`, or a function from sizes to arguments. Raises Unusable as `from_file` does."""
    for dtype in dtypes:
        if not getattr(getattr(torch, str(dtype), None), "is_floating_point", False):
            raise Unusable(f"DTYPES names {dtype!r}, and should name floating dtypes, such as {DTYPES}")
    name = name or getattr(function, "__name__", "function")
    subject = Subject(name, function, reference, dtypes=tuple(dtypes))
    for dim, allowed in (sizes or {}).items():
        subject.sizes[dim] = tuple(allowed) if isinstance(allowed, (tuple, list)) else (allowed,)
    if callable(inputs):
        subject.maker = inputs
    else:
        _read(subject, inputs if inputs is not None else _by_signature(function), function)
    subject.sizes = {dim: one for dim, one in subject.sizes.items() if dim in subject.dims}
    if not subject.dims and not subject.tensors:
        raise Unusable(f"{name}: nothing says which tensors it takes: {_example(function)}")
    return subject


def _read(subject: Subject, inputs: dict[str, Any], function: Callable) -> None:
    known = inspect.signature(function).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in known.values())
    for name, value in inputs.items():
        if name not in known and not anything:
            raise Unusable(f"INPUTS names {name!r}, which is no argument of {subject.name}({', '.join(known)})")
        if isinstance(value, str):
            subject.tensors[name] = Tensor.parse(name, value)
        else:
            subject.options[name] = value if isinstance(value, tuple) and value else (value,)
    needed = [each.name for each in known.values() if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
    if missing := [name for name in needed if name not in inputs]:
        raise Unusable(f"INPUTS says nothing of the argument {missing[0]!r} of {subject.name}: {_example(function)}")


def _by_signature(function: Callable) -> dict[str, Any]:
    """Strings of annotations, as `x: "rows cols"`; (rows, cols) for other arguments that have no default."""
    found = {}
    for each in inspect.signature(function).parameters.values():
        said = each.annotation
        if isinstance(said, str) and said[:1] in "'\"" and said:  # under `from __future__ import annotations`
            said = ast.literal_eval(said)
        elif isinstance(said, str) and not re.search(r"[ :]|^[a-z_]+$", said):
            said = None  # the name of a type
        if isinstance(said, str) and said not in ("int", "float", "bool", "str"):
            found[each.name] = said
        elif each.default is each.empty and each.kind < each.VAR_POSITIONAL:
            found[each.name] = "rows cols"
    return found


def _example(function: Callable) -> str:
    """What to write for it."""
    names = [n for n, each in inspect.signature(function).parameters.items() if each.default is each.empty]
    return "write, for example, INPUTS = {" + ", ".join(f'"{name}": "rows cols"' for name in names or ["x"]) + "}"
