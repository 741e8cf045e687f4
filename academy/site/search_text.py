"""A page reduced to its words: formulas written out, code as plain text, no table of the recorded run.

The search plugin gets its entries from it in a small part of the time, and the Markdown copy is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex"[^>]*>')
CODE = re.compile(r"<pre\b[^>]*>.*?</pre>", re.S)
TAG = re.compile(r"<[^>]+>")
INLINE = re.compile(r'<a\b[^>]*\sclass="headerlink".*?</a>|</?(?:a|span|em|strong|t[dhr]|tbody|thead)\b[^>]*>')
#: A word of the glossary, which the search shall find as it finds a section.
DEFINED = re.compile(r'<dt id="([^"]+)">(.*?)</dt>', re.S)
#: How much an entry counts, by the beginning of its page's address: what explains comes before what shows, and that
#: before what lists.
BOOST = {"guides/": 4, "learn/": 4, "getting-started": 4, "differences": 4, "kernels/fast/": 0.5, "benchmarks/": 0.4}
BOOST |= {"reference/": 0.1, "derivations/": 0.7, "contributing": 0.5}
UNREAD = re.compile(r'<div class="k-panel".*?(?=<div class="k-row)|<svg\b.*?</svg>', re.S)


def searched(html: str, address: str) -> str:
    """For the search: of formulas within a line what follows their MathML, of others nothing.

    A kernel's page is found by the name of its file too, which is not among the words of its title.
    """
    if address.startswith("kernels/") and address != "kernels/":
        html = html.replace("</h1>", f" · {address.rstrip('/').rpartition('/')[2]}</h1>", 1)
    words = lighter(html, lambda formula, display: "" if display else TAG.sub("", formula.rpartition("</math>")[2]))
    return INLINE.sub("", DEFINED.sub(r'<h3 id="\1">\2</h3>', words))


def boost(address: str) -> float:
    """How much the entries of the page at this address count, 1 by default."""
    return next((value for start, value in BOOST.items() if address.startswith(start)), 1)


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
    """The position after the end of the element whose content begins at `start`."""
    depth = 1
    for found in re.compile(rf"<(/?){tag}\b").finditer(html, start):
        depth += -1 if found[1] else 1
        if not depth:
            return html.index(">", found.end()) + 1
    return len(html)
