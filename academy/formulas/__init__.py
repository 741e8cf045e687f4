r"""LaTeX -> checked equations -> torch functions.

`Page(path)` reads a derivation page, `verify.check(page)` evaluates every formula of it in float64 (derivatives by
autograd of the definitions on the same page), and `Page(path).formula(tag)` is a tagged formula as a torch function.
"""

from academy.formulas.errors import FormulaError, PageError
from academy.formulas.page import Page

__all__ = ["FormulaError", "Page", "PageError"]
