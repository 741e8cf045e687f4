"""What a page shows of a recorded run: the data's size and content, the start state without JavaScript."""

import gzip
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from academy.traces import page, store

FILES = store.kernel_files()
STATIC = page.STATIC


@pytest.fixture(scope="module")
def recordings():
    return store.load(FILES)


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def kernel(request, recordings):
    return request.param, recordings[request.param]


def test_data_is_small(kernel):
    path, _ = kernel
    script = page.run(store.shorten(path))[1]
    size = len(gzip.compress(script.encode()))
    assert size <= page.MAX_BYTES, f"{size} bytes compressed: use fewer programs or smaller tensors in EXAMPLE"


def test_viewer_is_small():
    assert {f"{name}.js" for name in (*page.SCRIPTS, page.LANES)} == {path.name for path in STATIC.glob("*.js")}
    assert sum(len(gzip.compress((STATIC / f"{name}.js").read_bytes())) for name in page.SCRIPTS) < 19_000
    assert len(gzip.compress((STATIC / "viewer.css").read_bytes())) < 5_000
    assert len(gzip.compress((STATIC / f"{page.LANES}.js").read_bytes())) < 3_500


def test_only_recordings_with_lanes_bring_their_script(kernel):
    path, recording = kernel
    has = [bool(launch.get("orders")) for launch in recording.data["launches"]]
    shown = page.viewer_data(path, recording)["launches"]
    assert [bool(launch.get("orders")) for launch in shown] == has
    assert any(has) == ("gluon" in path.parts) == ("viewer.Lanes = class" in page.standalone(path, recording))


def numbers_of(entry):
    """As recording.js reads them: the elements of a box are written as its first one, strides and sizes."""
    if "x" not in entry:
        return entry["d"]
    first, strides, sizes = entry["x"]
    index = np.indices(entry["s"])
    inside = np.logical_and.reduce([axis < size for axis, size in zip(index, sizes)])
    return np.where(inside, first + sum(axis * stride for axis, stride in zip(index, strides)), -1).reshape(-1)


def test_data_says_what_the_recording_says(kernel):
    path, _ = kernel
    _, script, place = page.run(store.shorten(path))
    name, data = re.fullmatch(r'academyRun\("([\w.]+)",(.*)\)', script, re.S).groups()
    assert place == f"data/{name}.js" and store.name(path) == f"annotated_examples.{name}"
    recording = page._recording(store.shorten(path))  # what is kept now: the tests' other processes record, too
    data = json.loads(data)
    assert [launch["kernel"] for launch in data["launches"]] == [launch["kernel"] for launch in recording.launches]
    for entry, number in zip(data["pool"], range(len(data["pool"]))):
        value = recording.value(number)
        if entry["t"] in ("tuple", "text") or value is None:
            continue
        value = getattr(value, "offsets", value)
        shown = np.array([float(x) for x in numbers_of(entry)], dtype=float).reshape(entry["s"])
        half_a_unit = 5e-4 if entry["t"].startswith("f") else 0  # of the fourth digit, which floats are rounded to
        # (and of the smallest float32: a number that small is shown with as many digits as it has)
        np.testing.assert_allclose(shown, np.asarray(value, dtype=float), rtol=half_a_unit, atol=2**-150)
    lines = path.read_text().split("\n")
    for function, line, *_ in data["places"]:
        assert 0 <= line <= len(lines), function


def test_every_claim_has_its_moment(kernel):
    path, recording = kernel
    data = page.viewer_data(path, recording)
    for _, launch, pid, step in data["claims"]:
        programs = {tuple(p): rows for p, rows in data["launches"][launch]["programs"]}
        assert 0 <= step < len(programs[tuple(pid)])


class Tags(HTMLParser):
    """Checks that what is opened is closed."""

    VOID = {"meta", "input", "br", "link"}

    def __init__(self):
        super().__init__()
        self.stack, self.wrong = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.wrong.append(tag)


def test_static_start_state(kernel):
    path, recording = kernel
    html = page.run(store.shorten(path))[0]
    tags = Tags()
    tags.feed(html)
    assert not tags.stack and not tags.wrong
    assert any(f"<code>{launch['kernel']}</code>" in html for launch in recording.launches), "the main kernel"
    links = re.findall(r'<a href="#L\d+">\d+</a>', html)
    if any(f"def {launch['kernel']}(" in path.read_text("utf-8") for launch in recording.launches):  # one of its own
        assert links and html.count("<tr>") > 3, "no statement of the first program is shown line by line"
    assert "<script" not in html and "undefined" not in html.replace("the others undefined", "")


def test_program_that_the_prose_follows_comes_first():
    html = page.run("annotated_examples/tutorials/vector_add.py")[0]
    assert "This is program 2, line by line" in html  # the first that a note quotes
    assert "3 programs" in html


def test_no_panel_without_a_run():
    assert page.run("annotated_examples/__init__.py") == []


def test_no_panel_of_a_run_that_fails(kernel_file, in_process, own_cache, logged, monkeypatch):
    path = kernel_file("""
        @triton.jit
        def beyond_kernel(x_ptr):
            tl.store(x_ptr + 9, 1.0)

        def EXAMPLE():
            beyond_kernel[(1,)](torch.ones(4))
    """)
    monkeypatch.setattr(page.store, "kernel_files", lambda: [path])  # which would be recorded with it
    assert page.run(str(path)) == []
    assert "outside a tensor: element 9 of x_ptr" in "".join(logged)


def test_no_panel_without_triton(monkeypatch):
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    assert page.run("annotated_examples/tutorials/vector_add.py") == []
