"""One case: check every provider's result against float64, then time each of its passes, and record all of it.

A case is an operation with fixed options, one shape, one dtype. All its providers are measured together, on clones of
the same tensors, beside a copy that moves the same bytes: what is compared was measured in the same minute.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Container
from typing import TypeAlias

import torch

from academy.bench import experiment
from academy.bench.operation import Operation, Variant
from academy.judge import accuracy, elements
from academy.results import figures

#: Larger results are checked at evenly spread elements: about this many.
MOST_CHECKED = 1 << 26


#: What a function returns: a tensor, or a tuple of them.
Tensors: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...]"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Call:
    """A provider's function on its own clones of the inputs, callable pass by pass.

    `prepare(which)` does what comes before the clock starts and returns a state, `run(which)(state)` is what is timed.
    """

    def __init__(self, function: Callable, inputs: dict, variant: Variant):
        self.function, self.originals = function, inputs
        self.wanted = [name for name in variant.differentiable]
        self.inputs = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}
        for name in self.wanted:
            self.inputs[name].requires_grad_()
        self.upstream: Tensors | None = None
        self.writes_inputs: list[str] = []

    def __call__(self) -> Tensors:
        with torch.set_grad_enabled(bool(self.wanted)):
            return self.function(**self.inputs)

    def gradients(self, out: Tensors) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(out, [self.inputs[name] for name in self.wanted], self.upstream)

    def results(self, upstream: Tensors | None) -> dict[str, torch.Tensor]:
        """`{"out": …, "d<name>": …}`, and note which inputs were written to on the way.

        A tuple of results is `out0`, `out1` and so on. The upstream gradients are cloned: a provider may write to them.
        """
        self.upstream = each(torch.Tensor.clone, upstream)
        out = self()
        several = {f"out{at}": value for at, value in enumerate(out)} if isinstance(out, tuple) else {"out": out}
        values = {name: value.detach().clone() for name, value in several.items()}
        if self.wanted:
            values |= {f"d{name}": gradient for name, gradient in zip(self.wanted, self.gradients(out))}
        self.writes_inputs = [
            name
            for name, value in self.inputs.items()
            if isinstance(value, torch.Tensor) and not torch.equal(value.detach(), self.originals[name])
        ]
        return values

    def prepare(self, which: str) -> Callable[[], object]:
        def restore():
            for name in self.writes_inputs:
                self.inputs[name].detach().copy_(self.originals[name])

        def forget_gradients():
            restore()
            for name in self.wanted:
                self.inputs[name].grad = None

        def forward():
            restore()
            return self()

        return {"forward": restore, "backward": forward, "forward+backward": forget_gradients}[which]

    def run(self, which: str) -> Callable[[object], object]:
        return {
            "forward": lambda _: self(),
            "backward": self.gradients,
            "forward+backward": lambda _: torch.autograd.backward(self(), self.upstream),
        }[which]


def each(change: Callable, values: Tensors | None) -> Tensors | None:
    """`change` of the tensor, or of each of several."""
    if isinstance(values, tuple):
        return tuple(map(change, values))
    return None if values is None else change(values)


def upstream_of(out: Tensors) -> Tensors | None:
    """A random upstream gradient of each result; none for a single number, such as a loss."""
    return None if isinstance(out, torch.Tensor) and out.dim() == 0 else each(torch.randn_like, out)


class Checker:
    """Judges providers by the rule of `academy.judge.accuracy`: PyTorch's eager result and float64 come once."""

    def __init__(self, variant: Variant, inputs: dict):
        eager = Call(variant.eager, inputs, variant)
        with torch.no_grad():
            out = eager.function(**eager.inputs)
        self.upstream = upstream_of(out) if eager.wanted else None
        self.pytorch = sampled(eager.results(self.upstream))
        exact = Call(variant.reference, elements.in_float64(inputs, codes=True), variant)
        self.exact = sampled(exact.results(each(torch.Tensor.double, self.upstream)))
        # Whole numbers have to be equal, to the reference where there is one: PyTorch draws other tokens.
        self.whole = self.pytorch if variant.reference is variant.eager else self.exact

    def problem(self, call: Call) -> str | None:
        """What is wrong with the provider's results, or None. It must be asked before the provider is timed."""
        for name, value in sampled(call.results(self.upstream)).items():
            theirs = (self.pytorch if value.is_floating_point() else self.whole)[name].to(value.dtype)
            wrong = accuracy.problem(value, theirs, self.exact[name])
            if wrong:
                return f"{name}: {wrong}"
        return None


def sampled(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All elements, or of a very large tensor every k-th. k has no factor of the size, so every column has its turn."""

    def some(value: torch.Tensor) -> torch.Tensor:
        step = value.numel() // MOST_CHECKED
        if step < 2:
            return value
        while math.gcd(step, value.numel()) > 1:
            step += 1
        return value.flatten()[::step].clone()

    return {name: some(value) for name, value in values.items()}


# ---------------------------------------------------------------- a case


def measure_case(operation: Operation, variant: Variant, shape: tuple[int, ...], dtype: torch.dtype, gpu) -> dict:
    """Measure all providers. `gpu` is an `academy.runtime.timing.Gpu`.

    Returns the record that is stored: see docs/benchmarks/index.md, "What is in the files".
    """
    torch.manual_seed(0)
    inputs = variant.inputs(shape, dtype, gpu.device)
    checker = Checker(variant, inputs)
    passes = {which: pass_limits(variant, shape, dtype, which, gpu) for which in variant.passes}
    notes = {}
    for name, factory in variant.providers().items():
        call, note = prepared(name, factory, inputs, variant, checker)
        if note:
            notes[name] = note
        try:
            for which in variant.passes if call else ():
                passes[which]["providers"][name] = measure_pass(call, which, variant.timing, gpu)
        except Exception as error:  # a peer that fails must not take the others' results along
            notes[name] = {"failed": _one_line(error)}
        del call
        torch.cuda.empty_cache() if gpu.device.type == "cuda" else None
    return _head(operation, variant, shape, dtype) | {
        "timing": variant.timing,
        "copy_tb_s": _round(gpu.copy_rate()),
        "matrix_tflop_s": _round(gpu.matrix_rate(dtype)),
        "passes": passes,
        "notes": notes,
    }


def prepared(
    name: str,
    factory: Callable,
    inputs: dict,
    variant: Variant,
    checker: Checker,
    ours: Container[str] = figures.OURS,
) -> tuple[Call | None, dict]:
    """The provider, checked and ready to be timed, or None; and the notes that go with its results.

    ours: the providers that have no speed if they are wrong. A peer's rounding is its own affair, and is told.
    """
    try:
        call = Call(factory(inputs), inputs, variant)
        wrong = checker.problem(call)
    except ImportError as error:
        return None, {"missing": _one_line(error)}
    except Exception as error:
        return None, {"failed": _one_line(error)}
    if wrong and name in ours:
        return None, {"failed": wrong}
    note = {"writes_inputs": call.writes_inputs, "inaccurate": wrong}
    return call, {kind: detail for kind, detail in note.items() if detail}


def pass_limits(variant: Variant, shape: tuple[int, ...], dtype: torch.dtype, which: str, gpu) -> dict:
    """Bytes and operations of a pass, the time of a copy of as many bytes, and the limit: the larger of both times."""
    total_bytes, operations = variant.pass_cost(shape, dtype, which)
    copy_ms = gpu.copy_milliseconds(total_bytes)
    return {
        "bytes": total_bytes,
        "operations": operations,
        "copy_ms": _round(copy_ms),
        "limit_ms": _round(max(copy_ms, operations / gpu.matrix_rate(dtype) / 1e9)),
        "providers": {},
    }


def measure_time(call, which: str, timing: str, gpu) -> dict:
    """The median time of a pass in ms, its 20 % and 80 % quantiles, and how often it ran."""
    measured = (
        gpu.graph_milliseconds(call) if timing == "graph" else gpu.milliseconds(call.run(which), call.prepare(which))
    )
    return {
        "ms": _round(measured.median),
        "low_ms": _round(measured.low),
        "high_ms": _round(measured.high),
        "repeats": measured.repeats,
    }


def measure_pass(call, which: str, timing: str, gpu) -> dict:
    """The time of a pass, the most memory that it held, and where it can be measured the time of a plain call."""
    prepare, run = call.prepare(which), call.run(which)
    result = measure_time(call, which, timing, gpu) | {"peak_bytes": gpu.peak_bytes(run, prepare)}
    if which != "backward" and not call.writes_inputs:  # else something else would have to happen between two calls
        result["wall_ms"] = _round(gpu.wall_milliseconds(lambda: run(prepare())))
    return result


def measure_host(operation: Operation, variant: Variant, gpu) -> dict:
    """Host time of a small call, in µs, forward alone and forward with backward, for every provider but torch.compile.

    torch.compile is left out because its host time is paid per compiled region, not per operation.
    """
    shape, dtype = variant.host_shape, variant.dtypes[0]
    inputs = variant.inputs(shape, dtype, gpu.device)
    providers: dict[str, dict] = {}
    for name, factory in variant.providers().items():
        if name == "torch.compile":
            continue
        try:
            call = Call(factory(inputs), inputs, variant)
            times = {"forward_us": round(gpu.host_microseconds(call), 2)}
            if call.wanted:
                out = call()
                call.upstream = upstream_of(out)
                times["forward+backward_us"] = round(gpu.host_microseconds(lambda call=call: call.gradients(call())), 2)
        except Exception as error:
            times = {"missing" if isinstance(error, ImportError) else "failed": _one_line(error)}
        providers[name] = times
    return _head(operation, variant, shape, dtype) | {"providers": providers}


def _head(operation: Operation, variant: Variant, shape: tuple[int, ...], dtype: torch.dtype) -> dict:
    case = {"variant": variant.name, "shape": list(shape), "dtype": dtype_name(dtype)}
    return case | provenance(operation)


def provenance(operation: Operation) -> dict:
    """Date, versions, and the source that was measured."""
    versions = experiment.versions("liger-kernel", "gemlite", "quack-kernels", "flashinfer-python")
    return {"date": datetime.date.today().isoformat(), "versions": versions, "sources": operation.sources}


def _round(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
