"""The same tree by the other engine: every page, its words, its links, and what runs on it."""

import html
import re
import subprocess

import pytest

from academy.site import with_zensical, write
from academy.site.generated_pages import OF_SECTION
from tests.site.browser import Browser, served
from tests.site.conftest import ROOT
from tests.site.test_finish import broken_links, pages

ARTICLE = re.compile(r'<article class="md-content__inner md-typeset">(.*?)</article>', re.S)


def test_the_default_is_mkdocs_and_the_other_is_asked_for():
    said = {}
    for engine in ("", "ENGINE=zensical", "ENGINE=other"):
        done = subprocess.run(["make", "-n", "site", *engine.split()], cwd=ROOT, capture_output=True, text=True)
        said[engine] = done.stdout + done.stderr
    assert "mkdocs build --strict" in said[""] and "zensical" not in said[""]
    assert "academy.site.with_zensical site" in said["ENGINE=zensical"]
    assert "ENGINE is mkdocs or zensical" in said["ENGINE=other"]


def test_serving_begins_with_one_calm_sentence():
    done = subprocess.run(["make", "-n", "serve"], cwd=ROOT, capture_output=True, text=True)
    (sentence,) = [line for line in done.stdout.splitlines() if line.startswith("echo") and "theme" in line]
    assert sentence.endswith('http://127.0.0.1:8000/about/engine/"') and (ROOT / "docs/about/engine.md").is_file()
    assert "NO_MKDOCS_2_WARNING = 1" in (ROOT / "Makefile").read_text()


def words(page: str) -> str:
    """Of a page's content, as a reader sees them."""
    text = re.sub(r"<(script|style|svg)\b.*?</\1>|<[^>]+>", " ", ARTICLE.search(page)[1], flags=re.S)
    return " ".join(html.unescape(text).split())


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The site by Zensical, where that is installed: `make site ENGINE=zensical`."""
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("zensical") / "site"
    assert with_zensical.build(folder) == 0
    return folder


@pytest.mark.site_check
@pytest.mark.timeout(3600)
def test_every_page_is_there_with_the_same_words(site, other):
    listed = [url for found in write.main().sections.values() for url, _, _ in found]
    assert sorted(listed) == sorted(pages(site)) and len(listed) > 300
    different = [url for url in listed if words(read(other, url)) != words(read(site, url))]
    assert different == []
    assert not any(OF_SECTION.search(read(other, url)) for url in listed), "a title says its section again"
    assert (other / "llms.txt").read_text() == (site / "llms.txt").read_text()
    assert (other / "learn/softmax.ipynb").read_bytes() == (site / "learn/softmax.ipynb").read_bytes()


def read(folder, url: str) -> str:
    return (folder / url / "index.html").read_text("utf-8")


@pytest.mark.site_check
def test_no_link_of_the_other_engine_is_broken(other):
    assert broken_links(other) == []


@pytest.mark.site_check
@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_what_runs_on_a_page_runs(other, width, dark):
    with served(other) as address:
        browser = Browser()
        browser.open(f"{address}kernels/classics/layernorm/", width=width, dark=dark)
        assert browser.run("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
        assert browser.run("document.querySelectorAll('.katex').length > 10")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.run("document.querySelector('[data-k-mode=run]').click()")
        browser.wait("document.querySelector('.t-memory td') !== null")
        browser.open(f"{address}exercises/first_kernel/dropped_tail/", width=width, dark=dark)
        browser.run("document.querySelector('[data-action=check]').click()")
        state = "document.querySelector('[data-academy=outcome]').dataset.state"
        assert browser.wait(f"['passed', 'failed', 'error'].includes({state}) && {state}", 120) == "failed"
        browser.open(f"{address}getting-started/", width=width, dark=dark)
        browser.run("document.querySelector('.tabbed-labels label:nth-child(2)')?.click()")
        browser.run("document.querySelector('.md-search__button').click()")
        for letter in "softmax":
            browser.press(letter)
        browser.wait("performance.getEntriesByName(new URL('/search.json', location)).length > 0")
        assert browser.errors == [] and all(url.startswith((address, "data:", "blob:")) for url in browser.requests)
        browser.close()
