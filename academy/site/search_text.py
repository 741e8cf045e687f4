"""A page as those read it who want its words: formulas written out, code as plain text, no table of the recorded run.

The search plugin gets its entries from it in a small part of the time, and the Markdown copy is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex"[^>]*>')
CODE = re.compile(r"<pre\b[^>]*>.*?</pre>", re.S)
TAG = re.compile(r"<[^>]+>")
INLINE = re.compile(r'<a\b[^>]*\sclass="headerlink".*?</a>|</?(?:a|span|em|strong|t[dhr]|tbody|thead)\b[^>]*>')
UNREAD = re.compile(r'<div class="k-panel".*?(?=<div class="k-row)|<svg\b.*?</svg>', re.S)


def searched(html: str) -> str:
    """For the search: of formulas within a line what follows their MathML, of others nothing."""
    words = lighter(html, lambda formula, display: "" if display else TAG.sub("", formula.rpartition("</math>")[2]))
    return INLINE.sub("", words)


def lighter(html: str, written: Callable[[str, bool], str]) -> str:
    """The page with `written(formula, is_display)` in the place of each formula; its argument is the inner HTML."""
    html = UNREAD.sub("", html)
    pieces, done = [], 0
    for formula in FORMULA.finditer(html):
        if formula.start() >= done:
            end = _end(html, formula["tag"], formula.end())
            inner = html[formula.end() : html.rindex("<", 0, end)]
            pieces += [html[done : formula.start()], written(inner, formula["tag"] == "div")]
            done = end
    html = "".join([*pieces, html[done:]])
    return CODE.sub(lambda code: f"<pre><code>{TAG.sub('', code[0])}</code></pre>", html)


def _end(html: str, tag: str, start: int) -> int:
    """Behind the end of the element whose content begins at `start`."""
    depth = 1
    for found in re.compile(rf"<(/?){tag}\b").finditer(html, start):
        depth += -1 if found[1] else 1
        if not depth:
            return html.index(">", found.end()) + 1
    return len(html)
