"""How academy is built: its folders, and which imports from which."""

from academy.files import dependencies

from draw import WIDTH, Panel, Picture, picture

#: What each group of folders is for: its colour, and the folders.
GROUPS = {
    "a": ("book", "files", "command"),
    "g": ("interpreter", "runtime", "compiler", "gluon"),
    "b": ("traces", "judge", "exact", "formulas", "bench", "results"),
    "p": ("exercises", "playground", "site", "cli"),
}
HIGH, GAP = 30, 20


def levels(graph: dict[str, set[str]]) -> dict[str, int]:
    """The row of each folder, counted from below: right under the lowest one that uses it, or as low as it can be. An arrow
    back up would never come to an end."""
    found: dict[str, int] = {}
    while len(found) < len(graph):
        ready = {name: used for name, used in graph.items() if name not in found and used <= set(found)}
        assert ready, f"a circle among {sorted(set(graph) - set(found))}"
        found |= {name: 1 + max((found[each] for each in used), default=-1) for name, used in ready.items()}
    for name in sorted(graph, key=lambda each: -found[each]):
        if users := [found[user] for user, used in graph.items() if name in used]:
            found[name] = min(users) - 1
    return found


def shortest(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that others, one after the other, lead along as well."""
    reached: dict[str, set[str]] = {}
    for name in sorted(graph, key=levels(graph).__getitem__):
        reached[name] = graph[name].union(*(reached[each] for each in graph[name]))
    return {name: used - set().union(*(reached[each] for each in used)) for name, used in graph.items()}


@picture
def folders():
    graph = dependencies.folders()
    level = levels(graph)
    rows = [sorted(name for name in graph if level[name] == number) for number in range(max(level.values()) + 1)]
    arrows = shortest(graph)
    panel = Panel(len(rows) * (HIGH + GAP) + 6)
    top = lambda row: 4 + (len(rows) - 1 - row) * (HIGH + GAP)  # noqa: E731
    boxes = {}  # left and right end, and row
    for row in reversed(range(len(rows))):  # each as near as can be to those that use it
        users = {name: [sum(boxes[user][:2]) for user in boxes if name in arrows[user]] for name in rows[row]}
        names = sorted(rows[row], key=lambda name: sum(users[name]) / (len(users[name]) or 1))
        wide = WIDTH / len(names)
        half = min(wide - 18, 96) / 2
        boxes |= {name: ((at + 0.5) * wide - half, (at + 0.5) * wide + half, row) for at, name in enumerate(names)}

    def free(x: float, low: int, high: int) -> bool:
        return all(not (left - 4 < x < right + 4) for left, right, row in boxes.values() if low < row < high)

    for name, used in arrows.items():
        left, right, row = boxes[name]
        for other in sorted(used):
            to_left, to_right, below = boxes[other]
            start, end = (left + right) / 2, (to_left + to_right) / 2
            ways = [x for x in (start, end, *range(8, WIDTH, 8)) if free(x, below, row)]
            x = min(ways, key=lambda each: abs(each - start) + abs(each - end))
            turn, leave = top(below) - GAP, max(left + 8, min(right - 8, x))
            enter = max(to_left + 8, min(to_right - 8, x if row - below > 1 else start))
            if row - below > 1:
                panel.line([(leave, top(row) + HIGH), (x, top(row) + HIGH + GAP), (x, turn)])
                panel.arrow(x, turn, enter, top(below) - 1)
            else:
                panel.arrow(max(left + 8, min(right - 8, end)), turn, enter, top(below) - 1)
    kinds = {name: kind for kind, names in GROUPS.items() for name in names}
    for name, (left, right, row) in boxes.items():
        panel.box(left, top(row), right - left, HIGH, kinds.get(name, ""), name)
    said = "; ".join(f"{name}: {', '.join(sorted(graph[name])) or 'nothing'}" for name in sorted(graph, key=level.get))
    return Picture(
        "The folders of academy, drawn from the imports. An arrow leads to what a folder uses; what others lead to as well "
        "is left out. Amber reads files, green runs kernels, blue says what they did, purple is what readers meet.",
        f"Boxes in {len(rows)} rows; arrows lead down only. What each folder imports from, the lowest first: {said}.",
        [panel],
    )
