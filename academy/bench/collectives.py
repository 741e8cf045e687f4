"""What travels between the ranks: the collectives that run inside a `with Traffic()`, and their bytes.

A collective has a *payload*: what one rank hands in, or for a gather, what it gets. How many bytes a rank then sends
depends on the algorithm. `sent` counts them for a ring, which is what NCCL and gloo use for large payloads.

Names: `Traffic`, `Call`, `ring_bytes`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from academy.runtime.modes import DispatchMode

#: Name of a dispatched operation -> name of the collective, and which of its arguments holds the payload.
_KINDS = (
    (re.compile(r"all_?reduce"), "all_reduce"),
    (re.compile(r"reduce_?scatter"), "reduce_scatter"),
    (re.compile(r"all_?gather"), "all_gather"),
    (re.compile(r"all_?to_?all"), "all_to_all"),
    (re.compile(r"broadcast"), "broadcast"),
)


def ring_bytes(kind: str, payload: float, world: int) -> float:
    """Bytes that each rank sends when `payload` bytes go round a ring of `world` ranks.

    Args:
        kind: "all_gather", "reduce_scatter", "all_reduce", "broadcast" or "all_to_all".
        payload: bytes of the whole: the gathered tensor, the tensor before it is scattered, the tensor that is reduced.

    A gather passes on every part but the last, `(world - 1) / world` of the whole; so does a scattered sum. An
    all-reduce is one after the other. A broadcast passes on everything, except for the last rank.

    Raises:
        ValueError: another kind.
    """
    part = (world - 1) / world
    factors = dict(all_gather=part, reduce_scatter=part, all_to_all=part, all_reduce=2 * part, broadcast=part)
    if kind not in factors:
        raise ValueError(f"kind must be one of {', '.join(factors)}, got {kind!r}")
    return factors[kind] * payload


@dataclass(frozen=True)
class Call:
    """One collective, as this rank saw it: its kind, and the bytes of the whole (see `ring_bytes`)."""

    kind: str
    payload: int


class Traffic(DispatchMode):
    """Collects the collectives of this process, in `calls`; forward, and backward if that runs inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        space, _, name = function._schema.name.partition("::")
        if space in ("c10d", "_c10d_functional"):
            kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), None)
            if kind is not None and "wait" not in name:
                self.calls.append(Call(kind, max(_bytes(args), _bytes(result))))
        return result

    def bytes(self, kind: str | None = None) -> int:
        """The payloads of one kind, or of all."""
        return sum(call.payload for call in self.calls if kind in (None, call.kind))

    def counts(self) -> dict[str, int]:
        """How many collectives of each kind there were."""
        return dict(Counter(call.kind for call in self.calls))

    def sent(self, world: int) -> float:
        """Bytes that each of `world` ranks sends, if every collective goes round a ring."""
        return sum(ring_bytes(call.kind, call.payload, world) for call in self.calls)


def _bytes(value: Any) -> int:
    """Of the largest argument: the whole is never smaller than a part. A list of tensors counts as one."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.itemsize
    if isinstance(value, list | tuple):
        tensors = [each for each in value if isinstance(each, torch.Tensor)]
        rest = [_bytes(each) for each in value if isinstance(each, list | tuple)]
        together = sum(map(_bytes, tensors)) if isinstance(value, list) else max(map(_bytes, tensors), default=0)
        return max([together, *rest])
    return 0
