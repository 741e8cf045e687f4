"""The right side of a claim: a literal, and whether a computed value is what it says."""

from __future__ import annotations

import ast
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np


class _Number(NamedTuple):
    value: Decimal
    whole: bool  # written without a point or an exponent


def parse(source: str) -> Any:
    """Nested lists of `_Number`, bool, float (inf) and Ellipsis. Raises ValueError for anything else."""
    text = source.strip().replace("…", "...")

    def convert(node: ast.expr) -> Any:
        if isinstance(node, (ast.List, ast.Tuple)):
            return [convert(item) for item in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner, sign = convert(node.operand), -1 if isinstance(node.op, ast.USub) else 1
            return inner._replace(value=sign * inner.value) if isinstance(inner, _Number) else sign * inner
        if isinstance(node, ast.Name) and node.id == "inf":
            return float("inf")
        if isinstance(node, ast.Name) and node.id == "nan":
            raise ValueError("NaN can't be quoted: it also marks lanes that are undefined")
        if isinstance(node, ast.Constant) and (node.value is Ellipsis or isinstance(node.value, bool)):
            return node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            digits = (ast.get_source_segment(text, node) or "").replace("_", "")
            if Decimal(digits) == 0 and "e" in digits.lower():
                raise ValueError("write 0 without an exponent")
            return _Number(Decimal(digits), whole=digits.isdigit())
        raise ValueError("the right side has to be a number or a list of numbers")

    return convert(ast.parse(text, mode="eval").body)


def same(got: Any, right: str) -> bool:
    """Whether a computed value is what the right side of a claim says. Raises ValueError if that is no literal."""
    return _equal(got, parse(right))


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
    if isinstance(got, (tuple, list, str)) or np.ndim(got) or got is None:
        return False
    if isinstance(want, bool):
        return bool(got) is want and got in (0, 1)
    value = float(got)
    if isinstance(want, float) or not np.isfinite(value):
        return isinstance(want, float) and value == want
    if want.whole:
        return value == int(value) and int(got) == want.value
    return Decimal(value).quantize(Decimal(1).scaleb(want.value.as_tuple().exponent)) == want.value
