"""# Which block of the result?

Write `block_of_program(pid, rows, columns, GROUP_M)` in Python: the row and column of a program's block in
the grouped order. The last group may have fewer rows.
"""


# %% solution
def block_of_program(pid, rows, columns, GROUP_M):
    # <<<
    first_row = pid // (GROUP_M * columns) * GROUP_M
    group_rows = min(rows - first_row, GROUP_M)
    in_group = pid % (GROUP_M * columns)
    return first_row + in_group % group_rows, in_group // group_rows
    # >>>


# %% checks
PAGE = "learn/l2_reuse.py"
KIND = "fill in"
ORDER = 5
HINTS = (
    "`GROUP_M * columns` programs share a group of rows. Which group does `pid` belong to, and which row "
    "does it begin with?",
    "Inside a group: down its rows first, then to the right. The remainder gives the row, the quotient the column.",
    "How many rows does the last group have? Use that number in both.",
)
WHY = """Both the remainder and the quotient inside the group use `group_rows`. With only one of them fixed, some blocks
are taken twice, or blocks that don't exist are taken."""


def check(t):
    drawn = (t.random.randint(5, 9), t.random.randint(2, 6), t.random.randint(2, 4))
    for rows, columns, group in (
        (9, 9, 3),
        (7, 5, 4),
        (4, 3, 8),
        (5, 1, 1),
        (1, 1, 1),
        (1, 7, 3),
        (20, 3, 8),
        (3, 3, 3),
        (33, 2, 16),
        drawn,
    ):
        wanted = []
        for first in range(0, rows, group):
            wanted += [(row, column) for column in range(columns) for row in range(first, min(first + group, rows))]
        for pid, block in enumerate(wanted):
            note = "The last group has fewer rows." if block[0] >= rows // group * group else ""
            t.value("block_of_program", (pid, rows, columns, group), block, note=note)


WRONG = (
    ("block_of_program(0, 9, 9, 3) is None",),
    (
        "block_of_program(27, 9, 9, 3) is (0, 9), should be (3, 0)",
        "return first_row + in_group % group_rows, in_group // group_rows",
        "return pid % GROUP_M, pid // GROUP_M",
    ),
    (
        "The last group has fewer rows",
        "group_rows = min(rows - first_row, GROUP_M)",
        "group_rows = GROUP_M",
    ),
    (
        "The last group has fewer rows",
        "in_group // group_rows",
        "in_group // GROUP_M",
    ),
    (
        "The last group has fewer rows",
        "in_group % group_rows",
        "pid % group_rows",
    ),
)
RIGHT = (
    (
        "group, inside = divmod(pid, GROUP_M * columns)\n"
        "height = min(GROUP_M, rows - group * GROUP_M)\n"
        "column, row = divmod(inside, height)\n"
        "return group * GROUP_M + row, column",
    ),
    (
        "first_row = 0\n"
        "while pid >= columns * min(GROUP_M, rows - first_row):\n"
        "    pid -= columns * min(GROUP_M, rows - first_row)\n"
        "    first_row += GROUP_M\n"
        "height = min(GROUP_M, rows - first_row)\n"
        "return first_row + pid % height, pid // height",
    ),
)
