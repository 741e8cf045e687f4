"""What the Markdown extension makes of directives, and the mistakes that it reports by file and line."""

import re
import subprocess
import sys

import markdown
import pytest

from academy.book import lists
from academy.site import katex
from academy.site.conversion import notes

DERIVATION = r"""---
title: Doubling
description: Twice is a sum.
---
# Doubling

$$y := 2 x \tag{D}$$

Its slope is constant.

$$\begin{aligned}
y &= x + x \\
  &= 2 x
\end{aligned}$$

$$\frac{\partial y}{\partial x} = 2 \tag{D-x}$$
"""
KERNEL = r'''r"""
# Doubling a number

[[eq: D]]

By [[tag: D-x]] the slope is two, and `x` stays as it is.
"""

import torch


# ## The kernel
#
# Twice, as [[tag: D]] says. Here `pid=3: y = [2, 4]`.
def double(
    x_ptr,
    y_ptr,
    n,
):
    """Twice `x`.

    Args:
        x_ptr: the numbers.
        n: how many.

    Returns:
        A tensor of shape (n,): twice
        each number.
    """
    # See [the derivation](../../backprop_math/doubling.md#D-x).
    return 2 * x


# An interlude about $x^2$.

z = 1
'''


@pytest.fixture
def project(tmp_path):
    """A small project: a kernel and its derivation."""
    for name, text in {
        "annotated_examples/group/doubling.py": KERNEL,
        "backprop_math/doubling.md": DERIVATION,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def convert(project, logged):
    def run(text: str) -> tuple[str, list[str]]:
        logged.clear()
        settings = {"academy.site": {"root": str(project), "repo_url": "https://example.org/repo"}}
        settings["pymdownx.arithmatex"] = {"generic": True}
        extensions = ["toc", "tables", "attr_list", "def_list", "pymdownx.superfences", *settings]
        html = markdown.markdown(text, extensions=extensions, extension_configs=settings)
        return html, [*logged]

    return run


KERNEL_FILE = "annotated_examples/group/doubling.py"
KERNEL_PAGE = "[[kernel: annotated_examples/group/doubling.py]]"
DERIVATION_PAGE = "[[derivation: backprop_math/doubling.md]]"


def test_a_file_that_cannot_be_shown_is_said_on_its_page(project, convert):
    path = project / KERNEL_FILE
    path.write_text(path.read_text().replace("import ", "imprt ", 1))
    html, problems = convert(KERNEL_PAGE)
    assert problems == [f"{KERNEL_FILE}:9: invalid syntax"]
    assert "cannot be shown" in html and f"{KERNEL_FILE}:9:7: invalid syntax" in html


def test_a_kernel_page_has_notes_code_and_an_anchor_for_every_line(convert):
    html, problems = convert(KERNEL_PAGE)
    assert problems == []
    anchors = re.findall(r'id="L(\d+)"', html)
    assert len(anchors) == len(set(anchors))
    silent = {1, 8, 10, 11, 13, 31, 32, 34}  # quotes of the docstring, blank lines
    shown = {n for n, line in enumerate(KERNEL.split("\n"), 1) if line.strip() and '"""' not in line}
    assert shown - silent <= {int(n) for n in anchors}
    for text in (
        "Doubling a number",
        "Twice, as",
        "the numbers.",
        "An interlude about",
        "<p>A tensor of shape (n,): twice",
    ):
        assert text in html
    assert '<h2 id="the-kernel">' in html and 'class="k-row k-wide k-heading"' in html
    assert 'id="double"' in html


def test_code_is_the_file_without_its_notes(convert):
    html, _ = convert(KERNEL_PAGE)
    lines = re.findall(r'<span class="k-l(?: k-jump)?" id="L\d+">.*?<span class="k-c">(.*?)\n</span>', html, re.S)
    plain = [re.sub(r"<[^>]+>", "", line) for line in lines]
    assert [line for line in plain if line] == [
        "import torch",
        "def double(",
        "    x_ptr,",
        "    y_ptr,",
        "    n,",
        "):",
        "    return 2 * x",
        "z = 1",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (KERNEL_PAGE, ['data-where="pid=3"', 'data-name="y"', 'data-value="[2, 4]"', 'data-line="15"']),
        (
            KERNEL_PAGE,
            [
                '<a class="eq-tag" href="/derivations/doubling.md#D"',
                '<a class="eq-ref" href="/derivations/doubling.md#D-x">(D-x)</a>',
                'href="/derivations/doubling.md#D-x">the derivation',
            ],
        ),
        (
            DERIVATION_PAGE,
            [
                '<div class="eq" id="D">',
                *[f'<a href="/kernels/group/doubling.md#L{line}">{line}</a>' for line in (4, 6, 14)],
            ],
        ),
        (DERIVATION_PAGE, ["<math", 'class="katex-html"', "<mtr>"]),
        (r"## The gradient $\nabla_x$", ['<h2 id="the-gradient-x">']),
        ("[[code: annotated_examples/group/doubling.py double]]", ["return", "2", "x"]),
        ("[[kernels]]", ['href="/kernels/group/doubling.md"', "Doubling a number"]),
        ("[[derivations]]", ['href="/derivations/doubling.md"', "Twice is a sum."]),
        ("```\n[[eq: NONE]]\n[[kernel: none.py]]\n```\n\nand `[[tag: NONE]]`", ["[[eq: NONE]]", "[[tag: NONE]]"]),
    ],
)
def test_what_a_page_shows(convert, text, shown):
    html, problems = convert(text)
    assert problems == [] and "<script" not in html
    assert all(each in html for each in shown), html
    assert "code:" not in text or ("Twice" not in html and "See [" not in html)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("the scale ($x$) and", "the scale |(F)| and"),
        ("*a* [$x$, $y$].", "<em>a</em> |[F,| |F].|"),
        ("as “$x$”: so", "as |“F”:| so"),
        ("$x$ $y$", "|F| |F|"),
        (f"(${'x + ' * 20}z$)", "(|F|)"),
    ],
)
def test_no_line_breaks_between_a_formula_and_its_brackets(convert, monkeypatch, text, expected):
    monkeypatch.setattr(katex, "render", lambda tex, display: "F")
    html, _ = convert(text)
    assert re.sub(r'<span class="arithmatex"[^>]*>(.*?)</span>', r"|\1|", html) == f"<p>{expected}</p>"


def test_the_list_says_which_derivations_no_kernel_is_compared_with(convert, project):
    """By looking for a file of an operation that names it: nobody counts them by hand."""
    said = "No kernel yet: only the formulas are checked."
    assert convert("[[derivations]]")[0].count(said) == 1
    cases = project / "operations/doubling.py"
    cases.parent.mkdir(parents=True, exist_ok=True)
    cases.write_text('DERIVATION = "doubling"\n')
    assert said not in convert("[[derivations]]")[0]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "annotated_examples/group/doubling.py",
            "[[eq: D]]",
            "[[eq: E]]",
            r"doubling.py:4: no page of backprop_math has \tag{E}",
        ),
        (
            "annotated_examples/group/doubling.py",
            "[[tag: D-x]]",
            "[[tag: D-y]]",
            r"doubling.py:6: no page of backprop_math has \tag{D-y}",
        ),
        (
            "annotated_examples/group/doubling.py",
            "doubling.md#D-x",
            "halving.md",
            "doubling.py:30: link to backprop_math",
        ),
        (KERNEL_FILE, "$x^2$", "$x^{2$", "doubling.py:34: KaTeX cannot set this formula"),
        (
            "annotated_examples/group/doubling.py",
            "is two, and",
            "is two\n- and",
            "doubling.py:7: a list needs a blank line",
        ),
        (
            "annotated_examples/group/doubling.py",
            '"""Twice',
            '"""$\\alpha$',
            "doubling.py:20: this docstring has a backslash",
        ),
        (
            "annotated_examples/group/doubling.py",
            "`x` stays",
            "[[bench: no/such]]",
            "doubling.py:6: no committed result",
        ),
        (
            "annotated_examples/group/doubling.py",
            "# An interlude",
            "# <div>\n# An interlude",
            "this note swallows what follows",
        ),
        ("backprop_math/doubling.md", "2 x", r"2 \nosuch", r"doubling.md:7: KaTeX cannot set this formula"),
        ("backprop_math/doubling.md", "constant.", "constant:\n* yes", "doubling.md:10: a list needs a blank line"),
        ("backprop_math/doubling.md", "constant.", "[constant](no.md).", "doubling.md:9: link to backprop_math/no.md"),
    ],
)
def test_a_mistake_is_reported_by_file_and_line(project, convert, file, old, new, message):
    path = project / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    _, problems = convert(KERNEL_PAGE if file.endswith(".py") else DERIVATION_PAGE)
    assert any(message in problem for problem in problems), problems


def test_each_of_two_mistakes_alike_has_its_own_line(project, convert):
    """And what stands in a fence is none of them."""
    path = project / "backprop_math/doubling.md"
    more = "constant.\n\n```\n[[tag: NO]]\n```\n\nSee [[tag: NO]].\n\nAnd [[tag: NO]]."
    path.write_text(path.read_text().replace("constant.", more))
    _, problems = convert(DERIVATION_PAGE)
    assert [problem.split(":")[1] for problem in problems] == ["15", "17"]


def test_a_missing_file_is_reported(convert):
    _, problems = convert("[[kernel: annotated_examples/group/none.py]]")
    assert any("does not exist" in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("words\n- item", [2]),
        ("words\n1. item", [2]),
        ("words\n\n- item\n- item\n  more\n- item", []),
        ("# heading\n- item", []),
        ("$$\na\n- b\n$$", []),
        ("```\nwords\n- item\n```", []),
        ("| a |\n|---|\n- item", []),
        ("a product\n3.5 times", []),
        ("- this has\n  64. That", [2]),
        ("- a\n\n  1. b\n  2. c\n     d\n  3. e", []),
    ],
)
def test_lists_after_text(text, expected):
    assert [line for line, _ in lists.lists_after_text(enumerate(text.split("\n"), 1))] == expected


def test_lists_are_looked_for_in_the_markdown_of_a_chapter():
    chapter = "# %% [markdown]\n# - it has\n#   64. The rest\n\n# %%\n# text\n# - item\nx = 1"
    lines = enumerate(notes(chapter), 1)
    assert list(lists.lists_after_text(lines)) == [(3, lists.NUMBER)]


def test_a_strict_build_fails_on_a_bad_formula(project):
    (project / "docs").mkdir()
    (project / "docs/index.md").write_text("# Home\n\n$\\frac{1$\n")
    (project / "mkdocs.yml").write_text(
        "site_name: x\ntheme: {name: material}\nplugins: []\nmarkdown_extensions:\n"
        "  - pymdownx.arithmatex: {generic: true}\n  - academy.site: {repo_url: https://example.org}\n"
        "validation: {links: {absolute_links: relative_to_docs}}\n"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert result.returncode == 1
    assert "docs/index.md:3: KaTeX cannot set this formula" in result.stderr
    (project / "docs/index.md").write_text("# Home\n\n$\\frac{1}{2}$\n")
    result = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_page_says_so_where_triton_is_missing(convert, monkeypatch):
    monkeypatch.setattr("academy.site.project_parts.find_spec", lambda name: None)
    html, problems = convert(KERNEL_PAGE)
    assert problems == []
    assert "needs Triton, which is not installed here" in html and "data-k-mode" not in html
