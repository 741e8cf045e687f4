"""How long the site takes to build, to start and to show an edit. For an idle machine: `make site-check`."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from academy.book import layout
from academy.traces import store
from tests.site.project import copied, environment, run

#: Each says what it promises by its own clock; the limit of pytest is for what hangs.
pytestmark = [pytest.mark.site_check, pytest.mark.timeout(3600)]

KERNEL = "annotated_examples/classics/layernorm.py"
PAGE = "kernels/classics/layernorm/"


def build(project, *options: str) -> float:
    started = time.monotonic()
    run(project, "-m", "mkdocs", "build", "--quiet", *options)
    return time.monotonic() - started


def test_the_site_is_built_in_a_second_for_each_kernel_page(tmp_path):
    """All of it, where nothing but the recorded runs has been made before: no plot, no formula. (Not strictly: the copy
    has no tests.)"""
    project = copied(tmp_path)
    seconds = build(project)
    pages = {}
    for path in layout.pages(project):
        place = layout.module_name(project, path).replace(".", "/")
        if layout.group(project, path) != "capstone":  # a model is no kernel
            pages[path] = (project / f"site/kernels/{place}/index.html").read_text()
    print(f"{len(pages)} kernel pages, {seconds:.1f} s, again {build(project):.1f} s")
    assert pages and all('class="k-file' in page for page in pages.values())
    recorded = [path for path, page in pages.items() if "data-k-mode" in page]
    assert recorded == [path for path in pages if store.has_example(path)], "a page lacks its recorded run"
    assert seconds < len(pages)


def test_an_edit_gives_the_site_that_a_fresh_build_gives(tmp_path):
    """After edits of a comment, a docstring and a heading every file is the same, made with the cache or without."""
    project = copied(tmp_path)
    build(project, "--strict")
    before = contents(project / "site")
    for name, old, new in [
        (KERNEL, "\n# ## ", "\n# Another comment.\n\n# ## "),
        (KERNEL, "x: tensor of shape (..., N)", "x: a tensor of shape (..., N)"),
        ("backprop_math/softmax.md", "## Forward", "## Going forward"),
    ]:
        path = project / name
        assert old in path.read_text(), old
        path.write_text(path.read_text().replace(old, new, 1))
    build(project)
    kept = contents(project / "site")
    build(project)
    assert contents(project / "site") == kept
    for file in (project / ".cache").glob("academy.sqlite*"):
        file.unlink()
    build(project)
    fresh = contents(project / "site")
    assert [name for name in fresh if fresh[name] != kept.get(name)] == []
    assert kept.keys() == fresh.keys()
    changed = {name for name in fresh if fresh[name] != before.get(name)}
    assert {f"{PAGE}index.html", "reference/annotated_examples/index.html", "derivations/softmax/index.html"} <= changed
    assert "kernels/classics/swiglu/index.html" not in changed


def contents(site) -> dict[str, bytes]:
    """Every page and data file by its place. Dates of the build are left out."""
    files = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith("sitemap")}


def test_serve_starts_in_twelve_seconds_shows_an_edit_in_two_and_makes_one_page_for_it(tmp_path):
    """As `make serve` calls it, the second time."""
    project = copied(tmp_path)
    with served(project) as (get, seconds):
        print(f"first start {seconds:.1f} s")
        get("search/search_index.json")  # which needs every page
    with served(project) as (get, seconds):
        print(f"start {seconds:.1f} s")
        assert seconds < 12
        (folder,) = (project / "build").glob("site-*/served")
        time.sleep(1.5)  # the folders are watched from now on
        before = {page: page.stat().st_mtime_ns for page in folder.rglob("index.html")}
        path = project / KERNEL
        path.write_text(path.read_text().replace("\n# The formula", "\n# Zebra. The formula", 1))
        started = time.monotonic()
        while "Zebra." not in get():
            assert time.monotonic() - started < 60
            time.sleep(0.02)
        seconds = time.monotonic() - started
        print(f"edit {seconds:.1f} s")
        made = [page for page in folder.rglob("index.html") if page.stat().st_mtime_ns != before.get(page)]
        assert made == [folder / PAGE / "index.html"]
        assert seconds < 2


class served:
    """`mkdocs serve` while the block runs: a function that gets a page, and the seconds until it was there."""

    def __init__(self, project):
        self.project = project

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        started = time.monotonic()
        command = [sys.executable, "-m", "mkdocs", "serve", "--dirty", "--dev-addr", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(
            command, cwd=self.project, env=environment(self.project), stderr=subprocess.DEVNULL
        )
        try:
            while "LayerNorm" not in self.get():
                assert self.process.poll() is None, "the server has ended"
                time.sleep(0.02)
        except BaseException:
            self.process.kill()
            raise
        return self.get, time.monotonic() - started

    def get(self, place: str = PAGE) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/triton-academy/{place}", timeout=60) as page:
                return page.read().decode()
        except OSError:
            return ""

    def __exit__(self, *_):
        os.kill(self.process.pid, signal.SIGINT)
        self.process.wait(30)
