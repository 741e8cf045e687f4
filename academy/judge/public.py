r"""The public functions of all operations, each said once, in `PUBLIC` of `operations/<op>.py`.

```python
from academy.judge.public import Public

PUBLIC = [
    Public("rmsnorm", {"x": "rows cols", "weight": "cols", "offset": (0.0, 1.0)}, at=(6, 1000)),
    Public("decode_attention", cache, at=(3, 300, 64), sizes={"width": (16, 40)}, differentiable=False),
]
HELPERS = {"pack": "runs before a model is compiled"}
```

This module doesn't import triton, and neither do the files: what needs a kernel is imported inside of a function. From
`functions()` a test gets every function of every file once, so that what holds for all of them is written once: the
judge's trials (`subject()`), and what is tried with a call or two of each (`calls()`): derivatives, `torch.compile`,
CUDA graphs, bad arguments, NaN.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from academy.book import facts, layout

if TYPE_CHECKING:
    import torch

    from academy.judge.subject import Subject

#: From a function to what is called in its place; the reference gets the same.
Wrap = Callable[[Callable], Callable]
#: What a call says besides its options.
_SAID = ("inputs", "wrap")


@dataclass(frozen=True, eq=False)
class Public:
    """A public function.

    name: of the function, in the files that `modules` names (default: `LESSON` and `FAST` of the file).
    inputs: as a file says them that `academy judge` takes: `INPUTS`, or a function from sizes to arguments (see
        `academy.judge.subject`). `options`: with such a function, the arguments that are no tensors.
    sizes, dtypes: those that a trial is confined to. without: groups of trials that don't fit the function -> why.
    reference: the same in plain PyTorch, or its name (default: `<name>_reference` of the lesson).
    wrap: what is called in place of the function and of the reference, `wrap(function)`.
    differentiable: whether it has a backward pass.
    uncaptured: why a CUDA graph can't capture it; "" if one can.
    codes: whether it multiplies eight-bit codes that it makes of its inputs, see `Subject.codes`.
    batch: dims of rows that are computed independently -> "" if a row has the same bits in any batch, which the judge
        holds; else why not. Where it isn't so in all of the files: file -> why not.
    at: the sizes of a call, in the order in which `inputs` names the dims. Floating tensors are bfloat16 then, but for
        those that `float32` names.
    calls: the options of each call (default: each combination of those in `inputs`). `inputs` among them changes
        tensors: name -> words, a function from sizes, or None for one that is left out; or is a function from sizes to
        all of them. `wrap` replaces that above; None: the function itself is called.
    more: calls that only `torch.compile` is tried with, and arguments that change before the backward pass.
    """

    name: str
    inputs: dict[str, Any] | Callable[..., dict]
    at: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    more: list[dict[str, Any]] = field(default_factory=list)
    reference: str | Callable = ""
    wrap: Wrap | None = None
    sizes: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    without: dict[str, str] = field(default_factory=dict)
    differentiable: bool = True
    uncaptured: str = ""
    codes: bool = False
    batch: dict[str, str | dict[str, str]] = field(default_factory=dict)
    float32: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    #: One of them: `functions` gives each its own.
    module: str = ""

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def groups(self) -> list[str]:
        """The groups of trials that it is judged by."""
        from academy.judge.trials import USUAL

        return [group for group in USUAL if group not in self.without]

    def varies(self, dim: str) -> str:
        """Why a row of this dim has other bits in another batch; "" if it has the same."""
        why = self.batch[dim]
        return why if isinstance(why, str) else why.get(self.module, "")

    def function(self) -> Callable:
        return _found(str(self))

    def reference_function(self) -> Callable:
        return _found(self.reference) if isinstance(self.reference, str) else self.reference

    def subject(self, function: Callable | None = None, reference: Callable | None = None) -> Subject:
        """What the judge takes. function, reference: others in their place, such as those of a copy of the file."""
        from academy.judge.subject import of_functions

        wrap = self.wrap or (lambda each: each)
        pair = wrap(function or self.function()), wrap(reference or self.reference_function())
        found = of_functions(pair[0], pair[1], self.inputs, name=self.name, sizes=self.sizes, dtypes=self.dtypes)
        found.options |= {name: each if isinstance(each, tuple) else (each,) for name, each in self.options.items()}
        found.codes, found.strict = self.codes, True
        found.batch_invariant = tuple(dim for dim in self.batch if not self.varies(dim))
        if function is reference is None:
            found.origin = functools.partial(_subject_of, str(self))
        return found


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a public function. said: one of its `calls` or `more`."""

    public: Public
    said: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.public}({','.join(f'{name}={value}' for name, value in self.options.items())})"

    @property
    def module(self) -> str:
        return self.public.module

    @property
    def function(self) -> str:
        return self.public.name

    @property
    def differentiable(self) -> bool:
        return self.public.differentiable

    @property
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in self.said.items() if name not in _SAID}

    def inputs(self, seed: int = 0) -> dict[str, torch.Tensor]:
        """Its tensors by name, new ones at each call."""
        import torch

        from academy.runtime.device import DEVICE
        from academy.judge.subject import Tensor

        subject, changed = self.public.subject(), self.said.get("inputs", {})
        sizes, made = dict(zip(subject.dims, self.public.at, strict=True)), {}
        torch.manual_seed(seed)
        if callable(changed):
            made = changed()
        else:
            if subject.maker:
                made = subject.make(sizes, torch.bfloat16, seed)
            words = {name: Tensor.parse(name, text) for name, text in changed.items() if isinstance(text, str)}
            made |= replace(subject, maker=None, tensors=subject.tensors | words).make(sizes, torch.bfloat16, seed)
            made |= {name: made[name].float() for name in self.public.float32}
            made |= {name: _of_sizes(maker, sizes) for name, maker in changed.items() if callable(maker)}
            made = {name: each for name, each in made.items() if changed.get(name, "") is not None}
        return {name: each.to(DEVICE) for name, each in made.items()}

    def load(self) -> Callable:
        """The function with its options, called with the tensors. Several results, or codes of few bits, come as
        numbers in one vector."""
        return self.called(self.public.function())

    def called(self, function: Callable) -> Callable:
        """The same of another function, such as the reference."""
        wrapped = (self.said.get("wrap", self.public.wrap) or (lambda each: each))(function)
        return lambda **tensors: in_one(wrapped(**tensors, **self.options))


def functions(root: Path = facts.HOME, gluon: bool = False) -> list[Public]:
    """Every public function of the lessons and fast versions.

    gluon: those below Triton, in place of all others. In the simulator they take a second a call.
    """
    return [public for public in _all(root) if public.module.startswith("gluon.") == gluon]


def _subject_of(name: str) -> Subject:
    """Of a public function, `fast.softmax.softmax`: for another process."""
    (found,) = [each for gluon in (False, True) for each in functions(gluon=gluon) if str(each) == name]
    return found.subject()


def calls(root: Path = facts.HOME, gluon: bool = False, more: bool = False) -> list[Call]:
    """The calls of all of them. more: with those that `more` says."""
    return [call for public in functions(root, gluon) for call in _calls(public, more)]


def of_script(
    file: Path, function: Callable, reference: Callable
) -> tuple[Public, Subject, list[tuple[dict, dict]]] | None:
    """What a kernel file, or a copy of it elsewhere, compares of a function when it is run: sizes and options.

    None where nothing is said of such a function in a file of that name.
    """
    from academy.judge.trials import Plan

    place, name = layout.dotted(file.as_posix()), function.__name__
    known = [each for gluon in (False, True) for each in functions(gluon=gluon) if each.name == name]
    same = [each for each in known if place.endswith(f".{each.module}")]
    same += [each for each in known if each.module.rpartition(".")[2] == place.rpartition(".")[2]]
    if not same:
        return None
    subject = same[0].subject(function, reference)
    first, *others = subject.combinations()
    odd, usual = dict(Plan(subject).odd()), dict(zip(subject.dims, same[0].at))
    return same[0], subject, [(usual, first), (odd, first), *((odd, each) for each in others)]


@functools.cache
def _all(root: Path) -> list[Public]:
    found = []
    for path in layout.operations(root):
        module = facts.load(path)
        for public in getattr(module, "PUBLIC", ()):
            reference = public.reference or f"{module.LESSON}.{public.name}_reference"
            files = public.modules or tuple(filter(None, (module.LESSON, module.FAST)))
            found += [replace(public, module=name, reference=reference) for name in files]
    return found


def _calls(public: Public, more: bool) -> list[Call]:
    said = public.inputs if isinstance(public.inputs, dict) else {}
    combinations: list[dict[str, Any]] = [{}]
    for name, values in (said | public.options).items():
        if not isinstance(values, str):
            values = values if isinstance(values, tuple) else (values,)
            combinations = [{**one, name: value} for one in combinations for value in values]
    return [Call(public, each) for each in [*(public.calls or combinations), *(public.more if more else ())]]


def in_one(out: Any) -> torch.Tensor:
    """A floating tensor as it is; several results, codes and whole numbers as one vector."""
    import torch

    def numbers(part: torch.Tensor) -> torch.Tensor:
        part = part.view(torch.uint8) if part.dtype == torch.float4_e2m1fn_x2 else part
        return part.flatten().to(torch.float64 if part.dtype == torch.float64 else torch.float32)

    if isinstance(out, torch.Tensor) and out.is_floating_point() and out.element_size() > 1:
        return out
    return torch.cat([numbers(part) for part in (out if isinstance(out, tuple) else (out,))])


def _found(name: str) -> Callable:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"{layout.KERNELS}.{module}"), function)


def _of_sizes(maker: Callable, sizes: dict[str, int]) -> torch.Tensor:
    names = maker.__code__.co_varnames[: maker.__code__.co_argcount]
    return maker(*(sizes[name] for name in names))
