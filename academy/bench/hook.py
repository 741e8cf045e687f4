"""MkDocs hook: a page of results for every operation of `benchmarks/`, also before anything was measured.

A new operation gets its page and its line in the navigation without a stub of its own. A page that exists under
docs/benchmarks/ is left alone.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from mkdocs.structure.files import File

from academy import syntax
from academy.bench import store

ROOT = Path(__file__).resolve().parents[2]
SECTION = "Benchmarks"


def operations() -> dict[str, str]:
    """Name -> title of every operation with a benchmark, in the order of the lessons' folders."""
    found = {}
    for path in store.benchmark_files(ROOT):
        lesson = store.kernel_files(path)["lesson"]
        if (ROOT / lesson).is_file():
            found[path.stem] = (lesson, title((ROOT / lesson).read_text("utf-8"), path.stem))
    groups = ("tutorials", "classics", "gemlite")
    order = {
        name: (groups.index(file.split("/")[1]) if file.split("/")[1] in groups else 9)
        for name, (file, _) in found.items()
    }
    return {name: found[name][1] for name in sorted(found, key=lambda name: (order[name], name))}


@cache
def title(text: str, name: str) -> str:
    """What stands before the colon in the heading of the module's docstring."""
    try:
        docstring = ast.get_docstring(syntax.tree(text)) or ""
    except SyntaxError:
        docstring = ""  # the kernel's own page reports it
    heading = next((line for line in docstring.split("\n") if line.startswith("# ")), f"# {name}")
    return heading.removeprefix("# ").partition(":")[0].strip()


def on_config(config):
    for entry in config.nav or []:
        if isinstance(entry, dict) and isinstance(entry.get(SECTION), list):
            listed = {page if isinstance(page, str) else next(iter(page.values())) for page in entry[SECTION]}
            for name, heading in operations().items():
                if f"benchmarks/{name}.md" not in listed:
                    entry[SECTION].append({f"{heading} ({name})": f"benchmarks/{name}.md"})
    return config


def on_files(files, config):
    for name, heading in operations().items():
        uri = f"benchmarks/{name}.md"
        if not files.get_file_from_path(uri):
            files.append(File.generated(config, uri, content=page(name, heading)))
    return files


def page(name: str, heading: str) -> str:
    files = store.kernel_files(ROOT / "benchmarks" / f"{name}.py")
    names = {"lesson": "the lesson", "fast": "its fast version"}
    kernels = " and ".join(f"[{names[provider]}](/{kernel_page(path)})" for provider, path in files.items())
    return (
        f"---\ntitle: '{heading}: benchmark'\n"
        f"description: How fast {name} is on each device that was measured, beside its peers and the limit.\n---\n\n"
        f"# {heading}, measured\n\n"
        f"What is measured: {kernels}; [Benchmarks](index.md) says how to read this.\n\n"
        f"[[benchmark: {name}]]\n"
    )


def kernel_page(path: str) -> str:
    """The page that shows a kernel file: the stub that names it."""
    for stub in sorted((ROOT / "docs").rglob("*.md")):
        if f"[[kernel: {path}]]" in stub.read_text("utf-8"):
            return stub.relative_to(ROOT / "docs").as_posix()
    return "kernels/index.md"
