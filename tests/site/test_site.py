"""The built site: it is strict, its links resolve, it sends nothing anywhere, and its parts work in a browser."""

import html
import json
import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

import pytest

from academy.site import chapters
from academy.site.library import Library

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "kernels/tutorials/vector_add/"
SOURCE = ROOT / "annotated_examples/tutorials/vector_add.py"


def pages(site: Path) -> list[str]:
    """The address of every page, from the sitemap, relative to the site."""
    tree = ElementTree.parse(site / "sitemap.xml")
    found = [element.text for element in tree.findall(".//{*}loc")]
    home = min(found, key=len)
    return [address.removeprefix(home) for address in found]


def one_of_each(site: Path) -> list[str]:
    """The first page of each part of the site: one of each kind. `make site-check` looks at all of them."""
    return list({page.partition("/")[0]: page for page in reversed(pages(site))}.values())


def text(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text("utf-8")


@pytest.mark.parametrize("page", ["kernels/tutorials/vector_add/", "kernels/classics/layernorm/"])
def test_the_anchors_of_a_kernel_page_are_its_line_numbers(site, page):
    file = ROOT / ("annotated_examples/" + page.removeprefix("kernels/").rstrip("/") + ".py")
    lines = file.read_text().split("\n")
    source = text(site, page)
    assert len(re.findall(r'id="L\d+"', source)) == len(set(re.findall(r'id="L\d+"', source)))
    shown = dict(re.findall(r'id="L(\d+)"><a [^>]*></a><span class="k-c">(.*?)\n</span>', source, re.S))
    assert len(shown) > 40
    for number, code in shown.items():
        assert html.unescape(re.sub(r"<[^>]+>", "", code)) == lines[int(number) - 1]


def test_the_file_can_be_downloaded(site):
    copy = site / "annotated_examples/tutorials/vector_add.py"
    assert copy.read_text() == chapters.downloaded(SOURCE.read_text(), Library.read(ROOT))
    assert 'href="../../../annotated_examples/tutorials/vector_add.py"' in text(site, KERNEL)


def test_formulas_are_html_and_mathml_already(site):
    for page in pages(site):
        source = text(site, page)
        assert "arithmatex" not in source or "<math" in source, page
        assert not re.search(r'class="arithmatex"[^>]*>\\[(\[]', source), page
        assert "katex.min.js" not in source


def test_nothing_on_a_page_comes_from_another_host(site):
    for path in site.rglob("*.html"):
        source = path.read_text("utf-8")
        loads = re.findall(r'<(?:script|img|iframe|source|video|audio)\b[^>]*\ssrc="([^"]+)"', source)
        loads += re.findall(r'<link\b[^>]*\brel="(?:stylesheet|icon|preload|preconnect)"[^>]*\bhref="([^"]+)"', source)
        assert not [url for url in loads if urlsplit(url).netloc], path
    for path in [*site.rglob("*.css")]:
        assert not re.search(r"url\(['\"]?(?:https?:)?//", path.read_text("utf-8")), path


def test_the_index_of_the_search_knows_names_of_code(site):
    index = json.loads((site / "search/search_index.json").read_text())
    split = re.compile(index["config"]["separator"])
    for word in ("program_id", "dgamma"):
        found = {
            d["location"].partition("#")[0] for d in index["docs"] if word in split.split(strip(d["text"]).lower())
        }
        assert any(place.startswith("kernels/") for place in found), word
    everything = " ".join(document["text"] for document in index["docs"])
    assert "katex" not in everything and "mathml" not in everything


def strip(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


# In a browser


@pytest.mark.parametrize(
    "which", [one_of_each, pytest.param(pages, marks=[pytest.mark.site_check, pytest.mark.timeout(1800)])]
)
def test_pages_ask_nobody_else_throw_nothing_and_fit_a_phone(browser, address, site, which):
    for page in which(site):
        browser.requests.clear()
        browser.errors.clear()
        browser.open(urljoin(address, page), width=390, height=844)
        assert browser.run("document.documentElement.scrollWidth") <= 390, page
        outside = [url for url in browser.requests if not url.startswith((address, "data:", "blob:"))]
        assert outside == [] and browser.errors == [], (page, outside, browser.errors)


def test_dark_and_light_follow_the_system_and_the_switch(browser, address):
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    browser.open(address, dark=True)
    assert browser.run(scheme) == "slate"
    browser.open(address)
    assert browser.run(scheme) == "default"
    for dark in (False, True):
        browser.open(address, dark=dark)
        schemes = [browser.run(scheme)]
        for _ in range(4):
            browser.run("document.querySelector('.scheme-switch').click()")
            schemes.append(browser.run(scheme))
        assert all(one != next for one, next in zip(schemes, schemes[1:])), "a click that shows nothing"
        browser.run("document.querySelector('.scheme-switch').click()")
        chosen = browser.run(scheme)
        browser.open(urljoin(address, KERNEL), dark=dark)
        assert browser.run(scheme) == chosen == ("default" if dark else "slate")
        assert browser.run("getComputedStyle(document.documentElement).colorScheme") == ("light" if dark else "dark")
        browser.run("localStorage.clear()")


def clipboard(browser, click: str) -> str:
    """What a click puts on the clipboard."""
    browser.run(
        "window.copied = null; Object.defineProperty(navigator, 'clipboard', {configurable: true, "
        "value: {writeText: text => { window.copied = text; return Promise.resolve() }}})"
    )
    browser.run("document.execCommand = () => { window.copied = document.activeElement.value; return true }")
    browser.run(click)
    return browser.wait("window.copied")


def test_a_block_and_the_whole_file_can_be_copied(browser, address):
    clean = chapters.downloaded(SOURCE.read_text(), Library.read(ROOT))
    browser.open(urljoin(address, KERNEL))
    assert clipboard(browser, "document.querySelector('[data-k-copy]').click()") == clean
    lines = SOURCE.read_text().split("\n")
    first = next(n for n, line in enumerate(lines) if line.startswith("def vector_add_forward"))
    last = next(n for n in range(first + 1, len(lines)) if not lines[n])
    assert lines[first + 1].startswith('    """')
    assert lines[first - 1] == "@replayed"
    code = [*lines[first - 1 : first + 1], *lines[first + 2 : last]]  # the docstring is the block's note
    row = "document.getElementById('vector_add_forward')"
    browser.run(f"{row}.querySelector('details').open = true")
    # Until the opened block is laid out, its text is empty, and of an empty text nothing is copied.
    browser.run(f"{row}.scrollIntoView()")
    browser.wait(
        f"{row}.querySelector('.md-clipboard, [data-clipboard-target]') && {row}.querySelector('pre code').innerText"
    )
    copied = clipboard(browser, f"{row}.querySelector('.md-clipboard, [data-clipboard-target]').click()")
    assert copied.rstrip("\n") == "\n".join(code)


def test_notes_are_hidden_and_stay_hidden(browser, address):
    browser.open(urljoin(address, KERNEL))
    visible = "[...document.querySelectorAll('.k-row:not(.k-heading) > .k-note')].some(n => n.offsetHeight > 20)"
    assert browser.run(visible)
    browser.run("document.querySelector('[data-k-notes]').click()")
    assert not browser.run(visible)
    browser.open(urljoin(address, "kernels/classics/layernorm/"))
    assert not browser.run(visible)
    browser.run("document.querySelector('[data-k-notes]').click()")
    assert browser.run(visible)


def test_a_phone_shows_one_column(browser, address):
    browser.open(urljoin(address, KERNEL), width=390, height=844)
    row = browser.run(
        "(() => { const row = document.getElementById('vector_add_kernel'); const box = s => row.querySelector(s)"
        ".getBoundingClientRect(); return [box('.k-note').bottom, box('.k-code').top, box('.k-code').width] })()"
    )
    assert row[0] <= row[1] + 1 and row[2] > 340


def test_tags_without_a_kernel_of_their_own_are_told(site):
    page = " ".join((site / "guides/what-is-verified/index.html").read_text("utf-8").split())
    used, rows = page.count("<td>those of the formulas that use it</td>"), page.count("<tr>")
    assert 0 < used < rows / 5 and "<td></td> </tr>" not in page
    assert "or with another one that uses it: the table says which" in page
