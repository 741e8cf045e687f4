r"""Grammar of subscripts and conditions: `x_{2i+1}`, `A_{i,:}`, `x_{\arg\max_j x_j}`, `i \ne c`, `x_i > 0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from academy.formulas.errors import FormulaError
from academy.formulas.reading.tokens import Token
from academy.formulas.reading.tree import Node

COMPARISONS = {"=", r"\ne", "<", ">", r"\le", r"\ge"}
INTEGER_KINDS = ("index", "int", "dim")


class TokenStream:
    """Tokens with a cursor, and the names that are declared at this point of the page.

    symbols: canonical tokens -> (key, kind), kind one of index, int, dim, value, func, grad.
    """

    def __init__(self, tokens: list[Token], symbols: dict, length: int):
        self.tokens = [*tokens, Token("end", "", length)]
        self.cursor = 0
        self.first: dict[tuple, list] = {}
        for key, (symbol, kind) in symbols.items():
            self.first.setdefault(key[0], []).append((key, symbol, kind))

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.cursor + ahead, len(self.tokens) - 1)]

    def at(self, *texts: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.text in texts and token.kind in ("op", "cmd")

    def at_text(self, *words: str) -> bool:
        return self.peek().kind == "text" and self.peek().text in words

    def take(self, text: str | None = None) -> Token:
        token = self.peek()
        if text is not None and not self.at(text):
            raise FormulaError(f"expected {text!r}, found {token.text or 'end of formula'!r}", token.pos)
        self.cursor += 1
        return token

    def take_if(self, *texts: str) -> bool:
        if self.at(*texts):
            self.cursor += 1
            return True
        return False

    def fail(self, message: str, token: Token | None = None, kind: str = "syntax") -> NoReturn:
        raise FormulaError(message, (token or self.peek()).pos, kind)

    def name(self, ahead: int = 0) -> tuple[int, str, str] | None:
        """Longest declared name at this point: (number of tokens, key, kind)."""
        best, start = None, self.cursor + ahead
        token = self.peek(ahead)
        for key, symbol, kind in self.first.get((token.kind, token.text), ()):
            size = len(key)
            here = tuple((t.kind, t.text) for t in self.tokens[start : start + size])
            if (best is None or size > best[0]) and here == key:
                best = (size, symbol, kind)
        return best

    def take_name(self, *kinds: str, expected: str) -> tuple[str, str]:
        """Key and kind of the declared name that must stand here."""
        found = self.name()
        if not found or found[2] not in kinds:
            self.fail(expected)
        self.cursor += found[0]
        return found[1], found[2]


class IndexGrammar(TokenStream):
    # ---------------------------------------------------------------- one subscript
    def index(self) -> Node:
        r"""`i`, `3`, `:`, `2i+1`, `i-d`, `\arg\max_j x_j`."""
        start = self.peek().pos
        if self.at(":"):
            return Node("slice", (), self.take().pos)
        if self.at(r"\arg"):
            return self.arg_extremum()
        terms = [self._index_term(-1 if self.take_if("-") else 1)]
        while self.at("+", "-"):
            terms.append(self._index_term(1 if self.take().text == "+" else -1))
        if len(terms) == 1:
            factor, node = terms[0]
            if factor == 1 and node.op != "dim":
                return node
        return Node("affine", tuple(terms), start)

    def _index_term(self, sign: int) -> tuple[int, Node]:
        factor, token = sign, self.peek()
        if token.kind == "num":
            if not token.text.isdigit():
                self.fail("an index is a whole number")
            self.cursor += 1
            self.take_if(r"\cdot")
            found = self.name()
            if not found or found[2] not in INTEGER_KINDS:
                return sign, Node("intlit", (int(token.text),), token.pos)
            if int(token.text) < 2:
                self.fail(f"put a comma between the indices {token.text} and {found[1]}", token)
            factor = sign * int(token.text)
        found = self.name()
        if not found or found[2] not in INTEGER_KINDS:
            shown = self.peek().text.split(":")[-1] or "end of formula"
            self.fail(f"{shown!r} is not a declared index")
        size, key, kind = found
        at = self.peek().pos
        self.cursor += size
        return factor, Node({"index": "index", "int": "intsym", "dim": "dim"}[kind], (key,), at)

    def indices(self) -> list[Node]:
        """A subscript: one index, or a {group} of them, with or without commas."""
        if not self.at("{"):
            token = self.peek()
            if token.kind == "num":
                self.cursor += 1
                if not token.text.isdigit():
                    self.fail("bad index")
                return [Node("intlit", (int(token.text),), token.pos)]
            found = self.name()
            if not found or found[2] not in INTEGER_KINDS:
                self.fail(f"{token.text.split(':')[-1]!r} is not a declared index")
            return [self._index_term(1)[1]] if found[2] != "dim" else [self.index()]
        self.take("{")
        out = []
        while not self.at("}"):
            out.append(self.index())
            self.take_if(",")
        self.take("}")
        if not out:
            self.fail("empty subscript")
        return out

    def index_name(self, what: str) -> Node:
        """A plain index, for a sum or product to run over."""
        node = self.index()
        if node.op != "index":
            raise FormulaError(f"{what} must run over an index", node.pos)
        return node

    # ---------------------------------------------------------------- conditions
    def condition(self) -> Node:
        """Comparisons joined by commas or `and`, each possibly a chain: `i < j \\le k, x_i > 0`."""
        joined: Node | None = None
        while joined is None or self.at(",") or self.at_text("and"):
            self.cursor += joined is not None
            for part in self._comparison():
                joined = part if joined is None else Node("and", (joined, part), part.pos)
        return joined

    def _comparison(self):
        start = self.peek().pos
        left = self._compared()
        if not self.at(*COMPARISONS):
            self.fail("expected a relation (=, \\ne, <, …) in this condition")
        while self.at(*COMPARISONS):
            relation = self.take()
            right = self._compared(like=left)
            if left.op == "real" and relation.text in ("=", r"\ne") and not {"lit"} & {left.args[1], right.args[1]}:
                self.fail("two computed numbers are never exactly equal: compare with < or >", relation, "type")
            yield Node("rel", (relation.text, left, right), start)
            left = right

    def _compared(self, like: Node | None = None) -> Node:
        """An index, or a real-valued expression wrapped in a `real` node (its second part: lit for a plain number)."""
        found = self.name()
        integer = bool(found and found[2] in ("index", "int")) or self.at(r"\arg")
        if like is not None:
            integer = like.op != "real"
        elif self.peek().kind == "num":
            after = self.name(1)
            integer = bool(after and after[2] in ("index", "int"))
        if integer:
            return self.index()
        start = self.peek().pos
        body = self.expression()
        return Node("real", (body, "lit" if body.op == "num" else ""), start)

    #: Rules of the grammars that build on this one.
    expression: Callable[[], Node]
    arg_extremum: Callable[[], Node]
