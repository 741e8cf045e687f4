r"""Grammar of derivatives: `\frac{\partial z}{\partial x_i}`, `\frac{d}{dx}[…]`, `\nabla_x`, `\left.…\right|_{\mu}`."""

from __future__ import annotations

from collections.abc import Callable

from academy.formulas.reading.subscripts import IndexGrammar
from academy.formulas.reading.tree import Node


class DerivativeGrammar(IndexGrammar):
    #: key of the loss that `\nabla` differentiates, from the front matter
    loss: str | None = None
    #: Rules of expressions, which build on this grammar.
    group: Callable[[], Node]
    atom: Callable[[], Node]
    postfix: Callable[[Node], Node]
    arguments: Callable[[], list[Node]]
    delimited: Callable[[], Node | None]
    starts_factor: Callable[[], bool]

    def gradient(self) -> Node:
        r"""`\nabla_x`, `\nabla_{x_i}`: the derivative of the loss."""
        token = self.take()
        if self.loss is None:
            self.fail(r"\nabla needs 'loss' in the front matter", token)
        self.take("_")
        braced = self.take_if("{")
        variable = self.variable()
        if braced:
            self.take("}")
        return Node("deriv", (Node("sym", (self.loss,), token.pos), variable, ()), token.pos)

    def variable(self) -> Node:
        """What is differentiated by: a symbol with optional indices."""
        start = self.peek().pos
        key, _ = self.take_name("value", expected="expected a declared variable here")
        node = Node("sym", (key,), start)
        if self.take_if("_"):
            node = Node("idx", (node, tuple(self.indices())), start)
        return node

    def partial_derivative(self) -> Node:
        r"""`\left.\frac{\partial z}{\partial x}\right|_{\mu, \sigma}`: what the bar names is held fixed."""
        token = self.take("left.")
        node = self.fraction()
        if node.op != "deriv":
            self.fail(r"\left. ... \right| is only for derivatives at fixed variables", token)
        self.take("|"), self.take("_"), self.take("{")
        held = []
        while not self.at("}"):
            held.append(self.take_name("value", expected="expected a symbol that is held fixed")[0])
            self.take_if(",")
        self.take("}")
        if not held:
            self.fail("nothing is held fixed", token)
        return Node("deriv", (node.args[0], node.args[1], tuple(held)), token.pos)

    def fraction(self) -> Node:
        token = self.take(r"\frac")
        if self.at("{") and self.derivative_mark(1) and (self.name(1) or (0,))[0] <= 1:
            node = self.derivative(token)
            if node is not None:
                return node
        return Node("frac", (self.group(), self.group()), token.pos)

    def derivative_mark(self, ahead: int) -> bool:
        token = self.peek(ahead)
        return (token.text == r"\partial" and token.kind == "cmd") or (token.kind == "name" and token.text == "d")

    def derivative(self, token) -> Node | None:
        """After `\\frac`; None if this is an ordinary fraction that begins with a symbol d."""
        start, mark = self.cursor, self.peek(1).text
        self.take("{")
        self.cursor += 1
        operand = None
        if not self.at("}"):
            operand = self.operand(mark)
            if operand is None:
                self.cursor = start
                return None
        self.take("}"), self.take("{")
        if not (self.derivative_mark(0) and self.peek().text == mark):
            self.fail("numerator and denominator of a derivative must use the same d")
        self.cursor += 1
        variable = self.variable()
        self.take("}")
        if operand is None:
            operand = self.operand_behind()
        return Node("deriv", (operand, variable, ()), token.pos)

    def operand(self, mark: str) -> Node | None:
        """The z of dz/dx: a name, with arguments or indices."""
        found = self.name()
        if found is None:
            if mark == "d":
                return None
            self.fail("expected a declared name under the derivative sign")
        size, key, kind = found
        start = self.peek().pos
        if kind == "grad":
            self.fail("derivative of a gradient is not in the grammar")
        self.cursor += size
        node = Node("bare" if kind == "func" else "sym", (key,), start)
        if kind == "func" and self.at("("):
            node = Node("call", (key, 0, tuple(self.arguments())), start)
        if self.take_if("_"):
            node = Node("idx", (node, tuple(self.indices())), start)
        return node

    def operand_behind(self) -> Node:
        """The bracket behind d/dx, with its power: d/dx (..)^2 differentiates the square."""
        node = self.delimited()
        if node is None:
            if not self.at(r"\log", r"\ln", r"\exp", r"\tanh", r"\sqrt"):
                self.fail("the operand of d/dx must be in parentheses")
            node = self.atom()
        node = self.postfix(node)
        if self.starts_factor():
            self.fail(r"what d/dx acts on is unclear: bracket its operand, or put \cdot before this factor")
        return node
