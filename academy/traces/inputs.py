"""What a recorded run shows about its inputs: elements that nobody reads, and loads through another tensor's strides.

A loop over K that leaves out its tail stays inside every tensor and writes every output. What gives it away is that the
last columns of one factor, and the last rows of the other, are never read.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from academy.traces.memory import Argument
from academy.traces.observer import Launch, Touch
from academy.traces.proof import Finding, explanation, launches_of_a_call, steps, strange_steps
from academy.traces.recording import row_major


def findings(launches: list[Launch]) -> list[Finding]:
    """Loads through wrong strides, and of other loads what they leave out."""
    wrong = suspicious_loads(launches)
    lines = {(finding.file, finding.line) for finding in wrong}
    return wrong + [finding for finding in unread(launches) if (finding.file, finding.line) not in lines]


def unread(launches: list[Launch]) -> list[Finding]:
    """Inputs whose first slices along an axis are read and whose last ones are not, by all launches of a call together.

    Only such a tail counts: under a causal mask, and where labels or lengths choose, other elements are left out with
    good reason. So nothing is said where a kernel also loads integers, by which it may choose; of tensors that are also
    written; and of a tensor of which each call reads only one slice.
    """
    found: dict[tuple, Finding] = {}
    for group in launches_of_a_call(launches):
        for launch in group:
            if any(_chooses(touch) for touch in launch.touches):
                continue
            for argument in launch.arguments:
                touches = [t for other in group for t in other.touches if t.argument.identity == argument.identity]
                if not touches or argument.fresh or any(touch.operation != "load" for touch in touches):
                    continue
                finding = _tail(launch, argument, touches)
                if finding is not None:
                    found.setdefault((finding.file, finding.line, argument.name), finding)
    return list(found.values())


def _chooses(touch: Touch) -> bool:
    """Whether numbers are loaded by which a kernel may choose what to read: lengths, labels, tables of pages."""
    dtype = touch.argument.tensor.dtype
    return touch.operation != "store" and not dtype.is_floating_point and bool((touch.elements >= 0).any())


def _tail(launch: Launch, argument: Argument, touches: list[Touch]) -> Finding | None:
    own = [touch for touch in launch.touches if touch.argument is argument and (touch.elements >= 0).any()]
    shape = tuple(argument.tensor.shape)
    if not own or not shape or 0 in argument.tensor.stride():
        return None
    offsets = np.concatenate([touch.addresses[touch.elements >= 0] for touch in touches])
    elements = argument.elements_in_storage(offsets)
    read = np.zeros(shape, dtype=bool)
    read.reshape(-1)[elements[elements >= 0]] = True
    for axis, size in enumerate(shape):
        slices = np.moveaxis(read, axis, 0).reshape(size, -1)
        some, every = np.asarray(slices.any(axis=1)), np.asarray(slices.all(axis=1))
        first = int(some.sum())
        if 1 < first < size and every[:first].all() and not some[first:].any():
            holes = int((~read).sum())
            message = f"no program of {launch.kernel} reads {argument.element_name(int(np.flatnonzero(~read)[0]))}"
            message += (
                f" ({holes} of {read.size} elements are left out, all from {first} on along axis {axis}): does a "
            )
            message += "loop end too early, or is a tail left out?"
            return Finding(own[-1].file, own[-1].line, message)
    return None


# ---- loads through the strides of another layout --------------------------------------------------------------------


def suspicious_loads(launches: list[Launch]) -> list[Finding]:
    """Loads that stay inside their tensor, but go through it by the strides of *another* tensor, or by its own ones in
    the wrong order, so that a row of the block runs over the end of a row of the tensor.

    As in `proof.suspicious_stores`, a step from lane to lane is right if it leads to the next element along an axis.
    Any other may be meant, too, so it counts only if some elements of the tensor are read by nobody.
    """
    return strange_steps(launches, "load", "loads", _wrong_step)


def _wrong_step(launch: Launch, touch: Touch) -> str | None:
    argument = touch.argument
    expected = row_major([size for size in argument.tensor.shape if size > 1])
    if len(expected) < 2 or argument.fresh or 0 in argument.tensor.stride():
        return None
    for elements, _, both, apart, numbers in steps(touch):
        if elements.ndim > 1 and both.any() and _runs_over(elements, both, argument.tensor.shape[-1]):
            if _leaves_out(launch.touches, argument):
                return "its lanes run from the end of a row on into the next, as if two strides were swapped"
        if apart.size != 1 or apart[0] == 0 or numbers.size == 1 and abs(numbers[0]) in expected:
            continue  # one lane, or a gather; a broadcast; the next element along an axis
        reason = explanation(abs(int(apart[0]) // argument.itemsize), argument, launch.arguments)
        if reason and _leaves_out(launch.touches, argument):
            return reason
    return None


def _runs_over(elements: np.ndarray, both: np.ndarray, width: int) -> bool:
    """Whether lanes that go from element to element of a row don't stop at its end, in a block with several rows."""
    steps, columns = np.diff(elements)[both], np.diff(elements % width)[both]
    return elements.shape[0] > 1 and bool((steps == 1).all() and (columns != 1).any())


def _leaves_out(touches: Iterable[Touch], argument: Argument) -> bool:
    """Whether some element of a tensor is loaded by nobody."""
    loaded = [t.elements.reshape(-1) for t in touches if t.argument is argument and t.operation == "load"]
    return np.unique(np.concatenate(loaded)[np.concatenate(loaded) >= 0]).size < argument.tensor.numel()
