"""A kernel file as text to be edited: its code without the notes, which a page shows elsewhere."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby

from academy.book import layout
from academy.book.splitter import Module
from academy.site.highlighting import highlighted

# What makes a script of a file of the repository.
_SET_UP = re.compile(r"if __name__ == .*# run as a script.*\n(?:(?:    .*)?\n)+")
_DEFINITION = re.compile(r"@|def |class |if __name__")
# A comment at the end of a highlighted line: beside values there is no room for it.
_REMARK = re.compile(r' *<span class="c1">[^<]*</span>$')

#: A kernel that plays its recorded run: its code, the memory of the tensors that it points at, and its buttons.
LIVE = """<div class="p-live" data-academy="live" {facts} data-change="{change}">
<p class="p-live-now">The kernel, and what is in memory when it has run:</p>
<div class="language-python highlight"><pre><span><code>{lines}</code></span></pre></div>
<table class="p-strips"><tbody>{strips}</tbody></table>
<div class="p-actions"><button type="button" class="p-button" data-action="run" disabled>Run</button>
<button type="button" class="p-button" data-action="play" disabled>Pause</button>
<button type="button" class="p-button" data-action="reset" disabled>Reset</button>
<span class="p-try">or try {others}</span></div>
<div class="p-outcome" role="status" data-academy="outcome" data-state="idle"></div></div>"""
LINE = '<span class="p-l{here}" data-n="{number}"><span class="p-c">{code}</span>\n</span>'
OTHER = '<button type="button" class="p-button" data-line="{line}" disabled><code>{value}</code></button>'
STRIP = '<tr><th scope="row">{name}</th><td></td></tr>'


def placed(module: Module) -> str:
    """The HTML in which the playground's script puts an editor."""
    return f'<div data-academy="editor" {facts(module)}><pre>{escape(starter(module))}</pre></div>'


def live(module: Module, name: str, lines: list[str]) -> str:
    """The HTML of a kernel that plays its recorded run, and whose line `lines[0]` can be changed into the others, or by
    typing, and run.

    Raises ValueError where the kernel has no such line, or more than one.
    """
    numbers = [number for number in module.lines_of(name) if module.lines[number - 1].strip()]
    found = [number for number in numbers if module.lines[number - 1].strip() == lines[0]]
    if len(found) != 1:
        raise ValueError(f"{module.path}: {name} has the line {lines[0]!r} {len(found)} times, not once")
    code = highlighted(module.text)
    tensors = re.findall(r"\b(\w+)_ptr\b", next(line for line in module.lines if f"def {name}(" in line))
    return LIVE.format(
        facts=facts(module),
        change=found[0],
        lines="".join(
            LINE.format(number=number, code=_REMARK.sub("", code[number - 1]), here=" p-here" * (number == found[0]))
            for number in numbers
        ),
        strips="".join(STRIP.format(name=tensor) for tensor in tensors),
        others=" ".join(OTHER.format(line=escape(line), value=escape(line.partition(" = ")[2])) for line in lines[1:]),
    )


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
