"""`make site-check`: what takes too long for every run of the tests. Lighthouse, and axe on every page.

Lighthouse comes from npm (package.json), pinned; it judges the site as the host sends it, compressed.
"""

import json
import os
import subprocess
from urllib.parse import urljoin

import pytest

from tests.site.browser import CHROMIUM, FLAGS, served
from tests.site.test_accessible import violations
from tests.site.test_site import ROOT, pages

pytestmark = [pytest.mark.site_check, pytest.mark.usefixtures("executed")]

LIGHTHOUSE = ROOT / "node_modules/.bin/lighthouse"
#: A page of each kind.
KINDS = {
    "home": "",
    "kernel": "kernels/classics/layernorm/",
    "derivation": "derivations/layernorm/",
    "notebook": "learn/softmax/",
    "benchmark": "benchmarks/layernorm/",
    "explorable": "guides/measuring/",
    "exercise": "exercises/first_kernel/reverse/",
    "list of kernels": "kernels/",
}
FAST = {"mobile": 95, "desktop": 99}
#: What else runs on the machine makes a page slower, never faster: the best of this many runs counts.
TRIES = 3


@pytest.mark.parametrize("form", FAST)
@pytest.mark.parametrize("kind", KINDS)
def test_lighthouse(address, tmp_path, kind, form):
    assert CHROMIUM and LIGHTHOUSE.exists(), "needs Chromium and `npm ci`, as `make site-check` has them"
    for attempt in range(TRIES):
        scores, report = lighthouse(urljoin(address, KINDS[kind]), form, tmp_path / f"{attempt}.json")
        others = {name: score for name, score in scores.items() if name != "performance"}
        if scores["performance"] >= FAST[form] and set(others.values()) == {100}:
            break
    print(f"\n{kind}, {form}: {scores}")
    assert set(others.values()) == {100}, (scores, failed(report))
    assert scores["performance"] >= FAST[form], (scores, failed(report))


def lighthouse(url: str, form: str, out) -> tuple[dict[str, int], dict]:
    """Scores of a page by category, and the whole report."""
    chromium = " ".join(["--headless=new", *FLAGS])
    command = [LIGHTHOUSE, url, "--quiet", "--output=json", f"--output-path={out}", f"--chrome-flags={chromium}"]
    command += ["--preset=desktop"] if form == "desktop" else []
    subprocess.run(command, env={**os.environ, "CHROME_PATH": CHROMIUM}, check=True, timeout=180)
    report = json.loads(out.read_text())
    return {name: round(100 * (part["score"] or 0)) for name, part in report["categories"].items()}, report


def failed(report: dict) -> dict[str, str]:
    """The audits that cost points, with what they found."""
    counted = [ref["id"] for part in report["categories"].values() for ref in part["auditRefs"] if ref["weight"]]
    audits = {name: report["audits"][name] for name in counted}
    return {
        name: audit.get("displayValue") or json.dumps(audit.get("details", {}).get("items", []))[:500]
        for name, audit in audits.items()
        if audit["score"] not in (None, 1)
    }


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(site, browser, theme, width):
    found = {}
    with served(site, "/triton-academy/") as address:
        for page in [*pages(site), "no/such/page/"]:
            browser.open(urljoin(address, page), width=width, height=900, dark=theme == "dark")
            found[page] = violations(browser)
    assert len(found) > 50 and not any(found.values()), {page: list for page, list in found.items() if list}
