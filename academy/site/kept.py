"""MkDocs hook: pages that are not rendered again while what they are made from stays the same (`academy.cache`).

What MkDocs takes from a page's rendering is kept: its HTML, headings, title, anchors and links. So are its entries in
the search index. The theme's templates are compiled once, and filled in for every page in every build: they show the
navigation.
"""

from __future__ import annotations

import gc
import re
from functools import partial
from pathlib import Path

from jinja2 import FileSystemBytecodeCache
from mkdocs.plugins import event_priority
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, TableOfContents

from academy.cache import FOLDER, arrived, digest, end, expect, kept, trim
from academy.site import autodoc
from academy.site.library import SNIPPET, read

SNIPPETS = "pymdownx.snippets"

#: What makes most of a page's markup, of which the search plugin takes the text: formulas, code.
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex"[^>]*>')
CODE = re.compile(r"<pre\b[^>]*>.*?</pre>", re.S)
TAG = re.compile(r"<[^>]+>")
#: The recorded run of a kernel repeats its lines.
RUN = re.compile(r'<div class="k-panel".*?(?=<div class="k-row)', re.S)

_settings = ""  # what every page's rendering depends on


def on_config(config):
    """Behind the search plugin's own: the index is made by then."""
    if index := _search_index(config):
        index.add_entry_from_context = partial(_add_entries, index, index.add_entry_from_context)
    return config


def on_pre_build(config):
    gc.disable()  # a sixth of the time goes into looking for cycles among objects that live until the end


def _search_index(config):
    plugin = config.plugins.get("material/search") or config.plugins.get("search")
    return getattr(plugin, "search_index", None)


def on_nav(nav, config, files):
    global _settings
    places = sorted((file.src_uri, file.url) for file in files)
    settings = repr([config.markdown_extensions, config.mdx_configs, config.validation, places])
    _settings = digest(re.sub(r" at 0x[0-9a-f]+", "", settings))
    # Chapters may be executed, which is done once.
    pages = [file.page for file in files.documentation_pages() if file.page and file.src_uri.endswith(".md")]
    expect([partial(_ahead, page, config, files) for page in pages])
    return nav


def on_pre_page(page, config, files):
    page.render = partial(_render, page)
    return page


@event_priority(-100)
def on_page_content(html, page, config, files):
    """For the search: the text as it is before links between pages are set, which changes none of it."""
    page.searched = html
    return html


def on_env(env, config, files):
    folder = FOLDER.parent / "templates"
    folder.mkdir(parents=True, exist_ok=True)
    env.bytecode_cache = FileSystemBytecodeCache(str(folder))
    return env


def on_post_build(config):
    arrived()
    end()
    trim()
    gc.enable()


def on_build_error(error):
    arrived()
    end()
    gc.enable()


def _ahead(page, config, files) -> None:
    """What MkDocs does with a page up to its rendering, and its entries in the search index."""
    page = config.plugins.on_pre_page(page, config=config, files=files)
    page.read_source(config)
    page.markdown = config.plugins.on_page_markdown(page.markdown, page=page, config=config, files=files)
    page.render(config, files)
    page.content = config.plugins.on_page_content(page.content, page=page, config=config, files=files)
    if index := _search_index(config):
        index.add_entry_from_context(page)


def _render(page, config, files) -> None:
    key = [page.file.src_uri, page.markdown, _settings]
    piece = kept("page", key, lambda: _rendered(page, config, files))
    page.content, page._title_from_render, headings, anchors, links, entries = piece
    page.toc = TableOfContents([_heading(*heading) for heading in headings])
    page.present_anchor_ids = set(anchors)
    page.links_to_anchors = {files.get_file_from_path(uri): found for uri, found in links.items()}
    autodoc.enter(entries, page, config)


def _rendered(page, config, files) -> list:
    """The page's rendering as JSON. What it asks the site's index for is noted on the way."""
    appended = config.mdx_configs.get(SNIPPETS, {}).get("auto_append", [])
    for name in [*(found[1] for found in SNIPPET.finditer(page.markdown)), *appended]:
        read(name)
    autodoc.depend_on_modules(page.markdown, Path(config.config_file_path).parent)
    with autodoc.noted(config) as entries:
        Page.render(page, config, files)
    links = {file.src_uri: found for file, found in (page.links_to_anchors or {}).items()}
    headings = [_plain(item) for item in page.toc]
    return [page.content, page._title_from_render, headings, sorted(page.present_anchor_ids), links, entries]


def _plain(item: AnchorLink) -> list:
    return [item.title, item.id, item.level, [_plain(child) for child in item.children]]


def _heading(title: str, anchor: str, level: int, children: list) -> AnchorLink:
    item = AnchorLink(title, anchor, level)
    item.children = [_heading(*child) for child in children]
    return item


def _add_entries(index, add, page) -> None:
    """The page's entries in the search index: the theme's plugin reads the whole page for them."""

    def added() -> list:
        first, content = len(index.entries), page.content
        page.content = without_markup(page.searched)
        add(page)
        page.content = content
        entries = index.entries[first:]
        del index.entries[first:]
        return entries

    headings = [_plain(item) for item in page.toc]
    key = [page.url, page.searched, page.title, headings, repr(page.meta)]
    index.entries += kept("search", key, added)


def without_markup(html: str) -> str:
    """A page that gives the same entries in the search index in a quarter of the time: formulas and code as text.

    Only the table of the recorded run is missing there.
    """
    html = RUN.sub("", html)
    pieces, done = [], 0
    for formula in FORMULA.finditer(html):
        if formula.start() >= done:
            pieces.append(html[done : formula.start()])
            done = _end(html, formula["tag"], formula.end())
            if formula["tag"] == "span":
                pieces.append(TAG.sub("", html[formula.start() : done].rpartition("</math>")[2]))
    html = "".join([*pieces, html[done:]])
    return CODE.sub(lambda code: f"<pre><code>{TAG.sub('', code[0])}</code></pre>", html)


def _end(html: str, tag: str, start: int) -> int:
    """Behind the end of the element whose content begins at `start`."""
    depth = 1
    for found in re.compile(rf"<(/?){tag}\b").finditer(html, start):
        depth += -1 if found[1] else 1
        if not depth:
            return html.index(">", found.end()) + 1
    return len(html)
