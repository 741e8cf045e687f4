"""Drives the Chromium that is installed, by Playwright; serves a folder as the site's host does, compressed.

Where none is installed, whatever needs one is skipped, here and nowhere else; the end of the run counts the skips.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.server
import io
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

#: The browser's program. The variable CHROMIUM names another one; if it is empty there is none.
NAMES = [os.environ["CHROMIUM"]] if "CHROMIUM" in os.environ else ["chromium", "chromium-browser", "google-chrome"]
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
#: Why a test is skipped without it.
MISSING = "needs Chromium, which is not installed"
#: How to get it, for the end of the run.
HOW = "apt install chromium fonts-dejavu, or another Chromium or Chrome on the PATH"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--hide-scrollbars"]
#: WebAssembly is compiled once and not optimized: a test's Python runs for less time than that would take.
UNOPTIMIZED = "--js-flags=--liftoff-only"


def _in_its_thread(method):
    """Playwright's calls belong to one thread; in pytest's own, its event loop would be in the way of other tests."""

    @functools.wraps(method)
    def call(self, *args, **options):
        return self._thread.submit(method, self, *args, **options).result()

    return call


class Browser:
    """One tab. `requests` collects the URL of everything that it asked for, `errors` what scripts threw.

    timed: times are measured, so WebAssembly is compiled as a reader's browser does it.

    Skips the test that asks for it where there is no Chromium.
    """

    def __init__(self, timed: bool = False):
        if not CHROMIUM:
            pytest.skip(MISSING)
        self._thread = ThreadPoolExecutor(1)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._start(FLAGS if timed else [*FLAGS, UNOPTIMIZED])

    @_in_its_thread
    def _start(self, flags: list[str]) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        self._open_tab()

    def _open_tab(self) -> None:
        self._page = self._chromium.new_context().new_page()
        self._page.on("request", lambda request: self.requests.append(request.url))
        self._page.on("pageerror", lambda error: self.errors.append(str(error)))
        self._tools = self._page.context.new_cdp_session(self._page)

    @_in_its_thread
    def forget(self) -> None:
        """Go on as a browser that has seen nothing yet."""
        self._page.context.close()
        self._open_tab()

    @_in_its_thread
    def offline(self, off: bool) -> None:
        """Take the network away, or give it back."""
        self._page.context.set_offline(off)

    @_in_its_thread
    def call(self, method: str, **params) -> dict:
        """A command of the DevTools protocol."""
        return self._tools.send(method, params)

    @_in_its_thread
    def open(self, url: str, width: int = 1440, height: int = 1000, dark: bool = False) -> None:
        """Load a page at a window size and wait until it has loaded."""
        self._page.set_viewport_size({"width": width, "height": height})
        self._page.emulate_media(color_scheme="dark" if dark else "light")
        self._page.goto(url)
        self._page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")

    def fresh(self, url: str, **window) -> None:
        """Load a page also where only its fragment differs from that of the page which is there."""
        self.open("about:blank")
        self.open(url, **window)

    @_in_its_thread
    def run(self, script: str):
        """The value of a JavaScript expression; a promise is awaited."""
        return self._page.evaluate(script)

    def wait(self, script: str, seconds: float = 10):
        """Run an expression until it is true, and return its value. The page may be replaced meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if value := self.run(script):
                    return value
            except Exception as error:
                if "context was destroyed" not in str(error):
                    raise
            time.sleep(0.05)
        raise AssertionError(f"not true within {seconds} s: {script}")

    @_in_its_thread
    def press(self, keys: str) -> None:
        """Press a key or a combination on what has the focus: `Tab`, `Shift+ArrowRight`."""
        self._page.keyboard.press(keys)

    def violations(self, part: str = "html") -> list[str]:
        """What axe finds wrong with a part of the page as it is shown: `rule: element`. As Lighthouse, it looks for
        room between targets."""
        options = "{resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}"
        return self.run(f"{_axe()}; axe.run({part!r}, {options}).then({_LIST})")

    @_in_its_thread
    def screenshot(self, path: Path, full: bool = False) -> None:
        """Write what the window shows, or the whole page, as PNG."""
        self._page.screenshot(path=path, full_page=full)

    @_in_its_thread
    def pdf(self, path: Path) -> None:
        """Print the page on A4."""
        self._page.pdf(path=path, format="A4", print_background=False)

    def close(self) -> None:
        self._stop()
        self._thread.shutdown()

    @_in_its_thread
    def _stop(self) -> None:
        self._chromium.close()
        self._playwright.stop()


_LIST = "found => found.violations.flatMap(v => v.nodes.map(node => `${v.id}: ${node.html.slice(0, 200)}`))"


@functools.cache
def _axe() -> str:
    return (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text("utf-8")


class _Pages(http.server.SimpleHTTPRequestHandler):
    """As GitHub Pages does it: text is sent compressed, a missing page gets 404.html, the site stands under a path."""

    #: Seconds before each answer, and bytes a second for all answers together: a slow network's.
    latency, rate = 0.0, 0.0
    TEXT = (".html", ".css", ".js", ".json", ".svg", ".xml", ".txt", ".md", ".py", ".ipynb")
    under = "/"
    turn = threading.Lock()

    def log_message(self, *_):
        pass

    def copyfile(self, source, outputfile):
        if not self.rate:
            return super().copyfile(source, outputfile)
        time.sleep(self.latency)
        while part := source.read(8192):
            with self.turn:  # one connection after the other has the line for as long as its bytes take
                time.sleep(len(part) / self.rate)
            outputfile.write(part)

    def translate_path(self, path: str) -> str:
        return super().translate_path("/" + path.removeprefix(self.under))

    def send_head(self):
        path = Path(self.translate_path(self.path))
        if path.is_dir() and urlsplit(self.path).path.endswith("/"):
            path = path / "index.html"
        missing = not path.exists()
        path = Path(self.directory) / "404.html" if missing else path
        if path.suffix not in self.TEXT:
            return super().send_head()
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        body = _compressed(path, path.stat().st_mtime_ns) if packed else path.read_bytes()
        self.send_response(404 if missing else 200)
        self.send_header("Content-Type", self.guess_type(str(path)) + "; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        return io.BytesIO(body)


@functools.lru_cache(1000)
def _compressed(path: Path, _time: int) -> bytes:
    return gzip.compress(path.read_bytes(), mtime=0)


@contextlib.contextmanager
def served(folder: Path, under: str = "/", latency: float = 0.0, rate: float = 0.0) -> Iterator[str]:
    """Serve a folder on this machine while the block runs; the value is its address. `under`: the path it stands at.
    `latency` and `rate`: those of a slow network, in seconds and bytes a second."""
    told = {"under": under, "latency": latency, "rate": rate}
    handler = functools.partial(type("_Pages", (_Pages,), told), directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{under}"
        server.shutdown()
