"""TeX to HTML and MathML by KaTeX, while the site is built: a page needs no script, a bad formula fails here.

KaTeX is vendored (vendor/katex) and runs in QuickJS, which pip installs on its own. Rendered formulas are kept
(`academy.files.cache`), so that a rebuild renders only what changed.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path

from academy.files.cache import kept

SCRIPT = Path(__file__).parent / "vendor/katex/katex.min.js"
OPTIONS = {"output": "htmlAndMathml", "throwOnError": True, "strict": "error"}
#: The fonts that a formula may need beside the two that all have, by the classes in its HTML.
FONTS = {
    "mathcal": "Caligraphic-Regular",
    "op-symbol small-op": "Size1-Regular",
    "op-symbol large-op": "Size2-Regular",
    **{f"delimsizing size{size}": f"Size{size}-Regular" for size in range(1, 5)},
    "delim-size4": "Size4-Regular",
}


class TexError(ValueError):
    """KaTeX does not accept a formula. The message is KaTeX's own."""


def render(tex: str, display: bool = False) -> str:
    """The HTML of a formula, MathML for screen readers included. Raises TexError."""
    return kept("formula", [_version(), OPTIONS, display, tex], lambda: _engine()(tex, display))


def plain(tex: str) -> str:
    """A formula as plain text, for a table of contents: what its MathML shows."""
    mathml = re.sub(r"^.*?(?=<math)|</math>.*|<annotation.*?</annotation>", "", render(tex), flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", "", mathml)).strip()


def fonts(page: str) -> list[str]:
    """The names of the fonts' files that the formulas in a page's HTML need first.

    A font that is asked for only when its signs are laid out comes late, and then the whole page is laid out again.
    """
    if 'class="katex"' not in page:
        return []
    more = {font for classes, font in FONTS.items() if re.search(rf'class="[^"]*\b{classes}\b', page)}
    return [f"KaTeX_{font}" for font in ["Main-Regular", "Math-Italic", *sorted(more)]]


@cache
def _version() -> str:
    return hashlib.sha256(SCRIPT.read_bytes()).hexdigest()


@cache
def _engine():
    import quickjs

    options = json.dumps(OPTIONS)
    # JSON both ways: long strings do not come back whole from QuickJS otherwise. And in a thread of its own: a server
    # makes pages in several, and QuickJS may be used by one only.
    run = quickjs.Function(
        "render",
        SCRIPT.read_text("utf-8")
        + f""";// academy/site/variables.py marks variables; nothing else may put attributes into the page.
          const more = {{
            trust: context => {{
              if (context.command === "\\\\htmlData") return true
              throw new Error(context.command + " is not allowed here")
            }},
            strict: problem => problem === "htmlExtension" ? "ignore" : "error",
          }}
          globalThis.render = (tex, display) => {{
          try {{
            return JSON.stringify({{html: katex.renderToString(tex, {{...{options}, ...more, displayMode: display}})}})
          }} catch (error) {{ return JSON.stringify({{error: error.message}}) }}
        }}""",
    )

    def rendered(tex: str, display: bool) -> str:
        answer = json.loads(run(tex, display, run_gc=False))
        if "error" in answer:
            raise TexError(answer["error"])
        return answer["html"]

    return rendered
