r"""Small changes of a formula's LaTeX, each of which a check should notice.

They are made on the text, without the parser, so that a mistake of the parser can't hide from them: signs,
coefficients, dropped terms and factors, swapped and renamed indices, exponents, transposes, sum ranges, conditions,
function names, fractions turned over, symbols exchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from academy.formulas.markdown import Block
from academy.formulas.page import Page
from academy.formulas.tree import bound_indices, free_indices, mentioned

_TOKEN = re.compile(
    r"\\(?:operatorname|mathrm|text|mathbf|mathcal|mathbb|hat|bar|tilde)\{(?:[^{}]|\{[^{}]*\})*\}"
    r"|\\(?:begin|end)\{\w+\}|\\tag\{[^}]*\}|\\(?:left|right)\s*\\?.|\\[A-Za-z]+|\\.|:=|\d+(?:\.\d+)?|[A-Za-z]|\S|\s+"
)
_FUNCTIONS = {
    r"\exp": r"\log",
    r"\log": r"\exp",
    r"\sin": r"\cos",
    r"\cos": r"\sin",
    r"\tanh": r"\operatorname{erf}",
    r"\operatorname{erf}": r"\tanh",
    r"\max": r"\min",
    r"\min": r"\max",
    r"\prod": r"\sum",
    r"\sqrt": "",
}
_COMPARISONS = {"=": r"\ne ", r"\ne": "=", "<": ">", ">": "<", r"\le": ">", r"\ge": "<"}
_RELATIONS = {"=", ":=", r"\approx"}
_BREAKS = {"=", ":=", r"\\", "&", r"\quad", r"\qquad", r"\approx", ","}


@dataclass(frozen=True)
class Mutant:
    """A changed formula. operator: the kind of change. line: of the change in the page's file, from 1."""

    operator: str
    block: Block
    source: str
    line: int

    @property
    def name(self) -> str:
        """The formula without its spacing: how the reviewed list names it."""
        return squeeze(self.source)


@dataclass
class Vocabulary:
    """names: symbol -> others that could stand in its place. indices and dims: likewise, each for the other."""

    names: dict[str, list[str]] = field(default_factory=dict)
    indices: list[str] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)


def squeeze(source: str) -> str:
    return re.sub(r"\s+", " ", source).strip()


def of_page(page: Page, seed: int = 0) -> list[Mutant]:
    """All mutants of a page's definitions and claims, displayed and inline."""
    words, found = vocabulary(page, seed), []
    stated = {step.pos for step in page.steps if step.kind in ("define", "claim")}
    for block in page.blocks:
        if block.pos in stated:
            seen = {squeeze(block.source).replace(" ", "")}
            for operator, start, end, new in _Formula(block.source, words).changes():
                source = block.source[:start] + new + block.source[end:]
                key = re.sub(r"\s", "", source)
                if key not in seen:
                    seen.add(key)
                    line = page.text.count("\n", 0, block.source_pos + start) + 1
                    found.append(Mutant(operator, block, source, line))
    return found


def vocabulary(page: Page, seed: int = 0) -> Vocabulary:
    """Which names of a page could be confused: values with values, functions with functions, indices with indices."""
    kinds: dict[str, set[str]] = {"value": set(page.front.given), "func": set(page.front.generic)}
    for step in page.steps:
        if step.kind == "define":
            kinds["func" if step.equation.definition.formals else "value"].add(step.keys[0])
    generator, names = random.Random(seed), {}
    for group in kinds.values():
        for name in sorted(group):
            others = sorted(group - {name})
            if others:
                names[name] = generator.sample(others, min(2, len(others)))
    declared = [*page.front.ranges, *page.front.classes]
    written = set().union(*(_index_names(step.equation) for step in page.steps if step.equation))
    used = [name for name in declared if name in written]
    used = used if len(used) > 1 else declared
    return Vocabulary(names, used, list(page.front.dims))


def _index_names(equation) -> set[str]:
    parts = [
        *equation.sides,
        equation.condition,
        tuple(equation.definition.indices or ()) if equation.definition else (),
    ]
    return {*free_indices(parts), *bound_indices(parts), *mentioned(parts)}


class _Formula:
    """A formula's tokens, and the changes that can be made to it: tuples (operator, start, end, replacement)."""

    def __init__(self, source: str, words: Vocabulary):
        self.source, self.words = source, words
        self.tokens = [match.group() for match in _TOKEN.finditer(source)]
        self.starts = [match.start() for match in _TOKEN.finditer(source)]
        self.ends = [match.end() for match in _TOKEN.finditer(source)]
        self.subscript = self._inside_subscripts()
        quad = [at for at, token in enumerate(self.tokens) if token in (r"\quad", r"\qquad")]
        self.condition_from = quad[0] if quad else len(self.tokens)
        self.differentials = self._differentials()
        # A side that is nothing but 0: the others are zero too, and zero has no sign.
        self.is_zero = bool(re.search(r"=\s*0\s*($|[.,]?\s*\\q?quad)", source))

    def changes(self) -> Iterator[tuple[str, int, int, str]]:
        for at, token in enumerate(self.tokens):
            if not token.isspace():
                yield from (
                    *self.signs(at, token),
                    *self.numbers(at, token),
                    *self.powers(at, token),
                    *self.indices(at, token),
                    *self.conditions(at, token),
                    *self.fractions(at, token),
                    *self.functions(at, token),
                    *self.sums(at, token),
                    *self.products(at, token),
                    *self.held(at, token),
                    *self.symbols(at, token),
                )
        yield from self.terms()

    # ---------------------------------------------------------------- structure
    @staticmethod
    def bracket(token: str) -> int:
        """1 for what opens, -1 for what closes, else 0."""
        if token.startswith((r"\left", r"\right")) or token in "([{)]}":
            last = token[-1]
            return 1 if last in "([{" or token == r"\left." else -1 if last in ")]}" or token == r"\right|" else 0
        return 1 if token.startswith(r"\begin{") else -1 if token.startswith(r"\end{") else 0

    def group_end(self, at: int) -> int | None:
        """Where the bracket that opens at `at` closes."""
        depth = 0
        for k in range(at, len(self.tokens)):
            depth += self.bracket(self.tokens[k])
            if depth == 0:
                return k
        return None

    def skip(self, at: int, step: int = 1) -> int:
        """Next position that isn't spacing."""
        while 0 <= at < len(self.tokens) and self.tokens[at].isspace():
            at += step
        return at

    def token(self, at: int) -> str:
        return self.tokens[at] if 0 <= at < len(self.tokens) else ""

    def before(self, at: int) -> str:
        return self.token(self.skip(at - 1, -1)) or "="

    def text(self, first: int, last: int) -> str:
        return self.source[self.starts[first] : self.ends[last]]

    def fraction(self, at: int) -> tuple[int, int, int, int] | None:
        r"""(open, close, open, close) of the two groups behind `\frac` at `at`."""
        first = self.skip(at + 1)
        if self.token(first) != "{":
            return None
        first_end = self.group_end(first)
        second = self.skip(first_end + 1)
        return first, first_end, second, self.group_end(second)

    def _inside_subscripts(self) -> list[bool]:
        inside = [False] * len(self.tokens)
        for at, token in enumerate(self.tokens):
            if token == "_" and at + 1 < len(self.tokens):
                end = self.group_end(at + 1) if self.tokens[at + 1] == "{" else at + 1
                for k in range(at + 1, (end or at + 1) + 1):
                    inside[k] = True
        return inside

    def _differentials(self) -> set[int]:
        r"""The letters d of \frac{d f}{d x}: no symbols."""
        found = set()
        for at, token in enumerate(self.tokens):
            if token == r"\frac" and (groups := self.fraction(at)):
                inner = self.skip(groups[0] + 1), self.skip(groups[2] + 1)
                if all(self.token(k) == "d" for k in inner):
                    found |= set(inner)
        return found

    def _change(self, operator: str, first: int, last: int, new: str):
        return operator, self.starts[first], self.ends[last], new

    # ---------------------------------------------------------------- one kind of change each
    def signs(self, at, token):
        if token in ("+", "-"):
            yield self._change("sign", at, at, "-" if token == "+" else "+")
        before = self.before(at)
        opens = self.bracket(before) == 1 and not before.startswith((r"\begin", "{"))
        starts = (before in _RELATIONS or opens) and not self.subscript[at] and at < self.condition_from
        formals = re.search(r"\(\s*\\?[A-Za-z]+(\s*,\s*\\?[A-Za-z]+)*\s*$", self.source[: self.ends[at]])
        zero = self.is_zero or (token == "0" and self.token(self.skip(at + 1)) not in (".", "+", "-"))
        if starts and not zero and token not in ("+", "-", "=", "&", ":") and self.bracket(token) != -1 and not formals:
            yield "sign", self.starts[at], self.starts[at], "-"

    def numbers(self, at, token):
        if not re.fullmatch(r"\d+(\.\d+)?", token):
            return
        if "." in token:
            yield self._change("coefficient", at, at, token[:-1] + str((int(token[-1]) + 1) % 10))
        else:
            yield self._change("coefficient", at, at, str(int(token) + 1))
            if int(token) > 0 and self.before(at) != "^":
                yield self._change("coefficient", at, at, str(int(token) - 1))

    def powers(self, at, token):
        if token == "^":
            opening = self.skip(at + 1)
            end = self.group_end(opening) if self.token(opening) == "{" else opening
            inside = re.sub(r"[{}\s]", "", self.text(opening, end))
            if inside in ("2", "3"):
                yield self._change("exponent", at, end, "")
            elif inside == r"\top":
                yield self._change("transpose", at, end, "")
        elif token == "'":
            yield self._change("drop prime", at, at, "")

    def indices(self, at, token):
        here = self.subscript[at] or at > self.condition_from
        if here and token in self.words.indices:
            for other in self.words.indices:
                if other != token:
                    yield self._change("index", at, at, other)
        if self.subscript[at] and token == "{" and (end := self.group_end(at)):
            inner = [
                self.tokens[k] for k in range(at + 1, end) if not self.tokens[k].isspace() and self.tokens[k] != ","
            ]
            symmetric = self.token(at - 2) == r"\delta"
            if len(inner) == 2 and not symmetric and all(t in self.words.indices for t in inner):
                yield self._change("index", at, end, f"{{{inner[1]} {inner[0]}}}")

    def conditions(self, at, token):
        if token not in _COMPARISONS:
            return
        in_cases = r"\begin{cases}" in self.source[: self.starts[at]] and at < self.condition_from
        bound = re.search(r"\\(sum|prod)\s*_\{?\s*\\?[A-Za-z]+\s*$", self.source[: self.starts[at]])
        if token == "=" and bound:
            return
        if self.subscript[at] or at > self.condition_from or in_cases:
            yield self._change("condition", at, at, _COMPARISONS[token])

    def fractions(self, at, token):
        groups = self.fraction(at) if token == r"\frac" else None
        if not groups or self.token(self.skip(groups[0] + 1)) in ("d", r"\partial"):
            return
        first, first_end, second, end = groups
        numerator, denominator = self.text(first, first_end), self.text(second, end)
        one = re.sub(r"[{}\s]", "", numerator) == "1"
        yield self._change("drop factor", at, end, "{1}" if one else numerator)
        yield self._change("turned fraction", at, end, r"\frac" + denominator + numerator)
        if not one:
            yield self._change("drop factor", at, end, r"\frac{1}" + denominator)

    def functions(self, at, token):
        if token in _FUNCTIONS:
            yield self._change("function", at, at, _FUNCTIONS[token])

    def sums(self, at, token):
        if token not in (r"\sum", r"\prod"):
            return
        found = re.match(
            r"\\(sum|prod)\s*_(\{[^}]*\}|\\?[A-Za-z]+)(\s*\^(\{[^}]*\}|\w))?", self.source[self.starts[at] :]
        )
        if found:
            start = self.starts[at]
            yield "drop sum", start, start + found.end(), ""
            if found.group(4) in self.words.dims:
                for dim in self.words.dims:
                    if dim != found.group(4):
                        yield "sum range", start + found.start(4), start + found.end(4), f"{{{dim}}}"

    def products(self, at, token):
        if token not in (r"\cdot", r"\odot", r"\circ"):
            return
        yield self._change("operator", at, at, "+")
        end = first = self.skip(at + 1)
        if self.token(first) == r"\frac":
            end = self.fraction(first)[3]
        elif self.bracket(self.token(first)) == 1:
            end = self.group_end(first)
        while self.token(end + 1) in ("_", "^", "'", "("):
            following = end + 1
            if self.tokens[following] == "'":
                end = following
            elif self.tokens[following] == "(":
                end = self.group_end(following)
            else:
                end = self.group_end(following + 1) if self.token(following + 1) == "{" else following + 1
        yield self._change("drop factor", at, end, "")

    def held(self, at, token):
        r"""`\left. … \right|_{\mu, \sigma}`: nothing is held fixed, or only one of two."""
        end = self.group_end(at) if token == r"\left." else None
        names = re.match(r"_\{([^{}]*)\}", self.source[self.ends[end] :]) if end else None
        if not names:
            return
        stop = self.ends[end] + names.end()
        yield "drop hold", self.starts[at], stop, self.source[self.ends[at] : self.starts[end]]
        parts = names.group(1).split(",")
        for name in parts if len(parts) > 1 else ():
            yield "drop hold", self.ends[end], stop, f"_{{{name}}}"

    def symbols(self, at, token):
        if at in self.differentials or (self.subscript[at] and token in self.words.indices):
            return
        for other in self.words.names.get(token, ()):
            yield self._change("symbol", at, at, other + (" " if other[-1].isalpha() else ""))

    # ---------------------------------------------------------------- terms of sums
    def terms(self):
        for first, marks, end in self._sums():
            cuts = [*marks, end]
            for start, stop in zip(cuts, cuts[1:]):
                yield self._change("drop term", start, stop - 1, "")
            head = [k for k in range(first, cuts[0]) if not self.tokens[k].isspace()]
            if head:
                # What follows keeps its sign; a plus in front of nothing is read as none.
                yield "drop term", self.starts[head[0]], self.starts[cuts[0]], ""

    def _sums(self):
        """(first token, positions of + and -, end) of each run of terms, with two terms at least."""
        runs, stack = [], [[0, []]]
        for at, token in enumerate(self.tokens):
            bracket = self.bracket(token)
            if bracket == 1:
                stack.append([at + 1, []])
            elif bracket == -1 and len(stack) > 1:
                runs.append((*stack.pop(), at))
            elif token in ("+", "-"):
                stack[-1][1].append(at)
            elif token in _BREAKS:
                runs.append((*stack[-1], at))
                stack[-1] = [at + 1, []]
        runs.append((*stack[0], len(self.tokens)))
        for first, marks, end in runs:
            headed = bool(marks) and any(not self.tokens[k].isspace() for k in range(first, marks[0]))
            if len(marks) + headed >= 2:
                yield first, marks, end
