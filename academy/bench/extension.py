"""The Python-Markdown extension `academy.bench.extension`: pages of results.

    [[benchmark: layernorm]]   everything that was measured of an operation
    [[benchmarks]]             a table of all operations

Each on a line of its own. (`[[bench: KEY]]`, a single number, belongs to `academy.site`.)
"""

from __future__ import annotations

import re
from pathlib import Path

from markdown import Extension
from markdown.preprocessors import Preprocessor

from academy.bench import ROOT, overview, pages

DIRECTIVE = re.compile(r"\[\[(?:benchmark: *(?P<operation>\w+)|benchmarks) *\]\] *")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")


class BenchmarkExtension(Extension):
    def __init__(self, **settings):
        self.config = {"root": [str(ROOT), "the repository"]}
        super().__init__(**settings)

    def extendMarkdown(self, md):
        # Before fenced code (25), whose fences the results contain.
        md.preprocessors.register(Results(md, Path(self.getConfig("root"))), "academy_benchmarks", 28)


class Results(Preprocessor):
    """Puts results where a directive stands."""

    def __init__(self, md, root: Path):
        super().__init__(md)
        self.root = root

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        fence = ""
        for line in lines:
            marker = FENCE.match(line)
            if marker and (not fence or marker[1].startswith(fence)):
                fence = "" if fence else marker[1]
            found = None if fence else DIRECTIVE.fullmatch(line)
            out += self.pieces(found["operation"]) if found else [line]
        return out

    def pieces(self, operation: str | None) -> list[str]:
        pieces = pages.operation(operation, self.root) if operation else overview.summary(self.root)
        return [self.md.htmlStash.store(p) if isinstance(p, pages.Html) else p for p in pieces]


def makeExtension(**settings):
    """Called by Python-Markdown for `markdown_extensions: [academy.bench.extension]`."""
    return BenchmarkExtension(**settings)
