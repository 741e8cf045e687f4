"""Every public function under every sanitizer, on this machine's GPUs: function, sanitizer, verdict, seconds.

`python benchmarks/sanitizers.py` writes `benchmarks/results/<device>/experiments/sanitizers.json`, a row at a time, and
goes on where it was stopped, with another `--results` too. Each row is a process of its own with a limit of its own,
`--processes` of them at once, spread over the first `--gpus` cards. `--corpus` takes the faults and the right kernels
of `tests/corpus` as well: what a sanitizer doesn't find there, it wouldn't find in ours.

It needs Triton 3.9 for GSan, ConSan and FpSan, and compute-sanitizer, of a CUDA toolkit or
`pip install nvidia-cuda-sanitizer-api`, for the rest. What is missing is named in the JSON.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run as a script: make the repository importable
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from academy.runtime import device  # noqa: E402  before anything imports triton
from academy.bench import experiment  # noqa: E402
from academy.book import layout  # noqa: E402
from academy.judge import public, sanitizers, subject  # noqa: E402
from academy.judge.findings import Remark, Skipped, Wrong  # noqa: E402
from academy.judge.trials import ON_A_CARD, Plan  # noqa: E402
from academy.judge.trying import file_of  # noqa: E402
from academy.results import figures  # noqa: E402
from benchmarks.corpus import rows  # noqa: E402

NAME = "sanitizers"
#: First what has met a sanitizer's doubt before, or didn't end.
FIRST = ("cumsum", "linear_recurrence", "matmul")
#: Those that have said least of these functions so far, and say most of a kernel, come first.
ORDER = ("consan", "racecheck", "initcheck", "synccheck", "fpsan", "gsan", "memcheck")
#: Rows at once on one card, whose memory they share.
A_CARD = 14


def ours() -> Iterator[tuple[str, subject.Subject]]:
    """Every public function of the lessons and fast versions, and those below Triton."""
    for gluon in (False, True):
        yield from ((str(each), each.subject()) for each in public.functions(gluon=gluon))


def corpus() -> Iterator[tuple[str, subject.Subject]]:
    """What `academy judge` is held to: files of `tests/corpus` whose kernels a card may run."""
    for row in rows():
        if row.tool.startswith("judge"):
            try:
                found = subject.from_file(row.path)
            except Exception as error:
                print(f"{row.name}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            yield from ((f"tests/corpus/{row.name}:{each.name}", each) for each in found)


def judged(name: str, one: subject.Subject, sanitizer: str, seconds: float, gpu: str) -> dict[str, Any]:
    """One row. Odd sizes, and each dim long, in one process."""
    plan, start = Plan(one, interpreted=False), time.monotonic()
    trials = [trial for trial in plan.trials([sanitizer]) if trial.options == plan.trials([sanitizer])[0].options]
    row: dict[str, Any] = dict(function=name, sanitizer=sanitizer, verdict="right")
    try:
        sanitizers.check(sanitizer, one.origin, file_of(one), trials, seconds, gpu)
    except (Wrong, Remark, Skipped) as found:
        row |= dict(verdict=type(found).__name__.lower(), message=str(found).replace(f"{ROOT}/", ""))
        row |= dict(line=found.line) if getattr(found, "line", None) else {}
    return row | dict(seconds=round(time.monotonic() - start, 1))


def cards(wanted: int) -> list[str]:
    """The first so many cards that this process sees, in the words of `CUDA_VISIBLE_DEVICES`."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    known = [each.strip() for each in seen if each.strip()] or list(map(str, range(torch.cuda.device_count())))
    return known[: wanted or None]


def main() -> None:
    parser = experiment.parser(__doc__.split("\n\n")[0])
    parser.add_argument("--corpus", action="store_true", help="the kernels of tests/corpus, too")
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    parser.add_argument("--with", dest="names", default=",".join(ORDER), help="sanitizers, by name, in this order")
    parser.add_argument("--minutes", type=float, default=7.0, help="begin nothing afterwards (default: 7)")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one row (default: 120)")
    parser.add_argument("--gpus", type=int, default=0, help="how many cards (default: all that are there)")
    parser.add_argument(
        "--processes", type=int, default=0, help=f"rows at once (default: {A_CARD} a card, and one a core)"
    )
    parser.add_argument("--again", default="", help="verdicts whose rows are made again, such as skipped,wrong")
    options = parser.parse_args()
    if device.INTERPRET:
        raise SystemExit("sanitizers run on a GPU, and there is none here")
    run(options)


def known_rows(results: Path, again: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """What an earlier run has found with these versions, there or in the repository."""
    for place in (results, ROOT / layout.RESULTS):
        content = experiment.kept(NAME, place, "rows", "versions")
        if content["rows"] and content["versions"] == experiment.versions():
            return {(row["function"], row["sanitizer"]): row for row in content["rows"] if row["verdict"] not in again}
    return {}


def in_order(known: list[tuple[str, subject.Subject]], names: list[str]) -> list[tuple[str, subject.Subject, str]]:
    """Ours before the corpus; then sanitizer by sanitizer; of each the functions of `FIRST`, then what was quick on any
    card that there are results of."""
    took: dict[str, float] = {}
    for _, content in figures.results(ROOT, f"experiments/{NAME}"):
        for row in content["rows"]:
            took[row["function"]] = max(row["seconds"], took.get(row["function"], 0.0))

    def place(each: tuple[str, subject.Subject, str]) -> tuple:
        name, one, sanitizer = each
        first = name.startswith("fast.") and one.name in FIRST
        return name.startswith("tests/"), names.index(sanitizer), not first, took.get(name, 20.0)

    return sorted(((name, one, sanitizer) for sanitizer in names for name, one in known), key=place)


def run(options: argparse.Namespace) -> None:
    known = [*ours(), *(corpus() if options.corpus else ())]
    known = [(name, one) for name, one in known if options.only in name]
    names = [name for name in options.names.split(",") if name in ON_A_CARD]
    left_out = sanitizers.missing(names)
    rows = known_rows(options.results, options.again.split(","))
    wanted = in_order(known, [name for name in names if name not in left_out])
    wanted = [each for each in wanted if (each[0], each[2]) not in rows]
    gpus = cards(options.gpus)
    processes = options.processes or min(A_CARD * len(gpus), len(os.sched_getaffinity(0)))
    print(f"{len(rows)} rows are there, {len(wanted)} to go; {sanitizers.in_words(left_out) or 'all sanitizers run'}")
    print(f"{processes} at once on {len(gpus)} cards")
    end, made = time.monotonic() + 60 * options.minutes, []
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for place in range(processes):
        free.put(gpus[place % len(gpus)])

    def one(each: tuple[str, subject.Subject, str]) -> dict[str, Any] | None:
        left = end - time.monotonic()
        if left <= 0:
            return None
        limit, gpu = min(options.seconds, left + 20), free.get()
        try:
            row = judged(*each, limit, gpu)
        finally:
            free.put(gpu)
        return None if row["verdict"] == "skipped" and limit < options.seconds else row  # which was cut short

    with ThreadPoolExecutor(processes) as pool:
        futures: list[Future] = [pool.submit(one, each) for each in wanted]
        for future in as_completed(futures):
            if row := future.result():
                rows[row["function"], row["sanitizer"]] = row
                made.append(row)
                ordered = [rows[key] for key in sorted(rows)]
                experiment.write_experiment(NAME, options.results, {"left_out": left_out, "rows": ordered})
                if row["verdict"] != "right":
                    shown = row["message"][:200]
                    print(
                        f"{row['seconds']:6.1f} s  {row['sanitizer']:9} {row['verdict']:8} {row['function']}: {shown}"
                    )
    for name in names:
        mine = [row for row in made if row["sanitizer"] == name]
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(r["verdict"] for r in mine).items()))
        print(f"{name:9} {said or 'nothing made'}; {sum(row['seconds'] for row in mine):.0f} s in all")
    print(f"{len(made)} rows made, {len(wanted) - len(made)} left")


if __name__ == "__main__":
    main()
