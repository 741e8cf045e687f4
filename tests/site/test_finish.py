"""What every page has besides its text: descriptions, a picture for links, its Markdown, a way to edit it; and 404."""

import html
import re
import struct
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urljoin
from xml.etree import ElementTree

import markdown
import pytest
from mkdocs.config import load_config

from academy.book.maths import equations
from academy.site import kernel_page, markdown_copies, stylesheet
from tests.site.browser import served
from tests.site.test_accessible import violations
from tests.site.test_site import ROOT, pages, text

FENCED = re.compile(r"^[> ]*(`{3,}|~{3,}).*?^[> ]*\1[ \t]*$", re.S | re.M)
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.S)
#: What only the site's own extensions understand.
UNFINISHED = re.compile(r"\[\[[a-z]+:|\{\{ |--8<--|^ *(?:!!!|\?\?\?|===) |academykernelrow|<(?:div|svg)\b", re.M)


def meta(source: str, name: str) -> str:
    return html.unescape(re.search(rf'<meta (?:name|property)="{name}" content="([^"]*)"', source)[1])


def copy_of(site, page: str) -> str:
    return (site / page / "index.md").read_text("utf-8")


def prose(markdown: str) -> str:
    return CODE_SPAN.sub("", FENCED.sub("", markdown))


# What search engines and other sites show


def test_every_page_is_described_in_its_own_words(site):
    described = {page: meta(text(site, page), "description") for page in pages(site)}
    assert len(set(described.values())) == len(described)
    for page, words in described.items():
        assert 50 <= len(words) <= 300 and not re.search(r"[*`$\\]|\[\[", words), (page, words)
    sources = [text(site, page) for page in pages(site)]
    assert len({re.search(r"<title>([^<]{5,})</title>", source)[1] for source in sources}) == len(sources)
    assert all(len(re.findall(r"<h1\b", source)) == 1 for source in sources)


def test_every_page_has_what_a_shared_link_shows(site):
    base = load_config(str(ROOT / "mkdocs.yml")).site_url
    for page in pages(site):
        source = text(site, page)
        assert meta(source, "og:title") and meta(source, "twitter:card") == "summary_large_image", page
        assert meta(source, "og:description") == meta(source, "description")
        assert meta(source, "og:url") == base + page
        place = meta(source, "og:image").removeprefix(base)
        picture = (site / place).read_bytes()
        assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1200, 630), page


def test_every_page_is_in_the_sitemap(site):
    """But not the old addresses, which lead to a page."""
    files = [path for path in site.rglob("index.html") if 'http-equiv="refresh"' not in path.read_text("utf-8")]
    found = {path.parent.relative_to(site).as_posix() + "/" for path in files}
    assert {page or "./" for page in pages(site)} == found
    dates = ElementTree.parse(site / "sitemap.xml").findall(".//{*}lastmod")
    assert len(dates) == len(found)


def test_every_page_is_edited_where_its_text_comes_from(site):
    config = load_config(str(ROOT / "mkdocs.yml"))
    for page in pages(site):
        found = re.findall(r'<a href="([^"]+)"[^>]*rel="edit"', text(site, page))
        if not found:  # made while the site is built, from results
            assert re.fullmatch(r"benchmarks/\w+/", page), f"{page} has no link to edit its source"
            continue
        path = found[0].removeprefix(f"{config.repo_url}/edit/main/")
        name = page.rstrip("/").rpartition("/")[2]
        expected = {
            "kernels": rf"annotated_examples/(?:\w+/)+{name}(?:/__init__)?\.py",
            "derivations": rf"backprop_math/{name}\.md",
        }
        expected["exercises"] = rf"exercises/\w+/{name}\.py"
        if (ROOT / f"docs/learn/{name}.py").is_file() and page.startswith("learn/"):
            assert path == f"docs/learn/{name}.py"
        elif (kind := page.partition("/")[0]) in expected and name != kind:
            assert re.fullmatch(expected[kind], path), (page, path)
        else:
            assert path in (f"docs/{page}index.md", f"docs/{page.rstrip('/')}.md"), (page, path)
        assert (ROOT / path).is_file(), path


# Markdown

#: What only a source should have: a list of attributes, a directive or a marker of a snippet that nothing has read.
UNREAD = re.compile(r"\{:? ?[#.][\w-]+ ?\}|\[\[[a-z]+(?:: [^\]]*)?\]\]|--8&lt;--|--8<--")
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$\n]*\$", re.S)


def test_every_page_names_its_markdown_and_neither_shows_what_only_a_source_should_have(site):
    """Nor does a space stand before a comma, as in `5.13 ,`, where a number came from elsewhere than the text."""
    found = {}
    for page in pages(site):
        source, copy = text(site, page), copy_of(site, page)
        assert '<link rel="alternate " type="text/markdown" href="index.md">' in source, page
        assert re.search(r"^# \S", copy, re.M), page
        words = FORMULA.sub("x", CODE_SPAN.sub("x", FENCED.sub("", copy)))
        shown = re.sub(r"<(pre|code|script|style|svg)\b.*?</\1>", "", source, flags=re.S)
        marks = [UNFINISHED.search(prose(copy)), UNREAD.search(shown), re.search(r".{0,40}\w [,.;](?=\s)", words)]
        found[page] = [mark[0] for mark in marks if mark]
    assert len(found) > 300 and {page: marks for page, marks in found.items() if marks} == {}


def test_every_link_inside_the_site_resolves(site):
    assert broken_links(site) == []


def broken_links(site) -> list[tuple[str, str]]:
    """In pages, 404.html, Markdown copies and llms.txt: to files and, in pages, places within them. Page and link."""
    base = next(iter(re.findall(r"\((https?://[^)]*?)index\.md\)", (site / "llms.txt").read_text())))
    anchors: dict[str, set[str]] = {}
    count, broken = 0, []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.md"), site / "llms.txt"]):
        source = path.read_text("utf-8")
        here = path.relative_to(site).as_posix()
        links = re.findall(r'\s(?:href|src)="([^"]+)"', source) if path.suffix == ".html" else []
        links += re.findall(r"\]\(([^)\s]+)[^)]*\)", prose(source)) if path.suffix != ".html" else []
        for link in links:
            link = link.removeprefix(base) if path.suffix != ".html" else link.replace("/triton-academy/", "/", 1)
            target, _, anchor = html.unescape(link).partition("#")
            if re.match(r"[a-z]+:|//", target):
                continue
            target = target.partition("?")[0]
            file = normpath(join("/", dirname(here), unquote(target))).lstrip("/") if target else here
            file = join(file, "index.html") if (site / file).is_dir() else file
            count += 1
            if not (site / file).is_file():
                broken.append((here, link))
            elif anchor and file.endswith(".html"):
                if file not in anchors:
                    anchors[file] = set(re.findall(r'\sid="([^"]+)"', (site / file).read_text("utf-8")))
                if unquote(anchor) not in anchors[file]:
                    broken.append((here, link))
    assert count > 5000
    return broken


@pytest.mark.parametrize("kernel", ["tutorials/vector_add", "classics/layernorm", "gemlite/gemm"])
def test_the_markdown_of_a_kernel_has_all_of_its_code_and_formulas(site, kernel):
    source = (ROOT / f"annotated_examples/{kernel}.py").read_text()
    found = copy_of(site, f"kernels/{kernel}/")
    code = "\n".join(match[0] for match in FENCED.finditer(found)).split("\n")
    tree = documented_lines(source)
    # What stands in a quotation is the source of a helper from another file.
    assert [line for line in code if line.strip() and not line.startswith(("```", ">"))] == tree
    known = {e.tag: e.tex for path in (ROOT / "backprop_math").glob("*.md") for e in equations(path.read_text(), "")}
    cited = re.findall(r"^\W*\[\[eq: (\S+)\]\]$", source, re.M)
    assert cited or kernel == "gemlite/gemm"
    for tag in cited:
        assert known[tag].split("\n")[0] in found and rf"\tag{{{tag}}}" in found


def documented_lines(source: str) -> list[str]:
    """The code lines of a kernel file, as the splitter gives them to its page."""
    from academy.book.splitter import split

    module = split(source, "file.py")
    lines = [module.lines[number - 1] for row in module.rows for number in row.code]
    return [line for line in lines if line.strip()]


def test_the_markdown_of_other_pages_has_what_they_are_about(site):
    assert "\\operatorname{rstd}_r := \\frac{1}{\\sigma_r}" in copy_of(site, "derivations/layernorm/")
    chapter = copy_of(site, "learn/first_kernel/")
    assert "```python" in chapter
    assert "| shape: rows x columns | dtype | limit | lesson | fast | eager |" in copy_of(site, "benchmarks/layernorm/")
    reference = copy_of(site, "reference/annotated_examples/")
    assert re.search(r"```python\nlayernorm\(\s*x,", reference), "the signature of layernorm is missing"
    assert "tensors(**named)\n```" in copy_of(site, "reference/academy/")
    assert "\n### Numbers in comments\n" in copy_of(site, "reference/academy/")
    assert "](../kernels/tutorials/vector_add/index.md)" in copy_of(site, "kernels/") + copy_of(site, "learn/")


def test_llms_txt_lists_every_page_once(site):
    config = load_config(str(ROOT / "mkdocs.yml"))
    listed = (site / "llms.txt").read_text()
    assert listed.startswith(f"# {config.site_name}\n\n> ")
    found = re.findall(r"^- \[[^\]]+\]\((\S+)\): \S", listed, re.M)
    assert sorted(found) == sorted(f"{config.site_url}{page}index.md" for page in pages(site))
    assert f"begin with {config.site_url}{markdown_copies.TO_WRITE}index.md" in listed


EXTENSIONS = ["admonition", "tables", "pymdownx.details", "pymdownx.superfences", "pymdownx.tabbed"]
ANSWER = "Before.\n\n<details>\n<summary>Answer</summary>\n\n```text\nx = 1\n```\n\n</details>\n\nAfter."
TABLE = '<details class="bench-data"><summary>Data</summary><table><thead><tr><th>a</th><th>b</th></tr></thead>'
TABLE += "<tbody><tr><td>1 &lt; 2</td><td>x|y</td></tr></tbody></table></details><figure><svg>…</svg></figure>"
LINKS = (
    '<a href="../x/#y">a</a> <a href="..">b</a> <a href="x.py">c</a> <a href="https://a.org/">d</a> <a href="#e">e</a>'
)
#: Markdown, or HTML of a page, and the Markdown of its copy.
COPIED = {
    "boxes": ('??? note "Answer"\n\n    One.\n\n    !!! note\n\n        Two.\n\nAfter.',
              "> **Answer**\n>\n> One.\n>\n> > **Note**\n> >\n> > Two.\n\nAfter."),
    "tabs": ('=== "CPU"\n\n    a\n\n=== "GPU"\n\n    b', "**CPU**\n\na\n\n**GPU**\n\nb"),
    **{kind: (f'Before.\n\n??? {kind} "Answer"\n\n    ```python\n    x = 1\n    ```\n\nAfter.', ANSWER)
       for kind in ("tip", "success", "example")},
    "results": (TABLE, "**Data**\n\n| a | b |\n| --- | --- |\n| 1 < 2 | x\\|y |"),
    "a helper": (kernel_page.HELPER.replace("<code />", "<code>def f(x):\n    return x</code>"),
                 "> **`{name}` from {file}**\n>\n> ```python\n> def f(x):\n>     return x\n> ```\n>\n"
                 "> [{path}, line {line}]({blob}#L{line})"),
    "links": (LINKS, "[a](../x/index.md#y) [b](../index.md) [c](x.py) [d](https://a.org/) [e](#e)"),
}  # fmt: skip


@pytest.mark.parametrize("text, copy", COPIED.values(), ids=COPIED)
def test_what_a_copy_says(text, copy):
    options = {"pymdownx.tabbed": {"alternate_style": True}}
    page = text if text[0] == "<" else markdown.markdown(text, extensions=EXTENSIONS, extension_configs=options)
    assert copy == re.sub(r"\n{3,}", "\n\n", markdown_copies.converted(page))


# One style sheet


def test_a_page_waits_for_one_style_sheet(site):
    for page in pages(site):
        sheets = re.findall(r'<link rel="stylesheet" href="([^"]+)"', text(site, page))
        assert len(sheets) == 1 and (site / page / sheets[0]).resolve().is_file(), page


def test_addresses_in_the_combined_sheet_resolve(site):
    sheet = next((site / "assets").glob("academy.*.css"))
    found = [url.strip("'\"") for url in re.findall(r"url\(([^)]+)\)", sheet.read_text("utf-8"))]
    files = [url for url in found if not url.startswith("data:")]
    assert len(files) > 20 and all((sheet.parent / url).is_file() for url in files)


def test_a_sheet_keeps_its_addresses_when_it_moves():
    text = "/* a comment */ @font-face { src: url(fonts/a.woff2) }\n\n.x { background: url('data:image/svg+xml,x') }"
    combined = stylesheet.combined("assets/katex/katex.min.css", text)
    assert combined == "@font-face { src: url(katex/fonts/a.woff2) }\n.x { background: url('data:image/svg+xml,x') }\n"
    with pytest.raises(ValueError, match="a.css: @import"):
        stylesheet.combined("a.css", '@import "b.css";')


# A page that isn't there


def test_a_missing_page_leads_on(site, browser):
    with served(site, "/triton-academy/") as address:
        browser.errors.clear()
        browser.open(urljoin(address, "kernels/no/such/page/"))
        assert browser.run("document.querySelector('h1').textContent") == "There is no page here"
        assert browser.run("document.title") == "Page not found - Triton Academy"
        assert (
            browser.run("getComputedStyle(document.querySelector('.md-header')).backgroundColor") == "rgb(13, 47, 58)"
        )
        links = browser.run("[...document.querySelectorAll('.md-content li a')].map(a => a.href)")
        assert len(links) == 9 and browser.errors == [] and violations(browser) == []
        for link in links:
            assert (site / link.removeprefix(address) / "index.html").is_file(), link
