"""Matrix products: tiles and the K loop, the order of programs and the L2 cache, split-K, edges."""

import card
from draw import Control, Panel, Picture, picture
from moving import moving


@picture
def k_loop():
    M = N = K = 8
    block, tile, side = 4, (1, 0), 19
    a_left, a_top, b_left, b_top = 1, 196, 186, 26
    panel = Panel(360, f"x · y, all {M} x {K}, tiles of {block} x {block}")

    def matrix(left, top, name):
        panel.cells(left, top, M, N, side)
        panel.text(left, top - 6, name, "small")

    matrix(b_left, b_top + 14, "y (K, N)")
    matrix(a_left, a_top + 8, "x (M, K)")
    matrix(b_left, a_top + 8, "")
    wide = block * side
    for k in range(K // block):
        panel.box(a_left + k * wide, a_top + 8 + tile[0] * wide, wide, wide, "strong a", f"k = {k}")
        panel.box(b_left + tile[1] * wide, b_top + 14 + k * wide, wide, wide, "strong b", f"k = {k}")
    panel.box(b_left + tile[1] * wide, a_top + 8 + tile[0] * wide, wide, wide, "strong g", "acc")
    panel.text(a_left, 62, f"program (pid_m={tile[0]}, pid_n={tile[1]})", "small")
    panel.text(a_left, 84, "for k in range(2):", "mono small")
    panel.text(a_left, 106, "  acc += x_k · y_k", "mono small")
    panel.text(a_left, 136, f"{2 * K // block} tiles loaded,", "small")
    panel.text(a_left, 154, f"each number used {block} times", "small")
    return Picture(
        "One program, one green tile. It walks along K: a tile of x from the left, a tile of y from above, and their product "
        "is added to acc.",
        f"Matrices x, y and the result, each {M} x {M}, in tiles of {block}. Program (1, 0) takes the lower left tile of the "
        f"result. It loads tiles k = 0 and 1 of its band of x and of its band of y: {2 * K // block} tiles in all, and uses "
        f"each number {block} times.",
        [panel],
    )


@picture
def tiled():
    sizes, speeds = (16, 32, 64, 128, 256), card.speeds()
    return moving(
        "tiled",
        "Why do larger tiles make a product faster, and why not larger still?",
        "Play one program. Then double BLOCK_M and BLOCK_N in turn, and follow the large dot.",
        "A program loads a tile of x (amber) and one of y (blue) in each step and adds their product to its sums (green). "
        "Numbers are bfloat16, sums float32. The roofline is that of measured copies and products; it counts what programs load, as if "
        "all of it came from memory. Blue dots are square tiles. Between the largest tile that fits and the corner of the roof "
        "the L2 cache has to help: it holds what another program has just loaded.",
        (
            Control("block_m", "BLOCK_M", 64, stops=sizes),
            Control("block_n", "BLOCK_N", 64, stops=sizes),
            Control("block_k", "BLOCK_K", 64, stops=(32, 64, 128)),
            Control("pid", "Program", 9, 0, 1023),
            Control("step", "Steps along K done", 5, 0, 8, plays=600),
        ),
        {
            "side": 512,
            "size": 2,
            "bandwidth": speeds["bytes"],
            "operations": speeds["operations"],
            "registers": card.REGISTERS,
        },
    )


@picture
def l2_order():
    return moving(
        "l2_order",
        "Nine programs run at a time. In which order do they share the most tiles?",
        "Drag GROUP_M from 1 to 9, and find the smallest sum.",
        "The result, lower right, has 9 × 9 tiles. Numbers are program ids; green ones run at the same time. A tile needs all "
        "of its row of x (amber) and of its column of y (blue).",
        (Control("group", "GROUP_M: rows in a group", 3, 1, 9),),
        {"blocks": 9},
    )


@picture
def l2():
    tiles, places = 16, 16
    held = {size: 2 * tiles**2 * card.L2_MB * 1e6 / (2 * size**2 * 2) for size in (4096, 8192)}
    return moving(
        "l2",
        "When does the order of programs decide how much comes from memory?",
        "Find the GROUP_M with which the whole product finds most in this small L2. Then let L2 grow, or programs lag behind "
        "each other.",
        f"A model: {places} programs run at a time. In each step every one loads its next tile of x and of y. "
        "What several load in the same step comes from memory once, and the others find it: half red, half green. L2 keeps as many tiles as "
        "the slider says and drops the one that was used longest ago. Real cards are bigger and less orderly, but shares "
        f"carry over: the {card.L2_MB} MB of an H200 hold {held[8192] / (2 * tiles**2):.0%} of two bfloat16 matrices of 8192 × 8192, which is "
        f"{held[8192]:.0f} tiles here, and {held[4096] / (2 * tiles**2):.0%} of two of 4096 × 4096, {held[4096]:.0f} tiles.",
        (
            Control("group", "GROUP_M: rows in a group", 2, 1, tiles),
            Control("capacity", "L2: tiles that it holds", 120, 8, 512, 4),
            Control("lag", "Lag behind the neighbour", 0, stops=(0, 1, 2, 4)),
            Control("step", "Steps done", 40, 0, 256, plays=120),
        ),
        {"tiles": tiles, "places": places},
    )


@picture
def last_group():
    from annotated_examples.tutorials.matmul_grouped import program_order

    rows, columns, group = 8, 4, 3
    order = {block: pid for pid, block in enumerate(program_order(rows, columns, group))}
    panel = Panel(292, f"{rows} x {columns} tiles, GROUP_M = {group}: {rows * columns} programs")
    panel.cells(130, 30, rows, columns, (44, 30), lambda r, c: "abg"[r // group], lambda r, c: order[r, c])
    for first in range(0, rows, group):
        high = min(group, rows - first)
        panel.text(0, 30 + first * 30 + 20, f"group {first // group}:", "bold")
        panel.text(0, 30 + first * 30 + 38, f"{high} rows", "small")
        panel.box(130, 30 + first * 30, columns * 44, high * 30, "strong")
    last = rows % group
    return Picture(
        "Down a group first, then to the right. The last group has only two rows: there the order divides by 2, not by 3.",
        f"A grid of {rows} rows and {columns} columns of tiles with program ids. Groups of {group} rows are numbered column by "
        f"column. The last group has {last} rows, and begins with program {order[rows - last, 0]}.",
        [panel],
    )


@picture
def split_k():
    from annotated_examples.gemlite import gemm_splitK

    tuned = gemm_splitK.CONFIGS[1].kwargs  # 128 columns a tile
    facts = {"columns": 8192, "K": 8192, "block": tuned["BLOCK_N"], "sms": card.SMS}
    return moving(
        "split_k",
        "How far should K be split?",
        "Start at 1 and go up. Which is the first that gains nothing?",
        f"{facts['columns']} columns in tiles of {facts['block']}, one tile of rows: few programs with a long way along K, downwards. A colour is a "
        "part of K; the parts of a tile are added into the same place. The model: every step along K takes the same time, and the "
        "additions take none. They do, so the smallest split that fills the card is the best.",
        (Control("split", "SPLIT_K", tuned["SPLIT_K"], stops=(1, 2, 4, 8, 16)),),
        facts,
    )
