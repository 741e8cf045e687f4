r"""Grammar of expressions: subscripts and conditions, sums and products, functions, `\sum_i`, derivatives, cases.

Where two readings are possible (`a/b c`, `\log x y`, `f(x)^2`) the formula is rejected and the message says how to
write it.
"""

from __future__ import annotations

from collections.abc import Callable

from academy.book.problems import FormulaError
from academy.formulas.reading.stream import TokenStream
from academy.formulas.reading.tree import Node

COMPARISONS = ("=", r"\ne", "<", ">", r"\le", r"\ge")
#: Kinds of names that a subscript is made of; a node of the same name stands for each.
_INTEGERS = ("index", "class", "dim")
FUNCTIONS = {rf"\{name}": name for name in ("log", "exp", "tanh", "sinh", "cosh", "sin", "cos")} | {r"\ln": "log"}
FUNCTIONS |= {rf"\operatorname{{{name}}}": name for name in ("erf", "rowsum", "sigmoid")}
#: The rule for what begins with a token.
_ATOMS = {"(": "bracket", "[": "bracket", "{": "bracket", r"\frac": "fraction", "left.": "partial_derivative"}
_ATOMS |= {r"\sqrt": "root", r"\pi": "pi", r"\begin{cases}": "cases", r"\nabla": "gradient", "e": "exponential"}
_ATOMS |= {r"\begin{pmatrix}": "matrix", r"\begin{bmatrix}": "matrix", r"\mathbb{E}": "expectation"}
_ATOMS |= {r"\mathbf{1}": "indicator", r"\delta": "kronecker"}
_ATOMS |= dict.fromkeys((r"\sum", r"\prod", r"\max", r"\min"), "running") | dict.fromkeys(FUNCTIONS, "function")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class ExpressionGrammar(TokenStream):
    #: key of the loss that `\nabla` differentiates, from the front matter
    loss: str | None = None

    # ---------------------------------------------------------------- subscripts
    def indices(self) -> list[Node]:
        """A subscript: one index, or a {group} of them, with or without commas."""
        if not self.at("{"):
            return [self.single_index()]
        self.take("{")
        found = [self.index()]
        while not self.at("}"):
            self.take_if(",")
            found.append(self.index())
        self.take("}")
        return found

    def index(self) -> Node:
        r"""`i`, `3`, `:`, `2i+1`, `i-d`, `\arg\max_j x_j`."""
        start = self.peek().pos
        if self.take_if(":"):
            return Node("slice", (), start)
        if self.at(r"\argmax", r"\argmin"):
            return self.running()
        terms = [self.index_term(-1 if self.take_if("-") else 1)]
        while self.at("+", "-"):
            terms.append(self.index_term(1 if self.take().text == "+" else -1))
        return terms[0][1] if len(terms) == 1 and terms[0][0] == 1 else Node("affine", tuple(terms), start)

    def index_term(self, factor: int = 1) -> tuple[int, Node]:
        token = self.peek()
        if token.kind == "num":
            if not token.text.isdigit():
                self.fail("an index is a whole number")
            self.take(), self.take_if(r"\cdot")
            _, key, kind = self.name()
            if kind not in _INTEGERS:
                return factor, Node("intlit", (int(token.text),), token.pos)
            if int(token.text) < 2:
                self.fail(f"put a comma between the indices {token.text} and {key}", token)
            factor *= int(token.text)
        at = self.peek()
        key, kind = self.take_name(*_INTEGERS, expected=f"{at.text!r} is not a declared index")
        return factor, Node(kind, (key,), at.pos)

    def single_index(self) -> Node:
        """A subscript or bound without braces."""
        token = self.peek()
        if token.kind == "num":
            return self.single(lambda: Node("intlit", (int(self.take().text),), token.pos))
        return self.index_term()[1]

    def index_name(self) -> str:
        """A plain index, for a sum or product to run over."""
        return self.take_name("index", expected="this must run over an index")[0]

    def subscripted(self, node: Node) -> Node:
        start = self.peek().pos
        return Node("idx", (node, tuple(self.indices())), start) if self.take_if("_") else node

    def single(self, rule: Callable[[], Node]) -> Node:
        """What `rule` reads without braces, which in LaTeX is exactly one character."""
        token, end = self.peek(), self.cursor + 1
        one = len(token.text) == 1 if token.kind == "num" else self.name()[0] == 1
        node = rule() if one else None
        return node if node and self.cursor == end else self.fail("put braces around this", token)

    # ---------------------------------------------------------------- conditions
    def condition(self) -> Node:
        """Comparisons joined by commas or `and`, each possibly a chain: `i < j \\le k, x_i > 0`."""
        found = self.comparison()
        while self.take_if(",", "and"):
            found = Node("and", (found, self.comparison()), found.pos)
        return found

    def comparison(self) -> Node:
        left, found = self.compared(), None
        while self.at(*COMPARISONS):
            relation, right = self.take(), self.compared(like=left)
            if left.op == "real" and relation.text in ("=", r"\ne") and not {"lit"} & {left.args[1], right.args[1]}:
                self.fail("two computed numbers are never exactly equal: compare with < or >", relation, "type")
            here = Node("rel", (relation.text, left, right), left.pos)
            found = here if found is None else Node("and", (found, here), left.pos)
            left = right
        return found or self.fail("expected a relation (=, \\ne, <, …) in this condition")

    def compared(self, like: Node | None = None) -> Node:
        """An index, or a real-valued expression wrapped in a `real` node (its second part: lit for a plain number)."""
        first = self.name(ahead=self.peek().kind == "num")[2]
        integer = first in ("index", "class") or self.at(r"\argmax", r"\argmin")
        if like.op != "real" if like else integer:
            return self.index()
        start, body = self.peek().pos, self.expression()
        return Node("real", (body, "lit" if body.op == "num" else ""), start)

    # ---------------------------------------------------------------- sums and products
    def expression(self) -> Node:
        start = self.peek().pos
        terms = [(self.take().text if self.at("+", "-") else "+", self.term())]
        while self.at("+", "-"):
            terms.append((self.take().text, self.term()))
        return terms[0][1] if len(terms) == 1 and terms[0][0] == "+" else Node("add", tuple(terms), start)

    def starts_factor(self) -> bool:
        return self.peek().kind in ("name", "num") or self.peek().text in _ATOMS

    def term(self) -> Node:
        start, items = self.peek().pos, [("", self.factor())]
        while self.starts_factor() or self.at(r"\cdot", r"\times", r"\odot", "/"):
            operator = "*" if self.starts_factor() else self.take().text
            if operator == "*" and self.peek().kind == "num":
                self.fail(r"a number may not follow a factor without \cdot")
            if self.at("-"):
                self.fail("a sign right after a product needs parentheses")
            items.append((operator, self.factor()))
            if operator == "/" and self.starts_factor():
                self.fail(r"a/b c is ambiguous: use \frac or parentheses")
        return items[0][1] if len(items) == 1 else Node("mul", tuple(items), start)

    def group(self) -> Node:
        return self.enclosed("{", self.expression, "}")

    def factor(self) -> Node:
        return self.postfix(self.atom())

    def postfix(self, base: Node) -> Node:
        """Subscripts, powers and transposes after an atom."""
        while self.at("_", "^"):
            start = self.peek().pos
            if self.at("_") and base.op == "num":
                self.fail("subscript on a number")
            base = self.subscripted(base)
            if self.take_if("^"):
                base = self.superscript(base, start)
        return base

    def superscript(self, base: Node, start: int) -> Node:
        if self.at(r"\top", ahead=self.at("{")):
            self.braced(self.take)
            return Node("transpose", (base,), start)
        if self.at("T") and not self.name()[0]:
            self.fail(r"write a transpose as ^\top")
        return Node("pow", (base, self.exponent()), start)

    def exponent(self) -> Node:
        """A {group}, or exactly one character."""
        return self.group() if self.at("{") else self.single(self.atom)

    # ---------------------------------------------------------------- atoms
    def atom(self) -> Node:
        token, (size, key, kind) = self.peek(), self.name()
        if size:
            return self.symbol(key, kind, size)
        if token.text in _ATOMS:
            return getattr(self, _ATOMS[token.text])()
        if token.kind == "num":
            return Node("num", (float(self.take().text),), token.pos)
        if token.kind == "name":
            self.fail(f"symbol {token.text!r} is not declared or not yet defined")
        self.fail("formula ends too early" if token.kind == "end" else f"unexpected {token.text!r}")

    def bracket(self) -> Node:
        start, opening = self.peek().pos, self.peek().text
        return Node("paren", (self.enclosed(opening, self.expression, _CLOSING[opening]),), start)

    def pi(self) -> Node:
        return Node("pi", (), self.take().pos)

    def root(self) -> Node:
        start = self.take().pos
        return Node("sqrt", (self.group(),), start)

    def exponential(self) -> Node:
        start = self.take().pos
        self.take("^")
        return Node("fn", ("exp", self.exponent()), start)

    def indicator(self) -> Node:
        start = self.take().pos
        self.take("_")
        return Node("indicator", (self.enclosed("{", self.condition, "}"),), start)

    def kronecker(self) -> Node:
        token = self.take()
        self.take("_")
        pair = self.indices()
        if len(pair) != 2:
            self.fail("Kronecker delta needs two indices", token)
        return Node("indicator", (Node("rel", ("=", *pair), token.pos),), token.pos)

    def function(self) -> Node:
        token = self.take()
        shown = token.text.removeprefix(r"\operatorname{").removesuffix("}")
        power = self.exponent() if self.take_if("^") else None
        if not self.at(*_CLOSING, r"\sum", r"\prod"):
            self.fail("the argument of a function must be in parentheses")
        node = Node("fn", (FUNCTIONS[token.text], self.atom()), token.pos)
        if self.at("^"):
            self.fail(f"{shown}(x)^k is ambiguous: write {shown}^k(x)")
        return node if power is None else Node("pow", (node, power), token.pos)

    # ---------------------------------------------------------------- declared names
    def symbol(self, key: str, kind: str, size: int) -> Node:
        token = self.peek()
        if kind in ("index", "class"):
            self.fail(f"index {key!r} used as a number")
        self.cursor += size
        if kind == "func":
            return self.call(key, token.pos)
        if kind == "grad":
            return self.derivative_of_loss(Node("sym", (key,), token.pos), token)
        if self.at("(") and not self.sum_in_parentheses():
            what = f"{key}(...) reads like a function call, but {key} is not a function here"
            self.fail(f"{what}: put \\cdot or \\, and drop the parentheses", token)
        return Node("sym", (key,), token.pos)

    def sum_in_parentheses(self) -> bool:
        """Whether the parentheses that open here hold a sum at their top level (so that they are needed)."""
        depth = 0
        for before, token in zip(self.tokens[self.cursor - 1 :], self.tokens[self.cursor :]):
            depth += (token.text in _CLOSING) - (token.text in _CLOSING.values())
            if depth == 0 or (depth == 1 and token.text in ("+", "-") and before.text != "("):
                return depth == 1
        return False

    def call(self, key: str, start: int) -> Node:
        order = 0
        while self.take_if("'"):
            order += 1
        if not self.at("("):
            self.fail(f"the function {key} needs its argument here")
        return Node("call", (key, order, tuple(self.arguments())), start)

    def arguments(self) -> list[Node]:
        return self.enclosed("(", lambda: self.listed(self.argument), ")")

    def argument(self) -> Node:
        size, _, kind = self.name()
        return self.index() if kind in ("index", "class") and self.at(",", ")", ahead=size) else self.expression()

    # ---------------------------------------------------------------- running over an index
    def running(self) -> Node:
        r"""`\sum`, `\prod`, `\max`, `\min`, `\arg\max` over an index; `\max(a, b)` of several values."""
        token = self.take()
        kind = token.text[1:]
        if kind in ("max", "min") and self.at("("):
            values = self.arguments()
            if len(values) < 2:
                self.fail(f"{token.text} of one value: name an index, or give two values", token)
            return Node("extremum", (kind, tuple(values)), token.pos)
        name, limits, condition = self.bounds()
        if condition and kind.startswith("arg"):
            self.fail(r"a conditional \arg\max is not in the grammar", token)
        if self.at("-", "+"):
            self.fail(f"a sign right after {token.text} needs parentheses")
        # max and min bind one factor, a sum or product the whole term.
        body = self.term() if kind in ("sum", "prod") else self.factor()
        return Node(kind, (name, limits, condition, body), token.pos)

    def bounds(self) -> tuple[str, tuple[Node, Node] | None, Node | None]:
        """Index name, (lower, upper) or None, condition or None."""
        lower = upper = condition = None
        token = self.take("_")
        braced, at = self.take_if("{"), self.peek().pos
        name = self.index_name()
        if braced:
            if self.take_if("="):
                lower = self.index()
            elif self.at(*COMPARISONS):
                condition = Node("rel", (self.take().text, Node("index", (name,), at), self.index()), token.pos)
            self.take("}")
        if self.take_if("^"):
            upper = self.enclosed("{", self.index, "}") if self.at("{") else self.single_index()
        if lower and upper:
            return name, (lower, upper), None
        return (name, None, condition) if not lower and not upper else self.fail("give both bounds or neither", token)

    def expectation(self) -> Node:
        r"""`\mathbb{E}_i[x_i]`, the mean; `\mathbb{E}_{i \sim p}[x_i]`, weighted by p."""
        token = self.take()
        self.take("_")
        name, weights = self.braced(lambda: (self.index_name(), self.expression() if self.take_if(r"\sim") else None))
        if not self.at("["):
            self.fail("what an expectation is taken of must stand in [brackets]")
        return Node("expect", (name, weights, self.bracket()), token.pos)

    # ---------------------------------------------------------------- derivatives
    def gradient(self) -> Node:
        r"""`\nabla_x`, `\nabla_{x_i}`: the derivative of the loss."""
        token = self.take()
        self.take("_")
        return self.derivative_of_loss(self.braced(self.variable), token)

    def derivative_of_loss(self, variable: Node, token) -> Node:
        if self.loss is None:
            self.fail(r"\nabla needs 'loss' in the front matter", token)
        return Node("deriv", (Node("sym", (self.loss,), token.pos), variable, ()), token.pos)

    def variable(self) -> Node:
        """What is differentiated by: a symbol with optional indices."""
        start = self.peek().pos
        key, _ = self.take_name("value", expected="expected a declared variable here")
        return self.subscripted(Node("sym", (key,), start))

    def partial_derivative(self) -> Node:
        r"""`\left.\frac{\partial z}{\partial x}\right|_{\mu, \sigma}`: what the bar names is held fixed."""
        token = self.take("left.")
        node = self.fraction()
        if node.op != "deriv":
            self.fail(r"\left. ... \right| is only for derivatives at fixed variables", token)
        self.take("|"), self.take("_")
        names = self.braced(lambda: self.listed(lambda: self.take_name("value", expected="expected a symbol")[0]))
        return Node("deriv", (*node.args[:2], tuple(names)), token.pos)

    def fraction(self) -> Node:
        token, start = self.take(r"\frac"), self.cursor
        node = self.derivative(token) if self.at(r"\partial", "d", ahead=1) and self.name(1)[0] <= 1 else None
        if node is None:
            self.cursor = start
            node = Node("frac", (self.group(), self.group()), token.pos)
        return node

    def derivative(self, token) -> Node | None:
        """After `\\frac`; None if this is an ordinary fraction that begins with a symbol d."""
        self.take("{")
        mark, operand = self.take().text, None
        if not self.at("}"):
            if mark == "d" and not self.name()[0]:
                return None
            operand = self.operand()
        self.take("}"), self.take("{")
        if self.take().text != mark:
            self.fail("numerator and denominator of a derivative must use the same d", token)
        variable = self.variable()
        self.take("}")
        return Node("deriv", (operand or self.operand_behind(), variable, ()), token.pos)

    def operand(self) -> Node:
        """The z of dz/dx: a name, with arguments or indices."""
        start, message = self.peek().pos, "expected a declared name under the derivative sign"
        key, kind = self.take_name("value", "func", expected=message)
        if kind == "func" and self.at("("):
            return self.subscripted(Node("call", (key, 0, tuple(self.arguments())), start))
        return self.subscripted(Node("bare" if kind == "func" else "sym", (key,), start))

    def operand_behind(self) -> Node:
        """The bracket after d/dx, with its power: d/dx (..)^2 differentiates the square."""
        if not self.at("(", "[", r"\sqrt", *FUNCTIONS):
            self.fail("the operand of d/dx must be in parentheses")
        node = self.factor()
        if self.starts_factor():
            self.fail(r"what d/dx acts on is unclear: bracket its operand, or put \cdot before this factor")
        return node

    # ---------------------------------------------------------------- cases and matrices
    def lines(self, rule: Callable) -> tuple:
        r"""Lines of an environment, from `\begin` to `\end`."""
        end, found = self.take().text.replace("begin", "end"), []
        while not self.at(end):
            found.append(rule())
            if not self.at(end):
                self.take("\\\\")
        self.take(end)
        return tuple(found)

    def cases(self) -> Node:
        start = self.peek().pos
        return Node("cases", self.lines(self.case), start)

    def case(self) -> tuple[Node, Node | None]:
        body = self.expression()
        self.take_if(",")
        self.take("&"), self.take_if("if", "for", "when")
        condition = None if self.take_if("otherwise") else self.condition()
        self.take_if(".", ",")
        return body, condition

    def matrix(self) -> Node:
        token = self.peek()
        rows = self.lines(lambda: tuple(self.listed(self.expression, "&")))
        if len({len(row) for row in rows}) != 1:
            raise FormulaError("the rows of a matrix must have the same length", token.pos)
        return Node("matrix", rows, token.pos)
