"""A table, as a page, a Markdown text or the terminal shows it."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup as Html

_HTML = Environment(autoescape=True).from_string(
    '<details class="bench-data"{% if is_open %} open{% endif %}><summary>{{ title }}</summary>'
    '<div class="bench-scroll" tabindex="0" role="group" aria-label="{{ title }}"><table>'
    "<thead><tr>{% for name in head %}<th>{{ name }}</th>{% endfor %}</tr></thead><tbody>"
    "{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}"
    "</tbody></table></div></details>"
)


@dataclass(frozen=True)
class Table:
    """Rows under a head. A cell is text, or finished HTML (`Html`)."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def html(self, is_open: bool = False) -> Html:
        """Folded away under its title, unless it is open."""
        return Html(_HTML.render(title=self.title, head=self.head, rows=self.rows, is_open=is_open))

    def markdown(self) -> list[str]:
        rule = ["---"] * len(self.head)
        return [f"| {' | '.join(row)} |" for row in (self.head, rule, *self.rows)]

    def terminal(self, words: int, caption: str = ""):
        """For rich. words: the first columns, which are no numbers."""
        from rich.table import Table as Drawn

        drawn = Drawn(title=self.title, title_justify="left", caption=caption or None, caption_justify="left")
        for place, name in enumerate(self.head):
            drawn.add_column(name, justify="left" if place < words else "right")
        for row in self.rows:
            drawn.add_row(*row)
        return drawn
