"""The addresses of the site and of the repository come from the environment; unset, nothing leads to them."""

import os
import re
import subprocess
import sys

import pytest
import yaml
from mkdocs.config import load_config

from academy.site import addresses, chapters
from tests.site.conftest import ROOT

LEADS_NOWHERE = re.compile(
    rf"{addresses.NOWHERE}|example\.org|github\.com/example|/blob/main/|/edit/main/|colab\.research|rel=\"edit\""
    r"|\"(?:None)?/issues"
)
UNSET = {name: value for name, value in os.environ.items() if name not in ("SITE_URL", "REPO_URL")}


@pytest.fixture(scope="module")
def unpublished(tmp_path_factory):
    """The site as `make serve` shows it in a clone: no address is set. Cells are not executed."""
    folder = tmp_path_factory.mktemp("unpublished")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**UNSET, "NO_MKDOCS_2_WARNING": "1", "EXECUTE_NOTEBOOKS": "false"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.site_check  # a second build of the whole site
def test_no_link_leads_nowhere_while_the_addresses_are_unset(unpublished):
    files = [path for ending in ("html", "md", "txt", "ipynb", "xml") for path in unpublished.rglob(f"*.{ending}")]
    assert len(files) > 100
    found = {path.name: dead[0] for path in files if (dead := LEADS_NOWHERE.search(path.read_text("utf-8")))}
    assert not found
    assert "md-source" not in (unpublished / "index.html").read_text("utf-8")
    measuring = (unpublished / "guides/measuring/index.html").read_text("utf-8")
    assert 'href="../../benchmarks/measuring.py"' in measuring and (unpublished / "benchmarks/measuring.py").is_file()
    for page in ("index.html", "getting-started/index.html"):
        text = re.sub(r"<[^>]+>", "", (unpublished / page).read_text("utf-8"))
        assert "make serve" in text and "git clone" not in text


def test_a_published_site_has_them(site):
    page = (site / "kernels" / "classics" / "layernorm" / "index.html").read_text("utf-8")
    assert "https://github.com/example/triton-academy/blob/main/annotated_examples/classics/layernorm.py" in page
    assert LEADS_NOWHERE.search(page) and addresses.NOWHERE not in page


def test_the_environment_is_the_one_place(monkeypatch):
    monkeypatch.setenv("SITE_URL", "https://a.example/b/")
    monkeypatch.setenv("REPO_URL", "https://git.example/a/b")
    config = load_config(str(ROOT / "mkdocs.yml"))
    assert (config.site_url, config.repo_url) == ("https://a.example/b/", "https://git.example/a/b")
    assert config.mdx_configs["academy.site"]["repo_url"] == config.repo_url
    monkeypatch.delenv("SITE_URL")
    monkeypatch.delenv("REPO_URL")
    config = load_config(str(ROOT / "mkdocs.yml"))
    assert not config.site_url and not config.repo_url
    assert chapters.colab("learn/softmax.py", config.repo_url) == ""


def test_the_workflow_derives_them_from_its_repository():
    workflow = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text())
    addresses_of = workflow["env"]  # for all of its jobs
    assert "github.repository" in addresses_of["REPO_URL"] and "github.repository_owner" in addresses_of["SITE_URL"]


def test_no_command_to_copy_has_an_address_that_is_none():
    text = "git clone {{ repo_url }} && cd x\nmake\npip install git+{{ repo_url }}"
    assert addresses.with_repository(text, "https://a.b/c").startswith("git clone https://a.b/c && cd x\nmake\npip")
    unset = addresses.with_repository(text, "")
    assert unset == "make\npip install git+<the address of this repository>"
    assert subprocess.run(["bash", "-nc", "git clone " + addresses.PLACEHOLDER + "\n"]).returncode != 0


def test_code_that_a_page_links_to_is_on_a_site_without_a_repository():
    code = addresses.linked_code(ROOT, ROOT / "docs")
    assert {"benchmarks/measuring.py", "benchmarks/host_time.py", "academy/runtime/launch.py"} <= code


def test_links_without_a_target_become_text():
    assert addresses.file_address("https://git.example/a/", "b.py") == "https://git.example/a/blob/main/b.py"
    text = f"See [`b.py`]({addresses.file_address('', 'b.py')}) and [c](c.md)."
    assert addresses.without_dead_links(text) == "See `b.py` and [c](c.md)."
