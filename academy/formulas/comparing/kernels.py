"""Run a case's calls of a kernel on hostile inputs and compare them with the formulas as they are printed.

The formula, read from the page's LaTeX, is evaluated in float64 from the very inputs that the kernel got. A result may
be no worse than twice PyTorch's own error in that dtype (`academy.judge.accuracy`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from academy.book.problems import Problem
from academy.command import trouble
from academy.formulas import cases
from academy.formulas.cases import Comparison, Target
from academy.formulas.meaning.formula import Formulas
from academy.formulas.meaning.values import DTYPE
from academy.judge import accuracy, elements, layouts, verdict
from academy.judge.fences import Fences, walled


@dataclass(frozen=True)
class Inputs:
    """lengths: of dims in turn (the rows come first). scale, offset: of what may be any real number."""

    name: str
    lengths: tuple[int, ...] = (5, 37, 19, 11, 23, 13)
    scale: float = 1.0
    offset: float = 0.0
    dtype: str = "float32"
    layout: str = "contiguous"
    upstream: str = "random"


#: No multiple of a block in any dimension, memory full of NaN around and between, one element, ±10⁴, zero strides.
HOSTILE = (
    Inputs("odd sizes, NaN between the elements", layout="strided"),
    Inputs("one element", lengths=(1,), upstream="expanded"),
    Inputs("values around ±10⁴, upstream gradient with zero strides", scale=1e4, layout="fenced", upstream="expanded"),
    Inputs("values around 10⁴ that differ by about 1", offset=1e4),
    Inputs("bfloat16", dtype="bfloat16", layout="strided"),
    Inputs("float16", dtype="float16"),
)
Gradients = dict[str, torch.Tensor]


def run(
    comparison: Comparison,
    module: ModuleType,
    first_only: bool = False,
    memo: dict | None = None,
    walls: bool = False,
    inputs: Sequence[Inputs] = HOSTILE,
) -> list[Problem]:
    """Compare on hostile inputs. A problem is reported at the formula that differs; if there is none, at the case.

    Args:
        module: handed in, so that a mutated copy can be judged too.
        first_only: stop after the first inputs that show something.
        walls: put contiguous inputs and new tensors in front of memory that can't be read: a read past the end kills
            the process.
        memo: keeps what PyTorch and the printed formulas give, for runs of other modules and of mutated copies.
    """
    found: list[Problem] = []
    memo = {} if memo is None else memo
    for hostile in inputs:
        if hostile.dtype in comparison.dtypes and not (found and first_only):
            found += _Run(comparison, module, hostile, memo, walls).mismatches()
    return found


def called(comparison: Comparison, module: ModuleType, hostile: Inputs) -> None:
    """The call of a case, compared with nothing: for who only asks which kernels it launches."""
    made = _Run(comparison, module, hostile, {}, walls=False)
    made.case = cases.load(comparison.path)[comparison.case]
    made.ours(made.draw())


class _Run:
    def __init__(self, comparison: Comparison, module: ModuleType, hostile: Inputs, memo: dict, walls: bool):
        self.comparison, self.module, self.hostile, self.memo = comparison, module, hostile, memo
        self.walls, self.sizes = walls and _device().type == "cpu", comparison.sizes
        self.front = comparison.page.front
        self.generator = torch.Generator().manual_seed(1000 + [*HOSTILE, hostile].index(hostile))
        self.keys = {self.front.names[key]: key for key in (*self.front.given, *self.front.classes)}
        self.upstreams = [self.front.names[up] for _, up in (self.front.loss.terms if self.front.loss else ())]
        self.found: list[Problem] = []
        self.wanted = comparison.targets()

    # ---------------------------------------------------------------- inputs
    def draw(self) -> dict[str, Any]:
        """Inputs in the kernel's dtype, by Python name; symbols that are one number for the whole call are floats."""
        rows, *rest = self.hostile.lengths * (len(self.front.dims) + 1)
        sizes: dict = {} if self.hostile.lengths == (1,) else self.sizes
        free = {dim: sizes.get(dim, length) for dim, length in zip(self.front.free_dims, rest)}
        self.dims, chosen = self.front.lengths(free), sizes.get("rows", rows)
        self.row_shape = chosen if isinstance(chosen, tuple) else (chosen,)
        inputs = {name: self.drawn(name, key) for name, key in self.keys.items()}
        values = self.case.said["values"]
        for name, value in (self.evaluated(values, inputs) if callable(values) else values).items():
            if name not in self.keys:
                raise ValueError(f"`values` gives {name}, which isn't a symbol of {self.comparison.page.path}")
            inputs[name] = value if torch.is_tensor(value) else float(value)
        return {name: value.to(_device()) if torch.is_tensor(value) else value for name, value in inputs.items()}

    def drawn(self, name: str, key: str) -> Any:
        batch = self.row_shape if name in self.comparison.rows else ()
        if key in self.front.classes:
            return torch.randint(self.dims[self.front.classes[key]], batch, generator=self.generator)
        spec, hostile = self.front.given[key], self.hostile
        values = spec.draw(self.dims, self.generator, batch)
        if values.dim() == 0:
            return float(values.to(torch.float32))  # a kernel takes the number as float32
        if name in self.upstreams:
            values = values.to(_device(), getattr(torch, hostile.dtype))
            return values[:1].expand(values.shape) if hostile.upstream == "expanded" else values
        if not spec.domain:
            values = values * hostile.scale + hostile.offset
        # Strides would not survive the way to the GPU, so the memory is laid out there.
        values = values.to(_device(), getattr(torch, hostile.dtype))
        return _LAYOUTS["walled" if self.walls and hostile.layout != "strided" else hostile.layout](values)

    def evaluated(self, function: Callable, inputs: dict, module: Any = None) -> Any:
        """A function of the case file, called with what its parameters ask for."""
        scope = {self.front.names[dim]: length for dim, length in self.dims.items()} | inputs
        at_end = walled if self.walls else lambda values: values
        scope |= {"module": module or self.module, "rows": self.row_shape, "at_end": at_end}
        return function(**{name: scope[name] for name in inspect.signature(function).parameters})

    # ---------------------------------------------------------------- running
    def mismatches(self) -> list[Problem]:
        try:
            self.case = cases.load(self.comparison.path)[self.comparison.case]
            self.compare()
        except Exception as error:  # the kernel's, PyTorch's or the formula's: each is a difference worth a line
            trouble.let_through(error)
            self.miss(None, trouble.said(error))
        return self.found

    def compare(self) -> None:
        inputs = self.draw()
        before = {name: value.clone() for name, value in inputs.items() if torch.is_tensor(value)}
        with Fences(self.walls) as fences:
            outputs, gradients = self.ours(inputs)
        if fences.broken():
            self.miss(None, "something was written outside of a tensor")
        for name, value in before.items():
            if not torch.equal(torch.nan_to_num(value), torch.nan_to_num(inputs[name])):
                self.miss(None, f"the call wrote to its input {name}")
        doubled = elements.in_float64(inputs, codes=True)
        reference, slopes = self.remembered("pytorch", lambda: self.pytorch(inputs))
        exact, exact_slopes = self.remembered("float64", lambda: self.pytorch(doubled))
        for target, *three in zip(self.comparison.returns, outputs, reference, exact):
            if target is not None:
                self.judge(target, "the result", three, inputs, summed=False)
        targets = self.comparison.gradients
        for name in gradients.keys() - targets.keys():
            if not self.front.given[self.keys[name]].fixed:
                self.miss(None, f"it gives a gradient of {name}, and `gradients` names no tag for it")
        for name, target in targets.items():
            if name not in gradients:
                self.miss(target, f"it gives no gradient of {name}")
                continue
            summed = bool(self.comparison.rows) and name not in self.comparison.rows
            three = [gradients[name], slopes[name], exact_slopes[name]]
            self.judge(target, f"the gradient of {name}", three, inputs, summed)

    def ours(self, inputs: dict) -> tuple[list, Gradients]:
        """What the case returns, and its gradients: its own, or those that autograd finds."""
        from academy.interpreter.quick.together import together  # lazy: a page is read without triton

        with together():
            if not self.comparison.explicit:
                return self.differentiated(self.case.function, self.module, inputs)
            result, gradients = self.evaluated(self.case.function, inputs)
            return self.outputs(result), gradients

    def pytorch(self, inputs: dict) -> tuple[list, Gradients]:
        """The same of PyTorch's own operation."""
        said = self.case.said["pytorch"]
        if callable(said):
            return self.differentiated(said, self.module, inputs)
        judge = _Judge(self.module, self.comparison.function, said or f"{self.comparison.function}_reference")
        return self.differentiated(self.case.function, judge, inputs)

    def outputs(self, result: Any) -> list:
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if isinstance(outputs[-1], dict):
            raise ValueError("gradients are returned as a mapping that stands in the return statement itself")
        if len(outputs) != len(self.comparison.returns):
            raise ValueError(f"it returns {len(outputs)} values, and `returns` names {len(self.comparison.returns)}")
        return outputs

    def differentiated(self, function: Callable, module: Any, inputs: dict) -> tuple[list, Gradients]:
        """Tensors that the function returns, and the gradient of every floating-point input that gets one."""
        done = verdict.run(
            lambda **leaves: self.outputs(self.evaluated(function, leaves, module)),
            inputs,
            lambda attached: self.upstream(attached, inputs),
            () if self.comparison.forward_only else None,
            lambda outputs: {str(number): value for number, value in enumerate(outputs)},
        )
        return [*done.outputs.values()], done.gradients

    def upstream(self, outputs: list[torch.Tensor], inputs: dict) -> list[torch.Tensor]:
        said = self.case.said["upstream"]
        given = self.evaluated(said, inputs) if callable(said) else said
        if given is None:
            given = [inputs[name] for name in self.upstreams] or [torch.ones_like(out) for out in outputs]
        given = given if isinstance(given, (tuple, list)) else [given]
        return [torch.as_tensor(up, dtype=out.dtype, device=out.device) for up, out in zip(given, outputs)]

    def remembered(self, what: str, compute: Callable) -> Any:
        """The same for all modules of a case, and for mutated copies of them."""
        key = (self.comparison.path, self.comparison.case, self.hostile.name, what)
        if key not in self.memo:
            self.memo[key] = compute()
        return self.memo[key]

    # ---------------------------------------------------------------- comparing
    def miss(self, target: Target | None, message: str) -> None:
        page = self.comparison.page
        message = f"{self.comparison}: {self.comparison.call} ({self.hostile.name}): {message}"
        place = Problem.at(page.path, page.text, page.tags()[target.tag][0].pos, message) if target else None
        self.found.append(place or self.comparison.problem(message))

    def judge(self, target: Target, what: str, three: list, inputs: dict, summed: bool) -> None:
        """three: the kernel's result, PyTorch's in the same dtype, PyTorch's in float64."""
        actual, reference, exact = (value.cpu() for value in three)
        expected = self.expected(target, inputs)
        if summed:
            expected = expected.sum(0)
        elif self.comparison.rows:
            expected = expected.unflatten(0, self.row_shape)
        if not expected.isfinite().all() and reference.isfinite().all():
            return self.miss(target, "the printed form overflows: print a stable one too, and name it under `stable`")
        # Were the formula wrong, PyTorch's error would be as large as the kernel's and excuse it. (An expression may
        # have gone to float32 on the way.)
        limit, finite = 1e-6 if exact.dtype == DTYPE else 1e-3, exact.isfinite()
        if exact.shape != expected.shape or accuracy.errors(exact, expected, finite & expected.isfinite()).rms > limit:
            return self.miss(target, f"{what} of PyTorch in float64 is not what {target} prints")
        problem = accuracy.problem(actual, reference, expected)
        if problem:
            self.miss(target, f"{what} is not what {target} prints: {problem}")

    def expected(self, target: Target, inputs: dict) -> torch.Tensor:
        """The printed formula's value; of the stable form, if one is named."""
        values = self.printed(target.replaced, inputs)
        value, stable = values[target.tag], self.comparison.stable.get(target.tag)
        if stable is None:
            return value
        if value.isfinite().all() and not torch.allclose(value, values[stable], rtol=1e-8, atol=1e-10):
            self.miss(target, f"the stable form {stable} differs from {target.tag}")
        return values[stable]

    def printed(self, replaced: tuple[tuple[str, Target], ...], inputs: dict) -> dict[str, torch.Tensor]:
        """Values in float64 of all formulas that are asked for with these results put in; what they share is evaluated
        once."""
        return self.remembered(f"printed {replaced}", lambda: self._printed(replaced, inputs))

    def _printed(self, replaced: tuple[tuple[str, Target], ...], inputs: dict) -> dict[str, torch.Tensor]:
        values, batch = {}, self.comparison.rows
        for name, value in inputs.items():
            value = torch.as_tensor(value, dtype=None if torch.is_tensor(value) else DTYPE)
            values[name] = value.flatten(0, len(self.row_shape) - 1) if name in batch else value
        for name, other in replaced:
            values[name] = self.printed(other.replaced, inputs)[other.tag]
            batch += (name,) if batch and name not in batch else ()
        tags = [target.tag for target in self.wanted if target.replaced == replaced]
        tags += [self.comparison.stable[tag] for tag in tags if tag in self.comparison.stable]
        return Formulas(self.comparison.page, tags)(batch=batch, **values)


class _Judge:
    """A module in which a reference stands for one function: it gets the arguments that it knows."""

    def __init__(self, module: ModuleType, function: str, reference: str):
        self._module, self._function, self._reference = module, function, reference

    def __getattr__(self, name: str):
        if name != self._function:
            return getattr(self._module, name)
        reference = getattr(self._module, self._reference, None)
        if reference is None:
            raise ValueError(f"the module has no {self._reference}: name PyTorch's own operation with `pytorch`")
        known = inspect.signature(reference).parameters
        return lambda *args, **options: reference(*args, **{k: v for k, v in options.items() if k in known})


def _device() -> torch.device:
    from academy.runtime.device import DEVICE

    return DEVICE


_LAYOUTS = {
    "contiguous": lambda values: values,
    "strided": layouts.strided,
    "fenced": layouts.nan_fenced,
    "walled": walled,
}
