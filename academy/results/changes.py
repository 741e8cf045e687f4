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
    """Over all files: `changed` the result, of which `floats` and `exact` see so many, and `alone` only the second."""
    counts = Counter[str]()
    for each in read(kind, root).values():
        counts.update(each["counts"])
    both, floats, alone = counts["both"], counts["floats alone"], counts["exact alone"]
    return {"changed": both + floats + alone, "floats": both + floats, "exact": both + alone, "alone": alone} | counts


def said(kind: str, root: Path) -> str:
    """`Of 300 changes in 14 kernel files, …`"""
    files, n = read(kind, root), counted(kind, root)
    return (
        f"of {n['changed']} changes in {len(files)} kernel files, twice PyTorch's error sees {n['floats']}, the exact "
        f"comparison {n['exact']}"
    )
