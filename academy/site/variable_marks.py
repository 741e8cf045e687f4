"""Marks the variables of a page in its code, and lists them: `academy.site.variables` says which they are."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

from markdown.util import HTML_PLACEHOLDER_RE, AtomicString

from academy.site import katex
from academy.site.conversion import TreeStep
from academy.site.variables import Variables

CODE_NAME = re.compile(r'<span class="(n|nb|bp)">(\w+)</span>')


class VariableMarks(TreeStep):
    """Marks variables in the code and in the inline code of a page, and adds the list of them."""

    def run(self, root: Element) -> None:
        variables = self.conversion.variables
        if not variables.list:
            return
        for element in root.iter():
            if element.tag == "code" and not len(element):
                name = element.get("data-name") or element.text or ""
                if id := variables.ids.get(re.sub(r"\[.*", "", name)):
                    element.set("data-v", id)
            elif element.get("class") == "k-c":
                self.code(element.text or "", variables.ids)
        card = root.find("./div[@class='k-top']/aside/dl")
        if card is not None:
            SubElement(card, "dt").text = "Symbols"
            self.legend(SubElement(card, "dd"), variables)
        elif (title := root.find("h1")) is not None:
            legend = Element("div", {"class": "v-bar"})
            SubElement(legend, "span").text = "In the code"
            self.legend(legend, variables)
            root.insert(list(root).index(title) + 1, legend)

    def code(self, placeholder: str, ids: dict[str, str]) -> None:
        """A line of code is finished HTML in the stash."""
        stash = self.md.htmlStash.rawHtmlBlocks
        for found in HTML_PLACEHOLDER_RE.finditer(placeholder):
            number = int(found[1])
            stash[number] = CODE_NAME.sub(lambda name: _marked_name(name, ids), str(stash[number]))

    def legend(self, parent: Element, variables: Variables) -> None:
        parent.set("data-search-exclude", "")
        entries = SubElement(parent, "ul", {"class": "v-legend", "aria-label": "Symbols and their names in the code"})
        for variable in variables.list:
            options = {"type": "button", "data-v": variable.id, "aria-pressed": "false"}
            button = SubElement(SubElement(entries, "li"), "button", options)
            SubElement(button, "span").text = self.md.htmlStash.store(katex.render(variable.tex))
            SubElement(button, "code").text = AtomicString(", ".join(variable.names))


def _marked_name(found: re.Match, ids: dict[str, str]) -> str:
    if found[2] not in ids:
        return found[0]
    return f'<span class="{found[1]}" data-v="{ids[found[2]]}">{found[2]}</span>'
