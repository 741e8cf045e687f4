"""The indexer: why its heads can't be folded into one, a threshold on a plateau of zeros, and rows that are sorted by key."""

from draw import Control, Panel, Picture, picture
from moving import moving

#: Queries of two heads with weights of 1, and keys.
HEADS = ((3, 0), (0, 3))
KEYS = ((1, 1), (1, -1), (-1, 1), (1, 0), (-1, -1))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def signed(number):
    return f"{number}".replace("-", "−")


@picture
def heads():
    folded = tuple(map(sum, zip(*HEADS)))
    panel = Panel(70 + 30 * len(KEYS), "Two heads, five keys")
    columns = ((0, "key"), (84, "products"), (168, "ReLU"), (244, "score"), (300, "folded"))
    for x, title in columns:
        panel.text(x, 42, title, "small")
    words = []
    for row, key in enumerate(KEYS):
        y, products = 52 + 30 * row, [dot(head, key) for head in HEADS]
        left = [max(product, 0) for product in products]
        panel.text(0, y + 16, f"({', '.join(map(signed, key))})")
        for place, (product, rest) in enumerate(zip(products, left)):
            panel.box(84 + 36 * place, y, 34, 22, "b" if product > 0 else "off", signed(product))
            panel.box(168 + 32 * place, y, 30, 22, "b" if rest else "off", rest)
        panel.box(244, y, 40, 22, "g" if sum(left) else "off", sum(left))
        panel.box(300, y, 40, 22, "a", signed(dot(folded, key)))
        words.append(f"key {key}: products {products}, score {sum(left)}, folded {dot(folded, key)}")
    equal = [key for key in KEYS if dot(folded, key) == 0]
    return Picture(
        "A head that has nothing to say of a key leaves it alone. With both heads added up into one query (folded) it votes "
        f"against: {len(equal)} keys that suit one head well get 0 there, as if they suited none.",
        f"For two heads {HEADS} with weights of 1: " + "; ".join(words) + ".",
        [panel],
    )


def scores():
    """Of 24 keys under the heads of two queries' worth: whole numbers, of which a ReLU leaves many 0."""
    rows = [(place * 7 % 11 - 6, place * 5 % 9 - 6) for place in range(24)]
    weights = (1, -1)
    return [sum(w * max(dot(head, key) // 3, 0) for w, head in zip(weights, HEADS)) for key in rows]


@picture
def plateau():
    row = scores()
    return moving(
        "plateau",
        "Which keys are kept when scores tie?",
        "Drag k across the zeros, or press a bar: then it is the last key that is kept.",
        f"Scores of {len(row)} keys under an indexer of two heads, one of them with a negative weight. The line is the "
        f"threshold: blue scores lie above it, amber ones at it, grey ones are left out. {row.count(0)} scores are exactly 0, "
        "because the ReLU has left nothing.",
        (Control("k", "keys that are selected, k", 12, low=1, high=len(row)),),
        {"scores": row},
    )


#: Each query's list of keys.
LISTS = ((0, 2, 3), (2, 3, 4), (0, 2, 4))


@picture
def rows_by_key():
    pairs = [(key, query) for query, keys in enumerate(LISTS) for key in keys]
    order = sorted(range(len(pairs)), key=lambda place: pairs[place][0])
    kinds, width = ("a", "b", "g", "p", "r"), 36
    panel = Panel(238, "A row for each pair, then a sum for each key")
    for title, y, places in (("as the queries write them", 30, range(len(pairs))), ("sorted by key", 104, order)):
        panel.text(0, y + 10, title, "small")
        for at, place in enumerate(places):
            key, query = pairs[place]
            panel.box(at * (width + 4), y + 16, width, 40, kinds[key], f"q{query}\nk{key}")
    panel.text(0, 190, "one program for each key adds from left to right", "small")
    for key in sorted({key for key, _ in pairs}):
        first = next(at for at, place in enumerate(order) if pairs[place][0] == key)
        count = sum(pair[0] == key for pair in pairs)
        panel.box(first * (width + 4), 196, count * (width + 4) - 4, 30, kinds[key], f"dk {key}")
    words = "; ".join(
        f"key {key}: queries {', '.join(str(query) for other, query in pairs if other == key)}"
        for key in sorted({key for key, _ in pairs})
    )
    return Picture(
        f"{len(LISTS)} queries, each with a list of {len(LISTS[0])} keys. The sort is stable, so the rows of a key stay in the "
        "order of the queries, and their sum has the same bits each time.",
        f"Rows of the gradients of keys, first in the order of the queries, then by key. {words}. Each key's rows are added up.",
        [panel],
    )
