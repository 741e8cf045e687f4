"""Compile, for one card, every kernel that is launched, instead of launching it.

Triton does the work as ever: it binds the arguments, sees what they are multiples of, and compiles. Only its last step,
the launch, is left out. Of an autotuned kernel the first configuration is compiled, or all that its pruning leaves.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from academy.command import grids, trouble
from academy.compiler import machine_code, messages
from academy.compiler.cards import Card
from academy.compiler.overtaken import overtaken
from academy.compiler.stand_in import on_card

#: The smallest tile of `tl.dot` along K that every dtype and card takes.
_ENOUGH = 32


@dataclass
class Catcher:
    """What to compile, and what came of it.

    only: name of the kernel to compile; None for all. once: each kernel as it is launched first, and no other way.
    detail: count instructions, too. found: one entry for each kind of launch, see `academy.compiler.Compiled`.
    """

    card: Card
    only: str | None = None
    all_configs: bool = False
    once: bool = False
    detail: bool = True
    found: list[dict] = field(default_factory=list)
    _seen: set = field(default_factory=set)

    @contextlib.contextmanager
    def catching(self) -> Iterator[Catcher]:
        run, tune = JITFunction.run, Autotuner.run

        def instead(kernel, *args, grid, warmup, **kwargs):
            if self.only in (None, kernel.fn.__name__):
                self._compile(kernel, run, args, kwargs, grid)

        def every(tuner, *args, **kwargs):
            tuner.nargs = dict(zip(tuner.arg_names, args))
            given = {**tuner.nargs, **kwargs}
            configs = tuner.prune_configs(kwargs) if len(tuner.configs) > 1 else tuner.configs
            before = len(self.found)
            for config in configs:
                if config.pre_hook is not None:
                    config.pre_hook({**given, **config.all_kwargs()})
                known = len(self.found)
                tuner.fn.run(*args, **kwargs, **config.all_kwargs())
                if not self.all_configs and not any(map(_only_too_large, self.found[known:])):
                    break
            _passed_over(self.found[before:])

        JITFunction.run, Autotuner.run = instead, every
        try:
            with on_card(self.card):
                yield self
        finally:
            JITFunction.run, Autotuner.run = run, tune

    def _compile(self, kernel: JITFunction, run: Any, args: tuple, kwargs: dict, grid: Any) -> None:
        file, line = messages.place(kernel)
        entry: dict = dict(kernel=kernel.fn.__name__, file=file, line=line, arch=self.card.arch, problems=[], notes=[])
        entry["constants"], entry["options"] = _chosen(kernel, args, kwargs)
        much = grids.excess(grid({**dict(zip(kernel.arg_names, args)), **kwargs}) if callable(grid) else grid)
        key = str((id(kernel), much, *map(_kind, args), *((name, _kind(value)) for name, value in kwargs.items())))
        if key in self._seen or self.once and id(kernel) in self._seen:
            return
        self._seen.add(key)
        compiled, problems = _attempt(kernel, run, args, kwargs)
        if any(problem["kind"] == "small dot" for problem in problems):
            compiled, problems = self._larger(entry, problems[0]["message"], kernel, run, args, kwargs)
        if much:
            problems = [*problems, dict(kind="grid", file=file, line=line, message=f"{entry['kernel']}: {much}")]
        entry["problems"] = problems
        if compiled is not None:
            entry |= self._looked_at(compiled)
            if entry["shared"] > self.card.shared:
                entry["problems"] = [*problems, dict(file=file, line=line, **messages.too_large(entry, self.card))]
            if tiles := entry.pop("overtaken"):
                wrong = dict(file=file, line=line, **messages.copied_over(entry, tiles))
                entry["problems"] = [*entry["problems"], wrong]
            if lost := entry.pop("lost"):
                wrong = dict(file=file, line=line, **messages.badly_assembled(entry, lost))
                entry["problems"] = [*entry["problems"], wrong]
        if not _only_too_large(entry):
            self._seen.add(id(kernel))
        if not any(_same(entry, other) for other in self.found):
            self.found.append(entry)

    def _larger(
        self, entry: dict, why: str, kernel: JITFunction, run: Any, args: tuple, kwargs: dict
    ) -> tuple[Any, list[dict]]:
        """The same with larger tiles: those of an example are small so that one can watch them. A note says so."""
        fixed = any(hasattr(value, "block_shape") for value in (*args, *kwargs.values()))  # of a descriptor
        for larger in _with_larger_tiles(entry["constants"]):
            again = {**dict(zip(kernel.arg_names, args)), **kwargs, **larger}
            compiled, problems = _attempt(kernel, run, (), again)
            if not (problems and fixed) and not any(problem["kind"] == "small dot" for problem in problems):
                changes = ", ".join(f"{name} = {value}" for name, value in larger.items())
                entry["notes"].append(f"{why}. Compiled with {changes} instead")
                entry["constants"] |= larger
                return compiled, problems
        entry["notes"].append(f"{why}. Launch it with larger tiles to see it compiled")
        return None, []

    def _looked_at(self, compiled: Any) -> dict:
        found = dict(shared=compiled.metadata.shared, num_warps=compiled.metadata.num_warps, hash=compiled.hash)
        found["signature"] = {name: str(kind) for name, kind in compiled.src.signature.items()}
        found["overtaken"] = overtaken(compiled.asm["ttgir"])
        if not self.detail:
            return found | dict(lost=machine_code.lost(compiled.asm["cubin"]) if "wgmma" in compiled.asm["ptx"] else [])
        used, text = machine_code.sass(compiled.asm["cubin"])
        found |= used | dict(sass=machine_code.sass_counts(text), ptx=machine_code.ptx_counts(compiled.asm["ptx"]))
        return found | dict(lost=machine_code.never_written(text))


def _only_too_large(entry: dict) -> bool:
    return bool(entry["problems"]) and all(problem["kind"] == "shared memory" for problem in entry["problems"])


def _passed_over(configurations: list[dict]) -> None:
    """The tuner drops what doesn't fit, so that is a problem only if nothing does."""
    if not all(map(_only_too_large, configurations)):
        for entry in filter(_only_too_large, configurations):
            entry["notes"] += [f"{problem['message']}. The tuner passes over it" for problem in entry["problems"]]
            entry["problems"] = []


def _same(entry: dict, other: dict) -> bool:
    """Two kinds of launches that lead to the same code, or to the same errors."""
    if "hash" in entry or "hash" in other:
        return (entry.get("hash"), entry["problems"]) == (other.get("hash"), other["problems"])
    return (entry["kernel"], entry["problems"]) == (other["kernel"], other["problems"])


def _kind(value: Any) -> object:
    """What could make a difference to the compiler, and a little more."""
    if hasattr(value, "data_ptr"):
        return "tensor", str(value.dtype), value.data_ptr() % 16
    if isinstance(value, tuple):
        return tuple(map(_kind, value))
    if hasattr(value, "block_shape"):
        return "descriptor", str(value.base.dtype), tuple(value.block_shape)
    return type(value).__name__, str(getattr(value, "__name__", value))


def _chosen(kernel: JITFunction, args: tuple, kwargs: dict) -> tuple[dict, dict]:
    """The constants and the options of a launch, as JSON can hold them."""
    given = {**dict(zip(kernel.arg_names, args)), **kwargs}
    constant = {p.name for p in kernel.params if p.is_constexpr}
    plain = lambda v: v if v is None or isinstance(v, (bool, int, float, str)) else getattr(v, "__name__", str(v))  # noqa: E731
    constants = {name: plain(value) for name, value in given.items() if name in constant}
    return constants, {name: value for name, value in kwargs.items() if name not in kernel.arg_names}


def _attempt(kernel: JITFunction, run: Any, args: tuple, kwargs: dict) -> tuple[Any, list[dict]]:
    """The compiled kernel, or why there is none."""
    error, printed = None, ""
    with _standard_error() as said:
        try:
            return run(kernel, *args, grid=(1,), warmup=True, **kwargs), []
        except Exception as raised:
            trouble.let_through(raised)
            error = raised
        finally:
            printed = said()
    return None, messages.in_words(error, kernel, printed)


@contextlib.contextmanager
def _standard_error() -> Iterator:
    """What the compiler's part in C++ prints: the place and the reason of an error that Python only counts."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _with_larger_tiles(constants: dict) -> list[dict[str, int]]:
    """Sizes that are below what `tl.dot` takes, enlarged: those of blocks, then all."""
    small = {n: v for n, v in constants.items() if type(v) is int and 1 <= v < _ENOUGH and v & (v - 1) == 0}
    named = [name for name in small if "BLOCK" in name.upper()]
    return [dict.fromkeys(names, _ENOUGH) for names in (named, list(small)) if names]
