"""The MkDocs plugin `academy`: MkDocs builds the tree that `academy.site.write` writes. Here is what only its hooks
reach: one style sheet, less work for the search, broken links with their lines."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace

from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority
from mkdocs.structure.files import File, get_files

from academy.book.layout import ROOT
from academy.playground import bundle
from academy.site import broken_links, generated_pages, markdown_copies, search_text, serving, stylesheet, write

link_places = broken_links.LinkPlaces()


class AcademyPlugin(BasePlugin):
    serves = begins_to_serve = False
    link: Path | None = None

    def on_startup(self, *, command, dirty):
        """`mkdocs serve` is for looking at pages: their copies are left to `mkdocs build`."""
        self.serves = self.begins_to_serve = command == "serve"
        self.dirty = dirty
        write.begin()

    def on_shutdown(self):
        write.end()
        if self.link and self.link.is_symlink():
            self.link.unlink()  # MkDocs goes on to delete what it takes for the site's folder

    def on_build_error(self, *, error):
        write.end()

    def on_config(self, config):
        begins, self.begins_to_serve = self.begins_to_serve, False  # after an edit, the server itself has the port
        if begins and (problem := serving.problem(config.dev_addr.host, config.dev_addr.port)):
            raise PluginError(problem)
        # `mike deploy` says which version it builds. Elsewhere the theme would ask for a list that isn't there.
        if "MIKE_DOCS_VERSION" not in os.environ:
            config.extra.pop("version", None)
        elif config.site_url:
            config.site_url = config.site_url.rstrip("/") + "/"  # mike adds the version without a slash
        chapters = config.plugins["mkdocs-jupyter"]
        files = [Path(file.abs_src_path) for file in get_files(config) if chapters.should_include(file)]
        settings = write.Settings.of(config, chapters.config["execute"], files, draws=not self.serves)
        try:
            self.tree = write.tree(settings)
        except (write.Unreadable, write.CellFailed) as error:
            raise PluginError(str(error)) from error
        if begins and self.dirty:
            self.link = Path(config.site_dir)
            kept = SimpleNamespace(entries=serving.keep(self.link, self.tree))
            config.plugins["material/search"].search_index_prev = kept
        config.nav, config.docs_dir = self.tree.nav, str(self.tree.docs)
        config.mdx_configs.setdefault("academy.site", {})["index"] = link_places.library = self.tree.library
        logging.getLogger("mkdocs.structure.pages").addFilter(link_places)
        config.extra["playground_megabytes"] = bundle.megabytes(ROOT)
        return config

    def on_serve(self, server, *, config, builder):
        server.unwatch(config.docs_dir)  # which a build writes; its sources are in mkdocs.yml
        return server

    def on_page_markdown(self, markdown, *, page, config, files):
        page.previous_page, page.next_page = page.meta.get("before"), page.meta.get("after")

    @event_priority(-100)  # after mkdocstrings has written its sheet
    def on_env(self, env, *, config, files):
        name, text = stylesheet.one_sheet(config, files)
        files.append(File.generated(config, name, content=text))
        config.extra_css = [name]
        return env

    @event_priority(100)
    def _before_search(self, context, *, page, config, nav):
        self.content, page.content = page.content, search_text.searched(page.content, page.url)

    @event_priority(-100)
    def _after_search(self, context, *, page, config, nav):
        page.content = self.content

    on_page_context = CombinedEvent(_before_search, _after_search)

    def on_post_page(self, output, *, page, config):
        output = generated_pages.OF_SECTION.sub(r"\1\2", output)
        if not self.serves:
            markdown_copies.begin(output)
        return output

    def on_post_build(self, *, config):
        if not self.serves:
            markdown_copies.write(Path(config.site_dir), self.tree.sections, config)
        search_text.mend(Path(config.site_dir))
        write.end()
