"""# Better than the group

Answers to the same prompt stand beside each other, `group` of them. Write `advantages(rewards, group)`: for the reward
of each answer, how far it lies above the mean of its own group, as a list of the same length.
"""


# %% solution
def advantages(rewards, group):
    # <<<
    found = []
    for first in range(0, len(rewards), group):
        own = rewards[first : first + group]
        found += [each - sum(own) / group for each in own]
    return found
    # >>>


# %% checks
PAGE = "learn/reward.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Answers 0 to `group - 1` belong to the first prompt, the next `group` to the second.",
    "A prompt whose answers all got the same reward has advantages of 0, however large the reward is.",
)
WHY = """A baseline for each prompt: what is easy for the model has a high one. With the mean of the whole batch every
answer to an easy prompt would be made likelier, the bad ones, too."""


def check(t):
    def want(rewards, group):
        means = [sum(rewards[first : first + group]) / group for first in range(0, len(rewards), group)]
        return [reward - means[place // group] for place, reward in enumerate(rewards)]

    t.value("advantages", ([1.0, 0.0], 2), [0.5, -0.5])
    t.value("advantages", ([1.0, 0.0, 5.0, 7.0], 2), [0.5, -0.5, -1.0, 1.0], note="Each prompt has a mean of its own.")
    t.value("advantages", ([3.0, 3.0, 3.0], 3), [0.0, 0.0, 0.0], note="All the same: there is nothing to learn.")
    t.value("advantages", ([4.0, -2.0], 1), [0.0, 0.0], note="An answer alone is its own mean.")
    t.value("advantages", ([], 4), [])
    for _ in range(8):
        group = t.random.randint(2, 5)
        rewards = [t.random.choice((0.0, 1.0, t.random.uniform(-3, 3))) for _ in range(group * t.random.randint(1, 4))]
        t.value("advantages", (rewards, group), want(rewards, group))


WRONG = (
    ("advantages([1, 0], 2) is None",),
    (
        "Each prompt has a mean of its own",
        "return [each - sum(rewards) / max(len(rewards), 1) for each in rewards]",
    ),
    ("advantages([1, 0], 2) is", "each - sum(own) / group", "sum(own) / group - each"),
    ("advantages([1, 0], 2) is", "each - sum(own) / group", "each"),
    ("Each prompt has a mean of its own", "own = rewards[first : first + group]", "own = rewards[:group]"),
)
RIGHT = (
    (
        "means = [sum(rewards[k : k + group]) / group for k in range(0, len(rewards), group)]\n"
        "return [reward - means[place // group] for place, reward in enumerate(rewards)]",
    ),
    (
        "found = list(rewards)\nfor place in range(len(rewards)):\n    first = place - place % group\n"
        "    found[place] -= sum(rewards[first : first + group]) / group\nreturn found",
    ),
)
