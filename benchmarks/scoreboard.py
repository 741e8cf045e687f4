"""A scoreboard of judges: which of them finds the faults of `tests/corpus`, and which of them blames what is right.

`python benchmarks/scoreboard.py` gives every kernel of the corpus to every judge: `academy judge`, and those of
`benchmarks/peers.py`, which it clones into `$ACADEMY_PEERS` (`~/.cache/academy-peers`). It needs no GPU, goes on where
it was stopped, and writes `docs/guides/judged/scoreboard.json` and the tables of the guide. With `--unseen FOLDER` it
is about `tests/corpus/FOLDER`, whose authors hadn't seen the judge, and writes `FOLDER.json`: `academy judge` gets each
of these once. With `--since` it gets them as it is now, which makes `since.json` beside the counts. triton-viz, and
what it imports, must be installed in a folder beside the checkouts: `pip install --target $ACADEMY_PEERS/site …`.

To add a judge, write a function in `benchmarks/peers.py` that raises `Found`, and name it in `JUDGES` there. To add a
fault, put a file and a line into `tests/corpus`, whose `README.md` says how.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run as a script: make the repository importable
    sys.path.insert(0, str(ROOT))

from academy.runtime import device  # noqa: E402  before anything imports triton
from academy.bench import experiment  # noqa: E402
from academy.compiler import stand_in, tuning  # noqa: E402
from academy.files.textfiles import write_text  # noqa: E402
from academy.judge import process, subject  # noqa: E402
from academy.judge.session import File, Session  # noqa: E402
from academy.judge.trials import GROUPS, ON_A_CARD, USUAL  # noqa: E402
from academy.results import store  # noqa: E402
from benchmarks import corpus, peers  # noqa: E402
from benchmarks.corpus import Row  # noqa: E402
from benchmarks.peers import Found, NoVerdict  # noqa: E402

#: Of processor time, for one kernel and one of the others; of time, for one kernel and ours.
SECONDS, LONGEST = 30.0, 330.0
PAGE = ROOT / "docs/guides/judged"
OURS = "academy judge"
OTHERS = {judge.name: judge for judge in peers.JUDGES}
NAMES = (OURS, *OTHERS)
#: Judges that can't be run beside ours -> why.
NOT_RUN = {
    "compute-sanitizer alone": "it needs a GPU",
    "the race detector of triton-viz": "in the commit above it records accesses, and says nothing of them yet",
}


#: Folders whose authors hadn't seen `academy judge`, as they were written.
UNSEEN = ("last", "second", "third")


def folder(case: Row) -> str:
    """Which of these a kernel is in; "": none."""
    return name if (name := case.name.partition("/")[0]) in UNSEEN else ""


def cases(unseen: str = "") -> list[Row]:
    """What `academy judge` was made with, and is held to; or one of the folders of `UNSEEN`."""
    judged = [row for row in corpus.rows() if row.tool.partition(" --only ")[0] == "judge"]
    return [row for row in judged if folder(row) == unseen]


# ---------------------------------------------------------------- one verdict
Verdict = tuple[str, str, float]


def by_others(job: tuple[Row, list[str]]) -> Iterator[tuple[str, Verdict]]:
    """(judge, (found, passed or none, what it says, seconds)) of these judges, one after another, in a process of its
    own, which may die."""
    case, names = job
    with contextlib.suppress(Exception), stand_in.for_files():
        subject.from_file(case.path)  # what is imported once is no judge's time
    for name in names:
        start, said, word = time.perf_counter(), "", "passed"
        try:
            with stand_in.for_files(), tuning.chosen():
                for one in subject.from_file(case.path):
                    OTHERS[name].ask(one)
        except NoVerdict as error:
            word, said = "none", str(error)
        except Found as found:
            word, said = "found", str(found)
        except Exception as error:  # whoever calls it notices
            word, said = "found", f"{type(error).__name__}: {error}"
        yield name, (word, said, time.perf_counter() - start)


#: The groups that find most, and come first: of a faulty kernel, one wrong trial is enough.
FIRST = ("sizes", "options", "values", "layouts", "programs")


def by_ours(case: Row) -> Verdict:
    """With the groups of trials that the manifest names. Where it names none, a faulty kernel gets all, and a right one
    those that find most: that it passes all of them is tested every night. One that is counted unseen gets all."""
    rest = [name for name in USUAL if name not in FIRST and name not in ON_A_CARD]
    asked = (
        [case.groups] if case.groups else [",".join(FIRST), *([",".join(rest)] if case.faulty or folder(case) else [])]
    )
    start, answer = time.perf_counter(), ("none", "")
    for only in asked:
        command = [sys.executable, "-m", "academy.cli", "judge", str(case.path), "--mutants", "0"]
        command += ["--only", only]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired:
            answer = "none", f"no end within {LONGEST:g} s"
        else:
            answer = read(ran.returncode, ran.stdout, ran.stderr)
        if answer[0] != "passed":
            break
    return *answer, time.perf_counter() - start


def read(status: int, out: str, error: str) -> tuple[str, str]:
    """The verdict of `academy judge`, and of a wrong kernel the first thing that is wrong."""
    if status not in (0, 1):
        return "none", (error or out).strip().partition("\n")[0]
    lines = out.splitlines()
    group = next((place for place, line in enumerate(lines) if ": " in line and line.partition(": ")[0] in GROUPS), 0)
    return ("found", " ".join(lines[group : group + 2])) if status else ("passed", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--judge", action="append", choices=NAMES, help="only this one (may be repeated)")
    parser.add_argument("--only", default="", help="kernels whose path has this in it")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin nothing afterwards (default: 600)")
    parser.add_argument("--again", action="store_true", help="rows that are there, too")
    since = f"all that it hadn't seen, by {OURS} as it is now: what it has learnt since the counts"
    parser.add_argument("--since", action="store_true", help=since)
    once = f"one of these folders; what {OURS} was given once it isn't given again"
    parser.add_argument("--unseen", choices=UNSEEN, default="", help=once)
    options = parser.parse_args()
    unseen, rows = options.unseen, kept(options.unseen)
    known = [case for case in cases(unseen) if options.only in case.name]
    end, names = time.monotonic() + 60 * options.minutes, options.judge or list(NAMES)
    if options.since:
        for case in (case for each in UNSEEN for case in cases(each) if options.only in case.name):
            if time.monotonic() < end and (options.again or case.name not in since_rows()):
                row = learnt(case)
                print(
                    f"{row['seconds']:6.1f} s  {row['verdict']:7} {case.name} {row.get('message', '')[:90]}", flush=True
                )
                save_since(since_rows() | {case.name: row})
        return
    if unseen and options.again and OURS in names:
        parser.error("--unseen --again: what was counted once isn't counted again")
    for case, name, (word, said, seconds) in judged(known, names, {} if options.again else rows, end):
        said = " ".join(said.replace(f"{ROOT}/", "").split())[:160]
        row = dict(verdict=word, **dict(message=said) if said else {}, seconds=round(seconds, 1))
        rows.setdefault(case.name, {})[name] = row
        print(f"{seconds:6.1f} s  {name:38} {word:7} {case.name} {said[:60]}", flush=True)
        save(rows, unseen)
    save(rows, unseen)
    print((PAGE / f"{unseen or BOARD}.txt").read_text("utf-8"))


def judged(known: list[Row], names: list[str], rows: dict[str, dict], end: float) -> Iterator[tuple[Row, str, Verdict]]:
    """All that is missing in `rows`: the others, which are quick, first."""
    process.warm_up()
    jobs = []
    for case in known:
        missing = [name for name in names if name in OTHERS and name not in rows.get(case.name, {})]
        jobs += [(case, missing)] if missing else []
    todo = {case.name: list(missing) for case, missing in jobs}
    for (case, _), answer in process.stream(by_others, jobs, process.Limits(SECONDS, 4096)):
        if isinstance(answer, process.Death):  # of the first that has not answered; the rest of them go on
            hangs = answer.kind == "hang"
            said = "none" if hangs else "found", f"the process {answer.message}", SECONDS if hangs else 0.0
            answer = todo[case.name][0], said
            if rest := todo[case.name][1:]:
                jobs.append((case, rest))
        todo[case.name].remove(answer[0])
        yield case, *answer
        if time.monotonic() > end:
            return
    for case in known if OURS in names else ():
        if OURS not in rows.get(case.name, {}) and time.monotonic() < end:
            yield case, OURS, by_ours(case)


#: The name of what `--unseen` is not about.
BOARD = "scoreboard"


def kept(unseen: str = "") -> dict[str, dict]:
    path = PAGE / f"{unseen or BOARD}.json"
    return json.loads(path.read_text("utf-8"))["rows"] if path.is_file() else {}


def save(rows: dict[str, dict], unseen: str = "") -> None:
    """The JSON, and the tables that are made of it."""
    known, name = cases(unseen), unseen or BOARD
    ordered = {case.name: rows[case.name] for case in known if case.name in rows}
    judges = counted(ordered, known)
    content = {"versions": experiment.versions("triton-academy"), "judges": judges, "rows": ordered}
    write_text(PAGE / f"{name}.json", store.dumps(content) + "\n")
    write_text(PAGE / f"{name}.txt", table(judges))
    write_text(PAGE / f"{name}-faults.txt", every(ordered, known, faulty=True))
    write_text(PAGE / f"{name}-right.txt", every(ordered, known, faulty=False))


# ---------------------------------------------------------------- what has been learnt since the count
SINCE = PAGE / "since.json"


def learnt(case: Row) -> dict[str, Any]:
    """The verdict of now, with all groups, or those that the manifest names, until the first wrong trial. A fault that
    the manifest counts as missed is so where another one is found. seconds: of processor time, of all processes."""
    process.warm_up()
    rest = [name for name in USUAL if name not in FIRST and name not in ON_A_CARD]
    asked = case.groups.split(",") if case.groups else [*FIRST, *rest]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    word, said = "passed", ""
    for group in asked:
        session = Session(File(case.path), [group], 0)
        with contextlib.closing(session.walk()) as walk:
            if bad := next((outcome for outcome in walk if outcome.bad), None):
                word, said = "found", f"{bad.trial}: {bad.message}"
                break
    if case.expected == "missed" and said:
        word, said = "passed", f"refused for something else: {said}"
    said = " ".join(said.replace(f"{ROOT}/", "").split())[:160]
    seconds = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 1)
    return dict(verdict=word, **dict(message=said) if said else {}, seconds=seconds)


def since_rows() -> dict[str, dict]:
    return json.loads(SINCE.read_text("utf-8"))["rows"] if SINCE.is_file() else {}


def save_since(rows: dict[str, dict]) -> None:
    content = {"day": datetime.date.today().isoformat(), "versions": experiment.versions("triton-academy")}
    content |= {"rows": {case.name: rows[case.name] for each in UNSEEN for case in cases(each) if case.name in rows}}
    write_text(SINCE, store.dumps(content) + "\n")
    write_text(SINCE.with_suffix(".txt"), since_table(content))


def since_table(content: dict[str, Any]) -> str:
    """Markdown: how many of each folder were found and blamed when it was counted, and are now; and each kernel whose
    verdict has changed, or should change."""
    counts = [["kernels", "", "faults found", "right ones blamed"], ["---"] * 4]
    lines = [["kernel", "when it was counted", "now"], ["---"] * 3]
    for name in UNSEEN[::-1]:
        once, now = {each: row[OURS] for each, row in kept(name).items()}, content["rows"]
        given = [case for case in cases(name) if case.name in now and case.name in once]
        for when, rows in given and (("when they were counted", once), (f"on {content['day']}", now)):
            found = {faulty: [rows[each.name]["verdict"] == "found" for each in given if each.faulty is faulty]
                     for faulty in (True, False)}  # fmt: skip
            counts.append([f"`{name}`", when, *(f"{sum(each)} of {len(each)}" for each in found.values())])
        for case in given:
            both = [rows[case.name]["verdict"] == "found" for rows in (once, now)]
            if both != [case.faulty] * 2:
                was, is_now = ((("missed", "found") if case.faulty else ("passed", "blamed"))[each] for each in both)
                said = now[case.name].get("message", "").replace("|", "\\|")
                lines.append(
                    [f"`{case.path.stem}`", was, is_now + (f": ``{said}``" if said else "")]
                )  # a [0][0] is a link
    return "\n\n".join("\n".join(f"| {' | '.join(line)} |" for line in table) for table in (counts, lines)) + "\n"


# ---------------------------------------------------------------- the tables
def only_in_gradients(row: dict[str, dict]) -> bool:
    """Whether the first thing that ours has found wrong is a gradient."""
    return "gradient" in row.get(OURS, {}).get("message", "")


def counted(rows: dict[str, dict], known: list[Row]) -> dict[str, dict[str, Any]]:
    """Of each judge: how many faults and right kernels it was given, what it said of them, how long that took."""
    out: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        given = [(case, rows[case.name][name]) for case in known if name in rows.get(case.name, {})]
        if given:
            words = lambda faulty, given=given: [row["verdict"] for case, row in given if case.faulty is faulty]  # noqa: E731
            out[name] = dict(
                version="this repository" if name == OURS else OTHERS[name].version,
                faults=len(words(True)),
                found=words(True).count("found"),
                unseen=0,
                right=len(words(False)),
                alarms=words(False).count("found"),
                none=sum(row["verdict"] == "none" for _, row in given),
                seconds=round(statistics.median(row["seconds"] for _, row in given), 1),
            )
            if name in OTHERS and not OTHERS[name].gradients:
                missed = [case.name for case, row in given if case.faulty and row["verdict"] != "found"]
                out[name]["unseen"] = sum(only_in_gradients(rows[each]) for each in missed)
    return out


def table(judges: dict[str, dict[str, Any]]) -> str:
    """Markdown. Faults that only gradients show count as missed by judges that look at none; how many is said."""
    head = ["judge", "version", "faults found", "false alarms", "no verdict", "seconds a kernel"]
    lines = [head, ["---"] * len(head)]
    for name, each in judges.items():
        found = f"**{each['found']} of {each['faults']}** ({each['found'] / max(each['faults'], 1):.0%})"
        found += f"; {each['unseen']} are in gradients" if each["unseen"] else ""
        alarms = f"{each['alarms']} of {each['right']}" if each["right"] else "not counted"
        lines.append([name, each["version"], found, alarms, str(each["none"] or ""), str(each["seconds"])])
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*text, "", f"Not run: {'; '.join(f'{name} ({why})' for name, why in NOT_RUN.items())}."]) + "\n"


#: What a cell of the long tables says.
MARKS = {"found": "●", "passed": "○", "none": "·", "": ""}
SHORT = ("ours", "assert_close", "KernelBench", "robust-kbench", "GPU MODE", "Liger", "FlashAttention", "triton-viz")


def every(rows: dict[str, dict], known: list[Row], faulty: bool) -> str:
    """Markdown: a line for each kernel, with a link to it and what each judge says."""
    lines = [["kernel", "the fault" if faulty else "looks like a mistake", *SHORT], ["---"] * 2 + [":-:"] * len(SHORT)]
    for case in known:
        if case.faulty is faulty:
            row = rows.get(case.name, {})
            words = [MARKS[row.get(name, {}).get("verdict", "")] for name in NAMES]
            kind = case.kind.replace("|", "\\|")
            link = f"../../{corpus.shown(case.name).relative_to(corpus.ROOT).as_posix()}"
            lines.append([f"[{Path(case.name).stem}]({link})", kind, *words])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    if not device.INTERPRET:
        raise SystemExit("the scoreboard without a card is made in the interpreter: TRITON_INTERPRET=1")
    main()
