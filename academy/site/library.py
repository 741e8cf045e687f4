"""What the site can point at: the page that shows a file, the derivation that prints a tag, the kernels that cite it.

Everything is read from the files themselves, so that adding an operation needs no list to be kept:

- annotated_examples/<group>/<op>.py, backprop_math/<op>.md and operations/<op>.py have a page each;
- operations/<op>.py says which kernel file is an operation's lesson, and which its fast version;
- exercises/<stage>/<name>.py has a page, and belongs to another one;
- a display equation with `\\tag{NAME}` in backprop_math is the home of that tag;
- `[[eq: NAME]]` and `[[tag: NAME]]` in a kernel file cite it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from academy.book import exercise_files, facts, front_matter, layout
from academy.book.directives import cited
from academy.book.learning_path import LearningPath
from academy.book.maths import Equation, equations
from academy.book.splitter import introduction
from academy.book.texts import first_sentence, heading, read
from academy.site import addresses


@dataclass(frozen=True)
class Page:
    """A page made from a file. `uri`: its place, as if it stood under docs/; `kind`: kernel, derivation, benchmark,
    exercise."""

    uri: str
    kind: str
    source: str
    title: str
    description: str

    @property
    def href(self) -> str:
        """A link that MkDocs resolves and checks from any page (absolute_links: relative_to_docs)."""
        return "/" + self.uri

    @property
    def name(self) -> str:
        """The title up to its colon."""
        return self.title.partition(":")[0]

    @property
    def group(self) -> str:
        """The folder of a kernel or an exercise."""
        return self.source.split("/")[1]


@dataclass(frozen=True)
class Operation:
    """An operation's files: what the row of links at the top of their pages ties together. "" for what is missing."""

    lesson: str
    fast: str
    derivation: str
    benchmark: str
    tests: str
    parts: tuple[str, ...] = ()  # of the fast version, where they have files of their own

    @property
    def files(self) -> list[str]:
        files = self.lesson, self.fast, *self.parts, self.derivation, self.benchmark
        return [path for path in files if path]


@dataclass
class Library:
    """The site's index. `pages` by the path of the shown file."""

    root: Path
    docs: str = "docs"
    path: LearningPath = LearningPath()
    pages: dict[str, Page] = field(default_factory=dict)
    equations: dict[str, Equation] = field(default_factory=dict)
    citations: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # tag -> file and line of a kernel
    operations: list[Operation] = field(default_factory=list)
    exercises: dict[str, exercise_files.Exercise] = field(default_factory=dict)  # by the path of its file
    problems: list[tuple[str, int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, root: str | Path = ".", docs: str = "docs") -> Library:
        """Index the project under `root`. The index is made again only when a file in it changed."""
        root = Path(root)
        lists = layout.kernels, layout.derivations, layout.operations, layout.exercises, layout.tests
        found = [path for files in lists for path in files(root)]
        found += (root / docs).glob("learn/index.md")
        return _index(root, docs, tuple((path, path.stat().st_mtime_ns) for path in found))

    def page_of(self, source: str) -> Page | None:
        """The page that shows this file."""
        return self.pages.get(source)

    def page_at(self, uri: str) -> Page | None:
        """The page at this place, if it is made from a file."""
        return self._by_uri.get(uri)

    def file_at(self, uri: str) -> Path:
        """The file from which the page at this place is made: a chapter is a script here, and Markdown in the tree."""
        page = self.page_at(uri)
        path = self.root / (page.source if page else f"{self.docs}/{uri}")
        chapter = path.with_suffix(".py")
        return chapter if not page and uri.startswith("learn/") and chapter.is_file() else path

    @cached_property
    def linked(self) -> frozenset[str]:
        """Code outside of the site's pages that they link to: a site without a repository has copies."""
        return addresses.linked_code(self.root, self.root / self.docs)

    def shown(self, kind: str) -> list[Page]:
        """All pages of a kind: along the learning path, then the others by name."""
        return [page for page in self.pages.values() if page.kind == kind]

    def by_group(self) -> dict[str, list[Page]]:
        """The kernels' pages under the names that the navigation gives to their folders."""
        found: dict[str, list[Page]] = {}
        for page in self.shown("kernel"):
            name = self.path.groups.get(page.group) or page.group.replace("_", " ").capitalize()
            found.setdefault(name, []).append(page)
        return found

    def tex(self, tag: str) -> str | None:
        """A tagged equation without its tag, or None when no derivation has it."""
        return self.equations[tag].tex if tag in self.equations else None

    def home(self, tag: str) -> str | None:
        """A link to the place where a tagged equation is printed, or None when no page prints it."""
        return f"{self.pages[self.equations[tag].path].href}#{tag}" if tag in self.equations else None

    def main_derivation(self, path: str) -> str:
        """The derivation that a kernel file cites most, else the one with its name; "" if there is none."""
        homes = Counter(self.equations[tag].path for tag in cited(read(self.root / path)) if tag in self.equations)
        same = f"backprop_math/{Path(path).stem}.md"
        return next((home for home, _ in homes.most_common(1)), same if same in self.pages else "")

    def operations_of(self, source: str) -> list[Operation]:
        """The operations to which a file belongs: several for a derivation that several kernels implement."""
        return [operation for operation in self.operations if source in operation.files]

    def exercises_of(self, uri: str) -> list[exercise_files.Exercise]:
        """The exercises that belong to a page, the easy ones first."""
        found = [exercise for exercise in self.exercises.values() if exercise.page == uri]
        return sorted(found, key=lambda exercise: exercise.order)

    # How it is made

    def _fill(self, paths: list[Path]) -> Library:
        for path in paths:
            name = path.relative_to(self.root).as_posix()
            folder = name.partition("/")[0]
            if folder == layout.KERNELS:
                self._add_kernel(path, name)
            elif folder == layout.DERIVATIONS:
                self._add_derivation(path, name)
            elif folder == layout.EXERCISES:
                self._add_exercise(path, name)
        self._add_operations()
        steps, lessons = self.path.steps, {operation.benchmark: operation.lesson for operation in self.operations}

        def place(source: str) -> tuple[int, str, int]:
            exercise = self.exercises.get(source)
            uri = exercise.page if exercise else self.pages[lessons.get(source, source)].uri
            return steps.get(uri, len(steps) + 1), uri, exercise.order if exercise else 0

        self.operations.sort(key=lambda operation: place(operation.lesson))
        self.pages = {source: self.pages[source] for source in sorted(self.pages, key=place)}
        self._by_uri = {page.uri: page for page in self.pages.values()}
        return self

    def _add_kernel(self, path: Path, name: str) -> None:
        for number, line in enumerate(read(path).split("\n"), 1):
            for tag in cited(line):
                self.citations.setdefault(tag, []).append((name, number))
        if layout.group(self.root, path) not in layout.WITHOUT_PAGES:
            first, _, rest = introduction(read(path)).partition("\n")
            title = first.removeprefix("# ") if first.startswith("# ") else path.stem
            uri = f"kernels/{layout.module_name(self.root, path).replace('.', '/')}.md"
            self.pages[name] = Page(uri, "kernel", name, title, first_sentence(rest))

    def _add_derivation(self, path: Path, name: str) -> None:
        meta, body = front_matter.values(read(path)), front_matter.below(read(path))[0]
        title = meta.get("title") or heading(body) or path.stem
        uri = f"derivations/{path.stem}.md"
        self.pages[name] = Page(uri, "derivation", name, title, meta.get("description") or first_sentence(body))
        for equation in equations(read(path), name):
            first = self.equations.setdefault(equation.tag, equation)
            if first is not equation:
                message = f"\\tag{{{equation.tag}}} is already at {first.path}:{first.line}"
                self.problems.append((name, equation.line, message))

    def _add_exercise(self, path: Path, name: str) -> None:
        try:
            exercise = exercise_files.read(path)
        except (SyntaxError, ValueError) as error:
            self.problems.append((name, getattr(error, "lineno", None) or 1, str(error)))
            return
        self.exercises[name] = exercise
        self.pages[name] = Page(exercise.uri, "exercise", name, exercise.title, first_sentence(exercise.question))

    def _add_operations(self) -> None:
        known: set[str] = set()
        for file in facts.measured(self.root):
            kernels = facts.kernels(file)
            lesson = kernels.get("lesson", "")
            if lesson in self.pages:
                name = f"operations/{file.name}"
                title = f"{self.pages[lesson].name}: benchmark"
                about = f"How fast {file.stem} is on each device that was measured, beside its peers and the limit."
                self.pages[name] = Page(f"benchmarks/{file.stem}.md", "benchmark", name, title, about)
                parts = [path for path in facts.shown(file) if path not in kernels.values()]
                self._add_operation(lesson, kernels.get("fast", ""), name, *parts)
                known |= {*kernels.values(), *parts}
        for page in self.shown("kernel"):
            if page.source not in known:
                self._add_operation(page.source, "", "")

    def _add_operation(self, lesson: str, fast: str, benchmark: str, *parts: str) -> None:
        tests = f"tests/kernels/test_{Path(lesson).stem}.py"
        tests = tests if (self.root / tests).is_file() else ""
        fast = fast if fast in self.pages else ""
        self.operations.append(Operation(lesson, fast, self.main_derivation(lesson), benchmark, tests, parts))


@lru_cache(8)
def _index(root: Path, docs: str, files: tuple[tuple[Path, int], ...]) -> Library:
    return Library(root, docs, LearningPath.read(root / docs))._fill([path for path, _ in files])
