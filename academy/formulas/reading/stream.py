"""Tokens with a cursor, and the names that are declared at this point of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from academy.book.problems import FormulaError
from academy.book.tex import Token

T = TypeVar("T")


class TokenStream:
    """symbols: canonical tokens -> (key, kind), kind one of index, class, dim, value, func, grad."""

    def __init__(self, tokens: list[Token], symbols: Mapping[tuple[str, ...], tuple[str, str]], length: int):
        self.tokens = [*tokens, Token("end", "end of formula", length, length)]
        self.cursor = 0
        self.first: dict[str, list] = {}
        for name, (key, kind) in symbols.items():
            self.first.setdefault(name[0], []).append((len(name), name, key, kind))

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.cursor + ahead, len(self.tokens) - 1)]

    def at(self, *texts: str, ahead: int = 0) -> bool:
        return self.peek(ahead).text in texts

    def take(self, *texts: str) -> Token:
        """The next token, which must be one of `texts` if any are given."""
        token = self.peek()
        if texts and token.text not in texts:
            self.fail(f"expected {texts[0]!r}, found {token.text!r}")
        self.cursor += 1
        return token

    def take_if(self, *texts: str) -> bool:
        found = self.at(*texts)
        self.cursor += found
        return found

    def fail(self, message: str, token: Token | None = None, kind: str = "syntax") -> NoReturn:
        raise FormulaError(message, (token or self.peek()).pos, kind)

    def finish(self) -> None:
        """Nothing may be left."""
        if self.peek().kind != "end":
            self.fail(f"unexpected {self.peek().text!r}")

    # ---------------------------------------------------------------- declared names
    def name(self, ahead: int = 0) -> tuple[int, str, str]:
        """Longest declared name at this point: (number of tokens, key, kind); (0, "", "") if there is none."""
        best, start = (0, "", ""), self.cursor + ahead
        for size, name, key, kind in self.first.get(self.peek(ahead).text, ()):
            if size > best[0] and name == tuple(token.text for token in self.tokens[start : start + size]):
                best = (size, key, kind)
        return best

    def take_name(self, *kinds: str, expected: str) -> tuple[str, str]:
        """Key and kind of the declared name that must stand here."""
        size, key, kind = self.name()
        if kind not in kinds:
            self.fail(expected)
        self.cursor += size
        return key, kind

    # ---------------------------------------------------------------- brackets
    def enclosed(self, opening: str, rule: Callable[[], T], closing: str) -> T:
        self.take(opening)
        found = rule()
        self.take(closing)
        return found

    def braced(self, rule: Callable[[], T]) -> T:
        """What `rule` reads, in braces or not."""
        return self.enclosed("{", rule, "}") if self.at("{") else rule()

    def listed(self, rule: Callable[[], T], separator: str = ",") -> list[T]:
        """What `rule` reads, once or several times."""
        found = [rule()]
        while self.take_if(separator):
            found.append(rule())
        return found
