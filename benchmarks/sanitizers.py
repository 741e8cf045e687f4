"""Every public function under every sanitizer, on this machine's GPU: function, sanitizer, verdict, seconds.

`python benchmarks/sanitizers.py` writes `benchmarks/results/<device>/experiments/sanitizers.json`, a row at a time, and
goes on where it was stopped. Each row is a process of its own, `--processes` of them at once. `--corpus` takes the
faults and the right kernels of `tests/corpus` as well: what a sanitizer doesn't find there, it wouldn't find in ours.

It needs Triton 3.9 for GSan, ConSan and FpSan, and compute-sanitizer, of a CUDA toolkit or
`pip install nvidia-cuda-sanitizer-api`, for the rest. What is missing is named in the JSON.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run as a script: make the repository importable
    sys.path.insert(0, str(ROOT))

from academy.runtime import device  # noqa: E402  before anything imports triton
from academy.bench import experiment  # noqa: E402
from academy.judge import public, sanitizers, subject  # noqa: E402
from academy.judge.findings import Remark, Skipped, Wrong  # noqa: E402
from academy.judge.trials import ON_A_CARD, Plan  # noqa: E402
from academy.judge.trying import file_of  # noqa: E402

NAME = "sanitizers"
#: First what has met a sanitizer's doubt before, or didn't end.
FIRST = ("cumsum", "linear_recurrence", "matmul")
#: And the sanitizers that say most of a kernel.
ORDER = ("gsan", "memcheck", "racecheck", "initcheck", "fpsan", "synccheck", "consan")


def ours() -> Iterator[tuple[str, subject.Subject]]:
    """Every public function of the lessons and fast versions, and those below Triton."""
    found = [each for gluon in (False, True) for each in public.functions(gluon=gluon)]
    for each in sorted(found, key=lambda each: not str(each).startswith("fast.") or each.name not in FIRST):
        yield str(each), each.subject()


def corpus() -> Iterator[tuple[str, subject.Subject]]:
    """What `academy judge` is held to: files of `tests/corpus` whose kernels a card may run."""
    for manifest in sorted((ROOT / "tests/corpus").rglob("manifest.tsv")):
        with manifest.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                path = manifest.parent / row["file"]
                if row["tool"].startswith("judge"):
                    try:
                        found = subject.from_file(path)
                    except Exception as error:
                        print(f"{path.name}: {type(error).__name__}: {error}", file=sys.stderr)
                        continue
                    yield from ((f"{path.relative_to(ROOT)}:{each.name}", each) for each in found)


def judged(name: str, one: subject.Subject, sanitizer: str, seconds: float) -> dict[str, Any]:
    """One row. Odd sizes, and each dim long, in one process."""
    plan, start, verdict, message, line = Plan(one, interpreted=False), time.monotonic(), "right", "", None
    trials = [trial for trial in plan.trials([sanitizer]) if trial.options == plan.trials([sanitizer])[0].options]
    try:
        sanitizers.check(sanitizer, one.origin, file_of(one), trials, seconds)
    except (Wrong, Remark, Skipped) as found:
        verdict, message, line = type(found).__name__.lower(), str(found), getattr(found, "line", None)
    took = round(time.monotonic() - start, 1)
    return dict(function=name, sanitizer=sanitizer, verdict=verdict, message=message, line=line, seconds=took)


def main() -> None:
    parser = experiment.parser(__doc__.split("\n\n")[0])
    parser.add_argument("--corpus", action="store_true", help="the kernels of tests/corpus, too")
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    parser.add_argument("--with", dest="names", default=",".join(ORDER), help="sanitizers, by name, in this order")
    parser.add_argument("--minutes", type=float, default=7.0, help="begin nothing afterwards (default: 7)")
    parser.add_argument("--seconds", type=float, default=75.0, help="for one row (default: 75)")
    parser.add_argument("--processes", type=int, default=14, help="rows at once (default: 14)")
    parser.add_argument("--again", default="", help="verdicts whose rows are made again, such as skipped,wrong")
    options = parser.parse_args()
    if device.INTERPRET:
        raise SystemExit("sanitizers run on a GPU, and there is none here")
    run(options)


def run(options: argparse.Namespace) -> None:
    known = [*ours(), *(corpus() if options.corpus else ())]
    known = [(name, one) for name, one in known if options.only in name]
    names = [name for name in options.names.split(",") if name in ON_A_CARD]
    left_out = sanitizers.missing(names)
    again = options.again.split(",")
    content = experiment.kept(NAME, options.results, "rows")
    rows = {(row["function"], row["sanitizer"]): row for row in content["rows"] or [] if row["verdict"] not in again}
    wanted = [(name, one, sanitizer) for sanitizer in names if sanitizer not in left_out for name, one in known]
    # The corpus after ours, whatever the sanitizer.
    wanted.sort(key=lambda each: each[0].startswith("tests/"))
    wanted = [each for each in wanted if (each[0], each[2]) not in rows]
    print(f"{len(rows)} rows are there, {len(wanted)} to go; {sanitizers.in_words(left_out) or 'all sanitizers run'}")
    end, done = time.monotonic() + 60 * options.minutes, 0

    def one(each: tuple[str, subject.Subject, str]) -> dict[str, Any] | None:
        left = end - time.monotonic()
        limit = min(options.seconds, left + 20)
        row = judged(*each, limit) if left > 0 else None
        cut = row and row["verdict"] == "skipped" and limit < options.seconds
        return None if cut else row

    with ThreadPoolExecutor(options.processes) as pool:
        futures: list[Future] = [pool.submit(one, each) for each in wanted]
        for future in as_completed(futures):
            if row := future.result():
                rows[row["function"], row["sanitizer"]] = row
                done += 1
                ordered = [rows[key] for key in sorted(rows)]
                experiment.write_experiment(NAME, options.results, {"left_out": left_out, "rows": ordered})
                shown = row["message"] or "nothing to say"
                print(f"{row['seconds']:6.1f} s  {row['sanitizer']:9} {row['verdict']:8} {row['function']}: {shown}")
    print(f"{done} rows made, {len(wanted) - done} left")


if __name__ == "__main__":
    main()
