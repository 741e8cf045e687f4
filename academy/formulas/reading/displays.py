r"""Grammar of a whole display: chains of relations, definitions (`:=`), conditions behind `\quad`, aligned lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from academy.book.problems import FormulaError
from academy.book.tex import lex
from academy.formulas.reading.expressions import ExpressionGrammar
from academy.formulas.reading.tree import Definition, Equation, Node, bound_indices, free_indices, mentioned

#: Subscripts on the left of a definition: which elements it defines.
_ELEMENTS = ("index", "affine", "intlit", "dim")
RELATIONS = ("=", ":=", "<", ">", r"\le", r"\ge", r"\approx")


class Parser(ExpressionGrammar):
    """Of the text between two dollars. tag: its `\\tag`. loss: key of the loss that `\\nabla` differentiates."""

    def __init__(self, source: str, symbols: Mapping, loss: str | None = None):
        tokens, self.tag = lex(source)
        super().__init__(tokens, symbols, len(source.rstrip()))
        self.loss = loss

    def equations(self) -> list[Equation]:
        """One display: one or more chains."""
        end = None
        if self.at(r"\begin{aligned}", r"\begin{gathered}"):
            end = self.take().text.replace("begin", "end")
        found = [self.equation()]
        while self.take_if("\\\\") and not (end and self.at(end)):
            if self.at(*RELATIONS):
                self.more_sides(found[-1])
                self.trailer(found[-1])
            else:
                found.append(self.equation())
        if end:
            self.take(end)
        self.take_if(".", ",")
        self.finish()
        return found

    def equation(self) -> Equation:
        definition = self.definition()
        equation = Equation([], [":="] if definition else [], definition=definition, pos=self.peek().pos)
        with self.known(definition):
            self.side(equation)
            self.more_sides(equation)
        if not equation.relations:
            self.fail("a display formula must contain a relation (=, :=, <, ...): nothing to check")
        self.trailer(equation)
        return equation

    @contextmanager
    def known(self, definition: Definition | None) -> Iterator[None]:
        """A definition of elements may mention the name that it defines: it is recursive then."""
        if definition is None or not definition.indices or definition.formals:
            yield
            return
        own = (len(definition.raw), definition.raw, definition.name, "value")
        with_this_start = self.first.setdefault(definition.raw[0], [])
        with_this_start.append(own)
        yield
        with_this_start.remove(own)

    def side(self, equation: Equation) -> list[str]:
        """One side; returns how it is written."""
        start = self.cursor
        equation.sides.append(self.expression())
        self.written = [token.text for token in self.tokens[start : self.cursor]]
        return self.written

    def more_sides(self, equation: Equation) -> None:
        while self.at(*RELATIONS) or (self.at("\\\\") and self.at(*RELATIONS, ahead=1)):
            self.take_if("\\\\")
            relation, before = self.take(), self.written
            if relation.text == ":=":
                self.fail("':=' must follow a new name at the start of a line", relation)
            equation.relations.append(relation.text)
            if self.side(equation) == before:
                position = equation.sides[-1].pos
                raise FormulaError("both sides are the same formula: nothing is checked", position, "type")

    def trailer(self, equation: Equation) -> None:
        r"""Punctuation, `\quad \text{if } …`, `\quad (…)`, `\quad \text{for any } \mu`."""
        if self.at(",", ".") and (self.at(r"\quad", "\\\\", "end of formula", ahead=1)):
            self.take()
        if not self.at(r"\quad"):
            return
        if equation.condition or equation.free:
            self.fail("one condition for a chain of relations")
        while self.take_if(r"\quad"):
            pass
        if self.take_if("for any"):
            message = "expected a symbol after 'for any'"
            equation.free = tuple(self.listed(lambda: self.take_name("value", expected=message)[0]))
        elif self.take_if("if", "for", "when", "where"):
            equation.condition = self.condition()
        elif self.at("("):
            equation.condition = self.enclosed("(", self.condition, ")")
        else:
            self.fail(r"after \quad only a condition may follow: \text{if } i \ne c")
        self.take_if(".", ",")

    def definition(self) -> Definition | None:
        """Consume `name [(formals)] [_indices] :=`, if this line is one."""
        rest = self.tokens[self.cursor :]
        end = next((token for token in rest if token.text in (*RELATIONS, "\\\\")), rest[-1])
        if end.text != ":=":
            return None
        head, (size, key, _) = self.peek(), self.name()
        if not size and head.kind != "name":
            self.fail("left of ':=' there must be a name")
        self.cursor += size or 1
        name = tuple(token.text for token in rest[: size or 1])
        formals = self.enclosed("(", lambda: self.listed(self.formal), ")") if self.at("(") else []
        indices = self.indices() if self.take_if("_") else []
        plain = [index.args[0] for index in indices if index.op == "index"]
        if len(set(plain)) != len(plain) or any(index.op not in _ELEMENTS for index in indices):
            self.fail("left of ':=' each subscript must be an index of its own", head)
        self.take(":=")
        return Definition(name, key or "".join(name), tuple(formals), tuple(indices), head.pos)

    def formal(self) -> str:
        return self.take_name("value", "class", "dim", expected="formal parameters must be declared symbols")[0]


@lru_cache(maxsize=2000)
def parsed(source: str, symbols: frozenset, loss: str | None) -> tuple[list[Equation], str | None]:
    """Equations and tag of a display. Read once: a mutant of a page changes one display of many.

    symbols: the items of the mapping that `Parser` takes. Offsets are relative to the source, and nobody changes them.
    """
    parser = Parser(source, dict(symbols), loss)
    equations = parser.equations()
    for equation in equations:
        _check_scopes(equation)
    return equations, parser.tag


def _check_scopes(equation: Equation) -> None:
    for name in equation.free:
        if name not in mentioned(equation.sides):
            raise FormulaError(f"'for any {name}', but {name} does not occur", equation.pos, "type")
    parts = [*equation.sides, equation.condition, equation.definition and equation.definition.indices]
    bound = bound_indices(parts)
    for name in sorted(set(free_indices(parts)) & set(bound)):
        message = f"index {name} is both free and summed over in one equation"
        raise FormulaError(message, bound[name], "type")


def read_inline(source: str, symbols: Mapping, loss: str | None, condition: bool) -> bool:
    """Check mathematics in a sentence: a name, an index, an expression, or a condition such as $i = c$.

    Returns False, and checks nothing, for a relation (`condition`) between values: that is an equation.
    """
    parser = Parser(source, symbols, loss)
    size, _, kind = parser.name()
    if condition:
        if kind not in ("index", "class"):
            return False
        parser.condition()
    elif size == len(parser.tokens) - 1:
        return True
    else:
        _index_or_expression(parser)
    parser.finish()
    return True


def _index_or_expression(parser: Parser) -> Node:
    try:
        node = parser.index()
        if parser.peek().kind == "end":
            return node
    except FormulaError:
        pass
    parser.cursor = 0
    return parser.expression()
