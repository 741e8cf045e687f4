r"""How the kernels compute what a page prints: the `kernel` key of its front matter, read and validated.

```yaml
kernel:
  - module: classics.layernorm                  # a file under annotated_examples
    call: layernorm(X, gamma, beta, varepsilon) # Python: functions of that module, symbols by their Python names
    returns: LN-Y                               # tag of each returned tensor (a list for several; null: not compared)
    gradients: {X: LN-X, gamma: LN-gamma}       # the tag of each gradient that the call gives
```

More keys, where they are needed:

- `rows: [x, c]`: these symbols carry one more leading axis, of rows that the formula is applied to one by one. The
  gradient of a symbol without that axis is the sum over the rows.
- `pytorch: F.layer_norm(X, …)`: PyTorch's own operation, by which the error is judged. Default: the function of the
  same name with `_reference` behind it, with the same arguments.
- `upstream: nabla_Y`: the gradient handed to the call's result. Default: the upstream of the page's loss; ones if none.
- `stable: {CE: CE-stable}`: for inputs around ±10⁴, where the form of the first tag overflows, compare with the second.
- `with: {s: "0.5"}`: values for some symbols in place of random ones (Python; may use the other symbols).
- `sizes: {n: 300}`: lengths for some dims in place of the usual odd ones. `rows: [3, 2100]` gives rows two axes.
- `patch: {tile_sizes: "lambda *_: (16, 16)"}`: functions of the module replaced during the call, to get tiles so small
  that the inputs take several of them.
- `dtypes: [float32]`: default float32 and bfloat16.
- `forward_only: true`: the call gives no gradient at all.

A tag may be composed: `MM-X(nabla_C = MM-relu-Z)` is the formula MM-X with the result of MM-relu-Z put in for nabla_C.
That also serves formulas made of a name whose definition overflows: `SM-x(y = SM)`, where SM is the stable form of y.
`kernel: none` says that no kernel computes this page (yet).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from academy.formulas.page import Page

KEYS = (
    *("module", "call", "returns", "gradients", "rows", "pytorch", "upstream"),
    *("stable", "with", "sizes", "patch", "dtypes", "forward_only"),
)
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Target:
    """A tag, with other tags' results put in for some of its symbols."""

    tag: str
    replaced: tuple[tuple[str, Target], ...] = ()

    def tags(self) -> set[str]:
        return {self.tag}.union(*(target.tags() for _, target in self.replaced))

    def __str__(self) -> str:
        inside = ", ".join(f"{name} = {target}" for name, target in self.replaced)
        return f"{self.tag}({inside})" if inside else self.tag


@dataclass(frozen=True)
class Comparison:
    """One entry under `kernel`. Symbols are named as Python names them."""

    page: Page = field(repr=False)
    number: int
    module: str
    call: str
    returns: tuple[Target | None, ...]
    gradients: dict[str, Target]
    rows: tuple[str, ...] = ()
    pytorch: str | None = None
    upstream: str | None = None
    stable: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int | list[int]] = field(default_factory=dict)
    patch: dict[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    forward_only: bool = False

    @property
    def function(self) -> str:
        """Name of the function that is called."""
        return called(self.call)[0].func.id

    def tags(self) -> set[str]:
        targets = [target for target in (*self.returns, *self.gradients.values()) if target]
        return set().union(*(target.tags() for target in targets), self.stable.values())

    def __str__(self) -> str:
        return f"{self.module}: {self.call}"


def called(call: str) -> list[ast.Call]:
    """The calls of plain names in a Python expression, outermost first."""
    found = [node for node in ast.walk(ast.parse(call, mode="eval")) if isinstance(node, ast.Call)]
    return [node for node in found if isinstance(node.func, ast.Name)]


def names_in(expression: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}


def exempt(page: Page) -> bool:
    """Whether the front matter says `kernel: none`."""
    return page.front.data.get("kernel") == "none"


def comparisons(page: Page) -> list[Comparison]:
    """The entries under `kernel`; empty for `kernel: none`.

    Raises:
        PageError: the key is missing or malformed, or names a tag or symbol that the page doesn't have.
    """
    fail = page.front.fail
    if "kernel" not in page.front.data:
        fail("front matter: kernel: missing: write `kernel: none`, or name the kernels that compute the tags")
    entries = page.front.data["kernel"]
    if entries == "none":
        return []
    if not isinstance(entries, list) or not entries:
        fail(f"must be `none` or a list of entries, got {entries!r}", "kernel")
    return [_entry(page, number, entry) for number, entry in enumerate(entries)]


def _entry(page: Page, number: int, entry: object) -> Comparison:
    fail = page.front.fail
    if not isinstance(entry, dict):
        fail(f"each entry is a mapping with keys among {', '.join(KEYS)}; got {entry!r}", "kernel", number)
    for key in entry:
        if key not in KEYS:
            fail(f"unknown key; allowed are {', '.join(KEYS)}", "kernel", number, key)
    for key in ("module", "call", "returns"):
        if key not in entry:
            fail(f"needs the key {key}", "kernel", number)
    reader = _Reader(page, number)
    returns = entry["returns"] if isinstance(entry["returns"], list) else [entry["returns"]]
    reader.python("call", entry["call"])
    if not called(entry["call"]):
        fail(f"{entry['call']!r} calls no function of the module", "kernel", number, "call")
    for key in ("pytorch", "upstream"):
        if entry.get(key) is not None:
            reader.python(key, entry[key])
    return Comparison(
        page,
        number,
        str(entry["module"]),
        entry["call"],
        tuple(tag if tag is None else reader.target(tag, "returns") for tag in returns),
        {reader.symbol(k, "gradients", k): reader.target(v, "gradients", k) for k, v in reader.map(entry, "gradients")},
        tuple(reader.symbol(name, "rows") for name in entry.get("rows", ())),
        entry.get("pytorch"),
        entry.get("upstream"),
        {reader.tag(k, "stable", k): reader.tag(v, "stable", k) for k, v in reader.map(entry, "stable")},
        {reader.symbol(k, "with", k): reader.python("with", str(v), k) for k, v in reader.map(entry, "with")},
        {k: reader.size(k, v) for k, v in reader.map(entry, "sizes")},
        {str(k): reader.python("patch", str(v), k) for k, v in reader.map(entry, "patch")},
        tuple(reader.dtype(d) for d in entry.get("dtypes", ("float32", "bfloat16"))),
        bool(entry.get("forward_only", False)),
    )


class _Reader:
    """Checks the parts of one entry."""

    def __init__(self, page: Page, number: int):
        self.page, self.keys = page, ("kernel", number)
        front = page.front
        self.symbols = {front.names[key] for key in (*front.given, *front.classes)}

    def fail(self, message: str, *keys) -> None:
        self.page.front.fail(message, *self.keys, *keys)

    def map(self, entry: dict, key: str):
        value = entry.get(key) or {}
        if not isinstance(value, dict):
            self.fail(f"must be a mapping, got {value!r}", key)
        return value.items()

    def tag(self, tag: object, *keys) -> str:
        if tag not in self.page.tags():
            self.fail(f"the page has no tag {tag!r}; it has {', '.join(self.page.tags()) or 'none'}", *keys)
        return tag

    def target(self, text: object, *keys) -> Target:
        found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", str(text), re.S)
        if not found:
            self.fail(f"{text!r} is no tag", *keys)
        replaced = []
        for part in re.split(r",(?![^(]*\))", found.group(2)) if found.group(2) else ():
            name, equals, other = part.partition("=")
            if not equals:
                self.fail(f"{text!r}: write TAG(symbol = TAG)", *keys)
            if name.strip() not in self.page.front.names.values():
                self.fail(f"{text!r}: the page has no symbol {name.strip()!r}", *keys)
            replaced.append((name.strip(), self.target(other, *keys)))
        return Target(self.tag(found.group(1), *keys), tuple(replaced))

    def symbol(self, name: object, *keys) -> str:
        if name not in self.symbols:
            self.fail(f"the page gives no symbol {name!r}; it gives {', '.join(sorted(self.symbols))}", *keys)
        return str(name)

    def python(self, key: str, source: object, *keys) -> str:
        try:
            ast.parse(str(source), mode="eval")
        except SyntaxError as error:
            self.fail(f"{source!r} is no Python expression: {error.msg}", key, *keys)
        return str(source)

    def size(self, dim: object, length: object) -> int | list[int]:
        lengths = length if isinstance(length, list) and dim == "rows" else [length]
        known = dim in (*self.page.front.dims, "rows")
        if not known or not all(isinstance(n, int) and n > 0 for n in lengths):
            self.fail(f"needs a positive length for a dim or for `rows`, got {dim}: {length!r}", "sizes", dim)
        return length

    def dtype(self, name: object) -> str:
        if name not in DTYPES:
            self.fail(f"{name!r} is not among {', '.join(DTYPES)}", "dtypes")
        return str(name)
