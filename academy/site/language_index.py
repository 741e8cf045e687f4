"""The index of `triton.language`: what is used, and by whom, is read from the code; where it is taught, from the path;
what it does and what to mind, from the page's front matter."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from academy.book import front_matter, layout, syntax
from academy.book.texts import read
from academy.site import project_parts, taught_before_used
from academy.site.library import Library, Page
from academy.site.page_facts import title

PAGE = "reference/triton-language.md"
#: Functions that are imported from Triton by name.
IMPORTED = ("gdc_wait", "gdc_launch_dependents")
#: Of `triton` itself only what kernels and their launchers need.
OF_TRITON = ("jit", "cdiv", "next_power_of_2", "autotune", "Config")
#: Lessons that are named as users of a function.
MOST = 3


def entries(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """Group -> name -> `does` and `mind`, from the page's front matter."""
    return front_matter.values(text).get("language", {})


@lru_cache(512)
def names(text: str) -> set[str]:
    """What a file uses of the language, as `tl.dot`. All dtypes but int64 go by the name of float32."""
    nodes = syntax.nodes(text)
    dotted = {taught_before_used.dotted(node) for node in nodes} - {""}
    found = {name for name in dotted if not name.startswith("triton.") or name.partition(".")[2] in OF_TRITON}
    return found | {node.id for node in nodes if isinstance(node, ast.Name) and node.id in IMPORTED}


def used(root: Path, docs: str = "docs") -> dict[str, list[str]]:
    """Name -> the files that use it: kernels, chapters and the snippets of guides."""
    files = [path for path in layout.kernels(root) if "gluon" not in path.parts]
    files += sorted((root / docs / "learn").glob("*.py")) + sorted((root / docs / "guides/snippets").glob("*.py"))
    found: dict[str, list[str]] = {}
    for path in files:
        for name in names(read(path)):
            found.setdefault(name, []).append(path.relative_to(root).as_posix())
    return found


def unexplained(root: Path, docs: str = "docs") -> list[str]:
    """Names that are used, and that the index doesn't have."""
    known = {name for group in entries(read(root / docs / PAGE)).values() for name in group}
    return sorted(set(used(root, docs)) - known)


def taught(index: Library) -> dict[str, str]:
    """Name of the index -> the page of the path that teaches it."""
    groups = entries(read(index.root / index.docs / PAGE))
    return project_parts.taught(index, {name for group in groups.values() for name in group})


def markdown(index: Library) -> list[str]:
    """The index, group by group: of what is explained, what is used."""
    users = used(index.root, index.docs)
    groups = entries(read(index.root / index.docs / PAGE))
    lessons = taught(index)
    out: list[str] = []
    for group, found in groups.items():
        out += ["", f"## {group}", ""]
        for name, entry in found.items():
            if name not in users:
                continue
            anchor = name.replace(".", "-").lower()
            page = lessons.get(name, "")
            lesson = f"Taught in [{title(index, page)}](/{page})." if page else ""
            parts = [entry["does"], entry.get("mind", ""), lesson, _users(index, users.get(name, []))]
            out += [f"`{name}` {{ #{anchor} }}", f":   {' '.join(filter(None, parts))}", ""]
    return out


def _users(index: Library, files: list[str]) -> str:
    """Links to the first lessons and fast versions, along the path, that use it."""
    steps = index.path.steps
    pages: list[Page] = [page for file in files if (page := index.page_of(file)) and page.uri in steps]
    pages.sort(key=lambda page: steps[page.uri])
    links = ", ".join(f"[{page.name}](/{page.uri})" for page in pages[:MOST])
    return f"Used by {links}{' and others' if len(pages) > MOST else ''}." if links else ""
