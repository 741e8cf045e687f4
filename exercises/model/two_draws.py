"""# Two models that should be one

Two models are trained side by side, one with our operations and one with PyTorch's. Each operation was compared
and is right, and still the losses differ from the first step on. `pair(seed)` makes the two models. Find the
bug.
"""

# %% solution
import random


class Model:
    """operations: a name, here. generator: its next numbers become the initial weights."""

    def __init__(self, operations, generator):
        self.operations = operations
        self.weights = [generator.gauss(0, 0.02) for _ in range(6)]


def pair(seed):
    """Ours and the plain model. Other seeds give other weights."""
    # <<<
    ours = Model("ours", random.Random(seed))
    theirs = Model("plain", random.Random(seed))
    # ===
    # generator = random.Random(seed)
    # ours = Model("ours", generator)
    # theirs = Model("plain", generator)
    # >>>
    return ours, theirs


# %% checks
PAGE = "kernels/capstone/gpt.md"
KIND = "find the bug"
ORDER = 7
HINTS = (
    "The seed is set once. Which numbers does the first model get, and which does the second one get?",
    "Give each model a generator of its own with the same seed, or copy the weights of one into the other.",
    "A copy: training changes the weights in place, so the models may not share a list.",
)
WHY = """A generator has a state, and the second model gets its next numbers. The losses then differ as much as those of
two seeds do, and a wrong kernel can hide in that difference. `pair` of the capstone copies the weights."""


def check(t):
    def drawn(seed):
        return t.evaluate("[(model.operations, model.weights) for model in pair(seed)]", seed=seed)

    first = t.random.randint(1, 1000)
    seeds = [first, first + 1, first + 2, first + 64, first + 1000, first + 2**16]
    weights = []
    for seed in seeds:
        (_, ours), (_, theirs) = models = drawn(seed)
        t.require(len(ours) == len(theirs) == 6, "each model has six weights", f"seed {seed}")
        for number, (a, b) in enumerate(zip(ours, theirs)):
            t.require(a == b, f"weight {number} is {a:.4f} in ours and {b:.4f} in the plain model", f"seed {seed}")
        names = [operations for operations, _ in models]
        t.require(names == ["ours", "plain"], f"the operations of the two models are {names}: what is compared then?")
        t.require(len(set(ours)) == 6, "a model's weights should all differ", f"seed {seed}")
        for other, known in zip(seeds, weights):
            t.require(ours != known, f"the seeds {other} and {seed} give the same weights")
        weights.append(ours)
    t.require(drawn(first)[0][1] == weights[0], "the same seed gives other weights the second time", f"seed {first}")
    step = "[(ours.weights.insert(0, 9.0), ours.weights[0], theirs.weights[0]) for ours, theirs in [pair(seed)]]"
    ((_, ours, theirs),) = t.evaluate(step, seed=first)
    t.require(ours != theirs, "a step of ours changes the plain model too: they share a list")


WRONG = (
    (
        "give the same weights",
        'ours = Model("ours", random.Random(seed % 2))\ntheirs = Model("plain", random.Random(seed % 2))',
    ),
    (
        "a model's weights should all differ",
        'ours = Model("ours", random.Random(seed))\n'
        'theirs = Model("plain", random.Random(seed))\n'
        "ours.weights = theirs.weights = [ours.weights[0]] * 6",
    ),
    ("weight 0 is",),
    (
        "give the same weights",
        'ours = Model("ours", random.Random(0))\ntheirs = Model("plain", random.Random(0))',
    ),
    (
        "a step of ours changes the plain model too: they share a list",
        'ours = Model("ours", random.Random(seed))\n'
        'theirs = Model("plain", random.Random(seed))\n'
        "theirs.weights = ours.weights",
    ),
    (
        "the operations of the two models are ['ours', 'ours']",
        "import copy\n\nours = Model('ours', random.Random(seed))\ntheirs = copy.deepcopy(ours)",
    ),
    (
        "weight 1 is",
        "generator = random.Random(seed)\n"
        'ours, theirs = Model("ours", generator), Model("plain", generator)\n'
        "theirs.weights[0] = ours.weights[0]",
    ),
)
RIGHT = (
    (
        "generator = random.Random(seed)\n"
        'ours, theirs = Model("ours", generator), Model("plain", generator)\n'
        "theirs.weights[:] = ours.weights",
    ),
    (
        "generator = random.Random(seed)\n"
        "begin = generator.getstate()\n"
        'ours = Model("ours", generator)\n'
        "generator.setstate(begin)\n"
        'theirs = Model("plain", generator)',
    ),
)
