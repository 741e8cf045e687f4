"""What a kernel file offers to the benchmark: its `BENCH` and `cost`, read into cases.

A kernel file says what to measure in a dictionary `BENCH`:

| key | meaning |
|---|---|
| `shapes`, `dtypes` | the cases: every shape with every dtype |
| `inputs(shape, dtype, device)` | a dictionary of tensors, random data |
| `ours(**inputs)`, `eager(**inputs)` | the public function, and the same in plain PyTorch |
| `peers` | name -> factory, which imports the peer and returns a callable of `**inputs` (see below) |
| `passes` | of `"forward"`, `"backward"`, `"forward+backward"` (default: forward) |
| `differentiable` | names of the inputs that get gradients (default: none) |
| `reference(**inputs)` | what is right, in float64 (default: `eager`) |
| `eager_name` | how the eager line is called, such as `"cuBLAS"` (default: `"eager"`) |
| `compile` | False leaves torch.compile out |
| `timing` | `"events"` (default), or `"graph"`: by CUDA-graph replay, forward only |
| `host_shape` | the small shape for host time (default: every size at most 128) |
| `cost(shape, dtype)` | for a variant whose cost differs from the module's |
| `variants` | name -> the keys above that differ; each is measured as an operation of its own |

A peer's factory that takes an argument is handed the inputs, to convert them before the clock starts.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import torch

from academy.bench import store

ROOT = Path(__file__).resolve().parents[2]
PASSES = ("forward", "backward", "forward+backward")
REQUIRED = {"shapes", "dtypes", "inputs", "ours", "eager"}
OPTIONAL = {
    "peers": {},
    "passes": ["forward"],
    "differentiable": [],
    "reference": None,
    "eager_name": "eager",
    "compile": True,
    "timing": "events",
    "host_shape": None,
    "cost": None,
    "variants": {},
}


@dataclass(frozen=True)
class Variant:
    """One line of cases: an operation with fixed options. The fields are the keys of `BENCH`."""

    name: str
    shapes: list[tuple[int, ...]]
    dtypes: list[torch.dtype]
    inputs: Callable[..., dict]
    ours: Callable
    eager: Callable
    peers: dict[str, Callable]
    passes: list[str]
    differentiable: list[str]
    reference: Callable
    eager_name: str
    compile: bool
    timing: str
    host_shape: tuple[int, ...]
    cost: Callable

    def pass_cost(self, shape: tuple[int, ...], dtype: torch.dtype, which: str) -> tuple[int, int]:
        """Bytes that must move (read plus written) and operations of a pass."""
        costs = self.cost(shape, dtype)
        parts = [costs[which]] if which in costs else [costs[part] for part in which.split("+")]
        return (
            sum(part["bytes_read"] + part["bytes_written"] for part in parts),
            sum(part["operations"] for part in parts),
        )

    def providers(self) -> dict[str, Callable[[dict], Callable]]:
        """name -> function from the inputs to the callable that is measured. Raises ImportError for a missing peer."""
        found = {"ours": lambda inputs: self.ours, self.eager_name: lambda inputs: self.eager}
        if self.compile:
            found["torch.compile"] = lambda inputs: compiled(self.eager)
        for name, factory in self.peers.items():
            found[name] = _peer(factory)
        return found


def _peer(factory: Callable) -> Callable[[dict], Callable]:
    takes_inputs = any(p.default is p.empty for p in inspect.signature(factory).parameters.values())
    return lambda inputs: factory(inputs) if takes_inputs else factory()


def compiled(function: Callable) -> Callable:
    """`torch.compile` for exactly these shapes. After some recompilations Dynamo gives up silently: start it afresh."""
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


@dataclass
class Operation:
    """A kernel file with something to measure.

    name: the file's name without `.py`. path: relative to the repository. source: hash of its code (see `store`).
    """

    name: str
    path: str
    variants: list[Variant] = field(repr=False)
    source: str = ""

    @classmethod
    def from_module(cls, module: ModuleType, root: Path = ROOT) -> Operation:
        """Read `module.BENCH` and `module.cost`. Raises ValueError naming the key that is wrong."""
        path = Path(module.__file__).resolve()
        relative = path.relative_to(root).as_posix()
        variants = read(module.BENCH, module.cost, relative)
        return cls(path.stem, relative, variants, store.source_hash(path, root))

    def cases(self) -> Iterator[tuple[Variant, tuple[int, ...], torch.dtype]]:
        for variant in self.variants:
            for shape in variant.shapes:
                for dtype in variant.dtypes:
                    yield variant, tuple(shape), dtype


def read(bench: dict, cost: Callable, where: str = "BENCH") -> list[Variant]:
    """The variants of a `BENCH` dictionary; one named "" when it has none."""
    wrong = set(bench) - REQUIRED - set(OPTIONAL)
    if wrong:
        raise ValueError(
            f"{where}: BENCH has unknown keys {sorted(wrong)}; allowed are {sorted(REQUIRED | set(OPTIONAL))}"
        )
    common = {key: value for key, value in bench.items() if key != "variants"}
    return [
        _variant(name, {**common, **changes}, cost, where)
        for name, changes in (bench.get("variants") or {"": {}}).items()
    ]


def _variant(name: str, keys: dict, cost: Callable, where: str) -> Variant:
    missing = REQUIRED - set(keys)
    if missing:
        raise ValueError(f"{where}: BENCH{f' variant {name!r}' if name else ''} lacks {sorted(missing)}")
    settings = {key: value for key, value in OPTIONAL.items() if key != "variants"} | keys
    if bad := [p for p in settings["passes"] if p not in PASSES]:
        raise ValueError(f"{where}: passes must be of {PASSES}, got {bad}")
    if settings["passes"] != ["forward"] and not settings["differentiable"]:
        raise ValueError(f"{where}: differentiable must name the inputs that get gradients, for {settings['passes']}")
    if settings["timing"] not in ("events", "graph"):
        raise ValueError(f"{where}: timing must be 'events' or 'graph', got {settings['timing']!r}")
    if settings["timing"] == "graph" and settings["passes"] != ["forward"]:
        raise ValueError(f"{where}: timing='graph' is for forward only, got {settings['passes']}")
    smallest = min(settings["shapes"], key=lambda shape: torch.Size(shape).numel())
    settings["host_shape"] = tuple(settings["host_shape"] or (min(size, 128) for size in smallest))
    settings["reference"] = settings["reference"] or settings["eager"]
    settings["cost"] = settings["cost"] or cost
    return Variant(name=name, **settings)


def discover(folder: Path = ROOT / "annotated_examples", root: Path = ROOT) -> list[Operation]:
    """Every kernel file under `folder` that has a `BENCH`, imported under its dotted name."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        if path.name.startswith("_") or "BENCH" not in path.read_text("utf-8"):
            continue
        module = importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
        if hasattr(module, "BENCH"):
            found.append(Operation.from_module(module, root))
    return found


def without_peers(variant: Variant) -> Variant:
    """For a quick look: ours, eager, torch.compile."""
    return replace(variant, peers={})
