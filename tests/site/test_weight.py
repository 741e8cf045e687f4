"""What a page costs a reader: everything that its first load fetches, compressed as a host sends it."""

import functools
import gzip
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from tests.site.test_site import one_of_each, pages

#: Kilobytes (1000 bytes) that a page may fetch before anyone has clicked on anything. 600 are promised. Most pages need
#: 160 to 240; the longest kernels, with the tabs of their operation and its ticks, 254.
LIMIT = 260
COMPRESSED = {".woff2", ".png", ".jpg", ".webp", ".gz"}


@functools.cache  # pages share most of their files
def weight(site: Path, url: str) -> int:
    path = site / unquote(urlsplit(url).path).lstrip("/")
    path = path / "index.html" if path.is_dir() else path
    content = path.read_bytes()
    return len(content) if path.suffix in COMPRESSED else len(gzip.compress(content, mtime=0))


def fetched(browser, url: str, new: bool = True) -> set[str]:
    """All files that a new reader's browser asks for, until two moments in which it asks for nothing more.

    new: with a new profile. Else with the same one, emptied, which takes a quarter of the time: it asks for what a new
    reader's asks for, and for fonts of pages that it has seen.
    """
    if new:
        browser.forget()
    else:
        browser.call("Network.setCacheDisabled", cacheDisabled=True)
        browser.call("Storage.clearDataForOrigin", origin=urljoin(url, "/").rstrip("/"), storageTypes="all")
    browser.requests.clear()
    browser.open(url)
    seen = -1
    while seen < len(browser.requests):
        seen = len(browser.requests)
        browser.run("new Promise(done => setTimeout(done, 150))")
    return {request.partition("#")[0] for request in browser.requests if request.startswith("http")}


@pytest.mark.parametrize(
    "which", [one_of_each, pytest.param(pages, marks=[pytest.mark.site_check, pytest.mark.timeout(1800)])]
)
def test_pages_are_light(browser, address, site, which):
    heavy, counted = {}, set()
    for page in which(site):
        for new in (False, True):
            files = {file: weight(site, file) for file in fetched(browser, urljoin(address, page), new)}
            if sum(files.values()) <= LIMIT * 1000:
                break
        counted |= {Path(urlsplit(file).path).suffix for file in files}
        if sum(files.values()) > LIMIT * 1000:
            heavy[page] = {file.removeprefix(address): size for file, size in files.items()}
    assert heavy == {}
    assert {".css", ".js", ".woff2"} <= counted, "the browser was not listened to"


def test_the_search_comes_when_it_is_opened(browser, address):
    """Its index, and the script that looks things up in it."""
    index = urljoin(address, "search/search_index.json")
    come = fetched(browser, urljoin(address, "guides/numerics/"))
    assert not [url for url in come if url == index or "/workers/" in url]
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.wait(f"performance.getEntriesByType('resource').some(entry => entry.name === {index!r})")
    browser.run(
        "(() => { const box = document.querySelector('.md-search__input'); box.value = 'program_id';"
        " box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})) })()"
    )
    found = browser.wait("[...document.querySelectorAll('.md-search-result__link')].map(a => a.href).join(' ')")
    assert "/reference/triton-language/" in found


@pytest.mark.parametrize("page", ["?q=rstd", "derivations/layernorm/?h=variance"])
def test_links_to_results_and_to_their_marks_need_no_click(browser, address, page):
    assert urljoin(address, "search/search_index.json") in fetched(browser, urljoin(address, page))
    if "?h=" in page:
        browser.wait("!!document.querySelector('article mark')")


def test_the_viewer_comes_only_where_there_is_a_run(browser, address):
    viewer = urljoin(address, "assets/traces/viewer.js")
    assert viewer not in fetched(browser, urljoin(address, "compatibility/"))
    assert viewer in fetched(browser, urljoin(address, "kernels/tutorials/vector_add/"))


def test_what_is_out_of_sight_is_not_laid_out_when_a_page_loads(browser, address):
    """A phone's processor would take a second for it: elements in sight or near it are a part of all."""
    browser.forget()
    browser.open(urljoin(address, "kernels/classics/layernorm/"), width=390, height=844)
    browser.run("new Promise(done => setTimeout(done, 1500))")
    far = "[...document.querySelectorAll('.k-code code')].filter(c => c.getBoundingClientRect().top > 6 * innerHeight)"
    assert browser.run(f"{far}.length") > 10
    assert browser.run(f"{far}.filter(c => c.checkVisibility({{ contentVisibilityAuto: true }})).length") == 0
    assert browser.run(f"{far}.filter(c => c.hasAttribute('tabindex') || /cut/.test(c.className)).length") == 0
    browser.run(f"{far}[3].scrollIntoView()")
    wide = "[...document.querySelectorAll('.k-code code[tabindex=\"0\"]')].some(c => c.scrollWidth > c.clientWidth + 1)"
    browser.wait(wide)


@pytest.mark.site_check
def test_copy_buttons_come_with_their_code(browser, address):
    """Made for all code at once, they would lay out a page again before a phone could answer."""
    for page, code in (
        ("kernels/classics/layernorm/", ".k-code > pre"),
        ("guides/keep-the-card-busy/", ".highlight > pre"),
    ):
        browser.forget()
        browser.open(urljoin(address, page), width=390, height=844)
        browser.run("new Promise(done => setTimeout(done, 1500))")
        is_far = "c => c.checkVisibility() && c.getBoundingClientRect().top > 4 * innerHeight"
        far = f"[...document.querySelectorAll('{code}')].filter({is_far})"
        assert browser.run(f"{far}.length") > 2
        button = "c => c.querySelector('.md-code__button')"
        assert not browser.run(f"{far}.some({button})")
        browser.run(f"window.last = {far}.at(-1); last.scrollIntoView()")
        browser.wait("!!last.querySelector('.md-code__button')")


def test_code_that_scrolls_keeps_the_focus_on_a_phone(browser, address):
    """Where nothing hovers, the theme takes `tabindex` from code when it adds the button."""
    browser.forget()
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    browser.open(urljoin(address, "guides/keep-the-card-busy/"), width=390, height=844)
    assert browser.run("!matchMedia('(hover)').matches")
    wide = "[...document.querySelectorAll('.highlight > pre > code')].filter(c => c.scrollWidth > c.clientWidth + 1)"
    browser.run(f"window.wide = {wide}; wide.at(-1).scrollIntoView()")
    browser.wait("!!wide.at(-1).previousElementSibling.querySelector('.md-code__button')")
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run("wide.at(-1).tabIndex") == 0
    browser.forget()


@pytest.mark.parametrize(
    "page", ["kernels/classics/layernorm/", pytest.param("derivations/softmax/", marks=pytest.mark.site_check)]
)
def test_fonts_of_the_first_screen_are_asked_for_by_the_page(browser, address, page):
    """One that comes later than the text has all of the page laid out again."""
    browser.forget()
    browser.open(urljoin(address, page), width=390, height=844)
    asked = browser.run("[...document.querySelectorAll('link[rel=preload][as=font]')].map(link => link.href)")
    came = "performance.getEntriesByType('resource').map(entry => entry.name).filter(name => /KaTeX.*woff2/.test(name))"
    browser.wait(f"{came}.length > 2")
    assert {url for url in browser.run(came) if "rest" not in url} <= set(asked)
