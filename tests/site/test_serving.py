"""`make serve` where the port is taken: one line, before anything is built."""

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
    with pytest.raises(AttributeError, match="docs_dir"):  # it goes on to an option that this stub doesn't have
        plugin.on_config(config)
    plugin.on_startup(command="build", dirty=False)
    with pytest.raises(AttributeError, match="docs_dir"):
        plugin.on_config(config)
