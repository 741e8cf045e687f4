"""A derivation page: its symbols, its definitions and claims in order, its tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from academy.formulas.errors import FormulaError, PageError
from academy.formulas.reading.displays import Parser
from academy.formulas.reading.front_matter import RESERVED, front_matter
from academy.formulas.reading.markdown import Block, Directive, has_relation, scan
from academy.formulas.reading.tokens import canonical, lex
from academy.formulas.reading.tree import Equation, Node, bound_indices, free_indices, mentioned, subscripts


@dataclass
class Step:
    """One thing the page says. kind: define, claim, forget or prose.

    continues: this line defines further elements of the name that the line above it defines.
    keys: what a definition defines, or what is forgotten. reason: of a prose display.
    """

    kind: str
    block: Any  # a Block, or the Directive that forgets
    equation: Any = None  # an Equation, of what is defined or claimed
    keys: tuple[str, ...] = ()
    tag: str | None = None
    tolerance: float | None = None
    continues: bool = False
    reason: str = ""

    @property
    def pos(self) -> int:
        return self.block.pos

    @property
    def display(self) -> bool:
        return isinstance(self.block, Block) and self.block.display


#: (source, loss, symbols) -> equations and tag. Their offsets are relative to the source, and nobody changes them.
_PARSED: dict[tuple, tuple[list[Equation], str | None]] = {}


class Page:
    """A Markdown file whose formulas can be read. `verify.check(page)` tells whether they hold.

    Args:
        path: the file; only read when `text` is not given.

    Raises:
        PageError: front matter, a directive or a formula can't be read; says where.
    """

    def __init__(self, path: str | Path, text: str | None = None):
        self.path = Path(path)
        self.text = self.path.read_text("utf-8") if text is None else text
        self.front = front_matter(self.path, self.text)
        self.symbols = dict(self.front.symbols)
        self.steps: list[Step] = []
        self.live: set[str] = set()
        events, error = scan(self.text, self.front.end)
        self.blocks = [event for event in events if isinstance(event, Block)]
        if error:
            self.fail(*error)
        self._read(events)

    def fail(self, pos: int, message: str, kind: str = "syntax") -> NoReturn:
        raise PageError(self.path, self.text, pos, message, kind)

    # ---------------------------------------------------------------- questions
    def tags(self) -> dict[str, list[Step]]:
        """tag -> its lines (one, or the pieces of one formula), in the order of the page."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            if step.tag:
                found.setdefault(step.tag, []).append(step)
        return found

    def summary(self) -> dict[str, int]:
        """Counts: display blocks, of these prose; relations checked; definitions; inline formulas with a relation."""
        stated = [step for step in self.steps if step.kind in ("define", "claim")]
        return dict(
            display=sum(block.display for block in self.blocks),
            prose=sum(step.kind == "prose" for step in self.steps),
            relations=sum(len(step.equation.relations) for step in stated),
            definitions=sum(step.kind == "define" for step in stated),
            inline=sum(not step.display for step in stated),
            tags=len(self.tags()),
        )

    # ---------------------------------------------------------------- reading
    def _read(self, events: list[Block | Directive]) -> None:
        waiting: dict[str, Directive] = {}
        for event in events:
            if isinstance(event, Directive):
                self._directive(event, waiting)
            elif event.display:
                self._display(event, waiting)
                self._nothing_waits(waiting)
            elif has_relation(event.source):
                self._inline_relation(event)
            else:
                self._inline_expression(event)
        self._nothing_waits(waiting)
        defined = {key for step in self.steps if step.kind == "define" for key in step.keys}
        for key in self.front.reference:
            if key not in defined:
                self.front.fail(f"the page never defines {key}", "math", "reference", key)
        for output, _ in self.front.loss.terms if self.front.loss else ():
            if output not in defined:
                self.front.fail(f"the page never defines {output}", "math", "loss", "of")

    def _directive(self, directive: Directive, waiting: dict[str, Directive]) -> None:
        word, argument = directive.word, directive.argument
        if word == "forget":
            return self._forget(directive)
        if word not in ("prose", "tol"):
            self.fail(directive.pos, f"unknown directive math: {word} (forget, prose and tol exist)")
        if word == "prose" and not argument:
            self.fail(directive.pos, "math: prose needs a reason")
        if word == "tol" and not re.fullmatch(r"\d*\.?\d+(e-?\d+)?", argument):
            self.fail(directive.pos, f"math: tol needs a number, got {argument!r}")
        waiting[word] = directive

    def _nothing_waits(self, waiting: dict[str, Directive]) -> None:
        for word, directive in waiting.items():
            what = r"a display formula with \approx" if word == "tol" else "a display formula"
            self.fail(directive.pos, f"math: {word} must stand before {what}")

    def _forget(self, directive: Directive) -> None:
        keys = []
        for name in re.split(r",(?![^{]*\})", directive.argument):
            try:
                tokens = canonical(name.strip())
            except FormulaError as error:
                self.fail(directive.pos, f"math: forget: {error.message}")
            if tokens not in self.symbols:
                self.fail(directive.pos, f"cannot forget {name.strip() or 'nothing'}: no such symbol")
            key, _ = self.symbols.pop(tokens)
            keys.append(key)
            self.live.discard(key)
            if key in self.front.generic:
                self.symbols[tokens] = (key, "func")
        self.steps.append(Step("forget", directive, keys=tuple(keys)))

    @contextmanager
    def _placed(self, block: Block) -> Iterator[None]:
        """What is wrong with a formula is told at its place in the file."""
        try:
            yield
        except FormulaError as error:
            self.fail(block.source_pos + error.position, error.message, error.kind)

    def _parser(self, block: Block) -> tuple[Parser, str | None]:
        tokens, tag = lex(block.source)
        loss = self.front.loss and self.front.loss.key
        return Parser(tokens, self.symbols, len(block.source.rstrip()), loss), tag

    def _inline_expression(self, block: Block) -> None:
        """Inline mathematics without a relation: a name, an index or an expression over declared symbols."""
        with self._placed(block):
            parser, _ = self._parser(block)
            found = parser.name()
            if (found and found[0] == len(parser.tokens) - 1) or _is_index(parser):
                return
            parser.expression()
            if parser.peek().kind != "end":
                parser.fail(f"unexpected {parser.peek().text!r}")

    def _inline_relation(self, block: Block) -> None:
        with self._placed(block):
            parser, _ = self._parser(block)
            found = parser.name()
            if found and found[2] in ("index", "int"):  # a condition such as i = c
                parser.condition()
                if parser.peek().kind != "end":
                    parser.fail("unexpected text after a condition")
                return
        self._state(block, {})

    def _display(self, block: Block, waiting: dict[str, Directive]) -> None:
        if "prose" in waiting:
            self.steps.append(Step("prose", block, reason=waiting.pop("prose").argument))
            return
        self._state(block, waiting)

    # ---------------------------------------------------------------- definitions and claims
    def _equations(self, block: Block) -> tuple[list[Equation], str | None]:
        """Parse a display. The same source over the same symbols is parsed once: a mutant changes one block of many."""
        key = (block.source, self.front.loss, frozenset(self.symbols.items()))
        if key not in _PARSED:
            with self._placed(block):
                parser, tag = self._parser(block)
                equations = parser.equations()
            for equation in equations:
                self._check_scopes(equation, block)
            _PARSED[key] = equations, tag
            if len(_PARSED) > 2000:
                _PARSED.pop(next(iter(_PARSED)))
        return _PARSED[key]

    def _state(self, block: Block, waiting: dict[str, Directive]) -> None:
        equations, tag = self._equations(block)
        if tag and not block.display:
            self.fail(block.pos, "only a display formula can carry a tag")
        if tag and len(equations) > 1 and not all(_pieces(equation) for equation in equations):
            self.fail(block.pos, "a tagged block must hold exactly one equation, or the elements of one")
        if tag and tag in self.tags():
            self.fail(block.pos, f"tag {tag} is used twice")
        tolerance = None
        if any(r"\approx" in equation.relations for equation in equations):
            if "tol" not in waiting:
                self.fail(block.source_pos + equations[0].pos, r"\approx needs <!-- math: tol ... --> before it")
            tolerance = float(waiting.pop("tol").argument)
        here: set[str] = set()
        for equation in equations:
            step = Step("claim", block, equation, tag=tag, tolerance=tolerance)
            if equation.definition:
                name = equation.definition.name
                step.kind, step.keys, step.continues = "define", (name,), name in here
                self._define(equation, block, step.continues)
                here.add(name)
            self.steps.append(step)

    def _define(self, equation: Equation, block: Block, continues: bool) -> None:
        definition = equation.definition
        assert definition
        at = block.source_pos + definition.pos
        key, known = definition.name, self.symbols.get(definition.raw)
        if continues and not (definition.indices and not definition.formals):
            self.fail(at, "already defined: only different elements can be defined line by line")
        if known and not continues:
            if known[1] != "func":
                self.fail(at, "this symbol already has a meaning: use '=' or forget it first")
            if definition.formals is None:
                self.fail(at, "this name is a function")
            if key in self.live or key not in self.front.generic:
                self.fail(at, "this function is already defined: forget it first")
        if key in RESERVED:
            self.fail(at, f"{key} is reserved")
        if definition.formals:
            used = mentioned(equation.sides[0])
            for formal in definition.formals:
                if formal not in used:
                    self.fail(at, f"parameter {formal} does not occur on the right", "type")
            for name in sorted(used & set(self.front.given) - set(definition.formals)):
                if self.front.given[name].domain not in ("ones", "zeros"):
                    self.fail(at, f"{name} occurs on the right but is not a parameter", "type")
        self.symbols[definition.raw] = (key, "func" if definition.formals else "value")
        self.front.names[key] = self.front.python(key)
        self.live.add(key)

    def _check_scopes(self, equation: Equation, block: Block) -> None:
        for name in equation.free:
            if not any(name in mentioned(side) for side in equation.sides):
                position = block.source_pos + equation.pos
                self.fail(position, f"'for any {name}', but {name} does not occur", "type")
        left = equation.definition.indices or () if equation.definition else ()
        parts = [*equation.sides, equation.condition, tuple(left)]
        free, bound = free_indices(parts), bound_indices(parts)
        both = set(free) & set(bound)
        if both:
            name = min(both)
            message = f"index {name} is both free and summed over in one equation"
            self.fail(block.source_pos + bound[name], message, "type")


def _is_index(parser: Parser) -> bool:
    """Whether the whole formula is an index such as 2i - 1; if not, the parser is back at its start."""
    try:
        parser.index()
        if parser.peek().kind == "end":
            return True
    except FormulaError:
        pass
    parser.cursor = 0
    return False


def _pieces(equation: Equation) -> tuple[Node, ...]:
    """Subscripts of the left side of a line that states some elements of a vector: `y_{2i} := …`."""
    if equation.definition:
        return tuple(equation.definition.indices or ())
    return subscripts(equation.sides[0])
