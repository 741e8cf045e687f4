"""Everything that is wrong with quoted numbers and recorded runs, as problems with file and line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from academy.book import facts, layout, syntax
from academy.book.problems import Problem
from academy.traces import quotes, store
from academy.traces.recording import Recording, row_major

#: What a difference of bytes usually comes from.
_UNSEEN = (
    ". Only what kernels load and store is recorded: what a PyTorch operation in the launcher moves (torch.sum, a cast "
    "with .to, .contiguous()) is missing, and scratch that only such an operation reads counts as written"
)

#: A fast file quotes at least one number of its run for this many lines of its kernels, as lessons do.
LINES_FOR_A_NUMBER = 10
FAST = "fast"

#: What a run on contiguous tensors leaves open.
HIDDEN = (
    "every matrix of this run is contiguous, so strides that are mixed up may go unnoticed: let EXAMPLE also pass a "
    "transposed and a sliced input, such as x.T and x[:, ::2]"
)


def shares(paths: Iterable[Path] | None, number: int) -> list[list[Path]]:
    """The kernel files among `paths` (None: all of `annotated_examples`) that have an EXAMPLE, as at most so many
    lists, each for a process that calls `in_files`."""
    files = store.kernel_files() if paths is None else [path.resolve() for path in paths if path.suffix == ".py"]
    files = [path for path in files if store.has_example(path)]
    return [files[first::number] for first in range(min(number, len(files)))]


def in_files(paths: list[Path]) -> list[Problem]:
    """Everything wrong with the quoted numbers and the recorded runs of kernel files; empty if all is well."""
    return [p for path, recording in store.load(paths, processes=1).items() for p in of_recording(path, recording)]


def of_recording(path: Path, recording: Recording, quoted: bool = True) -> list[Problem]:
    """Everything wrong with one recorded file. quoted: check the numbers in its comments too."""
    return [*wrong_in_the_run(path, recording), *stale_numbers(path, recording, quoted)]


def wrong_in_the_run(path: Path, recording: Recording) -> list[Problem]:
    """Where the run fails, and what the recording proves."""
    entries = [entry for entry in [recording.data["error"], *recording.data["findings"]] if entry]
    if not entries and not recording.launches:
        return [_at_example(path, "EXAMPLE() launches no kernel, so there is no run to show")]
    return _problems(recording, entries)


def warnings(recording: Recording) -> list[Problem]:
    """Stores that may go to the wrong places: see `academy.traces.proof.suspicious_stores`."""
    return _problems(recording, recording.data["warnings"])


#: What to do about `sizes_to_change`.
SIZES = "mistakes may go unnoticed: let EXAMPLE also take sizes that make different numbers of tiles, such as 2 and 3"


def hides_strides(recording: Recording) -> bool:
    """Do kernels read and store matrices that are all contiguous? Then strides that are mixed up may go unnoticed."""
    matrices, stored = [], []
    for launch in recording.launches:
        here = [tensor for tensor in launch["tensors"] if sum(size > 1 for size in tensor["shape"]) > 1]
        touched = {a[1] for _, rows in launch["programs"] for *_, accesses in rows for a in accesses if a[0] != "load"}
        matrices += here
        stored += [launch["tensors"][number] for number in touched if launch["tensors"][number] in here]
    plain = all(tensor["strides"] == row_major(tensor["shape"]) for tensor in matrices)
    return plain and len(matrices) > 1 and bool(stored)


def sizes_to_change(path: Path, recording: Recording) -> list[str]:
    """Where EXAMPLE's sizes hide mistakes: axes of a grid with equally many tiles or with one, loops with one round.

    A swap of two axes doesn't show where both have two tiles, and with a single tile nothing shows that depends on the
    number of the program. It is enough if one launch of a kernel has sizes that differ.
    """
    grids: dict[str, list[list[int]]] = {}
    rounds: dict[tuple[str, int], int] = {}
    for launch in recording.launches:
        grids.setdefault(launch["kernel"], []).append([size for size in launch["grid"]])
        for pid, _ in launch["programs"]:
            for step in recording.steps(launch, tuple(pid)) or []:
                for header, iteration in step.loops[-1:]:
                    key = launch["kernel"], recording.line(step.file, header)
                    rounds[key] = max(rounds.get(key, 0), iteration + 1)
    found = []
    for kernel, sizes in grids.items():
        used = [size[: _axes(path, kernel)] for size in sizes]
        if all(1 in size for size in used):
            found.append(f"{kernel} has one tile along an axis of its grid {_grids(used)}")
        elif len(used[0]) > 1 and all(len(set(size)) < len(size) for size in used):
            found.append(f"{kernel} has equally many tiles along two axes of its grid {_grids(used)}")
    found += [f"the loop of {kernel} in line {line} has one round" for (kernel, line), n in rounds.items() if n == 1]
    return found


def _axes(path: Path, kernel: str) -> int:
    """How many axes of its grid a kernel asks for."""
    code = [ast.unparse(each) for each in syntax.jitted_functions(path.read_text("utf-8")) if each.name == kernel]
    return 1 + max(map(int, re.findall(r"program_id\((?:axis=)?(\d)\)", "".join(code))), default=0)


def _grids(sizes: list[list[int]]) -> str:
    return " and ".join(dict.fromkeys("(" + " x ".join(map(str, size)) + ")" for size in sizes))


def _problems(recording: Recording, entries: list[dict]) -> list[Problem]:
    return [Problem(e["file"], recording.line(e["file"], e["line"]), 1, e["message"]) for e in entries]


def _at_example(path: Path, message: str) -> Problem:
    text = path.read_text("utf-8")
    return Problem.on(store.shorten(path), text, syntax.line_of(text, "EXAMPLE"), message)


def stale_numbers(path: Path, recording: Recording, quoted: bool = True) -> list[Problem]:
    """Numbers of the file that a complete run contradicts: its bytes, and (quoted) those in the comments."""
    if recording.data["error"]:
        return []
    found = _contradicted_cost(path, recording)
    return found + ([*quotes.check(path, store.shorten(path), recording), *_too_few(path)] if quoted else [])


def _too_few(path: Path) -> list[Problem]:
    """Whether a fast file's notes have hardly any numbers of its run."""
    if path not in layout.kernels(store.ROOT) or layout.group(store.ROOT, path) != FAST:
        return []
    text = path.read_text("utf-8")
    message = too_few_numbers(text)
    return [Problem.at(store.shorten(path), text, 0, message)] if message else []


def too_few_numbers(text: str) -> str:
    """What is wrong with how many numbers the notes of a kernel file quote; "" if they are enough."""
    bodies = [range(each.body[0].lineno, syntax.last_line(each) + 1) for each in syntax.jitted_functions(text)]
    lines = text.split("\n")
    code = sum(bool(lines[number - 1].split("#")[0].strip()) for body in bodies for number in body)
    quoted, least = len(quotes.parse(text)[0]), code // LINES_FOR_A_NUMBER
    if quoted >= least:
        return ""
    return (
        f"its notes quote {quoted} numbers of the recorded run; {code} lines of kernels need at least {least}, such as "
        "`pid=0: mask = [1, 1, 0]` (academy trace shows the run)"
    )


def _contradicted_cost(path: Path, recording: Recording) -> list[Problem]:
    """Where the recorded bytes differ from what `operations/` says that this file's EXAMPLE moves."""
    if not path.is_relative_to(store.ROOT / layout.KERNELS) or not (store.ROOT / layout.OPERATIONS).is_dir():
        return []  # a file of the reader's own, or an installed package without its repository
    shown = store.shorten(path)
    found = _example_costs(shown)
    if found is None:
        what = "no file of operations/ names it as LESSON or FAST, so nothing says which bytes EXAMPLE must move"
        return [_at_example(path, f"{what}: write operations/{path.stem}.py")]
    file, line, costs = found
    messages = contradictions(costs, recording.data["traffic"])
    text = (store.ROOT / file).read_text("utf-8")
    return [Problem.on(file, text, line, f"EXAMPLES, {shown}: {message}") for message in messages]


def _example_costs(kernel_file: str) -> tuple[str, int, dict | None] | None:
    """What a kernel file's EXAMPLE must move: (file of operations/, line of `EXAMPLES`, pass -> bytes), or None."""
    for path in facts.measured(store.ROOT):
        if kernel_file in facts.shown(path):
            costs = getattr(facts.load(path), "EXAMPLES", {}).get(facts.module_name(kernel_file))
            return f"operations/{path.name}", syntax.line_of(path.read_text("utf-8"), "EXAMPLES"), costs
    return None


def contradictions(costs: dict | None, traffic: dict) -> list[str]:
    """Where a file of `operations/` says other bytes than the recorded run moves. Both: pass -> bytes_read, …"""
    if costs is None:
        return ["it is missing: say what its EXAMPLE must move, such as `cost((3, 6), torch.float32)`"]
    said = {name for name in costs if "+" not in name}
    messages = [f"there is no entry for {direction}" for direction in sorted(set(traffic) - said)]
    messages += [f"EXAMPLE runs nothing for {direction}" for direction in sorted(said - set(traffic))]
    return messages + [
        f"{costs[direction].get(kind)} {kind} for {direction}; the recorded run moves {traffic[direction][kind]} "
        f"distinct ones{_UNSEEN}"
        for direction in sorted(said & set(traffic))
        for kind in ("bytes_read", "bytes_written")
        if costs[direction].get(kind) != traffic[direction][kind]
    ]
