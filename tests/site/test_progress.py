"""What this browser remembers of a reader's way: pages that were read, and the one that was open last."""

import json

import pytest

from tests.site.browser import Browser

PAGE = "guides/how-a-gpu-runs-triton/"
READ = "JSON.parse(localStorage.getItem('academy.read') ?? '[]')"


@pytest.fixture(scope="module")
def page():
    own = Browser()
    yield own
    assert not own.errors
    own.close()


def test_a_page_whose_end_was_seen_gets_a_tick_and_home_leads_back(page, address):
    page.open(address)
    assert not page.run("!!document.querySelector('.continue')"), "nothing to go back to"
    page.open(address + PAGE)
    page.run("new Promise(done => setTimeout(done, 5500))")
    assert page.run(READ) == [], "its end has not been in sight"
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait(f"{READ}.length", 10)
    assert page.run(READ) == [PAGE]
    page.open(address + "learn/")
    ticks = "[...document.querySelectorAll('ol.path .exercise-done')]"
    assert set(page.run(f"{ticks}.map(tick => tick.previousElementSibling.getAttribute('href'))")) == {
        "../guides/how-a-gpu-runs-triton/"
    }
    for place in ("", "learn/"):
        page.open(address + place)
        assert (
            page.run("document.querySelector('.continue').textContent") == "Continue: How a GPU runs a Triton program"
        )
        assert page.run("document.querySelector('.continue').href") == address + PAGE
    page.open(address + PAGE)
    assert page.run(READ) == [PAGE]


@pytest.mark.parametrize(
    "last",
    [
        "no json",
        json.dumps(7),
        json.dumps({"page": "https://elsewhere.org/", "title": "x"}),
        json.dumps({"page": "learn/"}),
    ],
)
def test_what_else_the_storage_holds_does_no_harm(page, address, last):
    page.open(address)
    page.run(f"localStorage.setItem('academy.last', {last!r}), localStorage.setItem('academy.read', '{{\"a\": 1}}')")
    page.open(address)
    assert not page.run("!!document.querySelector('.continue')")
    page.run("localStorage.clear()")
