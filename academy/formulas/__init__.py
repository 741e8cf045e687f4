r"""LaTeX -> checked equations -> torch functions. Each folder uses those above it:

- `reading`: tokens -> tree. `academy.book` finds formulas in a text (`maths`) and lexes them (`tex`), `expressions` and
  `displays` are the grammar (on `stream`, tokens with a cursor) and make the nodes of `tree`. `declarations` says what
  symbols mean; `page` is a derivation: its definitions and claims in order, its tags.
- `meaning`: tree -> numbers in float64. `rules` has one for each kind of node, `formula` makes a tagged equation
  a torch function. A formula is evaluated for one value of its indices, and `environment.everywhere` repeats that.
- `comparing`: numbers -> verdict. `equations` checks a page by itself, `kernels` compares the calls that `cases` name
  (read by `case_reader`) with the printed formulas; `coverage` and `citations` find what is missing.
- `mutation`: is every small change of a formula or a kernel noticed? (`academy mutate`)

`verify` runs all of it for `academy check`, `project` knows where the files are, `reports` says it on the site.
"""

from academy.book.problems import FormulaError, PageError
from academy.formulas.reading.page import Page

__all__ = ["FormulaError", "Page", "PageError"]
