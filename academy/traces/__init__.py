"""Recorded runs of kernels: watch them, and check every number that a comment quotes.

A kernel file has a function `EXAMPLE()` that builds small inputs and calls the launchers. It is run once in Triton's
interpreter, unchanged, and every statement of every program is recorded (`recorder`), kept by content (`store`),
searched for races, unwritten outputs and the bytes it moves (`proof`), shown on the page (`page`) or in the terminal
(`command`).

# Numbers in comments

A span in backticks of the form

    [pid=P[, P2]] [, k=n ...]: EXPRESSION = LITERAL

in a comment inside a jitted function is a claim about the recorded run (`quotes`):

- It is about EXAMPLE's first launch of that kernel (of a helper: the first launch that calls it). `launch=1` picks the
  second one.
- `pid=P` or `pid=(P, P2)` names the program. It stays in force until the next `pid=` in the same function; before the
  first one it is program 0. `k=n` picks an iteration of the loop over `k`, for this claim alone.
- It holds right after the first statement, at or below the comment, that assigns one of the names in EXPRESSION. If
  there is none, after the last statement above it. A comment behind code is about that code.
- EXPRESSION is Python: names, indices, arithmetic, `.shape`, and `len min max sum abs any all`. Pointers are element
  offsets from the start of their tensor. A mask is 1 and 0.
- LITERAL is a number, True, False, inf, or a (nested) list; `...` leaves out the middle. A whole number has to be
  exact, another one right to the digits that are written.
- Lanes that a load without `other` masks off are undefined, so they can't be quoted; neither can NaN.

Outside jitted functions a claim names its kernel: `layernorm_kernel, pid=2: rows = [4, 5]`.

Text elsewhere (a guide, a derivation) doesn't copy such a number but draws it from the recording:
`[[run: classics/layernorm: layernorm_forward_kernel, pid=0: mean[0]]]`.

A link leads into the run of a page: `#pid=13&line=79&k=1`, with `launch=1` for another launch than the first one that
runs that line, `pid=1,0` in a grid of two dimensions, and `whole=9` for the whole launch after nine programs. Every
claim in a note is such a link by itself, and moves along with its line.

These are errors: a claim that doesn't hold; a span with `= number` that can't be evaluated, anywhere in the file's
comments (quote a keyword argument without its value); a list of numbers, `name = number`, or a sentence with "program
7" and another number, outside backticks inside a jitted function.

# What else a recording proves

An access outside a tensor; two programs that meet at one element, one of them storing, without an atomic or a lock; an
element of an allocated output that nobody wrote; a read of memory that nobody wrote; an entry of `EXAMPLES` in
benchmarks/<op>.py that differs from the distinct bytes that EXAMPLE's first call in each direction reads and writes
(scratch between its launches is left out; what a PyTorch operation moves between them isn't seen; an entry for both
passes together, `forward+backward`, has no run of its own). Each is a `Problem` with file and line.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from academy.problems import Problem

#: What a difference of bytes usually comes from.
_UNSEEN = (
    ". Only what kernels load and store is recorded: what a PyTorch operation in the launcher moves (torch.sum, a cast "
    "with .to, .contiguous()) is missing, and scratch that only such an operation reads counts as written"
)


def check(paths: Iterable[str | Path] | None = None) -> list[Problem]:
    """Everything wrong with the quoted numbers and the recorded runs of kernel files; empty if all is well.

    paths: files (others than kernel files with an EXAMPLE are passed over); None for all of `annotated_examples`.
    """
    from academy.traces import store

    files = store.kernel_files() if paths is None else [Path(path).resolve() for path in paths]
    files = [path for path in files if path.suffix == ".py" and store.has_example(path)]
    return [p for path, recording in store.load(files).items() for p in check_recording(path, recording)]


def panel(path: str) -> str:
    """The recorded run of a kernel file (a path in the project) as HTML for its page; "" if there is none."""
    from academy.traces import page

    return page.panel(path)


def viewer_script(path: str) -> tuple[str, str]:
    """Place under assets/traces and content of the data that the panel of a kernel file loads; ("", "") for none."""
    from academy.traces import page

    content = page.script(path)
    return (f"data/{page.data_name(path)}.js", content) if content else ("", "")


def number(key: str) -> tuple[str, str, int, str]:
    """A number of a recorded run, for any text on the site: see `academy.traces.page.number`."""
    from academy.traces import page

    return page.number(key)


def check_recording(path: Path, recording, quoted: bool = True) -> list[Problem]:
    """Everything wrong with one recorded file. quoted: check the numbers in its comments too."""
    return [*wrong_in_the_run(path, recording), *stale_numbers(path, recording, quoted)]


def wrong_in_the_run(path: Path, recording) -> list[Problem]:
    """Where the run fails, and what the recording proves."""
    entries = [entry for entry in [recording.data["error"], *recording.data["findings"]] if entry]
    if not entries and not recording.launches:
        return [_at_example(path, "EXAMPLE() launches no kernel, so there is no run to show")]
    return [Problem(e["file"], recording.line(e["file"], e["line"]), 1, e["message"]) for e in entries]


def _at_example(path: Path, message: str) -> Problem:
    from academy.traces import store

    text = path.read_text("utf-8")
    return Problem.at(store.shorten(path), text, text.find("def EXAMPLE("), message)


def stale_numbers(path: Path, recording, quoted: bool = True) -> list[Problem]:
    """Numbers of the file that a complete run contradicts: its bytes, and (quoted) those in the comments."""
    from academy.traces import quotes, store

    if recording.data["error"]:
        return []
    found = _contradicted_cost(path, recording)
    return found + (quotes.check(path, store.shorten(path), recording) if quoted else [])


def _contradicted_cost(path: Path, recording) -> list[Problem]:
    """Where the recorded bytes are not those that the operation's benchmark says of this file's EXAMPLE."""
    from academy.bench import operation
    from academy.traces import store

    if not path.is_relative_to(store.ROOT / "annotated_examples") or not (store.ROOT / "benchmarks").is_dir():
        return []  # a file of the reader's own, or an installed package without its repository
    shown = store.shorten(path)
    found = operation.example_costs(shown, store.ROOT)
    if found is None:
        what = (
            "no file of benchmarks/ names it as LESSON or FAST, so nothing says which bytes EXAMPLE must move: write "
        )
        return [_at_example(path, f"{what}benchmarks/{path.stem}.py")]
    file, line, costs = found
    messages = contradictions(costs, recording.data["traffic"])
    text = (store.ROOT / file).read_text("utf-8").split("\n")[line - 1]
    return [Problem(file, line, 1, f"EXAMPLES, {shown}: {message}", text) for message in messages]


def contradictions(costs: dict | None, traffic: dict) -> list[str]:
    """Where a file of `benchmarks/` says other bytes than the recorded run moves. Both: pass -> bytes_read, …"""
    if costs is None:
        return ["it is missing: say what its EXAMPLE must move, such as `cost((3, 6), torch.float32)`"]
    messages = []
    for direction in sorted({name for name in costs if "+" not in name} | set(traffic)):
        if direction not in costs or direction not in traffic:
            where = "there is no entry" if direction not in costs else "EXAMPLE runs nothing"
            messages.append(f"{where} for {direction}")
            continue
        for kind in ("bytes_read", "bytes_written"):
            said, seen = costs[direction].get(kind), traffic[direction][kind]
            if said != seen:
                messages.append(f"{said} {kind} for {direction}; the recorded run moves {seen} distinct ones{_UNSEEN}")
    return messages
