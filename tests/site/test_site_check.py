"""`make site-check`: what takes too long for every run of the tests. Lighthouse, axe on every page, every link.

Lighthouse comes from npm (package.json), pinned; it judges the site as the host sends it, compressed.
"""

import html
import json
import os
import re
import subprocess
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urljoin

import pytest

from tests.site.browser import CHROMIUM, FLAGS, served
from tests.site.test_accessible import violations
from tests.site.test_finish import prose
from tests.site.test_site import ROOT, pages

pytestmark = pytest.mark.site_check

LIGHTHOUSE = ROOT / "node_modules/.bin/lighthouse"
#: A page of each kind.
KINDS = {
    "home": "",
    "kernel": "kernels/classics/layernorm/",
    "derivation": "derivations/layernorm/",
    "notebook": "learn/softmax/",
    "benchmark": "benchmarks/layernorm/",
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


def test_every_link_inside_the_site_resolves(site):
    """In pages, 404.html, Markdown copies and llms.txt: files and, in pages, places within them."""
    base = next(iter(re.findall(r"\((https?://[^)]*?)index\.md\)", (site / "llms.txt").read_text())))
    anchors: dict[str, set[str]] = {}
    count = 0
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
            assert (site / file).is_file(), (here, link)
            if anchor and file.endswith(".html"):
                if file not in anchors:
                    anchors[file] = set(re.findall(r'\sid="([^"]+)"', (site / file).read_text("utf-8")))
                assert unquote(anchor) in anchors[file], (here, link)
            count += 1
    assert count > 5000
