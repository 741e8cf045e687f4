"""What `operations/<op>.py` says of measuring: which files compute an operation, what is measured, and against whom.

Such a file has these names:

| name | meaning |
|---|---|
| `LESSON`, `FAST` | the kernel files, as `"classics.layernorm"` and `"fast.layernorm"` (or None) |
| `BACKWARD` | the file with the backward pass of `FAST`, or without one of `LESSON`, where that has one of its own |
| `FUNCTION` | the public function of both |
| `AXES` | the names of a shape's axes, a tuple of strings; may be imported from another file of `operations/` |
| `cost(shape, dtype)` | pass -> `bytes_read`, `bytes_written`, `operations` that the operation needs at least |
| `EXAMPLES` | kernel file -> what its `EXAMPLE` must move, as `cost` gives it; the recording is compared |
| `BENCH` | what is measured, a dictionary |

and `BENCH` has these keys:

| key | meaning |
|---|---|
| `shapes`, `dtypes` | the cases: every shape with every dtype |
| `inputs(shape, dtype, device)` | a dictionary of tensors, random data |
| `eager(**inputs)` | the same in plain PyTorch |
| `call(function)` | what is measured of the public function, a callable of `**inputs` (default: the function itself) |
| `peers` | name -> factory, which imports the peer and returns a callable of `**inputs` (see below) |
| `passes` | of `"forward"`, `"backward"`, `"forward+backward"` (default: forward) |
| `differentiable` | names of the inputs that get gradients (default: none) |
| `reference(**inputs)` | what is right, in float64 (default: `eager`) |
| `eager_name` | what the eager line is called, such as `"cuBLAS"` (default: `"eager"`) |
| `time_eager` | False: results are judged by PyTorch's, but it isn't timed, because one call takes seconds |
| `compile` | False leaves torch.compile out |
| `timing` | `"events"` (default), or `"graph"`: by replaying a CUDA graph, forward only |
| `host_shape` | the small shape for host time (default: every size at most 128) |
| `cost(shape, dtype)` | for a variant whose cost differs from the file's |
| `variants` | name -> the keys above that differ; each is measured as an operation of its own |

A peer's factory that takes an argument is handed the inputs, to convert them before the clock starts.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from academy.book import facts, layout
from academy.book.layout import ROOT
from academy.results import store

#: From the inputs to the callable that is measured.
Provider = Callable[[dict], Callable]
PASSES = ("forward", "backward", "forward+backward")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One line of cases: an operation with fixed options. The fields are the keys of `BENCH`.

    ours: provider ("lesson", "fast") -> the callable that is measured.
    """

    name: str
    ours: dict[str, Callable]
    cost: Callable
    shapes: list[tuple[int, ...]]
    dtypes: list[torch.dtype]
    inputs: Callable[..., dict]
    eager: Callable
    peers: dict[str, Callable] = field(default_factory=dict)
    passes: list[str] = field(default_factory=lambda: ["forward"])
    differentiable: list[str] = field(default_factory=list)
    reference: Callable
    eager_name: str = "eager"
    time_eager: bool = True
    compile: bool = True
    timing: str = "events"
    host_shape: tuple[int, ...]

    def __post_init__(self):
        if bad := [p for p in self.passes if p not in PASSES]:
            raise ValueError(f"passes must be of {PASSES}, got {bad}")
        if self.passes != ["forward"] and not self.differentiable:
            raise ValueError(f"differentiable must name the inputs that get gradients, for {self.passes}")
        if self.timing not in ("events", "graph"):
            raise ValueError(f"timing must be 'events' or 'graph', got {self.timing!r}")
        if self.timing == "graph" and self.passes != ["forward"]:
            raise ValueError(f"timing='graph' is for forward only, got {self.passes}")

    def pass_cost(self, shape: tuple[int, ...], dtype: torch.dtype, which: str) -> tuple[int, int]:
        """Bytes that must move (read plus written) and operations of a pass."""
        costs = self.cost(shape, dtype)
        parts = [costs[which]] if which in costs else [costs[part] for part in which.split("+")]
        return (
            sum(part["bytes_read"] + part["bytes_written"] for part in parts),
            sum(part["operations"] for part in parts),
        )

    def providers(self) -> dict[str, Provider]:
        """name -> function from the inputs to the callable that is measured. Raises ImportError for a missing peer."""
        found = {name: _given(function) for name, function in self.ours.items()}
        if self.time_eager:
            found[self.eager_name] = _given(self.eager)
        if self.compile:
            found["torch.compile"] = lambda inputs: compiled(self.eager)
        return found | {name: _peer(factory) for name, factory in self.peers.items()}


def _given(function: Callable) -> Provider:
    return lambda inputs: function


def _peer(factory: Callable) -> Provider:
    takes_inputs = any(p.default is p.empty for p in inspect.signature(factory).parameters.values())
    return factory if takes_inputs else lambda inputs: factory()


def compiled(function: Callable) -> Callable:
    """`torch.compile` for exactly these shapes. After some recompilations Dynamo gives up silently: start it afresh."""
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


@dataclass
class Operation:
    """A file of `operations/` with something to measure.

    name: its name without `.py`. files: provider -> kernel file, relative to the repository. sources: provider -> hash
    of that file's code (see `store`).
    """

    name: str
    files: dict[str, str]
    variants: list[Variant] = field(repr=False)
    sources: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: Path, root: Path = ROOT) -> Operation:
        """Import `operations/<op>.py` and the kernels that it names. Raises ValueError naming the key that is wrong."""
        module = facts.load(path)
        files = facts.kernels(path)
        functions = {
            provider: getattr(importlib.import_module(layout.dotted(file)), module.FUNCTION)
            for provider, file in files.items()
        }
        variants = read(module.BENCH, module.cost, functions, f"operations/{path.name}")
        return cls(path.stem, files, variants, store.sources(files, root))

    def cases(self) -> Iterator[tuple[Variant, tuple[int, ...], torch.dtype]]:
        for variant in self.variants:
            for shape in variant.shapes:
                for dtype in variant.dtypes:
                    yield variant, tuple(shape), dtype


REQUIRED = {"shapes", "dtypes", "inputs", "eager"}
ALLOWED = {each.name for each in fields(Variant)} - {"name", "ours"} | {"call", "variants"}


def read(bench: dict, cost: Callable, functions: dict[str, Callable], where: str = "BENCH") -> list[Variant]:
    """The variants of a `BENCH` dictionary; one named "" when it has none. functions: provider -> public function."""
    if wrong := set(bench) - ALLOWED:
        raise ValueError(f"{where}: BENCH has unknown keys {sorted(wrong)}; allowed are {sorted(ALLOWED)}")
    found = []
    for name, changes in (bench.get("variants") or {"": {}}).items():
        keys = {key: value for key, value in bench.items() if key != "variants"} | changes
        if missing := REQUIRED - set(keys):
            raise ValueError(f"{where}: BENCH{f' variant {name!r}' if name else ''} lacks {sorted(missing)}")
        call = keys.pop("call", None) or (lambda function: function)
        smallest = min(keys["shapes"], key=lambda shape: torch.Size(shape).numel())
        keys["host_shape"] = tuple(keys.get("host_shape") or (min(size, 128) for size in smallest))
        settings = {"reference": keys["eager"], "cost": cost, **keys}
        try:
            found.append(Variant(name=name, ours={p: call(f) for p, f in functions.items()}, **settings))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from error
    return found


def discover() -> list[Operation]:
    """Every operation of `operations/`."""
    return [Operation.from_file(path) for path in facts.measured(ROOT)]
