"""The Python-Markdown extension `academy.site`: HTML for the directives.

    [[kernel: annotated_examples/classics/layernorm.py]]   the page of a kernel file
    [[derivation: backprop_math/layernorm.md]]             a derivation
    [[kernels]]  [[derivations]]  [[reference]]            lists of all of them, and of their public functions
    [[path]]  [[tracks]]  [[tracks: short]]                the map of the learning path, and short ways through it
    [[language]]                                           the index of triton.language
    [[errors]]                                             what the compiler and PyTorch print, and what to write
    [[exercise: exercises/rows/merge.py]]                  the page of an exercise
    [[exercises]]  [[exercises: every]]                    the exercises of the page on which it stands, or all of them
    [[verified]]                                           the table of all that is checked
    [[code: PATH NAME]]                                    a function of a kernel file, without its notes
    [[playground: PATH]]                                   a kernel file without its notes, to be run and edited
    [[live: PATH NAME: LINE | LINE]]                       a kernel that plays its recorded run at once; that line
                                                           of it can be changed, to the others or by typing, and run
    [[benchmark: layernorm]]  [[benchmarks]]               committed results of an operation, of all operations
    [[ladder: softmax]]                                    a ladder, rung by rung: change, reason and gain
    [[figure: hardware/memory]]                            a picture, drawn by docs/figures/hardware.py
    [[training: capstone]]                                 committed loss curves and speeds of models that were trained
    [[experiment: sanitizers]]                             the table of an experiment's committed results
    [[eq: LN-X]]                                           a tagged equation, drawn from its derivation, with a link
    [[tag: LN-X]]                                          a link to it, within a sentence
    [[bench: KEY]]                                         a measured number
    [[changes: fine]]                                      how many changes of kernels which comparison sees
    [[run: classics/layernorm: KERNEL, pid=0: mean[0]]]    a number of a recorded run, with a link to its moment

A mistake is logged as a warning, `path:line: message`, which fails `mkdocs build --strict`; `mkdocs serve` goes on and
shows the page, so that it can be fixed while looking at it.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from markdown import Extension
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor

from academy.book import facts, front_matter, layout, lists, syntax
from academy.book.directives import fenced, on_line
from academy.book.splitter import SourceError, split
from academy.book.texts import read
from academy.results import experiments
from academy.results.pages import Html
from academy.site import (
    chapters,
    error_page,
    exercise_pages,
    katex,
    kernel_page,
    language_index,
    path_map,
    pictures,
    playground_page,
    project_parts,
)
from academy.site.addresses import NOWHERE
from academy.site.citations import CitedEquation, Span
from academy.site.conversion import Conversion, TreeStep
from academy.site.glossary import Mentions
from academy.site.highlighting import lean
from academy.site.library import Page
from academy.site.page_facts import PageFacts
from academy.site.page_tree import Contents, PageTree
from academy.site.variable_marks import VariableMarks


class AcademyExtension(Extension):
    def __init__(self, **settings):
        self.config = {
            "root": [".", "the repository"],
            "docs": ["docs", "the folder with the site's own pages, under the repository"],
            "repo_url": ["", "where the repository is published; links to files go there"],
            "branch": ["main", "the branch that those links show"],
            "index": ["", "the library of the site that is being built; read again if it isn't given"],
        }
        super().__init__(**settings)

    def extendMarkdown(self, md):
        md.registerExtension(self)
        made = self.conversion = Conversion(md, self.getConfigs())
        md.preprocessors.register(Lines(made), "academy_lines", 29)  # before fenced code and raw HTML
        md.parser.blockprocessors.register(CitedEquation(made), "academy_equation", 95)
        md.inlinePatterns.register(Span(made), "academy_spans", 185)  # after code in backticks
        # After inline patterns (20) and those for attributes (8); then the table of contents and anchors (5).
        for first, steps in ((7, (PageTree, VariableMarks)), (4, AFTER_CONTENTS)):
            for place, step in enumerate(steps):
                md.treeprocessors.register(step(made), f"academy_{step.__name__}", first - place / len(steps))
        md.postprocessors.register(Finished(made), "academy_finished", -10)

    def reset(self):
        self.conversion.reset()


class LastLinks(TreeStep):
    """Links to chapters, which are scripts in the repository, lead to their pages. Links to files of a repository
    without an address become text."""

    def run(self, root):
        uri, index = self.conversion.uri, self.conversion.index
        for element in root.iter("a"):
            href, mark, fragment = element.get("href", "").partition("#")
            if href.startswith(NOWHERE):
                element.tag = "span"
                element.attrib.clear()
            elif href.endswith(".py") and "//" not in href:
                page = chapters.place(normpath(join(dirname(uri), href)).lstrip("/"))
                if index.file_at(page).suffix == ".py":
                    element.set("href", chapters.place(href) + mark + fragment)


class Finished(Postprocessor):
    """The page's HTML, with that of docstrings, which the steps on its tree don't see."""

    def __init__(self, conversion: Conversion):
        super().__init__(conversion.md)
        self.conversion = conversion

    def run(self, text):
        if not self.conversion.uri:  # a docstring, which is part of a page
            return text
        # A result without a type starts with a dash in mkdocstrings' lists.
        text = lean(DASH.sub(r"\1", LINK.sub(self.resolved, text)))
        self.conversion.meta["fonts"] = [f"katex/fonts/{font}" for font in katex.fonts(text[:BEGINNING])]
        return text

    def resolved(self, link):
        """A link to a page that the engine would leave as it is: one in a docstring for MkDocs, any for Zensical, for
        which it has to be relative to the page's file."""
        uri, index, there = self.conversion.uri, self.conversion.index, link[1]
        if not index.file_at(there).is_file() and not index.page_of(there):
            self.conversion.problem(f"link to {there}, which does not exist", there)
            return link[0]
        here = _folder(uri) if "relpath" in self.md.treeprocessors else dirname(uri)
        end = "/" if there.endswith(".md") else ""
        return f'href="{relpath(_folder(there) or ".", here or ".")}{end}{link[2] or ""}"'


def _folder(uri: str) -> str:
    """Of a page's address; of another file this is the file."""
    return uri.removesuffix(".md").removesuffix("index")


LINK = re.compile(r'href="/([^"#?]+\.(?:md|py))(#[^"]*)?"')
DASH = re.compile(r'(<li class="doc-section-item field-body">\s*)–\s*')
#: Characters of a page in which the fonts are looked for that come along with it.
BEGINNING = 50_000
#: Steps on a page's tree, in this order. The engine's links follow them.
AFTER_CONTENTS = (Contents, exercise_pages.ExerciseLinks, PageFacts, Mentions, LastLinks)


NOTHING = ["", "Nothing here yet.", ""]


class Lines(Preprocessor):
    """Directives on lines of their own: a method for each name of `academy.book.directives.LINES`. Also what is said of
    the text as it is written."""

    def __init__(self, conversion: Conversion):
        super().__init__(conversion.md)
        self.conversion = conversion

    def run(self, lines: list[str]) -> list[str]:
        self.conversion.begin(lines)
        self.index = self.conversion.index
        out = self.expanded(lines)
        for path, source in self.conversion.sources:
            for number, message in lists.lists_after_text(source) if source and source[0][0] else ():
                self.conversion.problem(message, path=path, line=number)
        return out

    def expanded(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        for line, part in fenced(lines):
            directive = None if part else on_line(line)
            out += getattr(self, directive.name)(directive.argument) if directive else [line]
        return out

    def kernel(self, name: str) -> list[str]:
        if not (file := self.shown("kernel", name)):
            return [f'!!! failure "{name} does not exist"']
        try:
            module = split(read(file), name)
        except SourceError as error:
            self.conversion.problem(error.problem.message, path=name, line=error.problem.line)
            place = textwrap.indent(f"```text\n{error.problem}\n```", "    ")
            return [f'!!! failure "{name} cannot be shown"', "", *place.split("\n")]
        lines = kernel_page.markdown(module, file.stem)
        self.conversion.sources.append((name, lines))
        return self.expanded([text.expandtabs(4) for _, text in lines])

    def derivation(self, name: str) -> list[str]:
        if not (file := self.shown("derivation", name)):
            return [f'!!! failure "{name} does not exist"']
        body, cut = front_matter.below(read(file))
        lines = body.split("\n")
        self.conversion.sources.append((name, [(cut + i, line) for i, line in enumerate(lines, 1)]))
        if not any(line.startswith("# ") for line in lines):
            lines = [f"# {self.index.pages[name].title}", "", *lines]
        return self.expanded(lines)

    def shown(self, kind: str, name: str) -> Path | None:
        """The file that this page shows."""
        path = self.conversion.root / name
        if not path.is_file():
            self.conversion.problem(f"{name} does not exist", f"[[{kind}: {name}]]")
            return None
        return path

    def code(self, argument: str) -> list[str]:
        path, _, name = argument.partition(" ")
        file = self.conversion.root / path
        module = split(read(file), path) if file.is_file() else None
        numbers = module.lines_of(name) if module else []
        if not module or not numbers:
            self.conversion.problem(f"{path} has no {name}", f"[[code: {argument}]]")
            return [f"no {name} in {path}"]
        text = "\n".join(line for number in numbers if (line := module.lines[number - 1]).strip())
        return ["", "```python", *textwrap.dedent(text).split("\n"), "```", ""]

    def playground(self, path: str) -> list[str]:
        if not (file := self.shown("playground", path)):
            return [f"no {path}"]
        made = playground_page.placed(split(read(file), path))
        return ["", self.md.htmlStash.store(made), ""]

    def live(self, argument: str) -> list[str]:
        where, _, lines = argument.partition(": ")
        path, _, name = where.partition(" ")
        file = self.conversion.root / path
        try:
            if not file.is_file():
                raise ValueError(f"{path} does not exist")
            made = playground_page.live(split(read(file), path), name, lines.split(" | "))
            if not project_parts.recorded_run(path)[1]:  # without triton nothing is recorded
                return self.code(where)
        except ValueError as error:
            self.conversion.problem(str(error), f"[[live: {argument}]]")
            return [f"no {where}"]
        return ["", self.md.htmlStash.store(made), ""]

    # Lists that are made from the files

    def kernels(self, _: str) -> list[str]:
        """Cards by group, each with the first picture of its page."""
        out: list[str] = []
        for name, pages in self.index.by_group().items():
            out += ["", f"## {name}", ""]
            for page in pages:
                key = pictures.first(read(self.conversion.root / page.source))[0]
                drawn = self.md.htmlStash.store(pictures.thumbnail(self.conversion.root, key)) if key else ""
                out += [
                    f"- [{page.title}]({page.href}){{ .k-entry }}",
                    "",
                    f"    {drawn}",
                    "",
                    f"    {page.description}",
                    "",
                ]
        return out or NOTHING

    def operations(self, _: str) -> list[str]:
        """A table of the pages of each operation."""

        def links(*sources: str, name: str = "") -> str:
            pages = [page for source in sources if (page := self.index.page_of(source))]
            short = [page.uri.removeprefix("kernels/").removesuffix(".md") for page in pages]
            return ", ".join(f"[{name or text}]({page.href})" for text, page in zip(short, pages))

        rows = ["", "| operation | lesson | fast version | derivation | measured |", "|---|---|---|---|---|"]
        for each in self.index.operations:
            if each.benchmark:
                files = [each.fast, *each.parts] if each.fast else []
                cells = [self.index.pages[each.lesson].name]
                cells += [links(each.lesson, *(each.parts if not files else ())), links(*files)]
                cells += [links(each.derivation, name="derivation"), links(each.benchmark, name="benchmark")]
                rows.append(f"| {' | '.join(cells)} |")
        return [*rows, ""]

    def derivations(self, _: str) -> list[str]:
        out: list[str] = []
        for page in self.index.shown("derivation"):
            about = f"{page.description} {self.lacking(page)}".rstrip()
            out += ["", f"[{page.title}]({page.href}){{ .k-entry }}", f": {about}", ""]
        return out or NOTHING

    def lacking(self, page: Page) -> str:
        """What the list says of one with which no kernel is compared."""
        compared = facts.of_derivation(self.index.root, Path(page.source).stem)
        return "" if compared else "No kernel yet: only the formulas are checked."

    def reference(self, _: str) -> list[str]:
        """The public functions of all kernels that have a page, by group, for mkdocstrings."""
        out: list[str] = []
        for group, pages in self.index.by_group().items():
            named = [(page, syntax.public_functions(read(self.index.root / page.source))) for page in pages]
            out += ["", f"## {group}", ""] if any(names for _, names in named) else []
            for page, names in named:
                out += ["", f"### [{page.title}]({page.href})", ""] if names else []
                module = layout.dotted(page.source)
                for name in names:
                    out += ["", f"::: {module}.{name}", "    options: {heading_level: 4}", ""]
        return out

    def path(self, _: str) -> list[str]:
        """The map of the learning path, stage by stage."""
        return path_map.stages(self.index)

    def tracks(self, form: str) -> list[str]:
        """The short tracks beside the whole path; `short`: as three cards."""
        return path_map.cards(self.index) if form == "short" else path_map.tracks(self.index)

    def language(self, _: str) -> list[str]:
        """The index of `triton.language`."""
        for name in language_index.unexplained(self.index.root, self.index.docs):
            self.conversion.problem(f"{name} is used, and the index doesn't explain it", "[[language]]")
        return language_index.markdown(self.index)

    def errors(self, _: str) -> list[str]:
        """Each text that Triton, PyTorch or the driver prints."""
        return self.expanded(error_page.markdown())

    def exercise(self, name: str) -> list[str]:
        if not self.shown("exercise", name) or name not in self.index.exercises:
            return [f'!!! failure "{name} is not an exercise"']
        return self.expanded(exercise_pages.markdown(self.index, self.index.exercises[name]))

    def exercises(self, form: str) -> list[str]:
        """Those of this page; `every`: all, stage by stage."""
        if form == "every":
            return path_map.exercises(self.index)
        found = exercise_pages.listed(self.index, self.conversion.uri)
        if not found:
            self.conversion.problem("no exercise belongs to this page", "[[exercises]]")
        return ["", *found, ""]

    # What other parts of the project say

    def verified(self, _: str) -> list[str]:
        return project_parts.verified(self.index)

    def training(self, name: str) -> list[str]:
        return self.pieces(project_parts.training(name))

    def experiment(self, name: str) -> list[str]:
        if name not in experiments.TABLES:
            self.conversion.problem(f"no experiment {name} has a table", f"[[experiment: {name}]]")
            return [f"no {name}"]
        return self.pieces(experiments.markdown(name, self.index.root))

    def benchmark(self, name: str) -> list[str]:
        return self.pieces(project_parts.results(name))

    def ladder(self, name: str) -> list[str]:
        try:
            return self.pieces(project_parts.ladder(name))
        except (ValueError, FileNotFoundError, SyntaxError) as error:
            self.conversion.problem(str(error), f"[[ladder: {name}]]")
            return [f"no ladder {name}"]

    def pieces(self, found: list[str]) -> list[str]:
        lines: list[str] = []
        for piece in found:
            lines += ["", self.md.htmlStash.store(piece), ""] if isinstance(piece, Html) else piece.split("\n")
        return lines

    def benchmarks(self, _: str) -> list[str]:
        return self.benchmark("")

    def figure(self, key: str) -> list[str]:
        try:
            drawn = pictures.html(self.conversion.root, key)
        except pictures.NoPicture as error:
            self.conversion.problem(str(error), f"[[figure: {key}]]")
            drawn = f"<p>{key}</p>"
        return ["", self.md.htmlStash.store(drawn), ""]
