"""Python with Triton's language, highlighted line by line."""

from __future__ import annotations

from functools import lru_cache

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import Name, Operator

from academy.cache import kept, made_by


class _TritonLexer(PythonLexer):
    """Python, with what Triton's language offers (`tl.load`) set apart from other attributes."""

    def get_tokens_unprocessed(self, text, stack=("root",)):
        history = ["", ""]
        for index, token, value in super().get_tokens_unprocessed(text, stack):
            if token is Name and history == ["tl", "."]:
                token = Name.Builtin
            history = [history[1], value if token in Name or token in Operator or value == "." else ""]
            yield index, token, value


@lru_cache(256)
def highlighted(text: str) -> list[str]:
    """One piece of HTML per line. The whole file is read at once, so that a row's border never breaks a token."""

    def made() -> list[str]:
        lexer = _TritonLexer(stripnl=False, ensurenl=True)
        return highlight(text, lexer, HtmlFormatter(nowrap=True)).split("\n")

    return kept("code", [text, made_by("academy.site.highlighting")], made)
