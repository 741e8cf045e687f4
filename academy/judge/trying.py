"""Make one trial of a subject, in this process: `attempt`."""

from __future__ import annotations

import inspect
import linecache
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.autograd import forward_ad

from academy import device
from academy.judge import elements, fences, interpreted, layouts, non_finite
from academy.judge.subject import Subject
from academy.judge.trials import Trial

#: A result of so few elements is judged over so many draws of the inputs before it is called wrong.
FEW, DRAWS = 8, 16
STATES = ("right", "refused", "remark", "skipped", "wrong", "died")


class Wrong(AssertionError):
    """Something that a function must not do, in words."""


class Remark(Exception):
    """Nothing wrong, and worth a line."""


class Skipped(Exception):
    """The trial doesn't fit: the reference refuses these inputs too, or a GPU is needed."""


@dataclass
class Outcome:
    """What became of a trial. state: one of STATES; refused: the function says in words that it doesn't take such
    inputs. message: empty where it is right. line: of the file, where the trial ended at one."""

    trial: Trial
    state: str
    message: str = ""
    line: int | None = None
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        return self.state in ("wrong", "died")

    def as_json(self) -> dict[str, Any]:
        trial = asdict(self.trial) | {"sizes": dict(self.trial.sizes), "options": dict(self.trial.options)}
        return {**asdict(self), "trial": {**trial, "options": {n: repr(v) for n, v in trial["options"].items()}}}


def attempt(subject: Subject, trial: Trial) -> Outcome:
    """Make the trial. Whatever the function raises becomes an outcome."""
    start = time.perf_counter()
    state, message, line = "right", "", None
    try:
        _Attempt(subject, trial).make()
    except Wrong as found:
        state, message = "wrong", str(found)
    except Remark as found:
        state, message = "remark", str(found)
    except Skipped as found:
        state, message = "skipped", str(found)
    except Exception as error:
        state = "refused" if is_refusal(error) else "wrong"
        message, line = _in_words(error, _file(subject))
    return Outcome(trial, state, " ".join(message.split()), line, round(time.perf_counter() - start, 3))


def call_of(subject: Subject, trial: Trial) -> None:
    """The call of a trial alone, forward and backward, and nothing compared."""
    attempt = _Attempt(subject, trial)
    attempt.results(subject.function, attempt.inputs())


def _file(subject: Subject) -> str:
    try:
        return inspect.getfile(inspect.unwrap(subject.function))
    except TypeError:
        return subject.file


def is_refusal(error: BaseException) -> bool:
    """Whether Python code (and no kernel, no library) raised it on purpose: `raise ValueError(…)` or an `assert`."""
    if not isinstance(error, (ValueError, TypeError, NotImplementedError, AssertionError)):
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    library = any(f"/site-packages/{name}/" in frame.filename for name in ("torch", "triton", "numpy"))
    return not library and linecache.getline(frame.filename, frame.lineno or 0).strip().startswith(("raise", "assert"))


def _in_words(error: BaseException, file: str) -> tuple[str, int | None]:
    """What went wrong first, without what the interpreter puts around it, and the line of `file` where it did."""
    line = None
    while True:
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = places[-1] if places else line
        cause = error.__cause__
        if cause is None:
            line = getattr(error, "line", None) if getattr(error, "file", "") == file else line
            return f"{type(error).__name__}: {error}", line
        error = cause


class _Attempt:
    def __init__(self, subject: Subject, trial: Trial):
        self.subject, self.trial = subject, trial
        self.sizes, self.options = dict(trial.sizes), dict(trial.options)
        self.dtype = getattr(torch, trial.dtype)

    def make(self) -> None:
        getattr(self, "_" + self.trial.how)()

    # ---------------------------------------------------------------- inputs
    def inputs(self) -> dict[str, Any]:
        trial = self.trial
        made = self.subject.make(self.sizes, self.dtype, trial.seed, trial.scale, trial.offset)
        return {name: self.laid_out(value) if torch.is_tensor(value) else value for name, value in made.items()}

    def laid_out(self, value: torch.Tensor) -> torch.Tensor:
        if self.trial.layout == "expanded":
            return value[:1].expand(value.shape) if value.dim() and len(value) else value
        if value.dtype == torch.bool or not value.dim():
            return value
        layout = layouts.LAYOUTS.get(self.trial.layout) or getattr(layouts, self.trial.layout)
        return layout(value)

    def upstream(self, out: torch.Tensor) -> torch.Tensor:
        if self.trial.upstream == "sum":
            return torch.ones((), dtype=out.dtype, device=out.device).expand(out.shape)
        generator = torch.Generator().manual_seed(self.trial.seed + 1)
        values = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.device, out.dtype)
        return getattr(layouts, self.trial.upstream)(values) if self.trial.upstream != "random" else values

    def call(self, function: Callable, inputs: dict[str, Any]) -> Any:
        return function(**inputs, **self.options)

    # ---------------------------------------------------------------- running
    def results(
        self, function: Callable, inputs: dict[str, Any], upstreams: list[torch.Tensor] | None = None
    ) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """Outputs and gradients by name, and the upstream gradients: those given, else new ones."""
        leaves = dict(inputs)
        wanted = {name: value for name, value in inputs.items() if torch.is_tensor(value) and value.is_floating_point()}
        for name in wanted if self.differentiable else ():
            leaves[name] = wanted[name] = inputs[name].detach().requires_grad_()
        outputs = _named(self.call(function, leaves))
        attached = [out for out in outputs.values() if torch.is_tensor(out) and out.requires_grad]
        found = {name: out.detach() if torch.is_tensor(out) else out for name, out in outputs.items()}
        if not attached or not self.differentiable:
            return found, []
        if upstreams is None:
            upstreams = [self.upstream(out) for out in attached]
        given = [up.to(out.dtype) for up, out in zip(upstreams, attached)]
        grads = torch.autograd.grad(attached, list(wanted.values()), given, allow_unused=True)
        found |= {f"the gradient of {name}": grad for name, grad in zip(wanted, grads) if grad is not None}
        return found, upstreams

    @property
    def differentiable(self) -> bool:
        """Whether the function gives gradients, found out once."""
        known = vars(self.subject)
        if "differentiable" not in known:
            known["differentiable"] = gradient_mode(self.subject, self.trial) == "gradients"
        return known["differentiable"]

    def ours(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """The function's results, with fences around what it allocates."""
        tensors = {name: value for name, value in inputs.items() if torch.is_tensor(value)}
        before = {name: value.detach().clone() for name, value in tensors.items()}
        with fences.Fences() as fenced:
            found, upstreams = self.results(self.subject.function, inputs)
            _synchronize()
        for name, value in tensors.items():
            place = elements.first(~elements.same(value.detach(), before[name]))
            if place is not None:
                message = elements.at(name, place, value.detach(), before[name])
                raise Wrong(f"the call writes to its argument: {message}")
        if count := fenced.broken():
            raise Wrong(f"{count} elements outside of a tensor that it allocated were written to: is a mask missing?")
        return found, upstreams

    def compare(self, found: dict[str, Any], inputs: dict[str, Any], upstreams: list[torch.Tensor]) -> None:
        pytorch, exact = self.expected(inputs, upstreams)
        if missing := [name for name in pytorch if name not in found]:
            raise Wrong(f"it gives {len(found)} results, and {missing[0]} is missing")
        for name, value in found.items():
            if name not in pytorch:
                if torch.is_tensor(value) and bool((value != 0).any()):
                    raise Wrong(f"it gives {name}, and the reference gives none")
                continue
            if not torch.is_tensor(value) or not torch.is_tensor(pytorch[name]):
                if value != pytorch[name]:
                    raise Wrong(f"{name} is {elements.shown(value)}, should be {elements.shown(pytorch[name])}")
                continue
            given, wanted, precise = (one.detach().cpu() for one in (value, pytorch[name], exact[name]))
            message = elements.difference(name, given, wanted, precise)
            if message and not self.unlucky(name, precise):
                raise Wrong(message)

    def unlucky(self, name: str, precise: torch.Tensor) -> bool:
        """Whether a result of few elements, a loss for example, keeps the rule over several draws.

        The error of a single number is a matter of luck, and so is PyTorch's, which it is held against.
        """
        if self.trial.how != "compare" or not 0 < precise.numel() <= FEW:
            return False
        drawn: list[list[torch.Tensor]] = [[], [], []]
        for number in range(DRAWS):
            draw = _Attempt(self.subject, replace(self.trial, seed=self.trial.seed + number))
            inputs = draw.inputs()
            found, upstreams = draw.results(self.subject.function, inputs)
            for values, results in zip(drawn, (found, *draw.expected(inputs, upstreams))):
                values.append(results[name].detach().cpu())
        return elements.difference(name, *map(torch.stack, drawn)) is None

    def expected(self, inputs: dict[str, Any], upstreams: list[torch.Tensor]) -> tuple[dict, dict]:
        """Of the reference, in the inputs' dtype and in float64."""
        doubled = {n: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for n, v in inputs.items()}
        try:
            pytorch, _ = self.results(self.subject.reference, inputs, upstreams)
            exact, _ = self.results(self.subject.reference, doubled, upstreams)
        except Exception as error:
            raise Skipped(f"the reference takes no such inputs: {type(error).__name__}: {error}") from error
        return pytorch, exact

    # ---------------------------------------------------------------- procedures
    def _compare(self) -> None:
        inputs = self.inputs()
        found = self._or_both_refuse(lambda: self.ours(inputs), inputs)
        self.compare(found[0], inputs, found[1])

    def _or_both_refuse(self, call: Callable, inputs: dict[str, Any]) -> Any:
        try:
            return call()
        except Wrong:
            raise
        except Exception:
            if not any(size == 0 for size in self.sizes.values()):
                raise
            self.expected(inputs, [])  # raises Skipped where the reference refuses, too
            raise

    def _lanes(self) -> None:
        with interpreted.masked_lanes(float(self.trial.detail)):
            inputs = self.inputs()
            found, upstreams = self.ours(inputs)
        self.compare(found, inputs, upstreams)

    def _order(self) -> None:
        inputs = self.inputs()
        first, upstreams = self.results(self.subject.function, inputs)
        with interpreted.programs_in_order(self.trial.detail) as used:
            found, _ = self.results(self.subject.function, inputs, upstreams or None)
        try:
            self.compare(found, inputs, upstreams)
        except Wrong as wrong:
            self.compare(first, inputs, upstreams)  # wrong in order too: no race
            raise Wrong(f"with the programs {self.trial.detail}, which a GPU may do, {wrong}") from None
        for name, value in first.items():
            if torch.is_tensor(value) and not used["atomic"]:
                place = elements.first(~elements.same(value, found[name]))
                if place is not None:
                    message = elements.at(name, place, found[name], value)
                    raise Wrong(f"the programs {self.trial.detail} give other bits: {message}. Do two of them race?")

    def _watch(self) -> None:
        inputs = self.inputs()
        module = inspect.getmodule(inspect.unwrap(self.subject.function))
        files = interpreted.jitted_files(module) if module else [_file(self.subject)]
        for finding in interpreted.findings(files, lambda: self.results(self.subject.function, inputs)[0]):
            place = f" (line {finding.line})" if finding.file == _file(self.subject) else ""
            raise Wrong(f"{finding.message}{place}")

    def _far(self) -> None:
        inputs = self.inputs()
        name = self.trial.detail
        try:
            inputs[name] = fences.far_apart(inputs[name])
        except (OSError, MemoryError, RuntimeError) as error:
            raise Skipped(f"there is no room for it here: {error}") from error
        found, upstreams = self.results(self.subject.function, inputs)
        _synchronize()
        self.compare(found, inputs, upstreams)

    def _repeat(self) -> None:
        inputs = self.inputs()
        first, upstreams = self.results(self.subject.function, inputs)
        for _ in range(1 if device.INTERPRET else 10):
            again, _ = self.results(self.subject.function, inputs, upstreams or None)
            for name, value in first.items():
                if torch.is_tensor(value):
                    place = elements.first(~elements.same(value, again[name]))
                    if place is not None:
                        message = elements.at(name, place, again[name].cpu(), value.cpu())
                        raise Wrong(f"the second call gives other bits: {message}")

    def _non_finite(self) -> None:
        inputs = {n: v for n, v in self.inputs().items() if torch.is_tensor(v)}
        if len(inputs) < len(self.inputs()):
            raise Skipped("some arguments are no tensors")
        single = lambda function: lambda **given: _first_tensor(self.call(function, given))  # noqa: E731
        out = single(self.subject.function)(**inputs)
        upstream = self.upstream(out) if self.differentiable else None
        spoilt = inputs if upstream is None else {**inputs, "upstream": upstream}
        tried = list(non_finite.trials(spoilt, self.trial.seed))
        ours, theirs = single(self.subject.function), single(self.subject.reference)
        for trial, message in non_finite.walk(ours, [theirs], inputs, upstream, tried):
            raise Wrong(f"{trial}: {message}")

    def _penalty(self) -> None:
        loss = torch.sum if self.trial.detail == "sum" else lambda out: (out * out).sum()
        inputs = self.inputs()
        try:
            found = self._penalised(self.subject.function, inputs, loss)
        except RuntimeError:
            return
        wanted = self._penalised(self.subject.reference, inputs, loss)
        for name, gradient in found.items():
            _near(f"the gradient of {name} through a gradient penalty", gradient, wanted[name], "raise an error")

    def _penalised(self, function: Callable, inputs: dict[str, Any], loss: Callable) -> dict[str, torch.Tensor]:
        leaves = {
            n: v.detach().clone().requires_grad_() if torch.is_tensor(v) and v.is_floating_point() else v
            for n, v in inputs.items()
        }
        wanted = {n: v for n, v in leaves.items() if torch.is_tensor(v) and v.requires_grad}
        value = loss(_first_tensor(self.call(function, leaves)))
        grads = torch.autograd.grad(value, list(wanted.values()), create_graph=True, allow_unused=True)
        penalty = sum((grad.float().pow(2).sum() for grad in grads if grad is not None), torch.zeros(()))
        found = torch.autograd.grad(value + penalty.to(value.device), list(wanted.values()), allow_unused=True)
        return {n: g if g is not None else torch.zeros_like(v) for (n, v), g in zip(wanted.items(), found)}

    def _forward_mode(self) -> None:
        inputs = self.inputs()
        floats = [n for n, v in inputs.items() if torch.is_tensor(v) and v.is_floating_point()]
        if not floats:
            raise Skipped("no argument is a floating tensor")

        def tangent(function: Callable) -> torch.Tensor:
            with forward_ad.dual_level():
                duals = {n: forward_ad.make_dual(inputs[n].detach(), torch.ones_like(inputs[n])) for n in floats}
                out = _first_tensor(self.call(function, {**inputs, **duals}))
                found = forward_ad.unpack_dual(out).tangent
                return torch.zeros_like(out) if found is None else found.clone()

        try:
            found = tangent(self.subject.function)
        except Exception:
            return
        try:
            wanted = tangent(self.subject.reference)
        except Exception as error:
            raise Skipped(f"the reference has no forward mode: {error}") from error
        try:
            _near("the forward-mode derivative", found, wanted, "raise an error")
        except Wrong as wrong:
            if self.differentiable:
                raise
            raise Remark(str(wrong)) from None

    def _misfit(self) -> None:
        name, change = self.trial.detail.split()
        inputs = self.inputs()
        value = inputs[name]
        if change == "list":
            inputs[name] = value.tolist()
            what = f"{name} is a list"
        else:
            shape = [size + (axis == int(change)) for axis, size in enumerate(value.shape)]
            inputs[name] = layouts.nan_fenced(torch.zeros(shape, dtype=value.dtype, device=value.device))
            what = f"{name} has shape {tuple(shape)}, not {tuple(value.shape)}"
        try:
            self.call(self.subject.reference, inputs)
        except Exception:
            pass
        else:
            raise Skipped("the reference takes it")
        with interpreted.counted_launches() as launched, fences.Fences():
            try:
                self.call(self.subject.function, inputs)
            except Exception as error:
                if launched:
                    message, _ = _in_words(error, "")
                    raise Remark(f"{what}: it is noticed only inside of {launched[0]}: {message}") from error
                return
        raise Wrong(f"{what}: the reference refuses it, and the function returns a result")


def gradient_mode(subject: Subject, trial: Trial, call: bool = True) -> str:
    """gradients: results carry them. refuses: an input that requires one is refused. none: results have none, in
    silence. reference: the reference gives none either. unknown: without a call of the function."""

    def attached(function: Callable) -> bool:
        with fences.Fences():  # what writes beside a tensor must not end the process
            inputs = subject.make(dict(trial.sizes), getattr(torch, trial.dtype), trial.seed)
            for value in inputs.values():
                if torch.is_tensor(value) and value.is_floating_point():
                    value.requires_grad_()
            outputs = _named(function(**inputs, **dict(trial.options))).values()
        return any(torch.is_tensor(out) and out.requires_grad for out in outputs)

    if not attached(subject.reference):
        return "reference"
    try:
        return "unknown" if not call else "gradients" if attached(subject.function) else "none"
    except Exception as error:
        return "refuses" if is_refusal(error) or isinstance(error, RuntimeError) else "none"


def _named(result: Any) -> dict[str, Any]:
    if isinstance(result, (tuple, list)):
        return {f"out[{number}]": value for number, value in enumerate(result) if value is not None}
    return {"out": result}


def _first_tensor(result: Any) -> torch.Tensor:
    return next(value for value in _named(result).values() if torch.is_tensor(value))


def _near(what: str, found: torch.Tensor, wanted: torch.Tensor, otherwise: str) -> None:
    """Within a thousandth (a hundredth in 16 bits): a lost term is larger, and nothing finer is asked for."""
    limit = 1e-3 if found.dtype == torch.float32 else 2e-2
    error = (found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30)
    if not error <= limit:
        message = f"{what} is wrong in silence, by {float(error):.2g} of its norm"
        raise Wrong(f"{message}: {otherwise} there (academy.autograd.once_differentiable does), or make it right")


def _synchronize() -> None:
    if not device.INTERPRET:
        torch.cuda.synchronize()
