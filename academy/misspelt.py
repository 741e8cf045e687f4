"""The name that somebody meant, for a message: `tl.stroe` was to be `store`.

Python's own suggestion takes two swapped letters for two mistakes, and says nothing where it is left out of a message.
`difflib` isn't in the browser.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable


def suggestion(error: BaseException) -> str:
    """`. Did you mean: 'store'?`, or "" where no name is near, or Python's message has one already."""
    if not isinstance(error, (NameError, AttributeError)) or "Did you mean" in str(error):
        return ""
    known: Iterable[str] = ()
    if isinstance(error, AttributeError):
        known = dir(error.obj)
    else:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        known = [*frames[-1].f_locals, *frames[-1].f_globals] if frames else ()
    found = near(getattr(error, "name", None) or "", known)
    return f". Did you mean: {found!r}?" if found else ""


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that is fewest letters away, if they are at most a third of the name; None if there is none.

    A letter that is missing, too many, another one, or swapped with its neighbour is one mistake.
    """
    allowed = max(1, len(name) // 3)
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
