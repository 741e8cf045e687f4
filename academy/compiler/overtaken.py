"""Tiles that a copy may overtake: Triton's IR of a kernel for Hopper, in which a loop copies the next tile into a place
that a product may still be reading.

On Hopper a product of tiles in shared memory, `warp_group_dot`, runs beside the program, until a wait that leaves fewer
of them pending. A loop with stages copies later tiles in the meantime, and each tile has as many places as it needs for
that. Triton 3.6 and 3.7 count them wrongly for a tile that is multiplied and loaded into registers as well: it gets a
single place, and the copy of the next one doesn't wait for the product.
"""

from __future__ import annotations

import re

_ALLOCATED = re.compile(r"(%\w+) = ttg\.local_alloc\b.*memdesc<(\d+)x\d+x\d+x")
_PART_OF = re.compile(r"(%\w+) = ttg\.memdesc_\w+ (%\w+)")
_PRODUCT = re.compile(r"ttng\.warp_group_dot (%\w+), (%\w+),.*isAsync = true")
_WAIT = re.compile(r"ttng\.warp_group_dot_wait .*pendings = (\d+)")
_COPY = re.compile(r"ttg\.async_copy_global_to_local %\w+, (%\w+)|ttng\.async_tma_copy_global_to_local .*?\] (%\w+),")


def overtaken(ttgir: str) -> list[str]:
    """The names of these tiles, as the kernel calls them; [] if there are none."""
    lines = ttgir.splitlines()
    places = {name: int(count) for name, count in _ALLOCATED.findall(ttgir)}
    whole = dict(_PART_OF.findall(ttgir))
    found: dict[str, None] = {}
    pending: list[set[str]] = []  # the tiles that each product reads, the oldest first

    def tile(name: str) -> str:
        while name in whole:
            name = whole[name]
        return name

    def follow(first: int, end: int) -> None:
        """What happens in these lines; in a loop twice, because the next round begins while products are pending."""
        at = first
        while at < end:
            line = lines[at]
            if product := _PRODUCT.search(line):
                pending.append({tile(name) for name in product.groups()})
            elif wait := _WAIT.search(line):
                del pending[: max(len(pending) - int(wait[1]), 0)]
            elif copy := _COPY.search(line):
                name = tile(copy[1] or copy[2])
                if places.get(name) == 1 and any(name in read for read in pending):
                    found[re.sub(r"_\d+$", "", name[1:])] = None
            elif "scf.for" in line:
                closing = _end(lines, at, end)
                follow(at + 1, closing)
                follow(at + 1, closing)
                at = closing
            at += 1

    follow(0, len(lines))
    return list(found)


def _end(lines: list[str], opening: int, end: int) -> int:
    """Where the body of a loop ends: the first line that closes a brace at the loop's own depth."""
    depth = len(lines[opening]) - len(lines[opening].lstrip())
    closings = (n for n in range(opening + 1, end) if lines[n].startswith(" " * depth + "}"))
    return next(closings, end)
