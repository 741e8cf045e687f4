"""The right side of a claim: a literal, and whether a computed value is what it says."""

from __future__ import annotations

import ast
import re
from decimal import Context, Decimal
from typing import Any

import numpy as np

#: A number as it is written.
NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def parse(source: str) -> Any:
    """Nested lists of numbers as they are written, bool and Ellipsis. Raises ValueError for anything else."""
    text = source.strip().replace("…", "...")

    def convert(node: ast.expr) -> Any:
        if isinstance(node, (ast.List, ast.Tuple)):
            return [convert(item) for item in node.elts]
        if isinstance(node, ast.Constant) and (node.value is Ellipsis or isinstance(node.value, bool)):
            return node.value
        written = (ast.get_source_segment(text, node) or "").replace(" ", "")
        if re.fullmatch(r"[-+]?nan", written):
            raise ValueError("NaN can't be quoted: it also marks lanes that are undefined")
        if not re.fullmatch(rf"{NUMBER}|[-+]?inf", written):
            raise ValueError("the right side has to be a number or a list of numbers")
        if "e" in written.lower() and Decimal(written) == 0:
            raise ValueError("write 0 without an exponent")
        return written.replace("_", "")

    return convert(ast.parse(text, mode="eval").body)


def same(got: Any, right: str) -> bool:
    """Whether a computed value is what the right side of a claim says. Raises ValueError if that is no literal."""
    return _equal(got, parse(right))


#: Enough for a number of any size, quoted with any exponent.
_DIGITS = Context(prec=800)


def _equal(got: Any, want: Any) -> bool:
    """Whole numbers exactly; others rounded (half to even) to the digits that are quoted; `...` leaves out."""
    if isinstance(want, list):
        if not isinstance(got, (tuple, list)) and np.ndim(got) == 0:
            return False
        items = list(got)
        if Ellipsis in want:
            cut = want.index(Ellipsis)
            tail = len(want) - cut - 1
            if Ellipsis in want[cut + 1 :] or len(items) < len(want):
                return False
            items, want = [*items[:cut], *items[len(items) - tail :]], [*want[:cut], *want[cut + 1 :]]
        return len(items) == len(want) and all(map(_equal, items, want))
    if isinstance(got, (tuple, list, str)) or np.ndim(got) or got is None or want is Ellipsis:
        return False
    if isinstance(want, bool):
        return bool(got) is want and got in (0, 1)
    value = float(got)
    if not np.isfinite(value) or "inf" in want:
        return value == float(want)
    if want.lstrip("+-").isdigit():
        return value == int(value) and int(got) == int(want)
    number = Decimal(want)
    return Decimal(value).quantize(Decimal(1).scaleb(int(number.as_tuple().exponent)), context=_DIGITS) == number
