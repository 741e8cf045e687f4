"""`python -m academy.site.with_zensical FOLDER`: the tree that `academy.site.write` writes, built by Zensical.

Zensical reads mkdocs.yml, the Markdown extensions and the theme's templates. What it has other settings for is written
beside the tree. docs/about/engine.md says what it can't do yet.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from academy.book.layout import ROOT
from academy.playground import bundle
from academy.site import generated_pages, markdown_copies, write


def settings(tree: write.Tree, config: dict) -> dict:
    """What differs from mkdocs.yml, in Zensical's words. Lists take the place of those there."""
    plugins = write.plugins(config)
    plugins["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    extra = {name: value for name, value in config["extra"].items() if name != "version"}
    return {
        **{name: config[name] for name in config if name not in ("watch", "edit_uri")},
        "nav": tree.nav,
        "validation": False,  # it takes directives and absolute links for mistakes; test_engines.py looks in the HTML
        "docs_dir": "docs",
        "site_dir": "site",
        "theme": config["theme"] | {"variant": "classic", "custom_dir": str(ROOT / config["theme"]["custom_dir"])},
        "extra": extra | {"playground_megabytes": bundle.megabytes(ROOT)},
        "plugins": [{name: plugins[name]} for name in ("search", "mkdocstrings")],
    }


def build(folder: Path) -> int:
    """Write the tree, build it, and move the site to `folder`. Returns how the engine ended."""
    tree, config = write.main(), write.configuration()
    file, site = tree.docs.parent / "zensical.yml", tree.docs.parent / "site"
    file.write_text(yaml.safe_dump(settings(tree, config), allow_unicode=True, sort_keys=False), "utf-8")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "-f", str(file)], cwd=ROOT)
    if done.returncode == 0:
        for page in site.rglob("index.html"):
            page.write_text(generated_pages.OF_SECTION.sub(r"\1\2", page.read_text("utf-8")), "utf-8")
        markdown_copies.write(site, tree.sections, config)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(site, folder)
    return done.returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
