"""What `academy mutate --seen --write` has counted: which comparison notices a change of a kernel."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

#: Changes of a sign, a mask, a factor; and of the size of rounding.
FILES = {"coarse": "backprop_math/seen_mutants.json", "fine": "backprop_math/fine_mutants.json"}


def read(kind: str, root: Path) -> dict[str, Any]:
    """Kernel file -> counts, names, date and commit; empty where nothing was counted yet."""
    path = root / FILES[kind]
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def counted(kind: str, root: Path) -> dict[str, int]:
    """Over all files: `all` changes, those that `changed` the result, of which `floats` and `exact` see so many, and
    `alone` only the second."""
    counts = Counter[str]()
    for each in read(kind, root).values():
        counts.update(each["counts"])
    both, floats, alone = counts["both"], counts["floats alone"], counts["exact alone"]
    sums = {"all": sum(counts.values()), "changed": both + floats + alone}
    return sums | {"floats": both + floats, "exact": both + alone, "alone": alone} | counts


def said(kind: str, root: Path) -> str:
    """`of 400 changes of 14 kernel files, 300 give another result; …`"""
    files, n = read(kind, root), counted(kind, root)
    return (
        f"of {n['all']} changes of {len(files)} kernel files, {n['changed']} give another result; twice PyTorch's "
        f"error sees {n['floats']} of these, the exact comparison {n['exact']}"
    )
