"""What is asked of a call beside its numbers: procedures of `trying`, each of which gets the attempt it is part of."""

from __future__ import annotations

import contextlib
import gc
import inspect
import pickle
import random
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
import torch
import triton.testing
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from academy.judge import elements, verdict, writes
from academy.judge.findings import Remark, Wrong
from academy.runtime.modes import DispatchMode

#: Of `trying`, which imports this.
Attempt: TypeAlias = Any
#: Sets of inputs that require gradients, at most.
_SETS = 8
#: What a harness goes by: clocks, and what compares.
_SHARED = (time, torch, torch.cuda, torch.cuda.Event, torch.Tensor, torch.testing, triton, triton.testing)


def rank(attempt: Attempt) -> None:
    """Other leading dims than INPUTS says. A function may fail there, in whatever words. One that gives the right
    result takes them, so its gradients are right, too."""
    inputs = attempt.inputs()
    try:
        attempt.expected(inputs, None)
        found, upstreams = attempt.ours(inputs)
        result = {name: value for name, value in found.items() if name.startswith("out")}
        attempt.compare(result, inputs, upstreams, whole=False)
    except Wrong:
        raise Remark("other leading dims than INPUTS says are taken, and the result is wrong: raise an error") from None
    except Exception:
        return
    attempt.compare(found, inputs, upstreams)


def mixed(attempt: Attempt) -> None:
    """One tensor in another dtype. A function may fail there, in whatever words.

    PyTorch says which dtype the result has of two equals, element by element. Beside a weight, and in a sum, it may be
    that of either. Its errors may be those of the narrower one, in which a function may save what its gradients need.
    """
    inputs, (name, dtype) = attempt.inputs(), attempt.trial.detail.split()
    inputs[name] = inputs[name].to(getattr(torch, dtype))
    try:
        attempt.expected(inputs, None)
        found, upstreams = attempt.ours(inputs)
    except Wrong:
        raise
    except Exception:
        return
    floating = [value for value in inputs.values() if elements.floating(value)]
    shapes = {value.shape for value in [*floating, *found.values()] if torch.is_tensor(value)}
    dtypes = {value.dtype for value in floating}
    eps = max(torch.finfo(each).eps for each in dtypes)
    attempt.compare(found, inputs, upstreams, dtypes=dtypes if len(shapes) > 1 else (), eps=eps)


def aliased(attempt: Attempt) -> None:
    """f(x, x): its gradient is the sum of both."""
    one, other = attempt.trial.detail.split()
    inputs = attempt.inputs()
    inputs[other] = inputs[one]
    found, upstreams = attempt.ours(inputs)
    attempt.compare(found, inputs, upstreams)


def subsets(attempt: Attempt) -> None:
    """Each set of inputs that require a gradient, none too: the results are the same, and the gradients."""
    inputs = attempt.inputs()
    names = attempt.takers(inputs)
    sets = [chosen for size in range(len(names)) for chosen in combinations(names, size)]
    if len(sets) > _SETS:
        sets = [(), *((name,) for name in names), *combinations(names, len(names) - 1)]
    for chosen in sets:
        found, upstreams = attempt.results(attempt.subject.function, inputs, wanted=chosen)
        try:
            attempt.compare(found, inputs, upstreams or None, wanted=chosen)
        except Wrong as wrong:
            which = f"only {' and '.join(chosen)}" if chosen else "no input"
            raise Wrong(f"where {which} requires a gradient, {wrong}") from None


def detached(attempt: Attempt) -> None:
    """Where no input requires a gradient, a function may go another way."""
    inputs = attempt.inputs()
    attempt.compare(attempt.results(attempt.subject.function, inputs, wanted=())[0], inputs, None, wanted=())


def backward_twice(attempt: Attempt) -> None:
    """`backward(retain_graph=True)`, and once more: what was saved is still there, and so are the results."""
    inputs = attempt.inputs()
    leaves, wanted = verdict.leaves(inputs, attempt.takers(inputs))
    outputs = verdict.named(attempt.call(attempt.subject.function, **leaves))
    attached = [out for out in outputs.values() if torch.is_tensor(out) and out.requires_grad]
    before = [out.detach().clone() for out in attached]
    upstreams = [attempt.upstream(out) for out in attached]
    ask = lambda: torch.autograd.grad(  # noqa: E731
        attached, list(wanted.values()), upstreams, retain_graph=True, allow_unused=True
    )
    first = ask()
    try:
        second = ask()
    except RuntimeError:
        return  # it says so
    for name, one, other in zip(wanted, first, second):
        if one is not None:
            attempt.near(f"the gradient of {name} in a second backward pass of one result", other, one)
    for number, (out, was) in enumerate(zip(attached, before)):
        attempt.near(f"result {number} after its backward pass", out.detach(), was)


def rewritten(attempt: Attempt) -> None:
    """The same tensors with other values in them: a result that is kept for an address, or for an object, is none. In
    all of them; then in one after the other, since a part of the work may be kept for some of them; and in one number
    of each."""
    other = attempt.varied(seed=attempt.trial.seed + 1).inputs()
    names = [name for name, value in other.items() if elements.floating(value)]
    for changed in [list(other), *([name] for name in names if len(other) > 1)]:
        _rewritten(attempt, {name: other[name] for name in changed})
    inputs = attempt.inputs()
    for name in names if not attempt.subject.maker else ():  # of which one number may be bound to another
        if inputs[name].shape == other[name].shape and inputs[name].numel() > 2:
            _rewritten(attempt, {name: _with_another_number(inputs[name])})


def _with_another_number(value: torch.Tensor) -> torch.Tensor:
    """In its middle: what is kept for a few numbers, such as the first and the last, is kept for this, too."""
    changed = value.clone()
    place = tuple(size // 2 for size in changed.shape)
    changed[place] = 1 - changed[place] if changed[place] <= 0 else changed[place] * 2 + 1
    return changed


def _rewritten(attempt: Attempt, changes: dict[str, Any]) -> None:
    function, inputs = attempt.subject.function, attempt.inputs()
    if any(elements.floating(value) and inputs[name].shape != value.shape for name, value in changes.items()):
        return  # a function of the reader's makes them, of another shape each time
    other = writes.copies(inputs | changes)
    with torch.no_grad():
        # Worked out before, since it may take the place of what is kept.
        wanted = verdict.named(attempt.call(function, **writes.copies(other)))
        attempt.call(function, **inputs)
        for name, value in other.items():
            if name in changes and not elements.floating(value):
                inputs[name] = value
            elif torch.is_tensor(value) and not bool(elements.same(inputs[name], value).all()):
                inputs[name].copy_(value)  # what the call has written to, too
        found = verdict.named(attempt.call(function, **inputs))
    for name, value in found.items():
        if elements.floating(value) and not bool(elements.same(value, wanted[name]).all()):
            one, two = (torch.where(value.isfinite() & wanted[name].isfinite(), x, 0) for x in (value, wanted[name]))
            attempt.near(f"{name} of the same tensors with other values in them", one, two)


def afterwards(attempt: Attempt) -> None:
    """The random numbers that come next are no others, no memory of a call is kept for good, what a call has returned
    is its caller's, which the next call changes nothing of, and no clock is another function."""
    inputs = attempt.inputs()
    _worked_out(attempt, inputs)
    returned, _ = attempt.results(attempt.subject.function, inputs)
    before = {name: value.clone() for name, value in returned.items() if torch.is_tensor(value)}
    another = attempt.varied(seed=attempt.trial.seed + 1)
    another.results(attempt.subject.function, another.inputs())
    for name, was in before.items():
        if place := elements.first(~elements.same(returned[name].detach(), was)):
            changed = elements.at(name, place, returned[name], was)
            raise Wrong(f"the next call changes what this one has returned: {changed}. Do both return one tensor?")
    file = getattr(getattr(inspect.unwrap(attempt.subject.function), "__code__", None), "co_filename", "")
    for owner in _SHARED:
        for name, value in vars(owner).items():
            if isinstance(value, FunctionType) and value.__code__.co_filename == file:
                raise Wrong(f"{owner.__name__}.{name} is a function of this file afterwards, in the whole program: who "
                            "measures or compares by it is deceived", value.__code__.co_firstlineno)  # fmt: skip
    run = lambda: attempt.results(attempt.subject.function, inputs)  # noqa: E731
    ends: list[list[Any]] = []
    with _random_state_kept():
        for seed in (1, 2):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            run()
            ends.append(_random_state())
    for name, one, other in zip(("torch.manual_seed", "np.random.seed", "random.seed"), *ends):
        if one == other:
            raise Wrong(f"the call sets the random state of the whole program, as {name} does: every caller gets the "
                        "same random numbers afterwards. Use a torch.Generator")  # fmt: skip
    given = {StorageWeakRef(x.untyped_storage()).cdata for x in inputs.values() if torch.is_tensor(x)}
    kept = []
    for _ in range(3):
        with _Made() as made:
            run()
        kept.append([storage for storage in made.storages if storage.cdata not in given])
    count = lambda: [sum(not storage.expired() for storage in storages) for storages in kept]  # noqa: E731
    if all((alive := count())[1:]):  # what is kept of the first call only is a cache
        gc.collect()  # a second in a large process, so only where something seems to be kept
        alive = count()
    if all(alive[1:]):
        raise Wrong(f"{alive[2]} of {len(kept[2])} tensors that a call allocates are kept after everything that it "
                    "returned is gone, anew in each call: memory runs out")  # fmt: skip


def _worked_out(attempt: Attempt, inputs: dict[str, Any]) -> None:
    """What a call has returned is worked out: to change the inputs afterwards changes nothing of it. (Nobody looks at
    a result before, since one that works when it is looked at would do it then.)"""
    function = attempt.subject.function
    with torch.no_grad():
        first = verdict.named(attempt.call(function, **writes.copies(inputs)))
        wanted = {name: value.clone() for name, value in first.items() if elements.floating(value)}
        given = writes.copies(inputs)
        returned = attempt.call(function, **given)
        for name, value in given.items():
            if elements.floating(value) and value is not inputs[name]:
                value.zero_()
        for name, value in wanted.items():
            now = verdict.named(returned)[name]
            if not any(writes.shared(now, each) for each in given.values() if torch.is_tensor(each)):
                one, two = (torch.where(now.isfinite() & value.isfinite(), x, 0) for x in (now, value))
                attempt.near(f"{name}, where the inputs change after the call,", one, two)


class _Made(DispatchMode):
    """New storages of meanwhile: of no tensor that an operation is given, as a view is and what is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: list[StorageWeakRef] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not result.is_meta:
            storage = StorageWeakRef(result.untyped_storage())
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and not x.is_meta]
            if all(x.untyped_storage()._cdata != storage.cdata for x in given):
                self.storages.append(storage)
        return result


def _random_state() -> list[Any]:
    return [torch.get_rng_state().tolist(), pickle.dumps(np.random.get_state()), random.getstate()]


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    with torch.random.fork_rng():
        numbers, python = np.random.get_state(), random.getstate()
        try:
            yield
        finally:
            np.random.set_state(numbers)
            random.setstate(python)


PROCEDURES: dict[str, Callable[[Attempt], None]] = {
    each.__name__: each for each in (rank, mixed, aliased, subsets, detached, backward_twice, rewritten, afterwards)
}
