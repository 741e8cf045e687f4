"""A kernel file as text to be edited: its code without the notes, which a page shows elsewhere."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby

from academy.book import layout
from academy.book.splitter import Module

# What makes a script of a file of the repository.
_SET_UP = re.compile(r"if __name__ == .*# run as a script.*\n(?:(?:    .*)?\n)+")
_DEFINITION = re.compile(r"@|def |class |if __name__")


def placed(module: Module) -> str:
    """The HTML in which the playground's script puts an editor."""
    return f'<div data-academy="editor" {facts(module)}><pre>{escape(starter(module))}</pre></div>'


def facts(module: Module) -> str:
    """What the scripts have to know of a file: its path, the name of its recorded run, and for each line of its
    `starter` the line of the file: `3-5 0 9`, where 0 stands for an empty one."""
    run = layout.dotted(module.path.removeprefix(f"{layout.KERNELS}/"))
    return f'data-path="{module.path}" data-recorded="{run}" data-lines="{ranges(numbers(module))}"'


def numbers(module: Module) -> list[int]:
    """The line of the file for each line of the starter, 0 for empty ones."""
    code = (number for row in module.rows for number in row.code)
    lines = starter(module).rstrip("\n").split("\n")
    return [
        next(number for number in code if module.lines[number - 1] == line) if line.strip() else 0 for line in lines
    ]


def ranges(lines: list[int]) -> str:
    """`3-5 0 9` for [3, 4, 5, 0, 9]."""
    out = []
    for _, group in groupby(
        enumerate(lines), key=lambda pair: (pair[1] and pair[1] - pair[0], pair[1] == 0 and pair[0])
    ):
        run = [line for _, line in group]
        out.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return " ".join(out)


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
