"""Every page as Markdown, beside its HTML as index.md, and the list of them, llms.txt.

For readers, programs and language models that want the text and not the page. markdownify turns the finished page back
into Markdown, so that there is one renderer of directives; this module holds what is specific to this site.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from bs4 import BeautifulSoup, Tag
from markdownify import ATX, MarkdownConverter

from academy.site import addresses, background
from academy.site.search_text import lighter

#: What is there to be clicked, or repeats what other pages say.
LEFT_OUT = "headerlink k-bar k-contents v-legend tabbed-labels page-facts op-links eq-foot terms v-bar".split()
LEFT_OUT += ["md-content__button", "thumb", "k-picture", "p-live-now", "p-strips", "p-actions", "p-outcome"]
#: Folded parts that a reader is asked not to look at yet, hints and solutions: they stay folded.
ANSWERS = {"tip", "success", "example"}
STYLE = {"heading_style": ATX, "bullets": "-", "escape_asterisks": False, "escape_underscores": False}
#: The page that leads a program, or whoever asks one, through the writing of a kernel.
TO_WRITE = "guides/for-assistants/"
#: Title of a part of the site -> address, title and description of each of its pages.
Sections = dict[str, list[tuple[str, str, str]]]


def begin(page: str) -> None:
    """A page is finished: another process may turn it into Markdown."""
    background.ask("copy", page)


def write(site: Path, sections: Sections, config: Mapping) -> None:
    """The copies of all pages of a finished site. `config`: its name, description and addresses, as in mkdocs.yml."""
    pages = [url for listed in sections.values() for url, _, _ in listed]
    for url in reversed(pages):  # others have begun with the first ones
        page = (site / url / "index.html").read_text("utf-8")
        text = str(background.answer("copy", page) or converted(page))
        head = f"<!-- {config['site_url']}{url} -->\n\n" if config["site_url"] else ""
        (site / url / "index.md").write_text(f"{head}{addresses.without_dead_links(text.strip())}\n", "utf-8")
    (site / "llms.txt").write_text(overview(sections, config), "utf-8")


def overview(sections: Sections, config: Mapping) -> str:
    """llms.txt: what the site is, and each page with its description, in the order of the navigation."""
    base = config["site_url"] or ""
    out = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    about = "Each page below is Markdown. Its HTML is at the same address without `index.md`."
    out.append(f"{about} Source: {config['repo_url']}" if config["repo_url"] else about)
    out += ["", f"To write a kernel, begin with {base}{TO_WRITE}index.md: the commands and the rules."]
    for section, pages in sections.items():
        out += ["", f"## {section}", ""]
        out += [f"- [{title}]({base}{url}index.md)" + (f": {about}" if about else "") for url, title, about in pages]
    return "\n".join(out) + "\n"


def converted(html: str) -> str:
    """The content of a page as Markdown."""
    html = html.partition('<article class="md-content__inner md-typeset">')[2].partition("</article>")[0] or html
    page = BeautifulSoup(lighter(html, _formula), "html.parser")
    named: dict[str, list[Tag]] = defaultdict(list)  # one walk: a CSS selector is a walk each
    for element in page.find_all(True):
        for name in filter(None, element.get_attribute_list("class")):
            named[name].append(element)
    for tag in named["eq-tag"]:  # goes into its equation
        maths = tag.parent.select_one("div.arithmatex") if tag.parent else None
        if maths:
            name = tag.extract().get_text()[1:-1]
            maths.string = re.sub(r"\n\$\$$", rf"\n\\tag{{{name}}}\n$$", maths.get_text())
    for tabs in named["tabbed-set"]:
        for label, block in zip(tabs.select("label"), tabs.select(".tabbed-block")):
            block.insert(0, _made(page, "p", "strong", label.get_text()))
    for picture in (each for each in named["drawn"] if each.name == "figure"):
        panels = picture.select_one(".panels")
        words = [panels["aria-label"]] if panels else []
        caption = picture.figcaption.get_text() if picture.figcaption else ""
        described = " ".join(["Picture, on the page:", *map(str, words), caption])
        picture.replace_with(_made(page, "p", "em", described.replace("](", r"]\(")))  # kernel[grid](x) is no link
    for drawing in named["nb-figure"]:
        drawing.replace_with(_made(page, "p", "em", "(A drawing, on the page.)"))
    answers = page.find_all("dd", attrs={"data-search-exclude": True})
    left_out = [dt for answer in answers for dt in answer.find_previous_siblings("dt", limit=1)]
    left_out += page.find_all("input") + [element for name in LEFT_OUT for element in named[name]]
    for element in left_out:
        element.decompose()
    for link in page.find_all("a", href=True):
        if "term" in link.get_attribute_list("class"):
            link.unwrap()
        link["href"] = _of_copy(str(link["href"]))
    return re.sub(r"[ \t]+$", "", _Converter(**STYLE).convert_soup(page), flags=re.M)


def _formula(found: str, is_display: bool) -> str:
    """TeX in the place of what KaTeX made of it, with the brackets that stand in its element."""
    tex = re.search(r"<annotation[^>]*>(.*?)</annotation>", found, re.S)
    if tex is None:
        return found
    before, _, rest = found.partition('<span class="katex')
    after = rest.rpartition(">")[2]
    return f'<div class="arithmatex">$$\n{tex[1]}\n$$</div>' if is_display else f"{before}${tex[1]}${after}"


def _made(page: BeautifulSoup, outer: str, inner: str, text: str) -> Tag:
    element = page.new_tag(outer)
    element.append(page.new_tag(inner, string=text))
    return element


def _of_copy(href: str) -> str:
    """A link to a page of the site as a link to its copy."""
    target, mark, fragment = href.partition("#")
    is_page = target.endswith(("/", "..")) or target == "."
    inside = is_page and not re.match(r"[a-z]+:", target)
    return (f"{target.rstrip('/')}/index.md" if inside else target) + mark + fragment


class _Converter(MarkdownConverter):
    def convert_div(self, el, text, parent_tags):
        if "admonition" in el.get("class", ()):
            return self.convert_blockquote(el, text, parent_tags)
        return super().convert_div(el, text, parent_tags)

    def convert_details(self, el, text, parent_tags):
        if {"bench-data", "k-fold", "r-diff"} & set(el.get("class", ())):  # code in a quotation could not be copied
            return self.convert_div(el, text, parent_tags)
        if ANSWERS & set(el.get("class", ())):
            return f"\n\n<details>\n{text.strip()}\n\n</details>\n\n"
        return "\n" + self.convert_blockquote(el, text, parent_tags)

    def convert_summary(self, el, text, parent_tags):
        if ANSWERS & set(el.parent.get("class", ())):
            return f"<summary>{text.strip()}</summary>\n\n"
        return f"\n\n**{text.strip()}**\n\n"

    def convert_figcaption(self, el, text, parent_tags):
        return f"\n\n*Plot, on the page: {text.strip()}*\n\n"

    def convert_p(self, el, text, parent_tags):
        is_title = "admonition-title" in el.get("class", ())
        return super().convert_p(el, f"**{text.strip()}**" if is_title else text, parent_tags)

    def convert_pre(self, el, text, parent_tags):
        language = re.search(r"language-(\w+)", " ".join(el.parent.get("class", ())))
        ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
        is_kernel = {"k-code", "k-helper"} & set(el.parent.get("class", ()))
        name = language[1] if language else "python" if is_kernel else "text"
        return f"\n\n{ticks}{name}\n{text.strip(chr(10))}\n{ticks}\n\n"

    def convert_td(self, el, text, parent_tags):
        return super().convert_td(el, text.replace("|", r"\|"), parent_tags)
