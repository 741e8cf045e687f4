"""The right side of a claim: a literal, and whether a computed value is what it says."""

from __future__ import annotations

import ast
from decimal import Decimal
from typing import NamedTuple

import numpy as np


class _Number(NamedTuple):
    value: Decimal
    whole: bool  # written without a point or an exponent


def parse(source: str):
    """Nested lists of `_Number`, bool, float (inf) and Ellipsis. Raises ValueError for anything else."""
    tree = ast.parse(source.strip().replace("…", "..."), mode="eval").body
    text = source.strip().replace("…", "...")

    def convert(node):
        if isinstance(node, (ast.List, ast.Tuple)):
            return [convert(item) for item in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = convert(node.operand)
            if isinstance(inner, _Number):
                return inner._replace(value=-inner.value) if isinstance(node.op, ast.USub) else inner
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.Name) and node.id == "inf":
            return float("inf")
        if isinstance(node, ast.Name) and node.id == "nan":
            raise ValueError("NaN can't be quoted: it also marks lanes that are undefined")
        if isinstance(node, ast.Constant) and (node.value is Ellipsis or isinstance(node.value, bool)):
            return node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            digits = ast.get_source_segment(text, node).replace("_", "")
            if Decimal(digits) == 0 and "e" in digits.lower():
                raise ValueError("write 0 without an exponent")
            return _Number(Decimal(digits), whole=digits.isdigit())
        raise ValueError("the right side has to be a number or a list of numbers")

    return convert(tree)


def same(got, right: str) -> bool:
    """Whether a computed value is what the right side of a claim says. Raises ValueError if that is no literal."""
    return _equal(got, parse(right))


def _equal(got, want) -> bool:
    """Whole numbers exactly; others rounded (half to even) to the digits that are quoted; `...` leaves out."""
    if isinstance(want, list):
        if isinstance(got, (tuple, list)):
            items = list(got)
        else:
            got = np.asarray(got)
            if got.ndim == 0:
                return False
            items = list(got)
        if Ellipsis in want:
            cut = want.index(Ellipsis)
            head, tail = want[:cut], want[cut + 1 :]
            if Ellipsis in tail or len(items) <= len(head) + len(tail):
                return False
            pairs = [*zip(items, head), *zip(items[len(items) - len(tail) :], tail)]
        else:
            if len(items) != len(want):
                return False
            pairs = zip(items, want)
        return all(_equal(item, wanted) for item, wanted in pairs)
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
