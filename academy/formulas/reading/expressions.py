r"""Grammar of expressions: sums, products, fractions, powers, functions, `\sum`, `\prod`, `\max`, cases, matrices.

Where two readings are possible (`a/b c`, `\log x y`, `f(x)^2`) the formula is rejected and the message says how to
write it. Derivatives are in `derivatives.py`.
"""

from __future__ import annotations

from academy.formulas.errors import FormulaError
from academy.formulas.reading.derivatives import DerivativeGrammar
from academy.formulas.reading.subscripts import COMPARISONS
from academy.formulas.reading.tree import Node

FUNCTIONS = {rf"\{name}": name for name in ("log", "exp", "tanh", "sinh", "cosh", "sin", "cos")} | {r"\ln": "log"}
FUNCTIONS |= {f"rm:{name}": name for name in ("erf", "rowsum", "sigmoid")}
_RUNNING = {rf"\{name}": name for name in ("sum", "prod", "max", "min")}
_FACTOR_STARTS = {"(", "[", "{", "left.", r"\frac", r"\sqrt", r"\pi", r"\begin", *_RUNNING}
_FACTOR_STARTS |= {name for name in FUNCTIONS if name.startswith("\\")}


class ExpressionGrammar(DerivativeGrammar):
    # ---------------------------------------------------------------- sums and products
    def expression(self) -> Node:
        start = self.peek().pos
        terms = [(self.take().text if self.at("+", "-") else "+", self.term())]
        while self.at("+", "-"):
            terms.append((self.take().text, self.term()))
        if len(terms) == 1 and terms[0][0] == "+":
            return terms[0][1]
        return Node("add", tuple(terms), start)

    def starts_factor(self) -> bool:
        token = self.peek()
        return token.kind in ("name", "num") or (token.kind in ("op", "cmd") and token.text in _FACTOR_STARTS)

    def term(self) -> Node:
        start = self.peek().pos
        items = [("", self.factor())]
        while True:
            if self.at(r"\cdot", r"\times", r"\odot"):
                operator = self.take().text
                if self.at("-"):
                    self.fail("a sign right after a product needs parentheses")
                items.append((operator, self.factor()))
            elif self.at("/"):
                self.take()
                items.append(("/", self.factor()))
                if self.starts_factor():
                    self.fail(r"a/b c is ambiguous: use \frac or parentheses")
            elif self.starts_factor():
                if self.peek().kind == "num":
                    self.fail(r"a number may not follow a factor without \cdot")
                items.append(("*", self.factor()))
            else:
                return items[0][1] if len(items) == 1 else Node("mul", tuple(items), start)

    def group(self) -> Node:
        self.take("{")
        body = self.expression()
        self.take("}")
        return body

    def factor(self) -> Node:
        return self.postfix(self.atom())

    def postfix(self, base: Node) -> Node:
        """Subscripts, powers and transposes behind an atom."""
        while True:
            start = self.peek().pos
            if self.at("_"):
                if base.op == "num":
                    self.fail("subscript on a number")
                self.take()
                base = Node("idx", (base, tuple(self.indices())), start)
            elif self.at("^"):
                self.take()
                base = self.superscript(base, start)
            elif self.at("!"):
                self.fail("factorial is not in the grammar")
            else:
                return base

    def superscript(self, base: Node, start: int) -> Node:
        if self.take_if(r"\top"):
            return Node("transpose", (base,), start)
        if self.at("{") and self.at(r"\top", ahead=1):
            self.take("{"), self.take(), self.take("}")
            return Node("transpose", (base,), start)
        if self.peek().kind == "name" and self.peek().text == "T" and self.name() is None:
            self.fail(r"write a transpose as ^\top")
        return Node("pow", (base, self.exponent()), start)

    def exponent(self) -> Node:
        """A {group}, or exactly one character."""
        if self.at("{"):
            return self.group()
        token, found = self.peek(), self.name()
        if token.kind == "num" and len(token.text) > 1:
            self.fail("brace a superscript of more than one character")
        if token.kind == "num" or (found and found[0] == 1):
            return self.atom()
        self.fail("brace this superscript")

    # ---------------------------------------------------------------- atoms
    def delimited(self) -> Node | None:
        """(expression) or [expression], if one starts here."""
        for opening, closing in (("(", ")"), ("[", "]")):
            if self.at(opening):
                start = self.take().pos
                body = self.expression()
                self.take(closing)
                return Node("paren", (body,), start)
        return None

    def atom(self) -> Node:
        token = self.peek()
        body = self.delimited()
        if body is not None:
            return body
        if token.kind == "num":
            self.cursor += 1
            return Node("num", (float(token.text),), token.pos)
        if token.kind == "name":
            return self.name_atom()
        if token.kind in ("op", "cmd") and token.text in FUNCTIONS:
            return self.function()
        if self.at("{"):
            return Node("paren", (self.group(),), token.pos)
        if self.take_if(r"\pi"):
            return Node("pi", (), token.pos)
        if self.take_if(r"\sqrt"):
            return Node("sqrt", (self.group(),), token.pos)
        if self.at(r"\frac"):
            return self.fraction()
        if self.at("left."):
            return self.partial_derivative()
        if self.at(*_RUNNING):
            return self.running()
        if self.at(r"\begin"):
            return self.environment()
        if self.at(r"\arg"):
            self.fail(r"\arg\max is an index: it belongs into a subscript or a condition")
        self.fail("formula ends too early" if token.kind == "end" else f"unexpected {token.text!r}")

    def name_atom(self) -> Node:
        token, found = self.peek(), self.name()
        if found:
            return self.symbol(*found)
        if token.text in FUNCTIONS:
            return self.function()
        if token.text == r"\nabla":
            return self.gradient()
        if token.text == "e":
            self.cursor += 1
            self.take("^")
            return Node("fn", ("exp", self.exponent()), token.pos)
        if token.text == "bf:1" and self.at("_", ahead=1):
            self.cursor += 1
            self.take("_"), self.take("{")
            condition = self.condition()
            self.take("}")
            return Node("indicator", (condition,), token.pos)
        if token.text == r"\delta":
            self.take()
            self.take("_")
            pair = self.indices()
            if len(pair) != 2:
                self.fail("Kronecker delta needs two indices", token)
            return Node("indicator", (Node("rel", ("=", *pair), token.pos),), token.pos)
        if token.text == "bb:E":
            return self.expectation()
        self.fail(f"symbol {token.text.split(':')[-1]!r} is not declared or not yet defined")

    def function(self) -> Node:
        token = self.take()
        shown, power = token.text.split(":")[-1], None
        if self.take_if("^"):
            power = self.exponent()
        argument = self.delimited()
        if argument is None and self.at(r"\sum", r"\prod"):
            argument = self.running()
        if argument is None and self.at("{"):
            argument = self.group()
        if argument is None:
            self.fail("the argument of a function must be in parentheses")
        if self.at("^"):
            self.fail(f"{shown}(x)^k is ambiguous: write {shown}^k(x)")
        node = Node("fn", (FUNCTIONS[token.text], argument), token.pos)
        return node if power is None else Node("pow", (node, power), token.pos)

    # ---------------------------------------------------------------- declared names
    def symbol(self, size: int, key: str, kind: str) -> Node:
        token = self.peek()
        if kind in ("index", "int"):
            self.fail(f"index {key!r} used as a number", token)
        self.cursor += size
        if kind == "func":
            return self.call(key, token.pos)
        if kind == "grad":
            loss = Node("sym", (self.loss,), token.pos)
            return Node("deriv", (loss, Node("sym", (key.removeprefix("grad:"),), token.pos), ()), token.pos)
        if self.at("(") and not self.sum_in_parentheses():
            self.fail(
                f"{key}(...) reads like a function call, but {key} is not a function here: "
                "put \\cdot or \\, and drop the parentheses",
                token,
            )
        return Node("sym", (key,), token.pos)

    def sum_in_parentheses(self) -> bool:
        """Whether the parentheses that open here hold a sum at their top level (so that they are needed)."""
        depth = 0
        for at in range(self.cursor, len(self.tokens) - 1):
            text = self.tokens[at].text
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text, 0)
            if depth == 0:
                return False
            if depth == 1 and text in ("+", "-") and self.tokens[at - 1].text != "(":
                return True
        return False

    def call(self, key: str, start: int) -> Node:
        order = 0
        while self.take_if("'"):
            order += 1
        if not self.at("("):
            self.fail(f"the function {key} needs its argument here")
        return Node("call", (key, order, tuple(self.arguments())), start)

    def arguments(self) -> list[Node]:
        self.take("(")
        out = [self.argument()]
        while self.take_if(","):
            out.append(self.argument())
        self.take(")")
        return out

    def argument(self) -> Node:
        found = self.name()
        if found and found[2] in ("int", "index") and self.peek(found[0]).text in (",", ")"):
            return self.index()
        return self.expression()

    # ---------------------------------------------------------------- running over an index
    def running(self) -> Node:
        r"""`\sum`, `\prod`, `\max`, `\min` over an index; `\max(a, b)` of several values."""
        token = self.take()
        kind = _RUNNING[token.text]
        if kind in ("max", "min") and self.at("("):
            values = self.arguments()
            if len(values) < 2:
                self.fail(f"{token.text} of one value: name an index, or give two values", token)
            return Node("extremum", (kind, tuple(values)), token.pos)
        if not self.at("_"):
            self.fail(f"{token.text} needs an index to run over")
        name, upper, condition = self.bounds(token)
        if self.at("-", "+"):
            self.fail(f"a sign right after {token.text} needs parentheses")
        # max and min bind one factor, a sum or product the whole term.
        body = self.factor() if kind in ("max", "min") else self.term()
        return Node(kind, (name, upper, condition, body), token.pos)

    def bounds(self, token) -> tuple[str, tuple | None, Node | None]:
        """Index name, (lower, upper) or None, condition or None."""
        lower = upper = condition = None
        self.take("_")
        braced = self.take_if("{")
        index = self.index_name(token.text)
        if braced:
            if self.take_if("="):
                lower = self.index()
            elif self.at(*COMPARISONS):
                condition = Node("rel", (self.take().text, index, self.index()), token.pos)
            self.take("}")
        if self.take_if("^"):
            braced, found = self.take_if("{"), self.name()
            if not braced and (not found or found[2] != "dim"):
                self.fail("the upper bound must be a declared dimension, or a {group}")
            upper = self.index()
            if braced:
                self.take("}")
        if (lower is None) != (upper is None):
            raise FormulaError(f"give both bounds of a {token.text} or neither", token.pos)
        return index.args[0], None if lower is None else (lower, upper), condition

    def arg_extremum(self) -> Node:
        token = self.take(r"\arg")
        kind = {r"\max": "argmax", r"\min": "argmin"}.get(self.peek().text)
        if kind is None:
            self.fail(r"\arg needs \max or \min")
        self.take()
        name, limits, condition = self.bounds(token)
        if condition is not None:
            self.fail(r"a conditional \arg\max is not in the grammar", token)
        return Node(kind, (name, limits, None, self.factor()), token.pos)

    def expectation(self) -> Node:
        r"""`\mathbb{E}_i[x_i]`, the mean; `\mathbb{E}_{i \sim p}[x_i]`, weighted by p."""
        token, weights = self.take(), None
        self.take("_")
        braced = self.take_if("{")
        index = self.index_name("an expectation")
        if braced:
            weights = self.expression() if self.take_if(r"\sim") else None
            self.take("}")
        if not self.at("["):
            self.fail("what an expectation is taken of must stand in [brackets]")
        return Node("expect", (index.args[0], weights, self.delimited()), token.pos)

    # ---------------------------------------------------------------- environments
    def environment(self) -> Node:
        token = self.take(r"\begin")
        word = self.environment_word()
        if word == "cases":
            node = Node("cases", tuple(self.case_rows()), token.pos)
        elif word in ("pmatrix", "bmatrix"):
            node = Node("matrix", tuple(self.matrix_rows(token)), token.pos)
        else:
            raise FormulaError(f"environment {word!r} is not in the grammar here", token.pos)
        self.take(r"\end")
        self.environment_word()
        return node

    def environment_word(self) -> str:
        self.take("{")
        word = ""
        while not self.at("}"):
            word += self.take().text
        self.take("}")
        return word

    def case_rows(self):
        while not self.at(r"\end"):
            body = self.expression()
            self.take_if(",")
            self.take("&")
            if self.at_text("if", "for", "when"):
                self.cursor += 1
            if self.at_text("otherwise"):
                self.cursor += 1
                yield body, None
            else:
                yield body, self.condition()
            self.take_if(".", ",")
            if not self.at(r"\end"):
                self.take("\\\\")

    def matrix_rows(self, token):
        width = None
        while not self.at(r"\end"):
            row = [self.expression()]
            while self.take_if("&"):
                row.append(self.expression())
            if width not in (None, len(row)):
                self.fail("the rows of a matrix must have the same length", token)
            width = len(row)
            yield tuple(row)
            if not self.at(r"\end"):
                self.take("\\\\")
