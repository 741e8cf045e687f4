r"""LaTeX -> checked equations -> torch functions.

`Page(path)` reads a derivation page, `verify.check(page)` evaluates every formula of it in float64 (derivatives by
autograd of the definitions on the same page), and `Page(path).formula(tag)` is a tagged formula as a torch function.
"""

from academy.formulas.errors import FormulaError, PageError
from academy.formulas.page import Page


def mark(path: str, tex: str, tag: str | None) -> str:
    """What was checked about a display equation, as HTML for the site: see `academy.formulas.reports`."""
    from academy.formulas import reports

    return reports.mark(path, tex, tag)


__all__ = ["FormulaError", "Page", "PageError", "mark"]
