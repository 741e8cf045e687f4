"""Why a trial is mostly wrong, in a sentence, and where the site explains it."""

from __future__ import annotations

import os
import re
from typing import NamedTuple


class Cause(NamedTuple):
    """pattern: of `group: name of the trial: message`. page: of the site, with its anchor."""

    pattern: str
    sentence: str
    page: str

    @property
    def address(self) -> str:
        """Of a published site, where SITE_URL says which."""
        return f"{os.environ.get('SITE_URL', '').rstrip('/')}/{self.page}".lstrip("/")


_TEST = "guides/best-practice/#what-only-a-run-can-tell"
_MUSEUM = "guides/debugging/#"
#: The first that fits counts. What a message says is nearer to the cause than the group that has found it.
CAUSES = [
    Cause(r"^arguments: ", "Nothing compares the shapes: raise a ValueError before the launch.", _TEST),
    Cause(r"the next call changes|lies in the memory of",
          "A result lies in memory that the function keeps, or its caller: give each call its own.",
          _MUSEUM + "13-the-recycled-gradient"),
    Cause(r"^gsan: .*Write after write",
          "Two programs write to one element. Or to neighbours of one or two bytes: GSan keeps one clock for four.",
          _MUSEUM + "9-two-writers-one-element"),
    Cause(r"outside (of )?a tensor|OutOfBounds|SIGSEGV|SIGBUS|Invalid __|^memcheck: ",
          "A load or a store has no mask, or that of another axis.", _MUSEUM + "2-the-store-past-the-end"),
    Cause(r"never written|no program of \w+ writes",
          "The grid is a program short (triton.cdiv rounds up), or a mask leaves a part out.",
          _MUSEUM + "1-the-tail-that-nobody-owns"),
    Cause(r"which nobody has written|^initcheck: ",
          "A kernel adds to what torch.empty has not filled: take torch.zeros.",
          _MUSEUM + "10-adding-to-what-was-there"),
    Cause(r"writes to its argument",
          "A kernel stores into memory that somebody still needs: give the result its own.",
          _MUSEUM + "13-the-recycled-gradient"),
    Cause(r"stopped after", "A loop never ends, or waits for what nobody does.",
          _MUSEUM + "look-inside-the-interpreter"),
    Cause(r"should have torch\.", "The result is allocated in another dtype than the reference's.",
          "guides/from-pytorch/#a-kernel-and-its-launcher"),
    Cause(r"it gives \d+ results|gradient of [^:]* is missing|the reference gives none",
          "backward returns one gradient for each argument of forward, in their order; None for one without.",
          "guides/from-pytorch/#autograd-sees-nothing"),
    Cause(r"int32|32 bits|rows 2³⁰ elements|2³¹",
          "A number of a row, times a stride, is a product of 32 bits: convert it with .to(tl.int64) before.",
          _MUSEUM + "6-the-offset-that-wraps-around"),
    Cause(r"^programs: |^gsan: |^repeats: .* on one address",
          "Two programs, or two lanes, write to one element, or one reads what another writes: add atomically, or give "
          "each element to one of them.", _MUSEUM + "9-two-writers-one-element"),
    Cause(r"^layouts: .*upstream gradient",
          "backward takes the gradient that arrives for contiguous: pass its strides, or make it so.",
          _MUSEUM + "14-one-number-shown-many-times"),
    Cause(r"^layouts: ", "An offset is made with a size where the stride is meant, so a view is taken for a copy.",
          _MUSEUM + "5-the-view-taken-for-a-copy"),
    Cause(r"around -10⁴ that differ.* is (-?inf|nan|0)\b",
          "A masked lane's 0 is the largest of a row below zero: `other` is −∞ for a maximum.",
          _MUSEUM + "3-the-zero-that-wins-a-maximum"),
    Cause(r"fall by decades",
          "A sum is made as the difference of larger ones, whose digits it lacks: add what it consists of.",
          "guides/numerics/#cancellation"),
    Cause(r"around -?10⁴ that differ",
          "A mean or a variance has lost its digits, as E[x²] − E[x]² does: subtract the mean first.",
          "guides/numerics/#cancellation"),
    Cause(r"^magnitudes: .*(below|float16)",
          "A constant, such as an eps, is larger than the numbers, or 16 bits can't hold them.",
          "guides/numerics/#what-a-dtype-can-hold"),
    Cause(r"^magnitudes: ", "An exponential overflows: subtract the row's maximum first.",
          "guides/numerics/#softmax-without-overflow-in-one-pass"),
    Cause(r"^dtypes: .*(long|more than) ", "A sum is kept in 16 bits, where it stops growing: add in float32.",
          "guides/numerics/#a-sum-that-stops-growing"),
    Cause(r"^dtypes: ", "Something is rounded to fewer bits on the way: convert after the load, round at the store.",
          "guides/numerics/#compute-in-float32-round-once"),
    Cause(r"^lanes: ",
          "Masked lanes take part in a reduction: `other` is what doesn't change it, 0 for a sum, −∞ for a maximum.",
          _MUSEUM + "3-the-zero-that-wins-a-maximum"),
    Cause(r"^non-finite: ", "A comparison or a maximum drops a NaN (propagate_nan), or one comes of ∞ − ∞ or 0 · ∞.",
          _MUSEUM + "12-minus-infinity-minus-minus-infinity"),
    Cause(r"^batch: ", "The order of a sum hangs on the number of rows: a tile, a split or a kernel is chosen by it.",
          "guides/numerics/#the-same-row-in-another-batch"),
    Cause(r"^repeats: ", "The order of a sum changes from call to call, as that of atomic additions does.",
          "guides/numerics/#the-order-of-a-sum"),
    Cause(r"^values: ",
          "The formula has a value for a zero, a tie or equal numbers, such as 0 · log 0; the code has none.", _TEST),
    Cause(r"^ranks: ", "Rows are counted by shape[0]; all dims but the last have rows.",
          "guides/from-pytorch/#strides"),
    Cause(r"^options: ", "An argument is forgotten in one of the branches, or in the backward pass.",
          "guides/from-pytorch/#autograd-sees-nothing"),
    Cause(r"^configurations: ",
          "A tile doesn't fit what the kernel does, or the tuner's trials have changed a buffer: name it in "
          "restore_value or reset_to_zero.", "guides/autotuning/#trials-are-real-runs"),
    Cause(r"^compiles: ", "The interpreter takes more than the compiler does.",
          _MUSEUM + "no-gpu-you-can-still-compile"),
    Cause(r"^(consan|racecheck|synccheck): ",
          "One thread reads what another one writes, with no wait or barrier between the two.",
          _MUSEUM + "the-lock-of-the-layernorm-tutorial-is-it-a-race"),
    Cause(r"^fpsan: ", "What runs depends on how many warps there are: two threads race, or the compiler is wrong.",
          _MUSEUM + "on-the-gpu"),
    Cause(r"^calls: .*second backward", "The backward pass writes over what it has saved.",
          _MUSEUM + "13-the-recycled-gradient"),
    Cause(r"^calls: ", "A call leaves something behind, or takes for granted which tensors it gets and which of them "
          "require a gradient.", "guides/from-pytorch/#autograd-sees-nothing"),
    Cause(r"^derivatives: ", "Autograd takes what a kernel gives for a constant.",
          "guides/from-pytorch/#the-second-derivative"),
    Cause(r"^offsets: ", "The grid is larger than a card allows: 65,535 on the second and third axis.", _TEST),
    Cause(r"^exact: ",
          "A term, a constant or an eps isn't the reference's, or a helper approximates: name it in ATOMS.",
          "guides/without-a-tolerance/#what-is-compared"),
    Cause(r"^sizes: 0 ", "Of no elements there is nothing to launch, and still a result.", _TEST),
    Cause(r"^sizes: ",
          "A size is no multiple of the block, or larger than one: a mask, the grid, or what a loop carries is wrong.",
          _MUSEUM + "1-the-tail-that-nobody-owns"),
]  # fmt: skip

#: Where the last one would stand, and whole blocks are wrong as well.
AT_EVERY_SIZE = Cause(
    "",
    "It is wrong at every size, whole blocks too: no tail, but the formula itself, or which element goes where.",
    _MUSEUM + "watch-the-whole-run-academy-trace",
)


def of(trial: object, message: str) -> Cause:
    """The likely cause of what a trial has shown, if nothing is known of the others."""
    said = f"{trial}: {message}"
    return next((cause for cause in CAUSES if re.search(cause.pattern, said)), CAUSES[-1])
