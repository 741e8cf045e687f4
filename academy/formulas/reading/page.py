"""A derivation page: its symbols, its definitions and claims in order, its tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from academy.book import front_matter
from academy.book.maths import Block, Directive, has_relation, scan
from academy.book.problems import FormulaError, PageError
from academy.book.tex import canonical, python_name
from academy.formulas.reading.declarations import RESERVED, declarations
from academy.formulas.reading.displays import parsed, read_inline
from academy.formulas.reading.tree import Equation, mentioned, pieces


@dataclass
class Step:
    """One thing the page says. kind: define, claim or forget.

    keys: what a definition defines, or what is forgotten. lines: of a definition, this one and those that continue it.
    continues: this line defines further elements of the name that the line above it defines.
    """

    kind: str
    block: Any  # a Block, or the Directive that forgets
    equation: Any = None  # an Equation, of what is defined or claimed
    keys: tuple[str, ...] = ()
    tag: str | None = None
    tolerance: float | None = None
    continues: bool = False
    lines: list[Equation] = field(default_factory=list)

    @property
    def pos(self) -> int:
        return self.block.pos


class Page:
    """A Markdown file whose formulas can be read. `comparing.equations.check(page)` tells whether they hold.

    Args:
        path: the file; only read when `text` is not given.

    Raises:
        PageError: front matter, a directive or a formula can't be read; says where.
    """

    def __init__(self, path: str | Path, text: str | None = None):
        self.path = Path(path)
        self.text = self.path.read_text("utf-8") if text is None else text
        head = front_matter.read(self.text).head
        self.front = declarations(self.path, head)
        self.symbols = dict(self.front.symbols)
        #: key -> Python name, of defined symbols too
        self.names = dict(self.front.names)
        self.steps: list[Step] = []
        self._live: set[str] = set()
        self._tolerance: Directive | None = None
        events, error = scan(" " * len(head) + self.text[len(head) :])
        self.blocks = [event for event in events if isinstance(event, Block)]
        if error:
            self.fail(*error)
        self._read(events)

    def fail(self, pos: int, message: str, kind: str = "syntax") -> NoReturn:
        raise PageError(self.path, self.text, pos, message, kind)

    @contextmanager
    def placed(self, step: Block | Directive) -> Iterator[None]:
        """What is wrong with a formula is told at its place in the file."""
        try:
            yield
        except FormulaError as error:
            start = step.source_pos if isinstance(step, Block) else step.pos
            self.fail(start + error.position, error.message, error.kind)

    # ---------------------------------------------------------------- questions
    def tags(self) -> dict[str, list[Step]]:
        """tag -> its lines (one, or the pieces of one formula), in the order of the page."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            if step.tag:
                found.setdefault(step.tag, []).append(step)
        return found

    def summary(self) -> dict[str, int]:
        """Counts: display blocks; relations checked, of definitions too; inline formulas with a relation."""
        stated = [step for step in self.steps if step.equation]
        return dict(
            display=sum(block.display for block in self.blocks),
            relations=sum(len(step.equation.relations) for step in stated),
            inline=sum(not step.block.display for step in stated),
            tags=len(self.tags()),
        )

    # ---------------------------------------------------------------- reading
    def _read(self, events: list[Block | Directive]) -> None:
        loss = self.front.loss.key if self.front.loss else None
        for event in events:
            with self.placed(event):
                if isinstance(event, Directive):
                    self._directive(event)
                elif event.display or not read_inline(event.source, self.symbols, loss, has_relation(event.source)):
                    self._state(event, *parsed(event.source, frozenset(self.symbols.items()), loss))
        self._no_tolerance_waits()
        defined = {key for step in self.steps if step.kind == "define" for key in step.keys}
        outputs = [(output, "loss", "of") for output, _ in (self.front.loss.terms if self.front.loss else ())]
        for key, *keys in [*outputs, *((key, "reference", key) for key in self.front.reference)]:
            if key not in defined:
                self.front.fail(f"the page never defines {key}", "math", *keys)

    def _directive(self, directive: Directive) -> None:
        if directive.word == "forget":
            self._forget(directive)
        elif directive.word != "tol":
            self.fail(directive.pos, f"unknown directive math: {directive.word} (forget and tol exist)")
        elif not re.fullmatch(r"\d*\.?\d+(e-?\d+)?", directive.argument):
            self.fail(directive.pos, f"math: tol needs a number, got {directive.argument!r}")
        else:
            self._tolerance = directive

    def _no_tolerance_waits(self) -> None:
        if self._tolerance:
            self.fail(self._tolerance.pos, r"math: tol must stand before a display formula with \approx")

    def _forget(self, directive: Directive) -> None:
        keys = []
        for name in re.split(r",(?![^{]*\})", directive.argument):
            tokens = canonical(name.strip())
            if tokens not in self.symbols:
                self.fail(directive.pos, f"cannot forget {name.strip() or 'nothing'}: no such symbol")
            key, _ = self.symbols.pop(tokens)
            keys.append(key)
            self._live.discard(key)
            if key in self.front.generic:
                self.symbols[tokens] = (key, "func")
        self.steps.append(Step("forget", directive, keys=tuple(keys)))

    # ---------------------------------------------------------------- definitions and claims
    def _state(self, block: Block, equations: list[Equation], tag: str | None) -> None:
        if tag and not block.display:
            self.fail(block.pos, "only a display formula can carry a tag")
        if tag and len(equations) > 1 and not all(map(pieces, equations)):
            self.fail(block.pos, "a tagged block must hold exactly one equation, or the elements of one")
        if tag and tag in self.tags():
            self.fail(block.pos, f"tag {tag} is used twice")
        tolerance = None
        if any(r"\approx" in equation.relations for equation in equations):
            if not self._tolerance:
                raise FormulaError(r"\approx needs <!-- math: tol ... --> before it", equations[0].pos)
            tolerance, self._tolerance = float(self._tolerance.argument), None
        if block.display:
            self._no_tolerance_waits()
        here: dict[str, Step] = {}
        for equation in equations:
            step = Step("claim", block, equation, tag=tag, tolerance=tolerance)
            if equation.definition:
                name = equation.definition.name
                step.kind, step.keys, step.continues = "define", (name,), name in here
                self._define(equation, step.continues)
                here.setdefault(name, step).lines.append(equation)
            self.steps.append(step)

    def _define(self, equation: Equation, continues: bool) -> None:
        definition = equation.definition
        assert definition
        key, known = definition.name, self.symbols.get(definition.raw)
        used = mentioned(equation.sides[0])
        free = {name for name, spec in self.front.given.items() if not spec.fixed} - set(definition.formals)
        unused = set(definition.formals) - used
        loose = sorted(used & free) if definition.formals else []
        wrong, kind = "", "syntax"
        if continues and (definition.formals or not definition.indices):
            wrong = "already defined: only different elements can be defined line by line"
        elif known and not continues and known[1] != "func":
            wrong = "this symbol already has a meaning: use '=' or forget it first"
        elif known and not continues and not definition.formals:
            wrong = "this name is a function"
        elif known and not continues and (key in self._live or key not in self.front.generic):
            wrong = "this function is already defined: forget it first"
        elif key in RESERVED:
            wrong = f"{key} is reserved"
        elif unused:
            wrong, kind = f"parameter {min(unused)} does not occur on the right", "type"
        elif loose:
            wrong, kind = f"{loose[0]} occurs on the right but is not a parameter", "type"
        if wrong:
            raise FormulaError(wrong, definition.pos, kind)
        self.symbols[definition.raw] = (key, "func" if definition.formals else "value")
        self.names[key] = python_name(key)
        self._live.add(key)
