"""Python with Triton's language, highlighted line by line."""

from __future__ import annotations

import re
from functools import lru_cache

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import Name, Operator

from academy.files.cache import kept
from academy.files.dependencies import made_by


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
    return kept(
        "code",
        [text, made_by("academy.site.highlighting")],
        lambda: highlight(text, _TritonLexer(stripnl=False), HtmlFormatter(nowrap=True)).split("\n"),
    )


#: Spans of code that look as they would without: plain names, and the spaces between words.
_PLAIN = re.compile(r'<span class="(?:n|w)">([^<]*)</span>')
#: Operators and punctuation have one colour: neighbours are one span.
_SIGNS = re.compile(r'<span class="[op]">[^<]*</span>(?: *<span class="[op]">[^<]*</span>)+')
_SIGN = re.compile(r'<span class="[op]">([^<]*)</span>')


def lean(html: str) -> str:
    """A page whose code has a fifth fewer elements, of which a phone lays out thousands. Call it last."""
    return _SIGNS.sub(_as_one, _PLAIN.sub(r"\1", html))


def _as_one(signs: re.Match) -> str:
    return '<span class="p">' + _SIGN.sub(r"\1", signs[0]) + "</span>"
