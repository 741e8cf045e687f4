"""A kernel file as text to be edited: its code without the notes, which a page shows elsewhere."""

from __future__ import annotations

import re
from html import escape

from academy.book.splitter import Module

# What makes a script of a file of the repository.
_SET_UP = re.compile(r"if __name__ == .*# run as a script.*\n(?:(?:    .*)?\n)+")
_DEFINITION = re.compile(r"@|def |class |if __name__")


def placed(module: Module) -> str:
    """The HTML in which the playground's script puts an editor."""
    return f'<div data-academy="editor" data-path="{module.path}"><pre>{escape(starter(module))}</pre></div>'


def starter(module: Module) -> str:
    """The code, as the rows of a kernel's page show it, but for the lines that find the repository."""
    text = ""
    for row in module.rows:
        for before, number in zip([0, *row.code], row.code):
            line = module.lines[number - 1]
            if text and _DEFINITION.match(line) and not re.search(r"\n@.*\n$", text):
                text = text.rstrip() + "\n\n\n"
            elif text and before and before != number - 1 and not text.endswith(":\n"):
                text += "\n"
            text += line + "\n"
    return re.sub(r"\n{4,}", "\n\n\n", _SET_UP.sub("", text, count=1))
