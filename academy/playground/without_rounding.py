"""The second verdict on an edited kernel file: without rounding, too, does its EXAMPLE give what the original gives?

Both texts run once more, with a residue beside each float (`academy.exact`). Here torch may be the browser's, which is
written in numpy and carries none: what the host computes between launches is a float, and data. So nothing is said
where the edited text has read data that the original didn't: a sum of torch's may have been rounded differently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from academy.command import trouble
from academy.exact.array import Numbers
from academy.exact.compare import compared_each
from academy.exact.memory import Memory, places
from academy.exact.triton import following, replaced, tensors_in
from academy.interpreter.internals import interpreter

SAME = "Without rounding, too, it gives the same."
ANOTHER = (
    "Without rounding it gives something else, first in {}: a term is missing that is too small to see, or a digit of "
    "a constant is wrong. Or you approximate on purpose."
)
#: Runs an EXAMPLE: of the edited text, and of the original.
Run = Callable[[], Any]


def verdict(edited: Run, original: Run) -> str:
    """A sentence, or "" where it isn't decided."""
    try:
        theirs, known = _left_behind(original)
        ours, read = _left_behind(edited)
        if not ours or [*ours] != [*theirs] or read - known:
            return ""
        if any(each.floats.shape != theirs[name].floats.shape for name, each in ours.items()):
            return ""
        others = lambda: {name: each.residues for name, each in _left_behind(edited)[0].items()}  # noqa: E731
        found = compared_each(ours, theirs, others)
    except Exception as error:  # of a rule that isn't there, and no business of the reader's
        trouble.let_through(error)
        return ""
    for name, each in found.items():
        if each.same is False and each.where is not None:
            return ANOTHER.format(f"`{name.partition(' ')[2]}[{', '.join(map(str, each.where))}]`")
    return SAME if all(each.same and each.decided == each.elements for each in found.values()) else ""


def _left_behind(run: Run) -> tuple[dict[str, Numbers], set]:
    """What the launches have left in their tensors of floats in the end, by number of the launch and argument, and the
    data that they have read. Nothing, if something was lost on the way."""
    memory, tensors = Memory(), dict[str, torch.Tensor]()
    memory.given, launch = set(), interpreter.GridExecutor.__call__

    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        number = len({name.partition(" ")[0] for name in tensors})
        for name, value in [*zip(self.arg_names, args), *kwargs.items()]:
            for tensor in tensors_in(value):
                if tensor.is_floating_point() and tensor.numel():
                    tensors[f"{number} {name}"] = tensor
        return launch(self, *args, **kwargs)

    with replaced(interpreter.GridExecutor, "__call__", launched), following(memory, {}) as kernels:
        run()
        data = set(memory.given)
        found = {name: _written(memory, tensor) for name, tensor in tensors.items()}
    return ({}, data) if kernels.lost or memory.unseen else (found, data)


def _written(memory: Memory, tensor: torch.Tensor) -> Numbers:
    """What a kernel has written; 0 in the place of all else."""
    written = memory.region_of(tensor).known[places(tensor)].reshape(tuple(tensor.shape))
    floats = np.asarray(tensor.detach().double().numpy())
    return Numbers(np.where(written, floats, 0.0), np.where(written[..., None], memory.of(tensor), np.uint64(0)))
