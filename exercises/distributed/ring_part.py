"""# Which part goes next?

In a ring a tensor is cut into as many parts as there are ranks. In every step each rank sends one part to the next
rank, `(rank + 1) % world`, which adds its own numbers to it. In step 0, rank `r` sends part `r`. Write
`part(rank, step, world)`: which part does a rank send in a step?
"""


# %% solution
def part(rank, step, world):
    # <<<
    return (rank - step) % world
    # >>>


# %% checks
PAGE = "guides/many-cards.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "In step 1 a rank passes on what it has just received. Who sent that, and which part was it?",
    "Rank 2 received part 1 from rank 1 in step 0. What does it send in step 1?",
)
WHY = """What a rank sends in a step is what its neighbour sent in the step before. After `world - 1` steps each rank
has one part that everybody has added to."""


def check(t):
    for world in (4, 2, t.random.randint(5, 8), 3, 16, 33):
        for rank in range(world):
            t.value("part", (rank, 0, world), rank, note="In step 0 each rank sends its own part.")
        for step in range(1, world - 1):
            for rank in range(world):
                note = "A rank passes on what it has just received, from the rank before it."
                t.value("part", (rank, step, world), (rank - step) % world, note=note)


WRONG = (
    ("part(0, 0, 4) is None, should be 0",),
    ("from the rank before it", "return (rank + step) % world"),
    ("part(0, 1, 4) is -1, should be 3", "return rank - step"),
    ("part(1, 0, 4) is 0, should be 1", "return step"),
    ("part(0, 0, 4) is 3, should be 0", "return (rank - step - 1) % world"),
)
RIGHT = (
    ("return (rank + world - step) % world",),
    ("for _ in range(step):\n    rank = rank - 1 if rank else world - 1\nreturn rank",),
)
