r"""
# Seeds

A seed of random numbers is an int, or a number on the GPU that nobody waits for. These functions check it, and turn
both into the same thing. And the random words that a kernel makes of it, in PyTorch.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import functools
import inspect

import torch


# The value of a seed on the GPU isn't looked at. A negative one there is taken for the unsigned number with its bits.
def seed_contract(seed, on, name="seed"):
    if isinstance(seed, torch.Tensor):
        if seed.dim() or seed.dtype != torch.int64:
            got = f"{seed.dtype} of shape {tuple(seed.shape)}"
            raise ValueError(f"{name} must be an int or a 0-d int64 tensor, got {got}")
        if seed.device != on:
            raise ValueError(f"{name} must be on {on}, got {seed.device}")
    elif isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"{name} must be an int or a 0-d int64 tensor, got {type(seed).__name__}")
    elif not 0 <= seed < 2**63:
        raise ValueError(f"{name} must be from 0 to 2**63 - 1, got {seed}")


# An int becomes a tensor, so that a kernel has one way for both; that starts a tiny kernel, and nobody waits.
# None stays None: no random numbers.
def seed_tensor(seed, on):
    if seed is None or isinstance(seed, torch.Tensor):
        return seed
    return torch.full((), seed, dtype=torch.int64, device=on)


# To [a call that is written down](../../academy/runtime/replay.py) each int is a call of another kind, and a training
# step has a seed of its own. A tensor's value doesn't count. So a function that takes seeds is decorated, and its int
# becomes a tensor before anybody looks at the call. What isn't a seed is left to the checks.
def seeded(function):
    """`function`, which gets an int as its `seed` or `grad_seed` as a tensor on the device of its first argument."""
    names = list(inspect.signature(function).parameters)
    place, name = next((at, name) for at, name in enumerate(names) if name.endswith("seed"))

    @functools.wraps(function)
    def call(*arguments, **named):
        seed = arguments[place] if len(arguments) > place else named.get(name)
        x = arguments[0] if arguments else named.get(names[0])
        if type(seed) is int and 0 <= seed < 2**63 and isinstance(x, torch.Tensor):
            seed = seed_tensor(seed, x.device)
            if len(arguments) > place:
                return function(*arguments[:place], seed, *arguments[place + 1 :], **named)
            named[name] = seed
        return function(*arguments, **named)

    return call


# ## The random words, in PyTorch
#
# Philox with ten rounds, as [dropout](../classics/dropout.py) explains it. `index` and `seed` are int64. A product of
# two 32-bit numbers fills all 64 bits, and may come out negative: masked with `LOW`, its upper half is right all the
# same.
LOW = 2**32 - 1


def random_words_reference(seed, index):
    """The four 32-bit words that the counters `index` get, as int64 in [0, 2³²)."""
    c0, c1, c2, c3 = index & LOW, index >> 32, torch.zeros_like(index), torch.zeros_like(index)
    key_low, key_high = seed & LOW, seed >> 32 & LOW  # a negative seed is shifted with its sign
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = second >> 32 & LOW ^ c1 ^ key_low, second & LOW, first >> 32 & LOW ^ c3 ^ key_high, first & LOW
        key_low, key_high = key_low + 0x9E3779B9 & LOW, key_high + 0xBB67AE85 & LOW
    return torch.stack([c0, c1, c2, c3], -1)
