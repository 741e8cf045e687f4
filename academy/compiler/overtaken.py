"""Tiles that a copy may overtake: Triton's IR of a kernel for Hopper, in which a loop copies the next tile into a place
that a product may still be reading.

On Hopper a product of tiles in shared memory, `warp_group_dot`, runs beside the program, until a wait that leaves fewer
of them pending. A loop with stages copies later tiles in the meantime, and each tile has as many places as it needs for
that. Triton 3.6, 3.7 and 3.9 count them wrongly for a tile that is multiplied and loaded into registers as well: it
gets one too few, and a later tile is copied to the place that the product reads, without waiting for it.
"""

from __future__ import annotations

import re

_ALLOCATED = re.compile(r"(%\w+) = ttg\.local_alloc\b.*memdesc<(\d+)x\d+x\d+x")
_PART_OF = re.compile(r"(%\w+) = ttg\.memdesc_\w+ (%\w+)(?:\[(%[\w-]+)\])?")
_PRODUCT = re.compile(r"ttng\.warp_group_dot (%\w+), (%\w+),.*isAsync = true")
_WAIT = re.compile(r"ttng\.warp_group_dot_wait .*pendings = (\d+)")
_COPY = re.compile(r"ttg\.async_copy_global_to_local %\w+, (%\w+)|ttng\.async_tma_copy_global_to_local .*?\] (%\w+),")
#: Of whole numbers, what the number of a place is made of: from zero on, and back to zero.
_CONSTANT = re.compile(r"(%[\w-]+) = arith\.constant (-?\d+) : i")
_NUMBER = re.compile(r"(%\w+) = arith\.(addi|cmpi sge,|select) (%[\w-]+), (%[\w-]+)(?:, (%[\w-]+))?")
_CARRIED = re.compile(r"(%[\w-]+) = (%[\w-]+)")


def overtaken(ttgir: str) -> list[str]:
    """The names of these tiles, as the kernel calls them; [] if there are none."""
    lines = ttgir.splitlines()
    places = {name: int(count) for name, count in _ALLOCATED.findall(ttgir)}
    parts: dict[str, tuple[str, int | None]] = {}  # of a tile in its place: the tile, and the place's number
    found: dict[str, None] = {}
    numbers: dict[str, int | None] = {name: int(value) for name, value in _CONSTANT.findall(ttgir)}
    pending: list[set[tuple[str, int | None]]] = []  # what each product reads, the oldest first

    def carry(names: list[str], values: list[str]) -> None:
        numbers.update(zip(names, [numbers.get(value) for value in values]))

    def calculate(name: str, operation: str, *given: str) -> None:
        first, second, third = (numbers.get(each) for each in given)
        numbers[name] = None
        if first is not None:
            if operation == "select":
                numbers[name] = second if first else third
            elif second is not None:
                numbers[name] = first + second if operation == "addi" else int(first >= second)

    def follow(first: int, end: int) -> None:
        """What happens in these lines; in a loop twice, because the next round begins while products are pending."""
        at = first
        while at < end:
            line = lines[at]
            if number := _NUMBER.search(line):
                calculate(*number.groups())
            elif part := _PART_OF.search(line):
                tile, place = parts.get(part[2], (part[2], None))
                parts[part[1]] = tile, numbers.get(part[3]) if part[3] else place
            elif product := _PRODUCT.search(line):
                pending.append({parts.get(name, (name, None)) for name in product.groups()})
            elif wait := _WAIT.search(line):
                del pending[: max(len(pending) - int(wait[1]), 0)]
            elif copy := _COPY.search(line):
                here = parts.get(name := copy[1] or copy[2], (name, None))
                known = here[1] is not None or places.get(here[0]) == 1
                if known and any(here in read for read in pending):
                    found[re.sub(r"_\d+$", "", here[0][1:])] = None
            elif "scf.for" in line:
                closing = _end(lines, at, end)
                carried = _CARRIED.findall(line.partition("iter_args(")[2].partition(") ->")[0])
                carry(*([list(each) for each in zip(*carried)] or [[], []]))
                follow(at + 1, closing)
                last = lines[closing - 1].strip()
                if last.startswith("scf.yield"):
                    carry([name for name, _ in carried], re.findall(r"%[\w-]+", last.partition(" : ")[0]))
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
