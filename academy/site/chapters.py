"""The chapters under docs/learn, which are notebooks in jupytext's percent format.

jupytext reads them and nbclient runs them, for any engine. An executed notebook goes on as Markdown, through the same
extensions as every other page: formulas are set while the site is built, `[[eq: TAG]]` and `[[bench: KEY]]` work, links
are resolved and checked. (What mkdocs-jupyter would make of them is HTML with 590 KB of CSS a page, scripts from other
hosts, and links that nobody checks. In the default site it says which files are notebooks and whether they are run.)

A cell that fails ends the build. Beside each page lies its notebook (.ipynb), not executed, for Jupyter or Colab.
"""

from __future__ import annotations

import copy
import os
import re
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from posixpath import dirname, join, normpath
from tempfile import TemporaryDirectory

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from traitlets.config import Config

from academy.book.directives import EQUATION, fenced, on_line, pattern
from academy.book.layout import ROOT
from academy.book.texts import first_sentence, read
from academy.results import experiments, figures
from academy.site import addresses, change_it, exercise_pages, pictures
from academy.site.library import Library

#: Seconds that one cell may take.
TIMEOUT = 120
#: At the head of a chapter whose cells the build did not run, as that of `make serve`.
NOT_EXECUTED = """!!! warning "No output: this site was built without running the cells"

    `make site` runs every chapter and builds the site with what they print, into the folder `site`."""
#: A chapter's cells to change. Without the playground's script the code is shown.
EDITOR = """<div data-academy="editor" data-path="chapters/{name}.py" data-sliders="" markdown="1">

{code}

</div>"""
SPAN = re.compile(pattern("tag", "bench"), re.S)
EXPERIMENT = re.compile(pattern("experiment"))
#: Kept, since parsing all chapters takes a third of what an edit may take.
parsed = lru_cache(64)(partial(jupytext.reads, fmt="py:percent"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


class CellFailed(RuntimeError):
    """A cell of a chapter raised an error, took too long, or ended its process."""


def place(uri: str) -> str:
    """Where a page is in the tree of Markdown: a chapter, `learn/softmax.py`, is `learn/softmax.md` there."""
    return uri.removesuffix(".py") + ".md" if uri.endswith(".py") else uri


def page(path: Path, uri: str, executes: bool, repo_url: str) -> tuple[str, str]:
    """The chapter's Markdown, and what it is about."""
    notebook = copy.deepcopy(parsed(read(path)))
    if executes:
        execute(notebook, f"docs/{uri}")
    about = re.sub(r"[*`]", "", first_sentence(notebook.cells[0].source))
    return introduced(as_markdown(notebook, path.stem), uri, executes, repo_url), about


def execute(notebook, path: str) -> None:
    """Run all cells in a fresh kernel, from the repository's root. Raises `CellFailed`."""
    # The kernel is reached through sockets in a folder of its own: no port for others on the machine to listen at, and
    # no file left behind in the folder where the build was started. (`ip` is what their names begin with.)
    with TemporaryDirectory(prefix="academy-") as sockets:
        client = NotebookClient(
            notebook,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
            kernel_name="python3",
            timeout=TIMEOUT,
            resources={"metadata": {"path": str(ROOT)}},
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # the traceback's colours
            raise CellFailed(f"{path}: a cell failed\n{message}") from error


def as_markdown(notebook, name: str) -> str:
    """The notebook as Markdown.

    A live cell and the one after it are an editor, under the chapter's name; what they printed stands below.
    """
    parts, live = [], False
    cells = CoalesceStreamsPreprocessor().preprocess(notebook, {})[0].cells
    for place, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif change_it.is_live(cell):
            parts.append(EDITOR.format(name=name, code=_fence(change_it.text(cells, place), "python")))
            live = True
        elif cell.source.strip():
            if not live:  # the editor has its code
                setup = "setup" in cell.metadata.get("tags", ())
                parts.append(_folded(cell) if setup else _fence(cell.source, "python"))
            live = False
            parts += [part for output in cell.get("outputs", ()) if (part := _output(output))]
    return "\n\n".join(parts) + "\n"


def _folded(cell) -> str:
    """A cell that a reader of the page may skip. In Jupyter and in Colab its own metadata fold it."""
    code = _fence(cell.source, "python")
    start = '<details class="nb-setup" markdown="1" data-search-exclude=""><summary>Set-up: imports</summary>'
    return f"{start}\n\n{code}\n\n</details>"


def _output(output) -> str:
    if output.output_type == "stream":
        return _fence(output.text, "{ .text .nb-output }")
    for kind in ("text/html", "image/svg+xml"):
        if kind in output.data:
            return f'<div class="nb-figure" data-search-exclude>{"".join(output.data[kind])}</div>'
    return _fence("".join(output.data.get("text/plain", "")), "{ .text .nb-output }")


def _fence(text: str, language: str) -> str:
    mark = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{mark}{language}\n{text.rstrip()}\n{mark}" if text.strip() else ""


def introduced(text: str, uri: str, executed: bool, repo_url: str) -> str:
    """The page's text with a line under its heading: where the notebook is."""
    heading, _, rest = text.partition("\n")
    name = Path(uri).stem
    line = f'[Download this chapter as a notebook]({name}.ipynb){{ .nb-download download="{name}.ipynb" }}'
    if place := colab(uri, repo_url):
        line += f" or [open it in Colab]({place}){{ .nb-download }}"
    if not executed:
        line += f"\n\n{NOT_EXECUTED}"
    return f"{heading}\n\n{line}\n{rest}"


def colab(uri: str, repo_url: str) -> str:
    """Where Colab opens a chapter, or "" if the repository isn't on GitHub.

    Colab reads notebooks from a branch. The source branch has none, only scripts in the percent format; the published
    branch has the ones made here, in the folder of their version (`mike` says which one is being built).
    """
    owner = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", repo_url or "")
    version = os.environ.get("MIKE_DOCS_VERSION", "latest")
    path = f"{version}/{Path(uri).with_suffix('.ipynb').as_posix()}"
    return f"https://colab.research.google.com/github/{owner[1]}/blob/gh-pages/{path}" if owner else ""


def written_out(text: str, library: Library) -> str:
    """A text with its cited formulas, its tags and its measured numbers in their places."""

    def equation(found: re.Match) -> str:
        tex = library.tex(found["argument"])
        return "\n".join(found["indent"] + line for line in ["$$", *tex.split("\n"), "$$"]) if tex else found[0]

    def span(found: re.Match) -> str:
        if found["name"] == "tag":
            return f"({found['argument']})"
        return figures.measured(found["argument"], ROOT) or found[0]

    return SPAN.sub(span, EQUATION.sub(equation, text))


def downloaded(text: str, library: Library) -> str:
    """A kernel file as a reader keeps it: what only the site understands is written out, or left out."""
    kept, dropped = list[str](), False
    for line in text.split("\n"):
        mark = re.match(r" *#? ?", line)[0]  # type: ignore[index]  # of a comment, or what indents it
        bare = line.removeprefix(mark)
        if dropped and not bare.strip():  # the empty line behind it
            continue
        dropped = on_line(bare.strip()) is not None
        if not dropped:
            kept += [mark + each for each in written_out(bare, library).split("\n")] if "[[eq" in bare else [line]
    return written_out("\n".join(kept), library)


def portable(path: Path, uri: str, library: Library, site_url: str, repo_url: str) -> str:
    """The notebook as JSON for Jupyter and Colab: citations written out, links made absolute."""

    def link(found: re.Match) -> str:
        place = found[1].lstrip("/") if found[1].startswith("/") else normpath(join(dirname(uri), found[1]))
        page = re.sub(r"(?:(?:^|/)index)?\.(?:md|py)$", "/", place).lstrip("/")  # home's address is the site's own
        return f"]({addresses.page_address(site_url, page)}{found[2] or ''})"

    def prose(text: str) -> str:
        text = pictures.FIGURE.sub(lambda found: f"*{pictures.alternative(ROOT, found['argument'])}*", text)
        text = text.replace("[[exercises]]", "\n".join(exercise_pages.listed(library, uri)))
        text = EXPERIMENT.sub(lambda found: "\n".join(experiments.markdown(found["argument"], ROOT)), text)
        return addresses.without_dead_links(LINK.sub(link, written_out(text, library)))

    notebook = copy.deepcopy(parsed(read(path)))
    notebook.metadata.pop("jupytext", None)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":  # in a fence, `](` may be a call
            lines = fenced(cell.source.split("\n"))
            parts = groupby(lines, key=lambda line: bool(line[1]))
            texts = [(is_code, "\n".join(line for line, _ in part)) for is_code, part in parts]
            cell.source = "\n".join(text if is_code else prose(text) for is_code, text in texts)
        cell.source = addresses.with_repository(cell.source, repo_url)
        cell.pop("id", None)  # random: two builds of one source should be the same
    notebook.nbformat_minor = min(notebook.nbformat_minor, 4)  # the first that asks for ids is 5
    return jupytext.writes(notebook, fmt="ipynb")
