r"""The same variable in formulas, notes and code: each place says which one it is, as `data-v`, for static/reader.js.

A derivation's front matter declares what its symbols are called in the kernel files:

    variables:
      \hat{X}: normalised
      X: [x, a]            # in one file it is `x`, in another `a`: the name that the file uses more

A symbol stands for itself with any subscripts. Where one symbol is part of another, the longer one counts. The table
holds on the derivation's page and on the pages of all kernels that mainly cite it.
"""

from __future__ import annotations

import html
import re
import tokenize
from dataclasses import dataclass

from academy.book import comments, front_matter
from academy.book.tex import pieces
from academy.book.texts import read
from academy.site import katex
from academy.site.library import Library, Page

#: Commands whose argument is a word or belongs to one letter: no variable is looked for in it.
WHOLE = {rf"\{name}" for name in "hat tilde bar vec operatorname text textbf mathrm mathbf mathcal begin end".split()}
ANNOTATION = re.compile(r"(<annotation[^>]*>).*?(</annotation>)", re.S)


@dataclass(frozen=True)
class Variable:
    """`tex`: how formulas write it; `names`: what it is called in code, the first of which identifies it."""

    tex: str
    names: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.names[0]


def declared(index: Library, derivation: str) -> list[Variable]:
    """The table of a derivation."""
    table = front_matter.values(read(index.root / derivation)).get("variables", {}) if derivation else {}
    return [Variable(str(tex), (names,) if isinstance(names, str) else tuple(names)) for tex, names in table.items()]


class Variables:
    """The variables of one page, in the order of their table."""

    def __init__(self, variables: list[Variable]):
        self.list = variables
        self.ids = {name: variable.id for variable in variables for name in variable.names}
        self.patterns = sorted(([text for text, _, _ in pieces(variable.tex)], variable.id) for variable in variables)
        self.patterns.sort(key=lambda pattern: -len(pattern[0]))

    @classmethod
    def of(cls, index: Library, page: Page | None) -> Variables:
        """Those of a kernel's or derivation's page. On a kernel's page, only those that its file has a name for."""
        if page is None:
            return cls([])
        if page.kind != "kernel":
            return cls(declared(index, page.source) if page.kind == "derivation" else [])
        path = index.root / page.source
        try:
            known = comments.names(read(path))
        except (OSError, SyntaxError, tokenize.TokenError):
            return cls([])
        found = []
        for variable in declared(index, index.main_derivation(page.source)):
            name = max(variable.names, key=lambda name: known[name])
            if known[name]:
                found.append(Variable(variable.tex, (name,)))
        return cls(found)

    def render(self, tex: str, display: bool) -> str:
        """The formula's HTML (`katex.render`), its variables marked. The TeX that readers copy is the formula's own."""
        marked = self.marked(tex)
        if marked == tex:
            return katex.render(tex, display)
        own = html.escape(tex, quote=False).replace("\\", r"\\")
        return ANNOTATION.sub(rf"\g<1>{own}\g<2>", katex.render(marked, display))

    def marked(self, tex: str) -> str:
        """The TeX with each variable, its scripts included, in `\\htmlData`."""
        if not self.patterns:
            return tex
        tokens = pieces(tex)
        out, done, at = [], 0, 0
        while at < len(tokens):
            text = tokens[at][0]
            after, id = self._variable(tokens, at)
            if id:
                start, end = tokens[at][1], tokens[after - 1][2]
                out += [tex[done:start], rf"\htmlData{{v={id}}}{{{tex[start:end]}}}"]
                done, at = end, after
            elif text == "_" or text in WHOLE:
                at = _argument(tokens, at + 1)
            elif text == "^" and at + 1 < len(tokens) and tokens[at + 1][0] != "{":
                at += 2
            else:
                at += 1
        return "".join(out) + tex[done:]

    def _variable(self, tokens: list, at: int) -> tuple[int, str]:
        """Where the variable that begins here ends, behind its scripts, and which one it is."""
        for pattern, id in self.patterns:
            end = _match(tokens, at, pattern)
            if end and not (end < len(tokens) and tokens[end][0] == "'"):
                return _scripts(tokens, end), id
        return at, ""


def _match(tokens: list, at: int, pattern: list[str]) -> int:
    """The end of the pattern, if it stands here. Subscripts within it are passed over, and braces around one token."""
    if tokens[at][0] != pattern[0]:
        return 0  # a subscript before it belongs to something else, a sum for example
    depth = 0
    for wanted in pattern:
        while at < len(tokens) and tokens[at][0] != wanted:
            if tokens[at][0] == "_" and pattern[0] != tokens[at][0]:
                at = _argument(tokens, at + 1)
            elif tokens[at][0] == "{" and wanted != "{" and at and tokens[at - 1][0] == "_":
                depth, at = depth + 1, at + 1
            else:
                return 0
        if at >= len(tokens):
            return 0
        at += 1
    while depth:
        at = _scripts(tokens, at)
        if at >= len(tokens) or tokens[at][0] != "}":
            return 0
        depth, at = depth - 1, at + 1
    return at


def _scripts(tokens: list, at: int) -> int:
    while at < len(tokens) and tokens[at][0] in "_^":
        at = _argument(tokens, at + 1)
    return at


def _argument(tokens: list, at: int) -> int:
    """The end of the token or group that begins here."""
    depth = 0
    for place in range(at, len(tokens)):
        depth += (tokens[place][0] == "{") - (tokens[place][0] == "}")
        if depth <= 0:
            return place + 1
    return len(tokens)
