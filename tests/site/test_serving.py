"""`make serve` where the port is taken: one line, before anything is built."""

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


def kept(tree, tmp_path):
    """What `mkdocs serve` finds in its new folder, and the search's entries that stay."""
    site = tmp_path / "new"
    site.mkdir()
    entries = serving.keep(site, tree)
    assert site.is_symlink()
    found = {path.parent.name for path in site.glob("*/index.html")}
    site.unlink()
    return found, [entry["location"] for entry in entries]


def test_the_next_start_makes_only_the_pages_that_are_no_longer_right(tmp_path, monkeypatch):
    docs, served = tmp_path / "docs", tmp_path / "served"
    docs.mkdir()
    tree = SimpleNamespace(docs=docs, nav=[], sections={})
    for name, head in (("kernel", 'made_of: "1"'), ("other", 'made_of: "2"'), ("guide", "edit: docs/guide.md")):
        (docs / f"{name}.md").write_text(f"---\n{head}\n---\n")
    monkeypatch.setattr(serving, "_code", lambda tree: ["code"])
    monkeypatch.setattr(serving, "_shown", lambda: [])
    assert kept(tree, tmp_path) == (set(), [])
    for name in ("kernel", "other", "guide"):
        (served / name).mkdir()
        (served / name / "index.html").touch()
    (served / "search").mkdir()
    docs_of_search = [{"location": f"{name}/#a"} for name in ("kernel", "other", "guide")]
    (served / "search/search_index.json").write_text(json.dumps({"docs": docs_of_search}))
    assert kept(tree, tmp_path)[1] == ["kernel/#a", "other/#a", "guide/#a"]
    later = (served / "kernel/index.html").stat().st_mtime + 5
    os.utime(docs / "kernel.md", (later, later))
    assert kept(tree, tmp_path)[1] == ["other/#a", "guide/#a"], "a page that was written again"
    monkeypatch.setattr(serving, "_shown", lambda: [docs / "kernel.md"])
    assert kept(tree, tmp_path) == ({"kernel", "other"}, ["other/#a"]), "a guide may show what has changed"
    monkeypatch.setattr(serving, "_code", lambda tree: ["other code"])
    assert kept(tree, tmp_path) == (set(), [])
