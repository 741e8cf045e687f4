"""Marks the variables of a page in its code, and lists them: `academy.site.variables` says which they are."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

from markdown.util import HTML_PLACEHOLDER_RE

from academy.site import katex
from academy.site.conversion import TreeStep, element
from academy.site.variables import Variables

CODE_NAME = re.compile(r'<span class="(n|nb|bp)">(\w+)</span>')
ENTRY = """<li><button type="button" data-v="{id}" aria-pressed="false"><span /><code>{names}</code></button></li>"""


class VariableMarks(TreeStep):
    """Marks variables in the code and in the inline code of a page, and adds the list of them."""

    def run(self, root: Element) -> None:
        variables = self.conversion.variables
        if not variables.list:
            return
        for part in root.iter():
            if part.tag == "code" and not len(part):
                name = part.get("data-name") or part.text or ""
                if id := variables.ids.get(re.sub(r"\[.*", "", name)):
                    part.set("data-v", id)
            elif part.get("class") == "k-c":
                self.code(part.text or "", variables.ids)
        card = root.find("./div[@class='k-top']//aside/dl")
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

        def marked(found: re.Match) -> str:
            id = ids.get(found[2])
            return f'<span class="{found[1]}" data-v="{id}">{found[2]}</span>' if id else found[0]

        stash = self.md.htmlStash.rawHtmlBlocks
        for found in HTML_PLACEHOLDER_RE.finditer(placeholder):
            number = int(found[1])
            stash[number] = CODE_NAME.sub(marked, str(stash[number]))

    def legend(self, parent: Element, variables: Variables) -> None:
        parent.set("data-search-exclude", "")
        entries = SubElement(parent, "ul", {"class": "v-legend", "aria-label": "Symbols and their names in the code"})
        for variable in variables.list:
            entry = element(ENTRY, id=variable.id, names=", ".join(variable.names))
            entry[0][0].text = self.md.htmlStash.store(katex.render(variable.tex))
            entries.append(entry)
