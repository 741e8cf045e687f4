"""The name that somebody meant, for a message: `tl.stroe` was to be `store`.

Python's own suggestion takes two swapped letters for two mistakes, and says nothing where it is left out of a message.
`difflib` isn't in the browser.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable

#: So many names of a function are listed.
_MOST = 12


def suggestion(error: BaseException) -> str:
    """`. Did you mean: 'store'?`; of a name that is not there and near none the names that are; "" where there is no
    more to say, or Python's message has a suggestion already."""
    if not isinstance(error, (NameError, AttributeError)) or "Did you mean" in str(error):
        return ""
    known: Iterable[str] = ()
    here: list[str] = []
    if isinstance(error, AttributeError):
        known = dir(error.obj)
        if type(error.obj).__module__.startswith("triton.") and error.name in _IN_A_KERNEL:
            return f". In a kernel that is {_IN_A_KERNEL[error.name]}"
    else:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        known = [*frames[-1].f_locals, *frames[-1].f_globals] if frames else ()
        own = frames[-1].f_locals if frames and frames[-1].f_locals is not frames[-1].f_globals else {}
        here = [each for each in own if not each.startswith("_")]
    found = near(getattr(error, "name", None) or "", known)
    if found:
        return f". Did you mean: {found!r}?"
    return f". The names of this function are {', '.join(here[:_MOST])}" if 0 < len(here) <= _MOST else ""


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that is fewest letters away, if they are at most a third of the name, and not all of it; or None.

    A letter that is missing, too many, another one, or swapped with its neighbour is one mistake.
    """
    allowed = min(len(name) - 1, max(1, len(name) // 3))
    public = {each for each in known if each != name and (name.startswith("_") or not each.startswith("_"))}
    close = [each for each in public if abs(len(each) - len(name)) <= allowed] if name else []
    counted = [(mistakes(name, each), each) for each in sorted(close)]
    best = min(counted, default=(allowed + 1, ""))
    return best[1] if best[0] <= allowed else None


def mistakes(one: str, other: str) -> int:
    """The distance of two words: optimal string alignment."""
    rows = [list(range(len(other) + 1))]
    for i, left in enumerate(one, 1):
        row = [i]
        for j, right in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


#: Functions of PyTorch and NumPy -> what does the same in a kernel.
_IN_A_KERNEL = {
    "relu": "tl.maximum(x, 0.0)", "div": "x / y", "neg": "-x",
    "square": "x * x", "matmul": "tl.dot(x, y)", "mm": "tl.dot(x, y)", "mean": "tl.sum(x, axis=0) / n",
    "amax": "tl.max(x, axis=0)", "amin": "tl.min(x, axis=0)", "tanh": "libdevice.tanh(x)", "reciprocal": "1 / x",
    "pow": "tl.exp2(y * tl.log2(x))", "silu": "x * tl.sigmoid(x)", "transpose": "tl.trans(x)",
    "logical_and": "x & y", "logical_or": "x | y", "logical_not": "~x",
    "float": "x.to(tl.float32)", "half": "x.to(tl.float16)", "int": "x.to(tl.int32)", "long": "x.to(tl.int64)",
}  # fmt: skip
#: What has the same name there.
_SAME = """
abs add arange argmax argmin bfloat16 cat ceil clamp cos cumsum erf exp exp2 flip float16 float32 float64 floor full
int16 int32 int64 int8 log log2 max maximum min minimum mul reshape rsqrt sigmoid sin softmax sort split sqrt sub
sum uint8 where zeros
""".split()


def host_only(module: str, name: str) -> str:
    """What to say of `torch.relu` in a kernel."""
    own = f"tl.{name}" if name in _SAME else _IN_A_KERNEL.get(name)
    return f"{module}.{name} works on the host only: a kernel uses triton.language{f', as in {own}' if own else ''}"
