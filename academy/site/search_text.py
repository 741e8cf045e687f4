"""A page reduced to its words: formulas written out, code as plain text, no table of the recorded run.

The search plugin gets its entries from it in a small part of the time, and the Markdown copy is made from it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("mkdocs.academy.site")

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex"[^>]*>')
CODE = re.compile(r"<pre\b[^>]*>.*?</pre>", re.S)
TAG = re.compile(r"<[^>]+>")
INLINE = re.compile(r'<a\b[^>]*\sclass="headerlink".*?</a>|</?(?:a|span|em|strong|t[dhr]|tbody|thead)\b[^>]*>')
#: A word of the glossary, which the search shall find as it finds a section.
DEFINED = re.compile(r'<dt id="([^"]+)">(.*?)</dt>', re.S)
#: How much an entry counts, by the beginning of its page's address: what explains comes before what shows, and that
#: before what lists. The index of the language is the first for its names: it says where each is taught, whereas any
#: kernel may use it. The first of the lessons that are called "Matrix multiplication" comes before the others, which
#: build on it. An exercise comes last: whoever searches hasn't come to practise.
BOOST = {
    "reference/triton-language": 6,
    "reference/error-messages": 6,
    "guides/what-is": 0.5,
    "guides/": 4,
    "learn/": 4,
    "faq": 4,
    "getting-started": 4,
    "differences": 4,
    "kernels/tutorials/matmul_blocked/": 2,
    "compatibility": 2,
    "derivations/": 0.7,
    "kernels/fast/": 0.5,
    "kernels/gluon/": 0.5,
    "contributing": 0.5,
    "benchmarks/": 0.4,
    "exercises/": 0.2,
    "reference/": 0.1,
}
#: What readers call what a page names differently: other spellings, plurals and long forms. The search has no stems,
#: since it completes words while one types.
ALIASES = {
    "faq/": "license BibTeX FSDP multi-GPU multiple GPUs distributed data parallel ROCm HIP WSL Colab nondeterministic",
    "guides/cards/": "ROCm HIP Radeon Instinct GeForce Ampere Ada Hopper sm_80 sm_86 sm_89 sm_90 sm_100 sm_120",
    "guides/numerics/": "float8 e4m3fn mixed precision underflow rounding error",
    "guides/debugging/": "segfault segmentation fault crash wrong result print breakpoint",
    "guides/from-pytorch/": "gradient backward autocast",
    "guides/compile-and-export/": "torch.library custom_op triton_op torch.compile of my own kernel torch.export vmap",
    "guides/huggingface/": "transformers Llama Qwen",
    "learn/l2_reuse/": "swizzle swizzling swizzled",
    "learn/tiles_and_pointers/": "gemm matmul matrix multiplication",
    "learn/own_operation/": "custom operator op torch.autograd.Function",
    "learn/attention/": "FlashAttention scaled dot product attention SDPA",
    "kernels/gemlite/gemm/": "GPTQ AWQ int4 int8 W4A16 quantized weights",
}
UNREAD = re.compile(r'<div class="k-panel".*?(?=<div class="k-row)|<svg\b.*?</svg>', re.S)


def searched(html: str, address: str) -> str:
    """For the search: of formulas within a line what follows their MathML, of others nothing.

    A kernel's page is found by the name of its file too, which is not among the words of its title.
    """
    if address.startswith("kernels/") and address != "kernels/":
        html = html.replace("</h1>", f" · {address.rstrip('/').rpartition('/')[2]}</h1>", 1)
    if address in ALIASES:
        html = html.replace("</h1>", f"</h1>\n<p>Also searched as: {ALIASES[address]}.</p>", 1)
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


def mend(site: Path) -> None:
    """lunr takes two nodes of its automaton for one if their edges, written one behind the other, are the same text:
    "1" to node 23 is "12" to node 3. Then a word is found that isn't there, and the query fails. Here a mark ends each
    edge."""
    for path in site.glob("assets/javascripts/workers/search.*.min.js"):
        text = path.read_text("utf-8")
        if 'e=e+s+o.id+";"}' in text:  # the last build of `mkdocs serve` did it
            continue
        if text.count("e=e+s+o.id}") != 1:
            log.warning("the theme's search isn't the one that is mended here: %s", path.name)
        path.write_text(text.replace("e=e+s+o.id}", 'e=e+s+o.id+";"}'), "utf-8")
