"""`make serve` where the port is taken: one line, before anything is built. And which pages it makes."""

import json
import os
import socket
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

from academy.site import serving
from academy.site.plugin import AcademyPlugin


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named_with_what_to_do(taken):
    said = serving.problem("127.0.0.1", taken)
    assert said.startswith(f"127.0.0.1:{taken} can't be used: Address already in use. Stop what runs there")
    assert said.endswith(f"make serve ADDRESS=127.0.0.1:{taken + 1}")
    assert serving.problem("127.0.0.1", 0) == ""  # any free one


def test_it_ends_the_start_and_no_rebuild(taken):
    """At a rebuild the server itself has the port."""
    plugin, config = AcademyPlugin(), SimpleNamespace(dev_addr=SimpleNamespace(host="127.0.0.1", port=taken))
    plugin.on_startup(command="serve", dirty=True)
    with pytest.raises(PluginError, match="Address already in use"):
        plugin.on_config(config)
    with pytest.raises(AttributeError, match="extra"):  # it goes on to an option that this stub doesn't have
        plugin.on_config(config)
    plugin.on_startup(command="build", dirty=False)
    with pytest.raises(AttributeError, match="extra"):
        plugin.on_config(config)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Three pages: a kernel's, one that is made from other files, one that is written by hand."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, head in (("kernel", 'made_of: "1"'), ("other", 'made_of: "2"'), ("guide", "edit: docs/guide.md")):
        (docs / f"{name}.md").write_text(f"---\n{head}\n---\n")
    monkeypatch.setattr(serving, "code", lambda tree: "code")
    monkeypatch.setattr(serving, "_shown", lambda: [])
    return SimpleNamespace(docs=docs, nav=[], sections={}, is_late=False, library=None)


ALL = ["guide/", "kernel/", "other/"]


class Stub(serving.Served):
    """Makes empty pages, and counts them."""

    def __init__(self, tree):
        super().__init__(tree)
        self.made: list[str] = []
        self.with_engine(None, SimpleNamespace(mdx_configs={"academy.site": {}}), None, None, None)
        self.keep(tree)

    def make(self, url):
        self.made.append(url)
        self._page(url).parent.mkdir(parents=True, exist_ok=True)
        self._page(url).touch()
        return [{"location": f"{url}#a"}]


def changed(text, seconds=5):
    time = text.stat().st_mtime + seconds
    os.utime(text, (time, time))


def test_a_page_is_made_when_it_is_asked_for_and_once(tree):
    served = Stub(tree)
    assert served.made == [] and served.missing() == ALL
    for place in ("kernel/", "kernel/", "nowhere/", "kernel/index.md", "../docs/kernel.md"):
        served.asked(place)
    assert served.made == ["kernel/"] and served.missing() == ["guide/", "other/"]


def test_the_search_has_every_page(tree):
    served = Stub(tree)
    served.asked("other/")
    served.asked(serving.SEARCH)
    assert served.made == ["other/", "guide/", "kernel/"]
    entries = json.loads((served.folder / serving.SEARCH).read_text())["docs"]
    assert [entry["location"] for entry in entries] == [f"{url}#a" for url in ALL]


def test_the_next_start_has_the_pages_that_are_still_right(tree, monkeypatch):
    first = Stub(tree)
    first.asked("kernel/")
    first.end()
    assert Stub(tree).missing() == ["guide/", "other/"]
    served = Stub(tree)
    served.make_all()
    assert Stub(tree).missing() == []
    changed(tree.docs / "kernel.md")
    assert Stub(tree).missing() == ["kernel/"], "a page that was written again"
    monkeypatch.setattr(serving, "_shown", lambda: [tree.docs / "kernel.md"])
    assert Stub(tree).missing() == ["guide/", "kernel/"], "a guide may show what has changed"
    monkeypatch.setattr(serving, "code", lambda tree: "other code")
    assert Stub(tree).missing() == ALL


def test_a_page_of_which_the_search_knows_nothing_is_made_again(tree):
    """A server that was killed has not written its index."""
    served = Stub(tree)
    served.asked("kernel/")
    assert Stub(tree).missing() == ALL


def test_an_edit_of_a_kernel_makes_its_page_alone(tree, monkeypatch):
    """What else it changes is made when somebody asks for it."""
    served = Stub(tree)
    served.make_all()
    served.made.clear()

    def written(settings, is_late):
        assert is_late, "an edit writes the whole tree"
        changed(tree.docs / "kernel.md")
        monkeypatch.setattr(serving, "_shown", lambda: [tree.docs / "kernel.md"])
        return tree

    monkeypatch.setattr(serving.write, "tree", written)
    served.edited(None, lambda: pytest.fail("MkDocs begins anew"))
    assert served.made == [] and served.missing() == ["guide/", "kernel/"]
    served.asked("kernel/")
    assert served.made == ["kernel/"]


def test_with_another_navigation_mkdocs_begins_anew_and_a_mistake_leaves_the_pages(tree, monkeypatch):
    served, begun = Stub(tree), []
    served.make_all()
    monkeypatch.setattr(serving.write, "tree", lambda settings, is_late: tree)
    monkeypatch.setattr(serving, "code", lambda tree: "another navigation")
    served.edited(None, lambda: begun.append(1))
    assert begun == [1]

    def unreadable(settings, is_late):
        raise serving.write.Unreadable("a.py:1:2: invalid syntax")

    monkeypatch.setattr(serving.write, "tree", unreadable)
    served.edited(None, lambda: pytest.fail("MkDocs begins anew"))
    assert served.missing() == []


def test_what_lies_beside_a_page_is_written_when_it_is_asked_for(tree, monkeypatch):
    written = []
    monkeypatch.setattr(serving.write, "beside", written.append)
    tree.is_late = True
    served = Stub(tree)
    (tree.docs / "data.json").write_text("1")
    served.asked("data.json")
    assert (served.folder / "data.json").read_text() == "1" and written == []
    (tree.docs / "data.json").write_text("2")
    changed(tree.docs / "data.json")
    served.asked("data.json")
    assert (served.folder / "data.json").read_text() == "2"
    for _ in range(2):
        served.asked("learn/softmax.ipynb")
        served.asked("assets/playground/runtime.json")
    assert written == [tree]
