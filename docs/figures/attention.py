"""Attention's tiles, decoding in parts, rotated pairs, dropout's counters."""

import card
from draw import Control, Panel, Picture, picture
from moving import moving


def _seen(T: int, S: int, **options) -> list[list[bool]]:
    """Which keys each query weighs, from the kernel: with the identity for values its output is the matrix of weights."""
    import torch

    from annotated_examples.attention.flash_attention import flash_attention

    q, k = torch.zeros(1, 1, T, S), torch.zeros(1, 1, S, S)
    return (flash_attention(q, k, torch.eye(S)[None, None], **options)[0, 0] > 0).tolist()


def _tile_kinds(seen, block_m: int, block_n: int) -> dict[tuple[int, int], str]:
    """Of each tile: full, masked or skipped."""
    found = {}
    for row in range(0, len(seen), block_m):
        for column in range(0, len(seen[0]), block_n):
            inside = [seen[r][column : column + block_n] for r in range(row, min(row + block_m, len(seen)))]
            whole = len(inside) == block_m and all(len(line) == block_n and all(line) for line in inside)
            found[row, column] = "full" if whole else "masked" if any(map(any, inside)) else "skipped"
    return found


@picture
def tiles():
    panels, words = [], []
    fills = {"full": "g", "masked": "a", "skipped": "off"}
    for title, T, S, block_m, block_n, options in (
        ("causal: 5 queries, 9 keys, tiles 2 x 4", 5, 9, 2, 4, dict(causal=True)),
        ("causal, window of 4: 12 x 12, tiles 3 x 3", 12, 12, 3, 3, dict(causal=True, window=4)),
    ):
        seen = _seen(T, S, **options)
        kinds = _tile_kinds(seen, block_m, block_n)
        side = 324 / S
        high = min(side, 24)
        panel = Panel(66 + high * T + 40, title)
        panel.text(30, 40, "keys, from 0", "small")
        panel.cells(
            30, 48, T, S, (side, high),
            lambda r, c, k=kinds, m=block_m, n=block_n: fills[k[r // m * m, c // n * n]],
            lambda r, c, s=seen: "•" if s[r][c] else "",
        )  # fmt: skip
        for row, column in kinds:
            size = min(block_n, S - column) * side, min(block_m, T - row) * high
            panel.box(30 + column * side, 48 + row * high, *size, "strong")
        for row in range(T):
            panel.text(24, 48 + row * high + high / 2 + 4, row, "tiny", "end")
        count = {kind: list(kinds.values()).count(kind) for kind in fills}
        y = 48 + high * T + 24
        for place, (kind, number) in enumerate(count.items()):
            panel.box(30 + place * 112, y - 11, 14, 14, fills[kind])
            panel.text(50 + place * 112, y + 1, f"{number} {kind}", "small")
        panels.append(panel)
        words.append(f"{title}: " + ", ".join(f"{number} tiles {kind}" for kind, number in count.items()))
    return Picture(
        "A dot is a score that counts. Tiles without dots are skipped, full tiles need no mask. With fewer queries than keys "
        "the diagonal ends at the lower right corner.",
        ". ".join(words) + ".",
        panels,
    )


@picture
def causal():
    T, block, tile = 6, 2, 1
    seen = [[key <= query for key in range(T)] for query in range(T)]
    kinds = _tile_kinds(seen, block, block)
    side, left, top = 36, 64, 56
    panel = Panel(top + side * T + 66, f"{T} tokens, tiles of {block} queries and {block} keys")
    panel.text(left, 44, "keys", "small")
    panel.text(0, top + 16, "queries", "small")
    fills = {"full": "g", "masked": "a", "skipped": "off"}
    panel.cells(
        left, top, T, T, side,
        lambda r, c: fills[kinds[r // block * block, c // block * block]], lambda r, c: "•" if seen[r][c] else "",
    )  # fmt: skip
    for row, column in kinds:
        size = min(block, T - column) * side, min(block, T - row) * side
        panel.box(left + column * side, top + row * side, *size, "strong")
    for token in range(T):
        panel.text(left - 8, top + token * side + side / 2 + 4, token, "small", "end")
    ends = [min(start + block, T) for start in range(0, T, block)]
    y = top + (tile * block + block / 2) * side
    panel.arrow(left + 6, y, left + ends[tile] * side - 6, y, "curve b")
    foot = top + side * T
    panel.text(0, foot + 26, f"Program {tile} has queries {tile * block} and {tile * block + 1}.", "small")
    panel.text(0, foot + 44, f"It walks along keys 0 to {ends[tile] - 1} and stops.", "small")
    count = {kind: list(kinds.values()).count(kind) for kind in fills}
    for place, (kind, number) in enumerate(count.items()):
        panel.box(300, top + place * 30, 14, 14, fills[kind])
        panel.text(320, top + 12 + place * 30, f"{number}", "small")
        panel.text(300, top + 27 + place * 30, kind, "tiny")
    return Picture(
        "A dot is a score that counts. A program owns a row of tiles and walks along it, up to the tile that the diagonal "
        "crosses. Only there does the mask hide anything.",
        f"A square of {T} queries and {T} keys with a dot where a query sees a key: on the diagonal and below it. In tiles of "
        f"{block} by {block}, "
        + ", ".join(f"{number} are {kind}" for kind, number in count.items())
        + f". Program {tile} "
        f"walks along the keys 0 to {ends[tile] - 1}.",
        [panel],
    )


@picture
def walk():
    sizes = (4, 8, 16, 32)
    return moving(
        "walk",
        "Which tile decides how many bytes attention moves, that of the queries or that of the keys?",
        "Play the walk. Then change one tile at a time, and watch the lower blue bar.",
        "One head, 64 tokens of 16 numbers in float32. Each program owns a row of tiles and walks along the keys; on a "
        "GPU the programs run side by side. Bars below the grid are the scores of the last query of the row, the red "
        "line their maximum so far. Counted is what programs load and store: each reads its queries once and the keys "
        "and values of every tile that it visits, whole. With the causal mask a tile on the diagonal holds keys that "
        "come after all of its queries, red in the grid, as soon as BLOCK_N is larger than BLOCK_M: the wider the tile, "
        "the more of them are read for nothing. With the matrix in memory, Q, K and V are read and O is written once, "
        "and the matrix is written and read twice, as scores and as weights. Keys and values that one program has "
        "loaded, the next ones find in L2; a matrix of 4096 tokens and 16 heads doesn't fit there.",
        (
            Control("block_m", "BLOCK_M: queries in a tile", 16, stops=sizes),
            Control("block_n", "BLOCK_N: keys in a tile", 16, stops=sizes),
            Control("window", "Window, in keys", "all", stops=("all", 32, 16, 8)),
            Control("causal", "causal: no key after the query", 1, ticks=True),
            Control("step", "Tiles done", 9, 0, 10, plays=700),
        ),
    )


def _in_turn(programs: int, steps) -> list[tuple[int, str, int, int]]:
    """(program, step, start, stop): each program does its steps in order; the tensor cores do one product at a time."""
    ready, done, free, spans = [0] * programs, [0] * programs, 0, []
    while min(done) < len(steps):
        waiting = [program for program in range(programs) if done[program] < len(steps)]
        program = min(waiting, key=lambda each: (ready[each], done[each]))
        words, length = steps[done[program]]
        start = ready[program] if words == "softmax" else max(ready[program], free)
        ready[program] = start + length
        free = free if words == "softmax" else start + length
        done[program] += 1
        spans.append((program, words, start, start + length))
    return spans


@picture
def softmax_and_tensor_cores():
    queries, keys, D = 64, 64, 128
    # A multiprocessor's share of the data sheet's product rate, at the clock for which that is given.
    rate = card.MATRIX_TFLOP_S * 1e12 / card.SMS / (card.CLOCK_GHZ * 1e9)
    product = round(2 * queries * keys * D / rate)
    exponentials = queries * keys // 16  # 16 of them per cycle and multiprocessor
    # Nearly as many instructions of every warp in the compiled loop; each of four warps has a scheduler of its own, which
    # starts one instruction per cycle.
    softmax = 350
    panels, busy = [], []
    for title, programs in (("One program on an SM", 1), ("Two programs", 2)):
        spans = _in_turn(programs, (("Q Kᵀ", product), ("softmax", softmax), ("P V", product)) * 2)
        end = max(stop for *_, stop in spans)
        scale = 356 / max(end, 2 * (2 * product + softmax))
        panel = Panel(64 + programs * 46 + 58, title)
        y = 40 + programs * 46
        for program, words, start, stop in spans:
            place = start * scale, 40 + program * 46, (stop - start) * scale, 24
            panel.box(*place, "a" if words == "softmax" else "b", words if place[2] > 34 else "")
            if words != "softmax":
                panel.box(place[0], y + 18, place[2], 18, "g")
        for program in range(programs):
            panel.text(0, 34 + program * 46, f"program {program}", "small")
        panel.text(0, y + 10, "tensor cores", "small")
        busy.append(round(100 * sum(stop - start for _, words, start, stop in spans if words != "softmax") / end))
        panel.text(0, y + 56, f"busy {busy[-1]} % of {end:,} cycles", "small")
        panels.append(panel)
    return Picture(
        f"Two rounds of a tile of {queries} queries and {keys} keys, {D} numbers a head. A program's own products and softmax "
        "never overlap. Another program's do.",
        f"A timeline of one program: a product of about {product} cycles, the softmax of about {softmax}, a second product, "
        f"and the same again. The tensor cores work {busy[0]} % of the time. With two programs, which take turns at them, "
        f"they work {busy[1]} %. The softmax can't be shorter than its {exponentials} cycles of exponentials.",
        panels,
    )


@picture
def decode():
    table, page, length, splits, block, pool = (4, 0, 2), 3, 8, 2, 4, 5
    panel = Panel(344, f"A sequence of {length} keys in pages of {page}")
    panel.text(0, 44, "keys", "small")
    for key in range(length):
        panel.box(52 + key * 38, 28, 36, 26, "ab"[key // block], key)
    panel.text(0, 92, "pages", "small")
    places = {}
    for number in range(pool):
        x = 52 + number * 62
        panel.text(x + 29, 148, number, "small", "middle")
        for slot in range(page):
            key = table.index(number) * page + slot if number in table else length
            panel.box(
                x + slot * 19.5,
                106,
                19.5,
                26,
                "ab"[key // block] if key < length else "off",
                key if key < length else "",
            )
            places[key] = x + slot * 19.5 + 9.7
    for key in range(length):
        panel.line([(70 + key * 38, 56), (places[key], 104)], "rule")
    panel.text(0, 176, f"block_table = {list(table)}: key 3 is in page {table[3 // page]}, slot {3 % page}", "small")
    for split in range(splits):
        panel.box(
            52 + split * 152,
            200,
            148,
            46,
            "ab"[split],
            f"program {split}: keys {split * block}–{split * block + block - 1}\nits max, sum, output",
        )
        panel.arrow(126 + split * 152, 250, 180 + split * 40, 284)
    panel.box(120, 288, 140, 44, "g", "merge: rescale to\none max, add")
    return Picture(
        "One query leaves most of the card idle. So several programs share its keys, which they find through the table, and a "
        "second kernel merges what they found.",
        f"{length} keys of one sequence lie in the pages {', '.join(map(str, table))} of a pool of {pool}. Program 0 takes keys "
        f"0 to 3, program 1 keys 4 to 7, each with its own maximum, sum and output; a merge rescales and adds them.",
        [panel],
    )


#: A head of 16 features, all turned, with the usual base.
ROPE = {"base": 10000, "D": 16}


@picture
def rope():
    return moving(
        "rope",
        "What does a position turn, and what does the score of two tokens still know of it?",
        "Move the query: all dials turn, and the score stays. Then change the distance.",
        "A head of 16 features, eight pairs, each with its own frequency. Amber is the query, blue the key, before turning both point "
        "to the right in every pair. Which features make a pair is a convention. The gradient is turned back by the same angle.",
        (
            Control("m", "Position of the query", 20, 0, 64),
            Control("distance", "Tokens between key and query", 3, 0, 64),
            Control("order", "Pairs", "interleaved", choices=("interleaved", "half-split")),
        ),
        ROPE,
    )


@picture
def dropout():
    from annotated_examples.classics.dropout import dropout_mask

    n, block, seed, p = 20, 8, 2, 0.5
    kept = dropout_mask((n,), p, seed).tolist()
    panel = Panel(268, f"{n} elements, seed {seed}, p = {p}, BLOCK = {block}")
    for program in range(-(-n // block)):
        y = 30 + program * 76
        panel.text(0, y + 14, f"program {program}", "small")
        for counter in range(program * 2, program * 2 + 2):
            x = 76 + (counter % 2) * 144
            panel.box(x, y, 140, 22, "b" if counter * 4 < n else "off dashed", f"counter {counter}: 4 words")
        for place in range(block):
            element = program * block + place
            kind = "off dashed" if element >= n else "g" if kept[element] else "a"
            words = "" if element >= n else f"{element}"
            panel.box(76 + place * 36, y + 28, 32, 28, kind, words)
    panel.box(76, 250, 12, 12, "g")
    panel.text(94, 261, f"{sum(kept)} kept", "small")
    panel.box(180, 250, 12, 12, "a")
    panel.text(198, 261, f"{n - sum(kept)} dropped", "small")
    return Picture(
        "Counter i gives the words of elements 4i to 4i + 3, in whichever program they are. Another block size moves elements "
        "to other programs, never to other counters: the mask stays the same.",
        f"Three programs of {block} elements each use two counters of four random words. With seed {seed} and p = {p}, "
        f"{sum(kept)} of {n} elements are kept: {', '.join(str(i) for i in range(n) if kept[i])}.",
        [panel],
    )
