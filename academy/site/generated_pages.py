"""Pages without a file under docs/: kernels, derivations, benchmarks, exercises. And their places in the navigation."""

from __future__ import annotations

import re
from pathlib import Path

from academy.book import facts, layout, syntax
from academy.book.texts import heading, read
from academy.site import exercise_pages
from academy.site.library import Library, Page

CHAPTERS = "learn"
#: The page of all exercises.
EXERCISES = "exercises.md"
#: Titles that say their section: unlike elsewhere, as in what the search finds, the sidebar has that above them.
OF_SECTION = re.compile(r'(<span class="md-ellipsis">[^<>]*): (?:derivation|benchmark)(\s)')


def markdown(library: Library, page: Page) -> str:
    """What the page shows, as a directive."""
    if page.kind != "benchmark":
        return f"[[{page.kind}: {page.source}]]\n"
    benchmark = Path(page.source)
    files = facts.kernels(library.root / benchmark)
    names = {"lesson": "the lesson", "fast": "its fast version"}
    kernels = " and ".join(f"[{names[provider]}]({library.pages[path].href})" for provider, path in files.items())
    return (
        f"# {library.pages[files['lesson']].name}, measured\n\n"
        f"What is measured: {kernels}; [Benchmarks](/benchmarks/index.md) says how to read this.\n\n"
        f"[[benchmark: {benchmark.stem}]]\n"
    )


def sources(library: Library, page: Page) -> list[str]:
    """What the page shows: of a kernel also what it imports, of a derivation the kernels whose lines it links to, of a
    benchmark the results."""
    found = [page.source]
    if page.kind == "kernel":
        imported = syntax.imported_kernels(read(library.root / page.source), library.root)
        found += [path.relative_to(library.root).as_posix() for path in imported]
    if page.kind == "derivation":
        tags = [tag for tag, equation in library.equations.items() if equation.path == page.source]
        found += [path for tag in tags for path, _ in library.citations.get(tag, ())]
    if page.kind == "benchmark":
        results = (library.root / layout.RESULTS).rglob(f"{Path(page.source).stem}.json")
        found += [path.relative_to(library.root).as_posix() for path in results]
    return list(dict.fromkeys(found))


def completed(nav: list, library: Library) -> list:
    """The navigation of mkdocs.yml, in which the sections of made pages list only what is written by hand: with the
    chapters of the learning path and the exercises by stage, kernels by group, derivations and benchmarks. No two pages
    have the same title there: an operation's derivation and its benchmark say what they are."""
    made = {
        CHAPTERS: [*_chapters(library), *_exercises(library)],
        "kernels": [{name: _named(pages)} for name, pages in library.by_group().items()],
        "derivations": _named(library.shown("derivation"), ": derivation"),
        "benchmarks": _named(library.shown("benchmark"), ": benchmark"),
    }
    for pages in (pages for entry in nav if isinstance(entry, dict) for pages in entry.values()):
        folder, _, first = str(pages[0]).partition("/")
        if first == "index.md" and isinstance(pages, list):
            listed = [page if isinstance(page, str) else next(iter(page.values())) for page in pages]
            pages += [page for page in made.get(folder, ()) if next(iter(page.values())) not in listed]
    return nav


def _chapters(library: Library) -> list[dict]:
    steps = library.path.steps
    files = sorted((library.root / library.docs / CHAPTERS).glob("*.py"))
    uris = sorted((f"{CHAPTERS}/{file.name}" for file in files), key=lambda uri: (steps.get(uri, len(steps) + 1), uri))
    return [{heading(read(library.root / library.docs / uri)): uri} for uri in uris]


def _exercises(library: Library) -> list[dict]:
    pages = {stage.title: exercise_pages.of_stage(library, stage.exercises) for stage in library.path.stages}
    stages = [{stage: _named(exercises)} for stage, exercises in pages.items() if exercises]
    overview = [{"All exercises": EXERCISES}] if (library.root / library.docs / EXERCISES).is_file() else []
    return [*overview, {"Exercises": stages}] if stages else []


def _named(pages: list[Page], what: str = "") -> list[dict]:
    return [{page.name + what: page.uri} for page in pages]
