"""The card with the facts of a kernel file, beside its introduction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement

from markdown.util import AtomicString

from academy.bench import store
from academy.site.library import CITATION, exists
from academy.site.splitter import Module
from academy.site.titles import heading

if TYPE_CHECKING:
    from academy.site.extension import AcademyExtension


def fact_card(extension: AcademyExtension, module: Module) -> Element:
    """What belongs to a kernel file: where it is, how to run it, its derivation, tests and results."""
    card = Element("aside", {"class": "k-card", "aria-label": "About this file"})
    facts = SubElement(card, "dl")

    def fact(name: str) -> Element:
        SubElement(facts, "dt").text = name
        return SubElement(facts, "dd")

    def link(parent: Element, text: str, href: str, code: bool = False) -> None:
        anchor = SubElement(parent, "a", {"href": href})
        (SubElement(anchor, "code") if code else anchor).text = AtomicString(text)

    path = Path(module.path)
    link(fact("File"), module.path, extension.blob(module.path), code=True)
    SubElement(fact("Run it"), "code").text = AtomicString(f".venv/bin/python {module.path}")
    homes = {extension.index.derivation_of(tag) for tag in CITATION.findall(module.text)}
    homes |= {f"backprop_math/{path.stem}.md"}
    for home in sorted(homes - {None}):
        if page := extension.index.page_of(home):
            link(fact("Derivation"), heading(extension.index, page)[0], extension.link(home))
    test = f"tests/kernels/test_{path.stem}.py"
    if exists(str(extension.root / test)):
        link(fact("Tests"), test, extension.blob(test), code=True)
    for benchmark in store.benchmark_files(extension.root):  # academy/bench/hook.py makes a page for each
        files = store.kernel_files(benchmark)
        if module.path in files.values():
            link(fact("Measured"), "its benchmark", f"/benchmarks/{benchmark.stem}.md")
            other = next((file for file in files.values() if file != module.path), None)
            if other and (page := extension.index.page_of(other)):
                link(
                    fact("Fast version" if "/fast/" in other else "Lesson"),
                    heading(extension.index, page)[0],
                    extension.link(other),
                )
            break
    return card
