"""MkDocs builds the tree that `academy.site.write` writes. What only hooks reach: a style sheet, the search, links."""

from __future__ import annotations

from pathlib import Path

from mkdocs.commands.build import _build_page, _populate_page
from mkdocs.exceptions import PluginError
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority
from mkdocs.structure.files import File, get_files

from academy.book.layout import ROOT
from academy.playground import bundle
from academy.site import addresses, generated_pages, markdown_copies, search_text, serving, stylesheet, write


class AcademyPlugin(BasePlugin):
    served: serving.Served = None  # type: ignore[assignment]  # before the first build of `mkdocs serve`
    serves = begins_to_serve = False

    def on_startup(self, *, command, dirty):
        """`mkdocs serve` is for looking at pages: each is made when it is asked for, its copies by `mkdocs build`."""
        self.serves = self.begins_to_serve = command == "serve"
        write.begin()

    def on_build_error(self, *, error):
        write.end()

    def on_shutdown(self):
        if self.served:
            self.served.end()
        write.end()

    def on_config(self, config):
        begins, self.begins_to_serve = self.begins_to_serve, False  # after an edit, the server itself has the port
        if begins and (problem := serving.problem(config.dev_addr.host, config.dev_addr.port)):
            raise PluginError(problem)
        addresses.of_version(config)
        chapters = config.plugins["mkdocs-jupyter"]
        files = [Path(file.abs_src_path) for file in get_files(config) if chapters.should_include(file)]
        self.settings = write.Settings.of(config, chapters.config["execute"], files)
        try:
            self.tree = write.tree(self.settings)
        except (write.Unreadable, write.CellFailed) as error:
            raise PluginError(str(error)) from error
        if self.serves:
            self.served = self.served or serving.Served(self.tree)
            self.served.keep(self.tree)
            config.site_dir = str(self.served.folder)
        config.nav, config.docs_dir = self.tree.nav, str(self.tree.docs)
        config.mdx_configs.setdefault("academy.site", {})["index"] = self.tree.library
        config.extra["playground_megabytes"] = bundle.megabytes(ROOT)
        return config

    def on_nav(self, nav, *, config, files):
        self.nav = nav
        for file in files.documentation_pages() if self.serves else ():
            file.is_modified = lambda: False  # none is made before it is asked for

    def on_serve(self, server, *, config, builder):
        server.unwatch(config.docs_dir)  # which a build writes; its sources are in mkdocs.yml
        server.builder = lambda: self.served.edited(self.settings, builder)
        self.served.begin(server)
        return server

    def on_page_markdown(self, markdown, *, page, config, files):
        page.previous_page, page.next_page = page.meta.get("before"), page.meta.get("after")

    @event_priority(-100)  # after mkdocstrings has written its sheet
    def on_env(self, env, *, config, files):
        name, text = stylesheet.one_sheet(config, files)
        files.append(File.generated(config, name, content=text))
        config.extra_css = [name]
        if self.served:
            self.served.with_engine((_populate_page, _build_page), config, files, self.nav, env)
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
            write.end()
        else:
            self.served.write_index()
        search_text.mend(Path(config.site_dir))
