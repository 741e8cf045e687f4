r"""What calls of the kernels are compared with a derivation's formulas: said in operations/<op>.py.

```python
from academy.formulas.cases import case

LESSON = "classics.layernorm"                           # files under annotated_examples
FAST = "fast.layernorm"
DERIVATION = "layernorm"                                # the page with the tags
BOTH = (LESSON, FAST)


@case(modules=BOTH, returns="LN-Y", gradients={"X": "LN-X", "gamma": "LN-gamma", "beta": "LN-beta"})
def layernorm(module, X, gamma, beta, varepsilon):      # symbols by their Python names
    return module.layernorm(X, gamma, beta, varepsilon)


@case(modules=BOTH, returns="LN-Y", gradients={"X": "LN-X"})
def in_chunks(module, X, nabla_Y, varepsilon):          # launchers: the gradients are returned too
    y, mean, rstd = module.layernorm_forward(X, eps=varepsilon, BLOCK_N=16)
    return y, {"X": module.layernorm_backward(nabla_Y, X, mean, rstd, BLOCK_N=16)}


@in_chunks.pytorch
def _(X, n, varepsilon):
    import torch

    return torch.nn.functional.layer_norm(X, (n,), eps=varepsilon)
```

A case gets `module`, and by the names of its parameters the page's symbols, its dims, `rows` (shape of the rows) and
`at_end(tensor)`: a copy that, when mutants run, lies at the end of readable memory. Keywords of the decorator:

- `modules`: one name or several. The case is run for each of them.
- `returns`: the tag of each returned tensor (a tuple for several; None: that one is not compared).
- `gradients`: the tag of each gradient. PyTorch's autograd asks the call for them, unless the case returns
  `(outputs, {symbol: gradient})`.
- `rows=("x", "c")`: these symbols carry one more leading axis, of rows that the formula is applied to one by one. The
  gradient of a symbol without that axis is the sum over the rows.
- `pytorch`: PyTorch's own operation, by which the error is judged: a function of the case file, which may also be
  decorated with `@<case>.pytorch`; or the name of a function of the module, which is called in place of the case's
  first one, without the keywords that it doesn't know. Default: the name of that first one with `_reference` appended.
- `upstream`: the gradient handed to the call's result, a number or a function of the case file (also:
  `@<case>.upstream`). Default: the upstream of the page's loss; ones if there is none.
- `stable={"CE": "CE-stable"}`: for inputs around ±10⁴, where the form of the first tag overflows, compare with the
  second.
- `values={"s": 0.5}`: numbers for some symbols in place of random ones; or a function that returns such a mapping, of
  numbers and tensors (also: `@<case>.values`).
- `sizes={"n": 300}`: lengths for some dims in place of the usual odd ones. `{"rows": (3, 2100)}` gives rows two axes.
- `dtypes`: default `("float32", "bfloat16")`.
- `forward_only=True`: the call gives no gradient at all.

`wide = layernorm.again(sizes={"n": 300})` is the case `wide`: the same call, with other keywords.

A tag may be composed: `MM-X(nabla_C = MM-relu-Z)` is the formula MM-X with the result of MM-relu-Z put in for nabla_C.
That also serves formulas made of a name whose definition overflows: `SM-x(y = SM)`, where SM is the stable form of y.

The files are imported by their path (`load`), also where triton is missing, since the site says what is compared. So a
file imports the standard library, torch and its neighbours; the rest is imported inside of the function that needs it.
A case imports no kernel at all: it is handed the modules, so that a mutated copy can be judged too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from academy.book import facts, syntax
from academy.book.problems import Problem
from academy.formulas.reading.page import Page

#: Keywords of `@case`, and what holds where one is not given. `modules` and `returns` must be.
KEYWORDS: dict[str, Any] = dict(
    modules=None,
    returns=None,
    gradients={},
    rows=(),
    pytorch=None,
    upstream=None,
    stable={},
    values={},
    sizes={},
    dtypes=("float32", "bfloat16"),
    forward_only=False,
)


# ---------------------------------------------------------------- what a case file calls
class Case:
    """A function of a case file with what its decorator says. `pytorch`, `upstream` and `values` are decorators too."""

    def __init__(self, function: Callable, said: dict[str, Any]):
        self.function, self.given = function, said
        self.said = KEYWORDS | said

    def pytorch(self, function: Callable) -> Callable:
        return self.said.update(pytorch=function) or function

    def upstream(self, function: Callable) -> Callable:
        return self.said.update(upstream=function) or function

    def values(self, function: Callable) -> Callable:
        return self.said.update(values=function) or function

    def again(self, **keywords: Any) -> Case:
        """The same call as another case, of which these keywords say something else."""
        return Case(self.function, self.given | self.said | keywords)


def case(**keywords: Any) -> Callable[[Callable], Case]:
    """Decorate a function that calls a kernel: see this module's docstring. `case_reader` checks the keywords."""
    return lambda function: Case(function, dict(keywords))


def load(path: Path) -> dict[str, Case]:
    """The cases that a file defines. What it takes from its neighbours is theirs."""
    taken = syntax.imported_names(path.read_text("utf-8"))
    found = vars(facts.load(path)).items()
    return {name: value for name, value in found if isinstance(value, Case) and name not in taken}


def without_rounding(path: Path) -> dict[str, Any]:
    """What a file says of its cases for the comparison without rounding, in `WITHOUT_ROUNDING`: `atoms`, helpers of
    kernels that approximate a function, and what for (`academy.exact.triton.Atoms`); `sizes` of some cases, by name
    ("": of all); `listed`, cases that can't be decided, and why."""
    return {"atoms": {}, "sizes": {}, "listed": {}, **getattr(facts.load(path), "WITHOUT_ROUNDING", {})}


# ---------------------------------------------------------------- what is read from it
@dataclass(frozen=True)
class Target:
    """A tag, with other tags' results put in for some of its symbols."""

    tag: str
    replaced: tuple[tuple[str, Target], ...] = ()

    def inside(self) -> list[Target]:
        """Itself, and all whose results are put in."""
        return [self, *(target for _, other in self.replaced for target in other.inside())]

    def __str__(self) -> str:
        inside = ", ".join(f"{name} = {target}" for name, target in self.replaced)
        return f"{self.tag}({inside})" if inside else self.tag


@dataclass(frozen=True)
class Call:
    """A call of a module's function. text: without `module`; shown: not inside of another one, or of a helper."""

    function: str
    positional: int
    keywords: tuple[str, ...]
    text: str
    shown: bool


@dataclass(frozen=True)
class Comparison:
    """A case for one of its modules. Symbols are named as Python names them.

    path: of the file with the case. place: its line there, for messages. explicit: it returns the gradients.
    """

    page: Page = field(repr=False)
    path: Path
    place: Problem = field(repr=False)
    case: str
    module: str
    calls: tuple[Call, ...] = field(repr=False)
    returns: tuple[Target | None, ...]
    gradients: dict[str, Target]
    rows: tuple[str, ...]
    stable: dict[str, str]
    sizes: dict[str, int | tuple[int, ...]]
    dtypes: tuple[str, ...]
    forward_only: bool
    explicit: bool

    @property
    def function(self) -> str:
        """Name of the function that is called first."""
        return self.calls[0].function

    @property
    def listed(self) -> str:
        """Why it isn't compared without rounding; "" if it is."""
        return without_rounding(self.path)["listed"].get(self.case, "")

    @property
    def call(self) -> str:
        """The calls as readers are shown them: `softmax(x)`."""
        return "; ".join(dict.fromkeys(call.text for call in self.calls if call.shown))

    def targets(self) -> list[Target]:
        """All that are named, those whose results are put in among them, each once."""
        named = [target for target in (*self.returns, *self.gradients.values()) if target]
        return list(dict.fromkeys(target for each in named for target in each.inside()))

    def tags(self) -> set[str]:
        return {target.tag for target in self.targets()}.union(self.stable.values())

    def problem(self, message: str) -> Problem:
        return replace(self.place, message=message)

    def __str__(self) -> str:
        return f"{self.module}: {self.case}"
