"""Below Triton: what overlaps in a ring of buffers, by the model that the chapter "What overlaps with what" states."""

from academy.results import figures

import card
from draw import Control, Panel, Picture, picture
from moving import moving, run

#: In made-up units of time: what the TMA needs for a tile, how much later it is there, what a product takes.
TIMES = dict(copy=2, latency=4, compute=2)


def schedule(buffers: int, steps: int) -> list[dict]:
    return run("overlap", dict(TIMES, buffers=buffers, time=0), dict(steps=steps))["model"]["times"]


@picture
def ring():
    tiles, unit = 6, 360 / 52
    coming, work = TIMES["copy"] + TIMES["latency"], TIMES["compute"]
    panels, ends = [], []
    for buffers in (1, 3):
        times = schedule(buffers, tiles)
        ends.append(times[-1]["done"])
        panel = Panel(60 + 34 * buffers, "One buffer" if buffers == 1 else f"A ring of {buffers}")
        for tile, each in enumerate(times):
            asked, begun, done, top = each["begins"], each["starts"], each["done"], 34 + 34 * (tile % buffers)
            panel.box(asked * unit, top, (begun - asked) * unit, 24, "b")
            panel.box(begun * unit, top, (done - begun) * unit, 24, "a")
            panel.text((asked + begun) / 2 * unit, top + 17, str(tile), "small", "middle")
        panel.text(0, 52 + 34 * buffers, f"{tiles} tiles in {ends[-1]} units of time", "bold")
        panels.append(panel)
    return Picture(
        f"Blue: the tile is on its way, or waits in its buffer. Amber: the threads work on it. Made-up times: {coming} units "
        f"until a tile is there, {work} to work on it. With one buffer the next tile is asked for when the last is done. "
        "With three, the copies overlap each other and the work.",
        f"{tiles} tiles, each {coming} units on the way and {work} in use. One buffer: one after another, {ends[0]} units. "
        f"A ring of three buffers: the copies overlap, {ends[1]} units.",
        panels,
    )


@picture
def overlap():
    steps = 6
    ends = [str(schedule(buffers, steps)[-1]["done"]) for buffers in range(1, 6)]
    return moving(
        "overlap",
        "How many buffers does it take until the tensor cores never wait, once they have begun?",
        "Guess, then drag the buffers from 1 to 5. Then double the latency.",
        "Blue: a tile is being sent or on its way. Grey: it is there and waits. Amber: it is multiplied. Above are the two units, "
        "below the buffers; the red line is the time that the words speak of, and can be dragged. Times are made up, and follow "
        "the model of the chapter. The scale is set by what one buffer takes.",
        (
            Control("buffers", "Buffers", 2, 1, 5),
            Control("copy", "Copy: time to send a tile", TIMES["copy"], 1, 8),
            Control("latency", "Latency: until it is there, then", TIMES["latency"], 0, 16),
            Control("compute", "Compute: time of a product", TIMES["compute"], 1, 8),
            Control("time", "Time", 9, 0, 26, plays=500),
        ),
        dict(steps=steps),
        f"With 1 to 5 buffers the {steps} steps take {', '.join(ends[:-1])} and {ends[-1]} units.",
    )


@picture
def phases():
    buffers, tiles, bytes_ = 3, 8, 64 * 64 * 2
    ring = Panel(176, f"A ring of {buffers}: which tile, which phase")
    uses = -(-tiles // buffers)
    wide = 86
    for use in range(uses):
        ring.text(96 + use * wide + wide / 2, 44, f"phase {use}", "small", "middle")
        ring.text(96 + use * wide + wide / 2, 62, f"parity {use & 1}", "small", "middle")
    for buffer in range(buffers):
        ring.text(0, 90 + 32 * buffer, f"full[{buffer}]", "mono small")
        for use in range(uses):
            tile = use * buffers + buffer
            shown = f"tile {tile}" if tile < tiles else ""
            ring.box(
                96 + use * wide, 72 + 32 * buffer, wide - 4, 28, ("b" if use & 1 else "a") if shown else "off", shown
            )
    one = Panel(176, "What completes a phase")
    rows = (
        ("init, count 1", "0 of 1 arrivals", ""),
        (f"expect {2 * bytes_:,} bytes", "1 of 1 arrivals", f"{2 * bytes_:,} to come"),
        ("tile of a arrives", "1 of 1 arrivals", f"{bytes_:,} to come"),
        ("tile of b arrives", "complete", "next phase: 0 of 1"),
    )
    for row, (what, arrivals, bytes_left) in enumerate(rows):
        y, last = 30 + 34 * row, row == len(rows) - 1
        one.text(0, y + 19, what, "small")
        one.box(150, y, 104, 28, "g" if last else "a" if row else "off", arrivals)
        one.text(262, y + 19, bytes_left, "tiny")
    return Picture(
        "Each buffer has a barrier, and each use of a buffer is a phase of it. Amber: parity 0. Blue: parity 1. A phase is complete "
        "when all arrivals have come and all bytes.",
        f"A ring of {buffers} buffers: tile i uses buffer i modulo {buffers}, in phase i divided by {buffers}; phases 0, 1 and 2 "
        f"have parity 0, 1 and 0. A barrier with count 1 and {2 * bytes_:,} bytes expected: each of two tiles brings {bytes_:,}, "
        "and with the second one the phase is complete.",
        [ring, one],
    )


@picture
def doors():
    panel = Panel(252, "Two doors to shared memory")
    panel.box(0, 34, 108, 56, "a", "threads")
    panel.box(126, 34, 108, 196, "off", "buffer")
    panel.box(252, 34, 108, 56, "b", "TMA,\ntensor cores")
    panel.arrow(108, 62, 126, 62, "a")
    panel.arrow(234, 62, 252, 62, "b")
    for row, (left, right) in enumerate((("1 store", ""), ("2 fence", ""), ("", "3 read"))):
        y = 108 + 42 * row
        if left:
            panel.box(0, y, 108, 32, "a" if row == 0 else "g", left)
        if right:
            panel.box(252, y, 108, 32, "b", right)
    panel.arrow(108, 124, 126, 124, "a")
    panel.arrow(108, 166, 252, 166, "g")
    panel.arrow(234, 208, 252, 208, "b")
    return Picture(
        "Threads use the ordinary door, the TMA and the tensor cores the async proxy. A fence between a store and the read "
        "makes the store visible behind the other door. An order alone, by a barrier for example, doesn't.",
        "Shared memory has two doors: one for the threads, one for the TMA and the tensor cores. The order that is right: "
        "1. the threads store, 2. they execute fence_async_shared, 3. the TMA or the tensor cores read.",
        [panel],
    )


@picture
def handshake():
    buffers = 3
    panel = Panel(236, "Two partitions, two barriers a buffer")
    panel.box(0, 32, 96, 190, "b", "fetch")
    panel.box(264, 32, 96, 190, "a", "multiply")
    for buffer in range(buffers):
        y = 32 + 66 * buffer
        panel.box(130, y, 100, 58, "off", f"buffer {buffer}")
        panel.arrow(96, y + 14, 130, y + 14, "b")
        panel.arrow(230, y + 14, 264, y + 14, "b")
        panel.arrow(264, y + 46, 230, y + 46, "a")
        panel.arrow(130, y + 46, 96, y + 46, "a")
    return Picture(
        "Blue, to the right: the tile is there, full. Amber, to the left: it has been used, empty. Each side waits for the other's "
        "barrier of the same buffer.",
        f"A ring of {buffers} buffers between two partitions. For each buffer there are two barriers: full, which the copy completes and "
        "multiply waits for, and empty, at which multiply arrives and for which fetch waits.",
        [panel],
    )


@picture
def turns():
    tiles, each, wide = 8, 2, 44
    panel = Panel(150, "Two partitions take turns")
    for tile in range(tiles):
        w = tile // each % 2
        panel.box(tile * wide, 32 + 52 * w, wide - 4, 30, "b" if w else "a", f"tile {tile}")
    for turn in range(1, tiles // each):
        x, down = turn * each * wide, turn % 2
        panel.arrow(x - 8, 66 if down else 80, x + 2, 80 if down else 66)
    panel.text(0, 140, "arrows: the baton, an arrival at the other's turn[W]", "small")
    mine = [[t for t in range(tiles) if t // each % 2 == w] for w in (0, 1)]
    return Picture(
        "Above partition 0, below partition 1. Who has the baton reads from the ring; the other one waits, or writes what it has computed.",
        f"{tiles} tiles. Partition 0 has {', '.join(map(str, mine[0]))}, partition 1 has {', '.join(map(str, mine[1]))}. After each "
        f"{each} tiles the baton goes to the other one.",
        [panel],
    )


@picture
def moved_wait():
    panels = []
    for title, order in (
        ("As written, and in the PTX", ("wait", "maxima", "exponentials", "WAIT")),
        ("In the machine code", ("wait", "maxima", "WAIT", "exponentials")),
    ):
        panel = Panel(130, title)
        left, wide = 0, {"wait": 44, "WAIT": 44, "maxima": 92, "exponentials": 150}
        for part in order:
            kind = "p" if part.lower() == "wait" else "a"
            panel.box(left, 72, wide[part] - 4, 28, kind)
            panel.text(left + (wide[part] - 4) / 2, 91, part.lower(), "small", "middle")
            left += wide[part]
            if part == "WAIT":
                panel.box(0, 32, left - 4, 28, "b")
                panel.text((left - 4) / 2, 51, "the second product", "small", "middle")
        panel.text(0, 122, "threads below, tensor cores above", "small")
        panels.append(panel)
    return Picture(
        "The second wait should come after the exponentials, so that they run beside the product. ptxas moves it up.",
        "As written: wait, maxima, 64 exponentials, wait; the second product runs beside all of it. In the machine code: "
        "wait, maxima, wait, 64 exponentials; the product is over before the first of them.",
        panels,
    )


def _steps(together: bool, groups: int, product: int, softmax: int, steps: int) -> list[tuple[int, str, int, int, int]]:
    """(group, what, tile, start, stop). The tensor cores do one product at a time, in the order in which they are issued.

    together: the scores of the next tile are issued before the output of this one, and the softmax waits for the scores
    only. Otherwise each product is waited for.
    """
    free, spans, issued = 0, [], [0] * groups
    weights = [-1] * groups  # when the weights of the last tile were ready; -1: there are none
    for tile in range(steps + 1):
        for group in range(groups):
            now, scored = issued[group], issued[group]
            if tile < steps:
                start = max(now, free)
                scored = free = start + product
                spans.append((group, "S", tile, start, free))
                spans.append((group, "softmax", tile, scored, scored + softmax))
            if together and weights[group] >= 0:
                start = max(now, free)
                free = start + product
                spans.append((group, "O", tile - 1, start, free))
                issued[group] = max(scored + softmax if tile < steps else scored, free)
            elif not together and tile < steps:
                start = max(scored + softmax, free)
                free = issued[group] = start + product
                spans.append((group, "O", tile, start, free))
            else:
                issued[group] = scored + softmax
            weights[group] = scored + softmax
    return spans


@picture
def attention_step():
    queries, keys, D, steps = 64, 128, 128, 3
    product = round(2 * queries * keys * D / (card.MATRIX_TFLOP_S * 1e12 / card.SMS / (card.CLOCK_GHZ * 1e9)))
    softmax = 537  # instructions of a warp in the compiled step; a scheduler starts one in a cycle
    cases = (
        ("Each product waited for", False, 1),
        ("Two products issued together", True, 1),
        ("The same, two groups", True, 2),
    )
    drawn = [(title, groups, _steps(together, groups, product, softmax, steps)) for title, together, groups in cases]
    longest = max(stop for *_, spans in drawn for *_, stop in spans)
    panels, busy = [], []
    for title, groups, spans in drawn:
        end, scale = max(stop for *_, stop in spans), 356 / longest
        panel = Panel(60 + groups * 28 + 50, title)
        cores = 36 + groups * 28
        for group, what, tile, start, stop in spans:
            top = 34 + 28 * group if what == "softmax" else cores
            role = "a" if what == "softmax" else "b" if what == "S" else "g"
            panel.box(
                start * scale, top, (stop - start) * scale, 22, role, f"{what[0] if what != 'softmax' else 'p'}{tile}"
            )
        busy.append(round(100 * sum(stop - start for _, what, _, start, stop in spans if what != "softmax") / end))
        panel.text(0, cores + 40, f"tensor cores busy {busy[-1]} % of {end:,} cycles", "small")
        panels.append(panel)
    return Picture(
        f"{steps} tiles of {keys} keys and a group's {queries} queries, heads of {D} numbers. Below: the tensor cores, blue for "
        "scores (S), green for outputs (O). Above: each group's softmax (p). Times from the data sheet and from the number of "
        "compiled instructions, not measured.",
        f"Three timelines of {steps} tiles of keys. A product takes {product} cycles, a softmax about {softmax}. Where each product "
        f"is waited for, the tensor cores are busy {busy[0]} % of the time. Where the scores of the next tile and the output of "
        f"this one are issued together, {busy[1]} %. With a second group beside it, {busy[2]} %.",
        panels,
    )


def _three_groups(tiles: int, copy: float, scores: float, weights: float, output: float) -> list[dict[str, float]]:
    """For each tile when its copy begins, its left half and all of it are there, its scores begin, are there, weights are
    there and sums are done. Copies are made one after another, into two buffers that have to be empty. The scores begin
    with the left half, and both halves of the output are summed at once."""
    found: list[dict[str, float]] = []
    copied = done = 0.0
    for tile in range(tiles):
        begun = max(copied, found[-2]["done"] if tile > 1 else 0.0)
        left, copied = begun + copy / 2, begun + copy
        start = max(done, left)
        scored = max(start + scores / 2, copied) + scores / 2
        done = scored + weights + output
        times = dict(begun=begun, left=left, copied=copied, start=start, scored=scored, weighted=scored + weights)
        found.append(times | dict(done=done))
    return found


@picture
def copy_score_sum():
    record, keys, heads, latent, row, tiles = figures.first(card.ROOT, "ladder/sparse_mla"), 64, 64, 512, 576, 3
    (T, H, _, K), rungs = record["shape"], {rung["name"]: rung for rung in record["rungs"]}
    in_a_row = -(-T * H // heads // card.SMS) * (K // keys)  # tiles that an SM has, one after another
    step, copy = (
        1e3 * rungs[name][key] / in_a_row for name, key in (("below Triton", "128_ms"), ("lesson", "only_loads_ms"))
    )
    product = 2e6 * heads * keys / (card.MATRIX_TFLOP_S * 1e12 / card.SMS)
    scores, output = product * row, product * latent
    times = _three_groups(tiles, copy, scores, step - scores - output, output)
    at = lambda time: 58 + 300 * time / times[-1]["done"]  # noqa: E731
    panel = Panel(268, f"{tiles} tiles of {keys} keys, three groups of warps")
    copies, first, second, cores = 36, 104, 172, 220
    for name, top in (
        ("copy", copies),
        ("scores,", first - 8),
        ("left", first + 8),
        ("right", second),
        ("tensor", cores - 8),
    ):
        panel.text(0, top + 17, name, "small")
    panel.text(0, cores + 25, "cores", "small")
    for tile, each in enumerate(times):
        begun, left, copied, start, scored, weighted, done = each.values()
        half = scores / 2
        for name, lane, since, until, kind in (
            (f"L{tile}", copies, begun, left, "p"),
            (f"R{tile}", copies, left, copied, "p"),
            (f"S{tile}", first, start, scored, "b"),
            (f"p{tile}", first, scored, weighted, "a"),
            (f"O{tile}", first, weighted, done, "g"),
            (f"O{tile}", second, weighted, done, "g"),
            (None, cores, start, start + half, "b"),
            (None, cores, scored - half, scored, "b"),
            (None, cores, weighted, done, "g"),
        ):
            panel.box(at(since), lane, at(until) - at(since), 24, kind, name)
        panel.arrow(at(left), copies + 24, at(start) + 1, first, "p")
        panel.arrow(at(copied), copies + 24, at(scored - half), first, "p")
        panel.arrow(at(weighted) + 2, first + 24, at(weighted) + 2, second, "a")
        if tile + 1 < tiles:
            panel.arrow(at(done), second, at(times[tile + 1]["weighted"]) - 2, first + 24, "g")
        if tile + 2 < tiles:
            panel.arrow(at(done) - 1, first, at(done) - 1, copies + 24, "g")
    panel.text(0, 264, f"a step: {step:.2f} µs, of which products take {scores + output:.2f}", "small")
    return Picture(
        "The left and right half of a tile are copied (L, R), then come scores (S), weights (p), and both halves of the output "
        "(O) at once. Arrows are barriers. Purple: a half is there. Amber: weights are there. Green: weights have been "
        "read, or a left half may be overwritten. While weights are computed, the tensor cores have nothing to do. The time of a "
        f"step is a share of the whole kernel's, that of a copy, {copy:.2f} µs, of what the lesson takes to copy and do nothing "
        "else; those of products are from the data sheet, and p is what is left.",
        f"Four timelines of {tiles} tiles: copies, scores with the left half of the output, the right half, tensor cores. "
        f"Scores take {scores:.2f} µs, weights with all waiting {step - scores - output:.2f}, the output {output:.2f}, so a step "
        f"takes {step:.2f}. A copy takes {copy:.2f} and runs beside the step before; only the first one is waited for. The "
        f"tensor cores are busy {100 * (scores + output) / step:.0f} % of a step.",
        [panel],
    )


def _sums(keys: int, queries: int, step: int, add: int) -> list[list[tuple[int, int, int, int, int]]]:
    """For each tile of keys, of each step: its tile of queries; when it begins and ends, when it begins to add and ends."""
    added: dict[int, int] = {}
    lanes = []
    for _ in range(keys):
        computed = free = 0
        lane = []
        for m in reversed(range(queries)):
            begun, computed = computed, max(computed + step, free)  # one buffer, which the last sum must have left
            adds = max(computed, added.get(m, 0))
            added[m] = free = adds + add
            lane.append((m, begun, computed, adds, free))
        lanes.append(lane)
    return lanes


@picture
def sums_in_turn():
    keys, queries, step, add = 4, 5, 6, 2
    lanes = _sums(keys, queries, step, add)
    scale = 356 / lanes[-1][-1][4]
    panel = Panel(20 + 60 * keys)
    for j, lane in enumerate(lanes):
        top = 14 + 60 * j
        panel.text(0, top, f"tile of keys {j}", "small")
        for m, begun, computed, adds, free in lane:
            panel.box(begun * scale, top + 6, (computed - begun) * scale, 18, "b", str(m))
            if adds > computed:
                panel.box(computed * scale, top + 26, (adds - computed) * scale, 14, "r")
            panel.box(adds * scale, top + 26, (free - adds) * scale, 14, "a")
    ends = [lane[-1][2] for lane in lanes]
    late = [end - queries * step for end in ends]
    waits = [lane[0][3] - lane[0][2] for lane in lanes]
    return Picture(
        f"{keys} programs that begin at the same time. Blue: a step, with the number of its tile of queries. Amber: the TMA "
        "adds its part of dQ. Red: that waits for its turn, while the next step is already being computed. "
        f"Times are made up: a step takes {step}, an addition {add}.",
        f"{keys} lanes of {queries} steps, from tile of queries {queries - 1} down to 0. The first sums wait "
        f"{', '.join(map(str, waits[:-1]))} and {waits[-1]} units of time for their turn. The last steps end at "
        f"{', '.join(map(str, ends[:-1]))} and {ends[-1]}: the waits cost the steps {sum(late)} units in all.",
        [panel],
    )


#: What a group's threads do in a step, and the products that they issue. A wait names the product that it is for.
STEP = (
    ("wait full: q, do", ()),
    ("issue S, dP", ("S", "dP")),
    ("wait", "S"),
    ("P = exp2(S - lse)", ()),
    ("issue dV", ("dV",)),
    ("wait", "dP"),
    ("dS = P (dP - delta)", ()),
    ("store dS, fence", ()),
    ("arrive ds_full", ()),
    ("wait ds_full", ()),
    ("issue dQ, dQ, dK", ("dQ", "dQ", "dK")),
    ("wait", "dV"),
    ("wait dq_empty", ()),
    ("wait", "dQ"),
    ("store dQ", ()),
    ("wait", "dK"),
    ("fence, arrive done", ()),
)


def step_of_products() -> tuple[list[tuple[str, int]], dict[str, tuple[int, int]]]:
    """Lines of a step, each with how many products are in flight after it; when each product is issued and waited for."""
    flying, lines, spans = [], [], {}
    for line, (words, products) in enumerate(STEP):
        if words == "wait":  # products end in the order of their issue
            done = len(flying) - flying[::-1].index(products)
            spans |= {name: (spans[name][0], line) for name in flying[:done]}
            flying = flying[done:]
            words = f"wait({len(flying)}): {products}"
        else:
            spans |= {name: (line, line) for name in products}
            flying = [*flying, *products]
        lines.append((words, len(flying)))
    return lines, spans


@picture
def backward_step():
    lines, spans = step_of_products()
    high, left, wide = 21, 170, 38
    panel = Panel(44 + high * len(lines))
    panel.text(0, 32, "a group's threads", "small")
    for column, name in enumerate(spans):
        panel.text(left + wide * column + wide / 2 - 2, 32, name, "small", "middle")
    for line, (words, _) in enumerate(lines):
        top = 40 + high * line
        own = "p" if words.startswith("wait") else "g" if "arrive" in words else "off" if "issue" in words else "a"
        panel.box(0, top, 160, high - 2, own)
        panel.text(6, top + 14, words, "mono small")
    for column, (begun, ended) in enumerate(spans.values()):
        top = 40 + high * begun
        panel.box(left + wide * column, top + high / 2, wide - 4, high * (ended - begun), "b")
    waits = [words for words, _ in lines if "(" in words and words.startswith("wait")]
    return Picture(
        "One step of a group, line by line, from top to bottom; not to scale. Left: what its threads do. Right, blue: its products, "
        "from the line that issues them to the one that waits for them. wait(n) returns when at most n are still in flight, and "
        "they end in the order of their issue. dQ is two products, one for each group's half of the keys. S and dQ are scores and "
        "gradient of this step; dV and dK are sums of all steps.",
        f"{len(lines)} lines of a step. " + ". ".join(words for words, _ in lines) + ". In flight are never more than "
        f"{max(count for _, count in lines)} products, and {len(waits)} waits are for products.",
        [panel],
    )


@picture
def backward_phases():
    steps, stages, wide, left = 7, 3, 34, 120
    rows = (
        ("full, done", "groups, adding warp", lambda i: i // stages),
        ("done", "loading warp, refills", lambda i: i // stages - 1),
        ("ds_full", "groups", lambda i: i),
        ("dq_empty", "groups, for dQ before", lambda i: i - 1),
    )
    panel = Panel(86 + 44 * len(rows))
    for name, top, words in (("step i", 18, lambda i: i), (f"stage, i % {stages}", 40, lambda i: i % stages)):
        panel.text(0, top + 14, name, "small")
        for i in range(steps):
            panel.text(left + wide * i + wide / 2 - 2, top + 14, words(i), "small", "middle")
    said = []
    for row, (name, who, phase_of) in enumerate(rows):
        top = 64 + 44 * row
        panel.text(0, top + 14, name, "mono small")
        panel.text(0, top + 30, who, "tiny")
        phases_of = [phase_of(i) for i in range(steps)]
        for i, phase in enumerate(phases_of):
            kind, words = ("off", "at once") if phase < 0 else ("b" if phase & 1 else "a", phase)
            panel.box(left + wide * i, top, wide - 3, 24, kind, "" if phase < 0 else words)
        said.append(f"{name} by {who}: {', '.join('at once' if phase < 0 else str(phase) for phase in phases_of)}")
    return Picture(
        f"Which phase a wait of step i is for, with {stages} stages. Amber: parity 0. Blue: parity 1. Grey: the phase before the "
        "first, which has parity 1, so the wait returns at once. full and done have a barrier for each stage, and a phase for "
        f"each use of it: step {stages} is the second use of stage 0. ds_full and dq_empty are single barriers, with a phase "
        "for each step.",
        f"{steps} steps. Phases that are waited for: " + "; ".join(said) + ".",
        [panel],
    )
