"""Splits the site's fonts: the glyphs that nearly every page needs, and the rest. A browser fetches the rest of a font
only for a page that uses one of its characters (`unicode-range`).

Run once, after fonts were renewed, on the whole fonts as they are published (needs fonttools and brotli):

    python academy/site/vendor/split_fonts.py

It splits every large font of this folder that is still whole, into NAME.woff2 and NAME.rest.woff2, and completes the
`@font-face` rules of the style sheets that name it.
"""

from __future__ import annotations

import re
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

HERE = Path(__file__).parent
SHEETS = [HERE / "katex/katex.min.css", HERE.parent / "static/site.css"]
#: A smaller font costs less than a second request.
MIN_BYTES = 10_000
ASCII = "".join(map(chr, range(32, 127)))
TEXT = ASCII + "\u00a0\u200b–—‘’“”…·×÷±°µ¶¹²³′→←−≤≥≈•"
#: The zero-width space props up KaTeX's boxes. No font has it: listed here, it does not fetch the rest for nothing.
MATHS = ASCII + "\u00a0\u200b\ue020×±·…ˉΔΛΣΦαβγδεθλμπσϕω′ℓ→∂∇∈∑−√∞∣∥∼≈≠≤≥⊙⊤⋅⌈⌉⌊⌋"
#: Gaps up to this many characters are passed over in a list of ranges.
NEIGHBOURS = 64
#: The site sets no fractions out of digits and a slash.
UNUSED_FEATURES = {"frac", "numr", "dnom"}


def part(font: Path, characters: set[int], out: Path) -> None:
    """Write the part of a font that shows these characters."""
    options = subset.Options(flavor="woff2")
    options.layout_features = [name for name in options.layout_features if name not in UNUSED_FEATURES]
    loaded = subset.load_font(font, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=characters)
    subsetter.subset(loaded)
    subset.save_font(loaded, out, options)


def ranges(characters: set[int], others: set[int]) -> str:
    """A set of characters as CSS writes it: `U+20-7e,U+d7`. For short, with neighbours that are not among the others."""
    runs: list[list[int]] = []
    for character in sorted(characters):
        if runs and character - runs[-1][1] < NEIGHBOURS and not others & set(range(runs[-1][1], character)):
            runs[-1][1] = character
        else:
            runs.append([character, character])
    return ",".join(f"U+{first:x}" if first == last else f"U+{first:x}-{last:x}" for first, last in runs)


def split(font: Path, common: set[int]) -> None:
    known = set(TTFont(font).getBestCmap())
    rest = font.with_suffix(".rest.woff2")
    part(font, known - common, rest)
    part(font, known & common, font)
    for sheet in SHEETS:
        sheet.write_text(completed(sheet.read_text("utf-8"), font.name, rest.name, known, common), "utf-8")


def completed(sheet: str, name: str, rest: str, known: set[int], common: set[int]) -> str:
    """The style sheet with two rules in place of the font's one."""

    def both(rule: re.Match) -> str:
        body = rule[0].rstrip().removesuffix("}").rstrip(" ;")
        first = f"{body};unicode-range:{ranges(known & common, known - common)}}}"
        second = f"{body};unicode-range:{ranges(known - common, common)}}}"
        return first + rule[1] + second.replace(name, rest) + rule[1]

    return re.sub(rf"@font-face ?\{{[^}}]*/{re.escape(name)}\)[^}}]*\}}(\n?)", both, sheet)


if __name__ == "__main__":
    for folder, characters in (("katex/fonts", MATHS), ("plex", TEXT)):
        for path in sorted((HERE / folder).glob("*.woff2")):
            whole = ".rest" not in path.name and not path.with_suffix(".rest.woff2").exists()
            if whole and path.stat().st_size > MIN_BYTES:
                split(path, set(map(ord, characters)))
                print(f"{path.name}: {path.stat().st_size} + {path.with_suffix('.rest.woff2').stat().st_size} bytes")
