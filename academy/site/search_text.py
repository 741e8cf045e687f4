"""A page as the search plugin reads it: formulas and code as plain text, and no tags that change no entry.

It gives the same entries in a small part of the time; only the table of the recorded run is missing there, which
repeats the kernel's lines.
"""

from __future__ import annotations

import re

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex"[^>]*>')
CODE = re.compile(r"<pre\b[^>]*>.*?</pre>", re.S)
TAG = re.compile(r"<[^>]+>")
INLINE = re.compile(r'<a\b[^>]*\sclass="headerlink".*?</a>|</?(?:a|span|em|strong|t[dhr]|tbody|thead)\b[^>]*>')
RUN = re.compile(r'<div class="k-panel".*?(?=<div class="k-row)', re.S)


def searched(html: str) -> str:
    html = RUN.sub("", html)
    pieces, done = [], 0
    for formula in FORMULA.finditer(html):
        if formula.start() >= done:
            pieces.append(html[done : formula.start()])
            done = _end(html, formula["tag"], formula.end())
            if formula["tag"] == "span":
                pieces.append(TAG.sub("", html[formula.start() : done].rpartition("</math>")[2]))
    html = "".join([*pieces, html[done:]])
    html = CODE.sub(lambda code: f"<pre><code>{TAG.sub('', code[0])}</code></pre>", html)
    return INLINE.sub("", html)


def _end(html: str, tag: str, start: int) -> int:
    """Behind the end of the element whose content begins at `start`."""
    depth = 1
    for found in re.compile(rf"<(/?){tag}\b").finditer(html, start):
        depth += -1 if found[1] else 1
        if not depth:
            return html.index(">", found.end()) + 1
    return len(html)
