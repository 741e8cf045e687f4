r"""What a derivation's front matter declares: what its symbols mean. Every error names the key and its line.

```yaml
math:
  origin: 1                        # number of the first element of an axis (default 1)
  dims: [n, m, h, "d = 2 h"]       # lengths
  index: {i: n, p: "h+1..d"}       # what an index runs over: a dimension, or a range
  class: {c: n}                    # an integer symbol that selects an element
  given: {x: n, A: "n, m", s: scalar > 0}
  generic: [f]                     # any smooth function of one number
  loss: {name: L, of: Y, upstream: \nabla_Y}
  gradients: {dX: X}               # dX is short for \nabla_X
  reference: {Y: "torch.softmax(x, 0)"}   # a second source for a definition
```
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import torch

from academy.book import front_matter
from academy.book.problems import FormulaError, PageError
from academy.book.tex import canonical, python_name
from academy.formulas.reading.displays import Parser
from academy.formulas.reading.tree import Loss, Node, Range, whole_number

DTYPE = torch.float64
#: Keys under `math`, and what their values must be.
MATH_KEYS = {"origin": int, "dims": list, "index": dict, "class": dict, "given": dict, "generic": list}
MATH_KEYS |= {"loss": dict, "gradients": dict, "reference": dict}
#: Letters that mean the same on every page.
RESERVED = {"e": "Euler's number", r"\pi": "half a turn", r"\delta": r"Kronecker's \delta_{ij}"}
RESERVED |= {r"\partial": "derivatives", r"\nabla": "gradients", r"\sum": "sums"}
#: What a given symbol may be besides any real number, and how it is drawn from normal and uniform numbers: away from
#: what would make a mistake invisible.
_DOMAINS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "> 0": lambda normal, uniform: normal.abs() + 0.1,
    "< 0": lambda normal, uniform: -normal.abs() - 0.1,
    ">= 0": lambda normal, uniform: normal.abs() + 0.1,
    "ones": lambda normal, uniform: torch.ones_like(normal),
    "zeros": lambda normal, uniform: torch.zeros_like(normal),
    "0 or 1": lambda normal, uniform: (uniform < 0.7).to(DTYPE),
    "whole > 0": lambda normal, uniform: (uniform * 9).floor() + 1,
    "probabilities": lambda normal, uniform: torch.softmax(normal, -1),
    "": lambda normal, uniform: normal,
}
_SPEC = re.compile(rf"(.*?)\s*({'|'.join(map(re.escape, _DOMAINS))}|in ([-.\d]+?)\.\.([-.\d]+))\s*")


@dataclass(frozen=True)
class Spec:
    """A given symbol: dims name its axes' lengths (() is a number), domain one of `_DOMAINS`.

    bounds: of what is uniform ("in a..b").
    """

    dims: tuple[str, ...]
    domain: str
    bounds: tuple[float, float] | None = None

    @property
    def fixed(self) -> bool:
        """Whether its values are known without being given."""
        return self.domain in ("ones", "zeros")

    def draw(self, lengths: dict[str, int], generator: torch.Generator, batch: tuple[int, ...] = ()) -> torch.Tensor:
        """A random tensor of this kind (float64)."""
        shape = batch + tuple(lengths[dim] for dim in self.dims)
        normal = torch.randn(shape, generator=generator, dtype=DTYPE)
        uniform = torch.rand(shape, generator=generator, dtype=DTYPE)
        if self.bounds:
            return self.bounds[0] + (self.bounds[1] - self.bounds[0]) * uniform
        return _DOMAINS[self.domain](normal, uniform)


@lru_cache(maxsize=32)
def declarations(path: Path, head: str) -> Declarations:
    """Read once for all pages that begin the same. Not to be changed."""
    return Declarations(path, front_matter.read(head))


class Declarations:
    """Read and validated. `symbols`: canonical tokens -> (key, kind); `names`: key -> Python name."""

    def __init__(self, path: Path, front: front_matter.FrontMatter):
        self.path, self.front = path, front
        for at, message in [front.problem] if front.problem else []:
            self.fail(f"front matter: {message}", at=at)
        for keys, at in front.twice.items():
            self.fail(f"front matter: {keys[-1]}: given twice", at=at)
        self.symbols: dict[tuple[str, ...], tuple[str, str]] = {}
        self._read(self._math())
        self.names = {key: python_name(key) for key, kind in self.symbols.values() if kind != "grad"}

    def fail(self, message: str, *keys: Any, at: int | None = None) -> NoReturn:
        """Raise a `PageError` at the key, naming it."""
        if at is None:
            message = f"front matter: {'.'.join(map(str, keys))}: {message}"
            places = self.front.places
            at = next((places[keys[:k]] for k in range(len(keys), 0, -1) if keys[:k] in places), 0)
        raise PageError(self.path, self.front.head, at, message)

    def _math(self) -> dict[str, Any]:
        config = self.front.values.get("math") or {}
        if not isinstance(config, dict):
            self.fail(f"must be a mapping with keys among {', '.join(MATH_KEYS)}", "math")
        for key, value in config.items():
            if key not in MATH_KEYS:
                self.fail(f"unknown key; allowed are {', '.join(MATH_KEYS)}", "math", key)
            if not isinstance(value, MATH_KEYS[key]):
                kind = {list: "a list", dict: "a mapping", int: "0 or 1"}[MATH_KEYS[key]]
                self.fail(f"must be {kind}, got {value!r}", "math", key)
        return config

    # ---------------------------------------------------------------- declarations
    def _read(self, config: dict[str, Any]) -> None:
        self.origin = config.get("origin", 1)
        if self.origin not in (0, 1):
            self.fail(f"must be 0 or 1, got {self.origin!r}", "math", "origin")
        self.dims: dict[str, Node | None] = {}
        for at, entry in enumerate(config.get("dims", [])):
            name, _, formula = (part.strip() for part in str(entry).partition("="))
            value = self._whole(formula, "dims", at) if formula else None
            self.dims[self._declare(name, "dim", "dims", at)] = value
        self.ranges: dict[str, str | tuple[Node, Node]] = {}
        for key, entry in config.get("index", {}).items():
            first, dots, last = str(entry).partition("..")
            bounds = (self._whole(first, "index", key), self._whole(last, "index", key)) if dots else None
            self.ranges[self._declare(key, "index", "index", key)] = bounds or self._dim(entry, "index", key)
        self.classes = {
            self._declare(key, "class", "class", key): self._dim(dim, "class", key)
            for key, dim in config.get("class", {}).items()
        }
        self.given = {
            self._declare(key, "value", "given", key): self._spec(str(entry), key)
            for key, entry in config.get("given", {}).items()
        }
        self.generic = [self._declare(key, "func", "generic", at) for at, key in enumerate(config.get("generic", []))]
        self.loss = self._read_loss(config["loss"]) if "loss" in config else None
        for key, of in config.get("gradients", {}).items():
            if self.loss is None:
                self.fail("needs `loss`", "math", "gradients", key)
            self.symbols[self._tokens(key, "gradients", key)] = (str(of), "grad")
        self.reference = {str(key): str(value) for key, value in config.get("reference", {}).items()}

    def _tokens(self, tex: object, *keys) -> tuple[str, ...]:
        try:
            return canonical(tex)
        except FormulaError as error:
            self.fail(error.message, "math", *keys)

    def _declare(self, tex: object, kind: str, *keys) -> str:
        tokens = self._tokens(tex, *keys)
        if not tokens:
            self.fail("a name must not be empty", "math", *keys)
        if str(tex) in RESERVED:
            self.fail(f"{tex} is reserved, for {RESERVED[str(tex)]}: take another letter", "math", *keys)
        if tokens in self.symbols:
            self.fail(f"{tex} is declared twice", "math", *keys)
        self.symbols[tokens] = (str(tex), kind)
        return str(tex)

    def _whole(self, tex: str, *keys) -> Node:
        """`2 h + 1`: numbers and dimensions."""
        try:
            parser = Parser(tex, {tokens: found for tokens, found in self.symbols.items() if found[1] == "dim"})
            node = parser.index()
            parser.finish()
            return node
        except FormulaError as error:
            self.fail(f"{tex!r}: {error.message}", "math", *keys)

    def _dim(self, dim: str, *keys) -> str:
        known = ", ".join(self.dims) or "none"
        return dim if dim in self.dims else self.fail(f"{dim!r} is not among the dims ({known})", "math", *keys)

    def _spec(self, entry: str, key: str) -> Spec:
        found = _SPEC.fullmatch(entry.strip())
        assert found  # the empty domain matches everything
        shape, domain, low, high = found.groups()
        dims = () if shape == "scalar" else tuple(part.strip() for part in shape.split(","))
        if not set(dims) <= set(self.dims):
            allowed, known = ", ".join(map(repr, filter(None, _DOMAINS))), ", ".join(self.dims) or "none are declared"
            message = f"{entry!r}: write `scalar` or dims ({known}), and perhaps one of {allowed}, 'in a..b'"
            self.fail(message, "math", "given", key)
        return Spec(dims, domain, (float(low), float(high)) if low else None)

    def _read_loss(self, config: dict[str, Any]) -> Loss:
        needed = ("name", "of", "upstream")
        for key in (*config, *needed):
            if key not in needed:
                self.fail(f"unknown key; allowed are {', '.join(needed)}", "math", "loss", key)
            if key not in config:
                self.fail(f"needs the key {key}", "math", "loss")
        outputs, upstream = (v if isinstance(v, list) else [v] for v in (config["of"], config["upstream"]))
        if len(outputs) != len(upstream):
            self.fail("of and upstream must have the same length", "math", "loss")
        for gradient in upstream:
            if gradient not in self.given:
                self.fail(f"upstream {gradient} must be among `given`", "math", "loss", "upstream")
        name = self._declare(config["name"], "value", "loss", "name")
        return Loss(name, tuple((str(o), str(u)) for o, u in zip(outputs, upstream)))

    # ---------------------------------------------------------------- numbers
    @property
    def free_dims(self) -> list[str]:
        """Those that are not computed from others."""
        return [dim for dim, formula in self.dims.items() if formula is None]

    def lengths(self, free: dict[str, int]) -> dict[str, int]:
        """All dims, given the free ones."""
        lengths = dict(free)
        for dim, formula in self.dims.items():
            if formula is not None:
                lengths[dim] = whole_number(formula, lengths)
        return lengths

    def index_ranges(self, lengths: dict[str, int]) -> dict[str, Range]:
        """What each index runs over; a range may be empty."""
        ranges = {}
        for key, entry in self.ranges.items():
            if isinstance(entry, str):
                ranges[key] = Range(self.origin, lengths[entry], entry)
            else:
                first, last = (whole_number(node, lengths) for node in entry)
                ranges[key] = Range(first, last - first + 1)
        return ranges
