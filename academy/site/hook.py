"""MkDocs hook: what the Markdown extension can't reach.

- publishes the kernel files (for download) and the style sheets, scripts and fonts of academy's parts;
- a kernel file or chapter with a syntax error ends the build with its place, before anything is made;
- "edit this page" leads to the kernel or derivation, not to its stub; title and description come from there too;
- says where a broken link stands, by file and line;
- `{{ repo_url }}` in a page stands for the address in mkdocs.yml, also in code;
- resolves links to pages in the docstrings of the API reference, which MkDocs leaves as they are.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from academy import cache, syntax
from academy.site import plugs
from academy.site.library import READING_ORDER, SECTIONS, Library, read
from academy.site.titles import heading, summary

ROOT = Path(__file__).resolve().parents[2]
ACADEMY = ROOT / "academy"
# Folder with files to publish -> its place on the site. A part of academy that has a static/ folder is published too.
VENDORED = {"site/vendor/katex": "katex", "site/vendor/plex": "plex"}
PUBLISHED = {".css", ".js", ".woff2", ".svg", ".png"}
LINK = re.compile(r'href="/([^"#?]+\.md)(#[^"]*)?"')
BROKEN = re.compile(r"Doc file '(?P<doc>[^']+)' contains .*?'(?P<link>[^']+)'")

library = Library(ROOT)


def on_config(config):
    logging.getLogger("mkdocs.structure.pages").addFilter(_with_place)
    return config


def on_pre_build(config):
    """Too much is made from a kernel file to go on without it. `mkdocs serve` waits until the file is mended."""
    paths = sorted([*(ROOT / "annotated_examples").rglob("*.py"), *Path(config.docs_dir).glob("learn/*.py")])
    problems = [syntax.problem(read(path), path.relative_to(ROOT).as_posix()) for path in paths]
    if any(problems):
        raise PluginError("\n".join(str(problem) for problem in problems if problem))


def on_files(files, config):
    global library
    library = Library.read(ROOT, Path(config.docs_dir).relative_to(ROOT).as_posix())
    cache.begin(library)
    for path, line, message in library.problems:
        logging.getLogger("mkdocs.academy.site").warning("%s:%d: %s", path, line, message)
    folders = {ACADEMY / source: f"assets/{place}" for source, place in VENDORED.items()}
    folders |= {folder: f"assets/{folder.parent.name}" for folder in sorted(ACADEMY.glob("*/static"))}
    for folder, place in folders.items():
        for path in sorted(folder.rglob("*")):
            if path.suffix in PUBLISHED and not (folder.name == "katex" and path.suffix == ".js"):
                _publish(files, config, path, f"{place}/{path.relative_to(folder).as_posix()}")
    if plugs.no_run():
        logging.getLogger("mkdocs.academy.site").info(plugs.no_run())
    kernels = [page for page in library.shown("kernel") if (ROOT / page.source).is_file()]
    cache.expect([partial(plugs.recorded_data, page.source) for page in kernels])
    for page in kernels:
        _publish(files, config, ROOT / page.source, page.source)
        place, data = plugs.recorded_data(page.source)
        if data:
            files.append(File.generated(config, f"assets/traces/{place}", content=data))
    cache.arrived()
    for page in library.pages.values():
        stub = files.get_file_from_path(page.uri)
        if stub:
            stub.edit_uri = f"../{page.source}"
    return files


def on_nav(nav, config, files):
    READING_ORDER.clear()
    READING_ORDER.update({page.file.src_uri: place for place, page in enumerate(nav.pages)})
    SECTIONS.clear()
    SECTIONS.update({page.file.src_uri: page.parent.title for page in nav.pages if page.parent})
    return nav


def _publish(files, config, path: Path, uri: str) -> None:
    if not files.get_file_from_path(uri):
        files.append(File.generated(config, uri, abs_src_path=str(path)))


def on_page_markdown(markdown, page, config, files):
    stub = library.page_at(page.file.src_uri)
    if stub and (ROOT / stub.source).is_file():
        title, description = heading(library, stub)
        page.meta.setdefault("title", title)
        page.meta.setdefault("description", description)
    if "description" in page.meta:
        page.meta["description"] = summary(page.title or "", page.meta["description"], stub.kind if stub else "")
    return markdown.replace("{{ repo_url }}", config.repo_url)


def on_page_content(html, page, config, files):
    def resolve(match):
        target = files.get_file_from_path(match[1])
        if target is None:
            message = "%s: link to %s, which does not exist"
            logging.getLogger("mkdocs.academy.site").warning(message, page.file.src_uri, match[1])
            return match[0]
        return f'href="{target.url_relative_to(page.file)}{match[2] or ""}"'

    # A result without a type starts with a dash in mkdocstrings' lists.
    html = re.sub(r'(<li class="doc-section-item field-body">\s*)–\s*', r"\1", html)
    return LINK.sub(resolve, html)


def _with_place(record: logging.LogRecord) -> bool:
    """Put `path:line: ` in front of MkDocs's messages about broken links."""
    message = record.getMessage()
    found = BROKEN.match(message)
    if found:
        place = _place(found["doc"], found["link"])
        record.msg, record.args = f"{place}: {message}", ()
    return True


def _place(doc: str, link: str) -> str:
    stub = library.page_at(doc)
    candidates = ([stub.source] if stub else []) + [f"docs/{doc}"]
    # A link may have been rewritten from the form that it has in a kernel or derivation: look for its end.
    needles = [f"]({link}", link, "#" + link.partition("#")[2] if "#" in link else link]
    for path in candidates:
        lines = read(ROOT / path).split("\n") if (ROOT / path).is_file() else []
        for needle in needles:
            for number, line in enumerate(lines, 1):
                if needle in line:
                    return f"{path}:{number}"
    return candidates[0]
