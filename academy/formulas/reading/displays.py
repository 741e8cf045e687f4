r"""Grammar of a whole display: chains of relations, definitions (`:=`), conditions behind `\quad`, aligned lines."""

from __future__ import annotations

from academy.formulas.errors import FormulaError
from academy.formulas.reading.expressions import ExpressionGrammar
from academy.formulas.reading.tokens import environment, latex_of
from academy.formulas.reading.tree import Definition, Equation, Node

RELATIONS = {"=", ":=", "<", ">", r"\le", r"\ge", r"\approx"}


class Parser(ExpressionGrammar):
    def __init__(self, tokens, symbols, length, loss=None):
        super().__init__(tokens, symbols, length)
        self.loss = loss

    def equations(self) -> list[Equation]:
        """One display: one or more chains."""
        wrapped = self.at(r"\begin") and environment(self.tokens, self.cursor) in ("aligned", "gathered")
        if wrapped:
            self.take()
            self.environment_word()
        found = [self.equation()]
        while self.take_if("\\\\"):
            if wrapped and self.at(r"\end"):
                break
            if self.at(*RELATIONS):
                self.more_sides(found[-1])
                self.trailer(found[-1])
            else:
                found.append(self.equation())
        if wrapped:
            self.take(r"\end")
            self.environment_word()
        self.take_if(".", ",")
        if self.peek().kind != "end":
            self.fail(f"unexpected {self.peek().text!r}")
        return found

    def equation(self) -> Equation:
        start = self.peek().pos
        definition = self.definition()
        equation = Equation([], [":="] if definition else [], definition=definition, pos=start)
        self.side(equation)
        self.more_sides(equation)
        if not equation.relations:
            self.fail("a display formula must contain a relation (=, :=, <, ...): nothing to check")
        self.trailer(equation)
        return equation

    def side(self, equation: Equation) -> None:
        start = self.cursor
        equation.sides.append(self.expression())
        equation.source.append(tuple(token.text for token in self.tokens[start : self.cursor]))

    def more_sides(self, equation: Equation) -> None:
        while True:
            while self.at("\\\\") and self.at(*RELATIONS, ahead=1):
                self.take()
            if not self.at(*RELATIONS):
                return
            relation = self.take()
            if relation.text == ":=":
                self.fail("':=' must follow a new name at the start of a line", relation)
            equation.relations.append(relation.text)
            self.side(equation)
            if equation.source[-1] == equation.source[-2]:
                position = equation.sides[-1].pos
                raise FormulaError("both sides are the same formula: nothing is checked", position, "type")

    # ---------------------------------------------------------------- behind the equation
    def trailer(self, equation: Equation) -> None:
        r"""Punctuation, `\quad \text{if } …`, `\quad (…)`, `\quad \text{for any } \mu`."""
        if self.at(",", ".") and not self.at(r"\quad", ahead=1):
            if self.peek(1).kind == "end" or self.at("\\\\", r"\end", ahead=1):
                self.take()
            return
        self.take_if(",")
        if not self.at(r"\quad"):
            return
        while self.take_if(r"\quad"):
            pass
        if self.at_text("for any"):
            self.cursor += 1
            self.for_any(equation)
        else:
            condition = self.trailing_condition()
            known = equation.condition
            equation.condition = condition if known is None else Node("and", (known, condition), condition.pos)
        self.take_if(".", ",")

    def for_any(self, equation: Equation) -> None:
        while True:
            equation.free += (self.take_name("value", expected="expected a symbol after 'for any'")[0],)
            if not (self.at(",") and self.peek(1).kind == "name"):
                return
            self.take()

    def trailing_condition(self) -> Node:
        if self.at_text("if", "for", "when", "where"):
            self.cursor += 1
            return self.condition()
        if self.take_if("("):
            condition = self.condition()
            self.take(")")
            return condition
        self.fail(r"after \quad only a condition may follow: \text{if } i \ne c")

    # ---------------------------------------------------------------- definitions
    def definition(self) -> Definition | None:
        """Consume `name [(formals)] [_indices] :=`, if this line is one."""
        end = self.cursor
        while end < len(self.tokens) - 1 and self.tokens[end].text not in RELATIONS | {"\\\\"}:
            end += 1
        if self.tokens[end].text != ":=":
            return None
        head = self.tokens[self.cursor : end]
        found = self.name()
        if not head or (not found and head[0].kind != "name"):
            self.fail("left of ':=' there must be a name")
        size = found[0] if found else 1
        raw = tuple((token.kind, token.text) for token in head[:size])
        start = head[0].pos
        self.cursor += size
        formals = self.formals() if self.at("(") else None
        indices = self.indices() if self.take_if("_") else None
        for index in indices or ():
            if index.op not in ("index", "affine"):
                raise FormulaError("left of ':=' a subscript must be an index", index.pos)
        plain = [index.args[0] for index in indices or () if index.op == "index"]
        if len(set(plain)) != len(plain):
            self.fail("an index is repeated left of ':='", head[0])
        self.take(":=")
        return Definition(raw, found[1] if found else latex_of(raw), formals, indices, start)

    def formals(self) -> list[str]:
        self.take("(")
        names = []
        while True:
            key, _ = self.take_name("value", "int", "dim", expected="formal parameters must be declared symbols")
            names.append(key)
            if not self.take_if(","):
                self.take(")")
                return names
