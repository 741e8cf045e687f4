"""A scoreboard of judges: which of them finds the faults of `tests/corpus`, and which of them blames what is right.

`python benchmarks/scoreboard.py` judges every kernel of the corpus that has a reference beside it, with each judge, and
writes `docs/guides/judged/scoreboard.json` and, beside it, the table of the guide. It needs no
GPU, and goes on where it was stopped. The others' rules are restated here from what they publish, in our words: their
harnesses need a GPU.

To add a judge, write a function from a `Case` that raises `Found`, and name it in `JUDGES`. To add a fault, put a file
and its line of the manifest into `tests/corpus`.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run as a script: make the repository importable
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from academy.runtime import device  # noqa: E402  before anything imports triton
from academy.bench import experiment  # noqa: E402
from academy.compiler import stand_in, tuning  # noqa: E402
from academy.files.textfiles import write_text  # noqa: E402
from academy.judge import process, subject, trying, verdict, writes  # noqa: E402
from academy.judge.session import File, Session  # noqa: E402
from academy.judge.trials import Plan  # noqa: E402

CORPUS = ROOT / "tests/corpus"
#: Of processor time, for one kernel and one of the others.
SECONDS = 30.0
RESULTS, TABLE = ROOT / "docs/guides/judged/scoreboard.json", ROOT / "docs/guides/judged/scoreboard.txt"


class Found(Exception):
    """A judge says that a kernel is wrong."""


@dataclass(frozen=True)
class Case:
    """A row of the corpus: a file, what it is known for, where that was met, and what of `academy judge` shows it."""

    path: Path
    kind: str
    source: str
    faulty: bool
    groups: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.relative_to(CORPUS).as_posix()


def cases() -> list[Case]:
    found = []
    for manifest in sorted(CORPUS.rglob("manifest.tsv")):
        with manifest.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                tool, _, only = row["tool"].partition(" --only ")
                if tool == "judge":
                    groups = tuple(name for name in only.split(",") if name)
                    path, faulty = manifest.parent / row["file"], row["expected"] in ("faulty", "missed")
                    found.append(Case(path, row["kind"], row["source"], faulty, groups))
    return found


# ---------------------------------------------------------------- the others
def called(one: subject.Subject, sizes: dict[str, int], dtype: str, seed: int, backward: bool) -> list[tuple]:
    """(name, the function's, PyTorch's in the same dtype, PyTorch's in float64) of each result."""
    options = one.combinations()[0]
    made = one.make(dict(Plan(one).chosen(sizes)), getattr(torch, dtype), seed)
    wanted = None if backward and differentiable(one) else ()

    def run(function: Callable, inputs: dict[str, Any], upstreams: Any) -> verdict.Run:
        return verdict.run(lambda **given: function(**given, **options), inputs, upstreams, wanted)

    generator = torch.Generator().manual_seed(seed + 1)
    draw = lambda outs: [torch.randn(out.shape, generator=generator).to(out) for out in outs]  # noqa: E731
    ours = run(one.function, writes.copies(made), draw)
    theirs = run(one.reference, writes.copies(made), ours.upstreams).values
    exact = run(one.reference, {n: v.double() if _floating(v) else v for n, v in made.items()}, ours.upstreams).values
    return [(name, value, theirs[name], exact[name]) for name, value in ours.values.items() if name in theirs]


def differentiable(one: subject.Subject) -> bool:
    """Whether the function gives gradients: one that refuses them is tested forward by whoever tests it."""
    trial = Plan(one).trial("odd sizes", options=tuple(one.combinations()[0].items()))
    return trying.gradient_mode(one, trial) == "gradients"


def _floating(value: Any) -> bool:
    return torch.is_tensor(value) and value.is_floating_point() and value.element_size() > 1


def close(
    one: subject.Subject, sizes: dict[str, int], dtype: str, seed: int, backward: bool, **tolerances: float
) -> None:
    for name, found, wanted, _ in called(one, sizes, dtype, seed, backward):
        if torch.is_tensor(found):
            try:
                torch.testing.assert_close(found, wanted, equal_nan=True, **tolerances)
            except AssertionError as error:
                raise Found(f"{name}: {str(error).splitlines()[0]}") from None


def round_sizes(one: subject.Subject) -> dict[str, int]:
    return {dim: 64 if place else 16 for place, dim in enumerate(one.dims)}


def odd_sizes(one: subject.Subject) -> dict[str, int]:
    return {dim: (9, 41, 77)[min(place, 2)] for place, dim in enumerate(one.dims)}


def assert_close(one: subject.Subject) -> None:
    """`torch.testing.assert_close` on one shape, forward: what most people write."""
    close(one, round_sizes(one), one.dtypes[0], 0, backward=False)


def kernelbench(one: subject.Subject) -> None:
    """The rule of KernelBench (src/kernelbench/eval.py, commit 423217d, 2026-03-05): the task's one shape, float32,
    five draws of the inputs, forward, both tolerances 1e-4."""
    for seed in range(5):
        close(one, round_sizes(one), one.dtypes[0], seed, backward=False, atol=1e-4, rtol=1e-4)


def liger(one: subject.Subject) -> None:
    """The style of Liger-Kernel's tests: a round and an odd shape, float32 and bfloat16, forward and backward, with
    tolerances that are chosen by dtype."""
    for sizes in (round_sizes(one), odd_sizes(one)):
        for dtype, tolerance in (("float32", 1e-4), ("bfloat16", 5e-2)):
            if dtype in one.dtypes:
                close(one, sizes, dtype, 0, backward=True, atol=tolerance, rtol=tolerance)


def flash_attention(one: subject.Subject) -> None:
    """The style of FlashAttention's tests: several shapes, odd ones among them, 16 bits, forward and backward; the
    largest error may be twice that of PyTorch in the same dtype, three times for gradients."""
    for place, sizes in enumerate((round_sizes(one), odd_sizes(one), dict.fromkeys(one.dims, 33))):
        for dtype in [each for each in ("float16", "bfloat16") if each in one.dtypes] or one.dtypes[:1]:
            for name, found, wanted, exact in called(one, sizes, dtype, place, backward=True):
                if _floating(found) and found.numel():
                    of = lambda value: (value.double() - exact.double()).abs().max().item()  # noqa: B023, E731
                    allowed = (3 if name.startswith("d") else 2) * of(wanted) + 1e-5
                    if not of(found) <= allowed:
                        raise Found(f"{name}: the largest error is {of(found):.2g}, allowed is {allowed:.2g}")


OTHERS: dict[str, Callable[[subject.Subject], None]] = {
    "torch.testing.assert_close, one shape": assert_close,
    "KernelBench's rule": kernelbench,
    "Liger-Kernel's style": liger,
    "FlashAttention's style": flash_attention,
}
OURS = "academy judge"
JUDGES = (OURS, *OTHERS)


# ---------------------------------------------------------------- one verdict
def judge(job: tuple[Case, str]) -> Iterator[tuple[str, str, float]]:
    """("found", what it says, seconds) or ("passed", "", seconds). In a process of its own, which may die."""
    (case, name), start, said = job, time.perf_counter(), ""
    with stand_in.for_files(), tuning.chosen():
        try:
            for one in subject.from_file(case.path):
                OTHERS[name](one)
        except Found as found:
            said = str(found)
        except Exception as error:  # whoever calls it notices
            said = f"{type(error).__name__}: {error}"
    yield "found" if said else "passed", " ".join(said.split())[:200], round(time.perf_counter() - start, 1)


def by_ours(case: Case) -> tuple[str, str, float]:
    """A fault with the groups that its manifest names, which a whole session has as well; what is right with all."""
    groups = list(case.groups) if case.faulty and case.groups else None
    report = Session(File(case.path), groups, mutants=0).run()
    return (
        "passed" if report.right else "found",
        "" if report.right else str(report).splitlines()[0][:200],
        report.seconds,
    )


#: Judges that can't be run beside ours -> why.
NOT_RUN = {
    "the evaluators of KernelBench, robust-kbench and GPU MODE themselves": "they launch on a GPU",
    "compute-sanitizer alone": "it needs a GPU",
    "the sanitizer of triton-viz 3.0": "its interpreter and ours, which repairs Triton's, can't be in one process",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--judge", action="append", choices=JUDGES, help="only this one (may be repeated)")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin nothing afterwards (default: 600)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: dict[str, dict] = {}
    if options.results.is_file():
        rows = json.loads(options.results.read_text("utf-8"))["rows"]
    end = time.monotonic() + 60 * options.minutes
    for name in options.judge or JUDGES:
        run(name, rows, end, lambda: save(options.results, rows))
    save(options.results, rows)
    write_text(TABLE, table(rows, cases()))
    print(TABLE.read_text("utf-8"))


def run(name: str, rows: dict[str, dict], end: float, save: Callable[[], object]) -> None:
    process.warm_up()
    wanted = [case for case in cases() if name not in rows.get(case.name, {})]
    wanted.sort(key=lambda case: not case.faulty)
    for case, (found, message, seconds) in by_all(name, wanted):
        message = message.replace(f"{ROOT}/", "")
        rows.setdefault(case.name, {})[name] = dict(verdict=found, message=message, seconds=seconds)
        save()
        if time.monotonic() > end:
            return


def by_all(name: str, wanted: list[Case]) -> Iterator[tuple[Case, tuple[str, str, float]]]:
    if name == OURS:
        for case in wanted:
            yield case, by_ours(case)
        return
    for (case, _), answer in process.stream(judge, [(case, name) for case in wanted], process.Limits(SECONDS, 4096)):
        dead = isinstance(answer, process.Death)
        yield case, ("found", f"the process {answer.message}", SECONDS) if dead else answer


def save(path: Path, rows: dict[str, dict]) -> None:
    known = {case.name for case in cases()}
    kept = {name: rows[name] for name in sorted(rows) if name in known}
    content = {"versions": experiment.versions(), "rows": kept}
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


# ---------------------------------------------------------------- the table
def table(rows: dict[str, dict], known: list[Case]) -> str:
    """Markdown. Of each judge: how many faults it has found of those it was given, and how much it blames that is
    right. (How long it took is in the JSON: on a busy machine that says little.)"""
    lines = [["judge", "faults found", "false alarms"], ["---"] * 3]
    for name in JUDGES:
        judged = [(case, rows[case.name][name]) for case in known if name in rows.get(case.name, {})]
        found, alarms = (
            [row["verdict"] == "found" for case, row in judged if case.faulty is faulty] for faulty in (True, False)
        )
        if judged:
            counted = f"{sum(found)} of {len(found)} ({sum(found) / max(len(found), 1):.0%})"
            lines.append([name, counted, f"{sum(alarms)} of {len(alarms)}" if alarms else "not counted"])
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*text, "", f"Not run: {'; '.join(f'{name} ({why})' for name, why in NOT_RUN.items())}."]) + "\n"


if __name__ == "__main__":
    if not device.INTERPRET:
        raise SystemExit("the scoreboard without a card is made in the interpreter: TRITON_INTERPRET=1")
    main()
