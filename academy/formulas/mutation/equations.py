r"""Small changes of a formula's LaTeX, each of which a check should notice.

They are made on the tokens, without the parser, so that a mistake of the parser can't hide from them: signs,
coefficients, dropped terms and factors, swapped and renamed indices, exponents, transposes, sum ranges, conditions,
function names, fractions turned over, symbols exchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from academy.book.tex import lex
from academy.formulas.reading.page import Page
from academy.formulas.reading.tree import bound_indices, free_indices, mentioned
from academy.judge.mutants import Mutant

_ERF = r"\operatorname{erf}"
_FUNCTIONS = {r"\exp": r"\log", r"\sin": r"\cos", r"\tanh": _ERF, r"\max": r"\min"}
_FUNCTIONS |= {new: old for old, new in _FUNCTIONS.items()} | {r"\prod": r"\sum", r"\sqrt": ""}
#: Tokens for which another one is put, and the name of that change.
_REPLACED = {old: ("function", new) for old, new in _FUNCTIONS.items()}
_REPLACED |= {"+": ("sign", "-"), "-": ("sign", "+"), "'": ("drop prime", "")}
_REPLACED |= dict.fromkeys((r"\cdot", r"\odot"), ("operator", "+"))
_COMPARISONS = {"=": r"\ne ", r"\ne": "=", "<": ">", ">": "<", r"\le": ">", r"\ge": "<"}
_RELATIONS = {"=", ":=", r"\approx"}
_BREAKS = {*_RELATIONS, r"\\", "&", r"\quad", ","}
#: (operator, start, end, replacement), in the formula's source
Change = tuple[str, int, int, str]


@dataclass
class Vocabulary:
    """names: symbol -> others that could stand in its place. indices and dims: likewise, each for the other."""

    names: dict[str, list[str]]
    indices: list[str]
    dims: list[str]


def of_page(page: Page) -> list[Mutant]:
    """All mutants of a page's definitions and claims, displayed and inline."""
    words, found = vocabulary(page), []
    stated = {step.pos for step in page.steps if step.equation}
    for block in page.blocks:
        seen, at = {re.sub(r"\s", "", block.source)}, block.source_pos
        for operator, start, end, new in _Formula(block.source, words).changes() if block.pos in stated else ():
            source = block.source[:start] + new + block.source[end:]
            key = re.sub(r"\s", "", source)
            if key not in seen:
                seen.add(key)
                name, old = re.sub(r"\s+", " ", source).strip(), block.source[start:end]
                found.append(Mutant(name, old, new, start=at + start, operator=operator))
    return found


def vocabulary(page: Page) -> Vocabulary:
    """Which names of a page could be confused: values with values, functions with functions, indices with indices."""
    kinds: dict[str, set[str]] = {"value": set(page.front.given), "func": set(page.front.generic)}
    written: set[str] = set()
    for equation in (step.equation for step in page.steps if step.equation):
        left = equation.definition
        parts = [*equation.sides, equation.condition, left and left.indices]
        written |= {*free_indices(parts), *bound_indices(parts), *mentioned(parts)}
        if left:
            kinds["func" if left.formals else "value"].add(left.name)
    generator, names = random.Random(0), {}
    for group in kinds.values():
        for name in sorted(group):
            others = sorted(group - {name})
            names[name] = generator.sample(others, min(2, len(others)))
    declared = [*page.front.ranges, *page.front.classes]
    used = [name for name in declared if name in written]
    return Vocabulary(names, used if len(used) > 1 else declared, list(page.front.dims))


def _bracket(token: str) -> int:
    """1 for what opens, -1 for what closes, else 0."""
    opens = token in ("(", "[", "{", "left.") or token.startswith(r"\begin{")
    return opens - (token in (")", "]", "}", "|") or token.startswith(r"\end{"))


def _bare(text: str) -> str:
    return re.sub(r"[{}\s]", "", text)


class _Formula:
    """A formula's tokens, and the changes that can be made to it."""

    def __init__(self, source: str, words: Vocabulary):
        self.source, self.words = source, words
        tokens, _ = lex(source)
        self.tokens = [token.text for token in tokens]
        self.starts, self.ends = [token.pos for token in tokens], [token.end for token in tokens]
        self.subscript = self._inside_subscripts()
        self.condition_from = next((k for k, text in enumerate(self.tokens) if text == r"\quad"), len(tokens))
        # A side that is nothing but 0: the others are zero too, and zero has no sign.
        self.is_zero = bool(re.search(r"=\s*0\s*($|[.,]?\s*\\q?quad)", source))

    def changes(self) -> Iterator[Change]:
        rules = [self.replaced, self.signs, self.numbers, self.powers, self.indices, self.conditions, self.fractions]
        rules += [self.sums, self.products, self.held, self.symbols]
        for at, token in enumerate(self.tokens):
            for rule in rules:
                yield from rule(at, token)
        yield from self.terms()

    # ---------------------------------------------------------------- structure
    def token(self, at: int) -> str:
        return self.tokens[at] if 0 <= at < len(self.tokens) else ""

    def group_end(self, at: int) -> int:
        """Where the bracket that opens at `at` closes; `at` itself if none opens there."""
        depth = 0
        for k in range(at, len(self.tokens)):
            depth += _bracket(self.tokens[k])
            if depth == 0:
                return k
        return at

    def text(self, first: int, last: int) -> str:
        return self.source[self.starts[first] : self.ends[last]]

    def fraction(self, at: int) -> tuple[int, int]:
        r"""Where the two groups behind the `\frac` at `at` end."""
        end = self.group_end(at + 1)
        return end, self.group_end(end + 1)

    def _inside_subscripts(self) -> list[bool]:
        inside = [False] * len(self.tokens)
        for at, token in enumerate(self.tokens):
            if token == "_" and self.token(at + 1):
                end = self.group_end(at + 1) + 1
                inside[at + 1 : end] = [True] * (end - at - 1)
        return inside

    def _change(self, operator: str, first: int, last: int, new: str) -> Change:
        return operator, self.starts[first], self.ends[last], new

    # ---------------------------------------------------------------- one kind of change each
    def replaced(self, at: int, token: str) -> Iterator[Change]:
        if token in _REPLACED:
            operator, new = _REPLACED[token]
            yield self._change(operator, at, at, new)

    def signs(self, at: int, token: str) -> Iterator[Change]:
        before = self.token(at - 1) or "="
        opens = _bracket(before) == 1 and not before.startswith((r"\begin", "{"))
        starts = (before in _RELATIONS or opens) and not self.subscript[at] and at < self.condition_from
        formals = re.search(r"\(\s*\\?[A-Za-z]+(\s*,\s*\\?[A-Za-z]+)*\s*$", self.source[: self.ends[at]])
        zero = self.is_zero or (token == "0" and self.token(at + 1) not in ("+", "-"))
        if starts and not zero and token not in ("+", "-", "=", ":") and _bracket(token) != -1 and not formals:
            yield "sign", self.starts[at], self.starts[at], "-"

    def numbers(self, at: int, token: str) -> Iterator[Change]:
        if "." in token and token[0].isdigit():
            yield self._change("coefficient", at, at, token[:-1] + str((int(token[-1]) + 1) % 10))
        elif token.isdigit():
            yield self._change("coefficient", at, at, str(int(token) + 1))
            if int(token) > 0 and self.token(at - 1) != "^":
                yield self._change("coefficient", at, at, str(int(token) - 1))

    def powers(self, at: int, token: str) -> Iterator[Change]:
        end = self.group_end(at + 1)
        inside = _bare(self.text(at + 1, end)) if token == "^" else ""
        if inside in ("2", "3", r"\top"):
            yield self._change("transpose" if inside == r"\top" else "exponent", at, end, "")

    def indices(self, at: int, token: str) -> Iterator[Change]:
        if token in self.words.indices and (self.subscript[at] or at > self.condition_from):
            yield from (self._change("index", at, at, other) for other in self.words.indices if other != token)
        if self.subscript[at] and token == "{":
            end = self.group_end(at)
            inner = [each for each in self.tokens[at + 1 : end] if each != ","]
            symmetric = self.token(at - 2) == r"\delta"
            if len(inner) == 2 and not symmetric and all(each in self.words.indices for each in inner):
                yield self._change("index", at, end, f"{{{inner[1]} {inner[0]}}}")

    def conditions(self, at: int, token: str) -> Iterator[Change]:
        before = self.source[: self.starts[at]]
        if token not in _COMPARISONS or token == "=" and re.search(r"\\(sum|prod)\s*_\{?\s*\\?[A-Za-z]+\s*$", before):
            return
        if self.subscript[at] or at > self.condition_from or r"\begin{cases}" in before:
            yield self._change("condition", at, at, _COMPARISONS[token])

    def fractions(self, at: int, token: str) -> Iterator[Change]:
        derivative = self.token(at + 2) in ("d", r"\partial")
        if token != r"\frac" or self.token(at + 1) != "{" or derivative:
            return
        middle, end = self.fraction(at)
        numerator, denominator = self.text(at + 1, middle), self.text(middle + 1, end)
        one = _bare(numerator) == "1"
        yield self._change("drop factor", at, end, "{1}" if one else numerator)
        yield self._change("turned fraction", at, end, r"\frac" + denominator + numerator)
        if not one:
            yield self._change("drop factor", at, end, r"\frac{1}" + denominator)

    def sums(self, at: int, token: str) -> Iterator[Change]:
        start = self.starts[at]
        pattern = r"\\(?:sum|prod)\s*_(?:\{[^}]*\}|\\?[A-Za-z]+)(?:\s*\^(\{[^}]*\}|\w))?"
        found = re.match(pattern, self.source[start:]) if token in (r"\sum", r"\prod") else None
        if found:
            yield "drop sum", start, start + found.end(), ""
            for dim in self.words.dims if found.group(1) in self.words.dims else ():
                if dim != found.group(1):
                    yield "sum range", start + found.start(1), start + found.end(1), f"{{{dim}}}"

    def products(self, at: int, token: str) -> Iterator[Change]:
        if token in (r"\cdot", r"\odot"):
            end = self.fraction(at + 1)[1] if self.token(at + 1) == r"\frac" else self.group_end(at + 1)
            while self.token(end + 1) in ("_", "^", "'", "(") and self.starts[end + 1] == self.ends[end]:
                end = self.group_end(end + 1 + (self.tokens[end + 1] in "_^"))
            yield self._change("drop factor", at, end, "")

    def held(self, at: int, token: str) -> Iterator[Change]:
        r"""`\left. … \right|_{\mu, \sigma}`: nothing is held fixed, or only one of two."""
        end = self.group_end(at) if token == "left." else at
        names = re.match(r"_\{([^{}]*)\}", self.source[self.ends[end] :]) if end > at else None
        if names:
            stop = self.ends[end] + names.end()
            yield "drop hold", self.starts[at], stop, self.source[self.ends[at] : self.starts[end]]
            parts = names.group(1).split(",")
            yield from (("drop hold", self.ends[end], stop, f"_{{{name}}}") for name in parts if len(parts) > 1)

    def symbols(self, at: int, token: str) -> Iterator[Change]:
        differential = token == "d" and self.token(at - 1) == "{" and r"\frac" in self.tokens[:at]
        if not differential and not (self.subscript[at] and token in self.words.indices):
            for other in self.words.names.get(token, ()):
                yield self._change("symbol", at, at, other + (" " if other[-1].isalpha() else ""))

    # ---------------------------------------------------------------- terms of sums
    def terms(self) -> Iterator[Change]:
        for first, marks, end in self._sums():
            cuts = [*marks, end]
            for start, stop in zip(cuts, cuts[1:]):
                yield self._change("drop term", start, stop - 1, "")
            if first < cuts[0]:  # what follows keeps its sign; a plus in front of nothing is read as none
                yield "drop term", self.starts[first], self.starts[cuts[0]], ""

    def _sums(self) -> Iterator[tuple[int, list[int], int]]:
        """(first token, positions of + and -, end) of each run of terms, with two terms at least."""
        runs: list[tuple[int, list[int], int]] = []
        stack: list[tuple[int, list[int]]] = [(0, [])]
        for at, token in enumerate(self.tokens):
            bracket = _bracket(token)
            if bracket == 1:
                stack.append((at + 1, []))
            elif bracket == -1 and len(stack) > 1:
                runs.append((*stack.pop(), at))
            elif token in ("+", "-"):
                stack[-1][1].append(at)
            elif token in _BREAKS:
                runs.append((*stack[-1], at))
                stack[-1] = (at + 1, [])
        runs.append((*stack[0], len(self.tokens)))
        yield from (run for run in runs if len(run[1]) + bool(run[1] and run[0] < run[1][0]) >= 2)
