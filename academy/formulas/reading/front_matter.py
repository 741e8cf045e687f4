r"""The front matter of a derivation: what its symbols mean. Every error names the key and points at its line.

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

import copy
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml

from academy.formulas.errors import FormulaError, PageError
from academy.formulas.reading.subscripts import IndexGrammar
from academy.formulas.reading.tokens import canonical, lex, python_name
from academy.formulas.reading.tree import Loss, Node, Range

DTYPE = torch.float64
MATH_KEYS = ("origin", "dims", "index", "class", "given", "generic", "loss", "gradients", "reference")
_SHAPES = {"dims": list, "index": dict, "class": dict, "given": dict, "generic": list, "loss": dict}
_SHAPES |= {"gradients": dict, "reference": dict}
RESERVED = ("e", r"\pi", r"\partial", r"\sum", r"\nabla", r"\delta")
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
}


@dataclass(frozen=True)
class Spec:
    """A given symbol: dims name its axes' lengths (() is a number), domain one of `_DOMAINS` or "in a..b"."""

    dims: tuple[str, ...]
    domain: str

    def draw(self, lengths: dict[str, int], generator: torch.Generator, batch: tuple[int, ...] = ()) -> torch.Tensor:
        """A random tensor of this kind (float64)."""
        shape = batch + tuple(lengths[dim] for dim in self.dims)
        normal = torch.randn(shape, generator=generator, dtype=DTYPE)
        uniform = torch.rand(shape, generator=generator, dtype=DTYPE)
        if self.domain.startswith("in "):
            low, high = (float(bound) for bound in self.domain[3:].split(".."))
            return low + (high - low) * uniform
        return _DOMAINS[self.domain](normal, uniform) if self.domain else normal


_HEAD = re.compile(r"---\n(.*?)\n---[ \t]*(?:\n|$)", re.S)


def front_matter(path: Path, text: str) -> FrontMatter:
    """The front matter at the beginning of `text`; its YAML is read once for all pages that begin the same."""
    found = _HEAD.match(text)
    front = copy.copy(_parsed(path, found.group() if found else ""))
    front.names, front.text = dict(front.names), text
    return front


@lru_cache(maxsize=32)
def _parsed(path: Path, head: str) -> FrontMatter:
    return FrontMatter(path, head)


class FrontMatter:
    """Parsed and validated. `symbols`: canonical tokens -> (key, kind); `names`: key -> Python name."""

    def __init__(self, path: Path, text: str):
        self.path, self.text = path, text
        match = _HEAD.match(text)
        self.end = match.end() if match else 0
        self.offsets: dict[tuple, int] = {}
        self.data: dict[str, Any] = self._load(match.group(1)) if match else {}
        self.bound = "math" in self.data
        self.symbols: dict[tuple, tuple[str, str]] = {}
        self.names: dict[str, str] = {}
        if "kernel" in self.data:
            home = f"tests/formulas/cases/{self.path.stem}.py"
            self.fail(f"which calls are compared with the tags stands in {home}", "kernel")
        self._read(self._math())

    # ---------------------------------------------------------------- YAML
    def _load(self, source: str) -> dict[str, Any]:
        try:
            self._locate(yaml.compose(source, yaml.SafeLoader), ())
            data = yaml.safe_load(source)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise PageError(
                self.path,
                self.text,
                4 + (mark.index if mark else 0),
                f"front matter: {getattr(error, 'problem', None) or error}",
            ) from None
        if data is not None and not isinstance(data, dict):
            raise PageError(self.path, self.text, 4, "front matter must be `key: value` lines")
        return data or {}

    def _locate(self, node, keys: tuple) -> None:
        """Remember where each key stands."""
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if (*keys, key.value) in self.offsets:
                    mark = 4 + key.start_mark.index
                    raise PageError(self.path, self.text, mark, f"front matter: {key.value}: given twice")
                self.offsets[(*keys, key.value)] = 4 + key.start_mark.index
                self._locate(value, (*keys, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for at, value in enumerate(node.value):
                self.offsets[(*keys, at)] = 4 + value.start_mark.index
                self._locate(value, (*keys, at))

    def fail(self, message: str, *keys) -> NoReturn:
        """Raise a `PageError` at the key, naming it."""
        shown = ".".join(map(str, keys))
        position = next((self.offsets[keys[:k]] for k in range(len(keys), 0, -1) if keys[:k] in self.offsets), 0)
        raise PageError(self.path, self.text, position, f"front matter: {shown}: {message}" if shown else message)

    def _math(self) -> dict[str, Any]:
        config = self.data.get("math") or {}
        if not isinstance(config, dict):
            self.fail(f"must be a mapping with keys among {', '.join(MATH_KEYS)}", "math")
        for key, value in config.items():
            if key not in MATH_KEYS:
                self.fail(f"unknown key; allowed are {', '.join(MATH_KEYS)}", "math", key)
            if key in _SHAPES and not isinstance(value, _SHAPES[key]):
                kind = "a list" if _SHAPES[key] is list else "a mapping"
                self.fail(f"must be {kind}, got {value!r}", "math", key)
        return config

    # ---------------------------------------------------------------- declarations
    def _read(self, config: dict[str, Any]) -> None:
        self.origin = config.get("origin", 1)
        if self.origin not in (0, 1):
            self.fail(f"must be 0 or 1, got {self.origin!r}", "math", "origin")
        self.dims: dict[str, Node | None] = {}
        for at, entry in enumerate(config.get("dims", [])):
            self._read_dim(str(entry), at)
        self.ranges: dict[str, str | tuple[Node, Node]] = {}
        for key, entry in config.get("index", {}).items():
            self._read_index(str(key), str(entry))
        self.classes: dict[str, str] = {}
        for key, dim in config.get("class", {}).items():
            self._need_dim(dim, "class", key)
            self.classes[self._declare(key, "int", "class", key)] = dim
        self.given: dict[str, Spec] = {}
        for key, entry in config.get("given", {}).items():
            self.given[self._declare(key, "value", "given", key)] = self._spec(str(entry), str(key))
        self.generic = [self._declare(key, "func", "generic", at) for at, key in enumerate(config.get("generic", []))]
        self.loss = self._read_loss(config["loss"]) if "loss" in config else None
        for key, of in config.get("gradients", {}).items():
            if self.loss is None:
                self.fail("needs `loss`", "math", "gradients", key)
            self.symbols[self._tokens(key, "gradients", key)] = (f"grad:{of}", "grad")
        self.reference = {str(key): str(value) for key, value in config.get("reference", {}).items()}

    def _tokens(self, tex: object, *keys) -> tuple:
        try:
            return canonical(tex)
        except FormulaError as error:
            self.fail(error.message, "math", *keys)

    def _declare(self, tex: object, kind: str, *keys) -> str:
        if str(tex) in RESERVED:
            self.fail(f"{tex} is reserved", "math", *keys)
        tokens = self._tokens(tex, *keys)
        if not tokens:
            self.fail("an empty name", "math", *keys)
        if tokens in self.symbols:
            self.fail(f"{tex} is declared twice", "math", *keys)
        self.symbols[tokens] = (str(tex), kind)
        self.names[str(tex)] = self.python(str(tex))
        return str(tex)

    @staticmethod
    def python(tex: str) -> str:
        name = python_name(tex)
        return {"1": "ones", "0": "zeros"}.get(name, name)

    def _read_dim(self, entry: str, at: int) -> None:
        name, equals, formula = (part.strip() for part in entry.partition("="))
        value = self._affine(formula, "dims", at) if equals else None
        self.dims[self._declare(name, "dim", "dims", at)] = value

    def _affine(self, tex: str, *keys) -> Node:
        """`2 h + 1`: numbers and dimensions."""
        try:
            tokens, _ = lex(tex)
            dims = {tokens: found for tokens, found in self.symbols.items() if found[1] == "dim"}
            grammar = IndexGrammar(tokens, dims, len(tex))
            node = grammar.index()
            if grammar.peek().kind != "end":
                grammar.fail(f"unexpected {grammar.peek().text!r}")
            return node
        except FormulaError as error:
            self.fail(f"{tex!r}: {error.message}", "math", *keys)

    def _read_index(self, key: str, entry: str) -> None:
        first, dots, last = entry.partition("..")
        if dots:
            bounds = self._affine(first, "index", key), self._affine(last, "index", key)
            self.ranges[self._declare(key, "index", "index", key)] = bounds
        else:
            self._need_dim(entry, "index", key)
            self.ranges[self._declare(key, "index", "index", key)] = entry

    def _need_dim(self, dim: object, *keys) -> None:
        if dim not in self.dims:
            self.fail(f"{dim!r} is not among the dims ({', '.join(self.dims) or 'none'})", "math", *keys)

    def _spec(self, entry: str, key: str) -> Spec:
        names = "|".join(sorted(map(re.escape, _DOMAINS), key=len, reverse=True))
        pattern = rf"\s*({names}|in [-.\d]+?\.\.[-.\d]+)\s*$"
        found = re.search(pattern, entry)
        shape, domain = (entry[: found.start()], found.group(1)) if found else (entry, "")
        dims = () if shape.strip() == "scalar" else tuple(part.strip() for part in shape.split(","))
        for dim in dims:
            if dim not in self.dims:
                allowed = ", ".join(map(repr, _DOMAINS))
                known = ", ".join(self.dims) or "none are declared"
                self.fail(
                    f"{entry!r}: write `scalar` or dims ({known}), and perhaps one of {allowed}, 'in a..b'",
                    *("math", "given", key),
                )
        return Spec(dims, domain)

    def _read_loss(self, config: dict[str, Any]) -> Loss:
        for key in config:
            if key not in ("name", "of", "upstream"):
                self.fail("unknown key; allowed are name, of, upstream", "math", "loss", key)
        for key in ("name", "of", "upstream"):
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
    def lengths(self, free: dict[str, int]) -> dict[str, int]:
        """All dims, given those that are not computed from others."""
        lengths = dict(free)
        for dim, formula in self.dims.items():
            if formula is not None:
                lengths[dim] = _whole(formula, lengths)
        return lengths

    def empty_range(self, lengths: dict[str, int]) -> str | None:
        """Name of an index that runs over nothing at these lengths."""
        for key, entry in self.ranges.items():
            if not isinstance(entry, str) and _whole(entry[1], lengths) < _whole(entry[0], lengths):
                return key
        return None

    def index_ranges(self, lengths: dict[str, int]) -> dict[str, Range]:
        ranges = {}
        for key, entry in self.ranges.items():
            if isinstance(entry, str):
                ranges[key] = Range(self.origin, lengths[entry], entry)
            else:
                first, last = (_whole(node, lengths) for node in entry)
                if last < first:
                    self.fail(f"is empty where it runs over {first}..{last}", "math", "index", key)
                ranges[key] = Range(first, last - first + 1)
        return ranges


def _whole(node: Node, lengths: dict[str, int]) -> int:
    if node.op == "intlit":
        return node.args[0]
    if node.op == "dim":
        return lengths[node.args[0]]
    return math.fsum(factor * _whole(part, lengths) for factor, part in node.args).__int__()
