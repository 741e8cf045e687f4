"""What other sites show beside a link to a page: a picture with its title and what it is about, 1200 x 630, drawn while
the site is built. The home page has one that is drawn by hand, static/social.svg."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from functools import cache
from pathlib import Path

from academy.files import cache as store
from academy.files.dependencies import made_by

#: Where the pictures are on the site.
FOLDER = "assets/social"
KIND = "social"
WIDTH, HEIGHT, MARGIN = 1200, 630, 72
GROUND, INK, SOFT, AMBER = "#0d2f3a", "#f4f1e8", "#c4d2d3", "#f0a44b"
#: What a page is, by the first folder of its address.
KINDS = {
    "kernels": "Kernel",
    "derivations": "Derivation",
    "benchmarks": "Benchmark",
    "exercises": "Exercise",
    "learn": "Chapter",
    "guides": "Guide",
    "reference": "Reference",
}
#: The tiles of the logo, as in static/social.svg: column, row; the first row is amber.
TILES = [(0, 0), (2, 0), (4, 0), (0, 1), (2, 1), (4, 1), *((column, 2) for column in range(5)), (2, 3), (2, 4)]


def name(url: str) -> str:
    """The file of a page's picture: `kernels.classics.layernorm.png`."""
    return f"{url.strip('/').replace('/', '.') or 'index'}.png"


def kind_of(url: str) -> str:
    """What a page is: "Kernel" …, "" for a list and for pages of no kind."""
    folder, _, rest = url.strip("/").partition("/")
    return KINDS.get(folder, "") if rest else ""


def drawn(kind: str, title: str, about: str) -> bytes:
    """The PNG. What has been drawn once is kept: see `academy.files.cache`."""
    key = [kind, title, about, made_by("academy.site.social")]
    return b64decode(store.kept(KIND, key, lambda: b64encode(_drawn(kind, title, about)).decode()))


@cache
def _font(weight: str, size: int):
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path(), f"fonts/ttf/DejaVuSans{weight}.ttf")), size)


def _wrapped(text: str, font, lines: int) -> list[str]:
    """The text in lines that fit the picture; what is too much for `lines` of them ends in an ellipsis."""
    out = [""]
    for word in text.split():
        longer = f"{out[-1]} {word}".strip()
        if font.getlength(longer) <= WIDTH - 2 * MARGIN or not out[-1]:
            out[-1] = longer
        else:
            out.append(word)
    if len(out) > lines:
        out = out[:lines]
        out[-1] = out[-1].rstrip(".,;: ") + " …"
    return out


def _drawn(kind: str, title: str, about: str) -> bytes:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (WIDTH, HEIGHT), GROUND)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, HEIGHT - 14, WIDTH, HEIGHT), AMBER)
    for column, row in TILES:
        left, top = MARGIN + 15 * column, MARGIN + 15 * row
        draw.rounded_rectangle((left, top, left + 12, top + 12), 3, AMBER if row == 0 else INK)
    draw.text((MARGIN + 100, MARGIN + 36), "Triton Academy", INK, _font("-Bold", 34), anchor="lm")
    draw.text((WIDTH - MARGIN, MARGIN + 36), kind, AMBER, _font("-Bold", 30), anchor="rm")
    head, _, rest = title.partition(": ")
    top = 206
    for line in _wrapped(head, _font("-Bold", 58), 2):
        draw.text((MARGIN, top), line, INK, _font("-Bold", 58))
        top += 74
    if rest:
        for line in _wrapped(rest[:1].upper() + rest[1:], _font("", 36), 1):
            draw.text((MARGIN, top), line, AMBER, _font("", 36))
            top += 54
    top += 18
    for line in _wrapped(about, _font("", 28), (HEIGHT - 50 - top) // 42):
        draw.text((MARGIN, top), line, SOFT, _font("", 28))
        top += 42
    out = io.BytesIO()
    picture.quantize(48).save(out, "PNG", optimize=True)
    return out.getvalue()
