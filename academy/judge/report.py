"""What a session found, for a terminal and as one HTML file."""

from __future__ import annotations

import pickle
import subprocess
import sys
from html import escape
from itertools import chain
from math import prod
from os import environ
from pathlib import Path

from rich.console import Console
from rich.markup import escape as plain
from rich.table import Table

from academy.command.parent import Lifeline
from academy.files import cache
from academy.judge import causes
from academy.judge.session import Judged, Report
from academy.judge.trials import GROUPS
from academy.judge.trying import Outcome
from academy.traces import page
from academy.traces.recording import Recording

_GRADIENTS = {
    "gradients": "output and gradients are judged",
    "unknown": "the first call ended the process, so nothing is known of its gradients",
    "refuses": "forward only: an input that requires a gradient is refused",
    "none": "forward only, in silence: if an input requires a gradient, the result has none. Raise an error, "
    "or write an autograd.Function",
    "reference": "forward only: the reference gives no gradient either",
    "in place": "forward only: the reference writes to an argument, which requires no gradient then",
}
_FATES = {"value": "gave a wrong value", "error": "raised an error", "died": "took the process along"}
#: Groups of a function whose first wrong trial is shown; one mistake is often seen by all of them.
_SHOWN = 3
#: And of its other wrong trials, how many are named.
_ALSO = 4
#: A failing trial with more elements than this is not recorded.
_LARGEST = 1 << 16


def counted(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def remarks(one: Judged) -> list[str]:
    """What is no mistake, and worth a line: refusals, remarks, what could not be tried."""
    found = []
    for state, words in (("refused", "refused"), ("remark", "remark"), ("skipped", "not tried")):
        messages: dict[str, list[Outcome]] = {}
        for outcome in one.outcomes:
            if outcome.state == state:
                messages.setdefault(outcome.message, []).append(outcome)
        for message, outcomes in messages.items():
            more = f" and {counted(len(outcomes) - 1, 'other')}" if len(outcomes) > 1 else ""
            see = f" ({causes.of(outcomes[0].trial, message).address})" if state == "remark" else ""
            found.append(f"{words}, {outcomes[0].trial}{more}: {message}{see}")
    return found


def verdict(report: Report) -> str:
    """The last line."""
    if report.broken:
        return report.broken
    made = sum(len(one.outcomes) for one in report.judged)
    wrong = len(report.wrong)
    if not report.complete:
        return f"stopped after {counted(made, 'trial')}, {wrong or 'none'} of them wrong ({report.seconds} s)"
    if idle := [one.name for one in report.judged if one.refuses_everything]:
        return f"{idle[0]} takes none of the inputs, so nothing was compared ({report.seconds} s)"
    found = f"{wrong} of {counted(made, 'trial')} wrong" if wrong else f"right in {counted(made, 'trial')}"
    return f"{found} ({report.seconds} s)"


def mutants(report: Report) -> list[str]:
    """How many mutants were noticed, and where those stand that were not."""
    if not report.mutants:
        return []
    counts = [f"{sum(fate.fate == kind for fate in report.mutants)} {words}" for kind, words in _FATES.items()]
    counts = [each for each in counts if not each.startswith("0 ")]
    survived = report.survivors
    lines = [f"{counted(len(report.mutants), 'mutant')} of the kernels: {', '.join(counts)}, {len(survived)} survived"]
    if helpers := sorted({file for one in report.judged for file in one.helpers}):
        lines[0] += f"; those in {', '.join(helpers)} were left as they are"
    lines += [f"{report.file}:{fate.line}: no trial notices {fate.mutant.name}" for fate in survived]
    return lines


def _gradients(one: Judged) -> str:
    beside = f"; {' and '.join(one.refused)} may not require one" if one.refused else ""
    return _GRADIENTS[one.gradients] + beside


# ---------------------------------------------------------------- in a terminal
def show(report: Report, console: Console) -> None:
    for one in report.judged:
        console.rule(f"[bold]{plain(one.name)}[/] against {plain(one.against)}")
        console.print(_table(one))
        console.print(_gradients(one), style="dim", highlight=False)
        for remark in remarks(one):
            console.print(plain(remark), style="yellow", highlight=False)
        told, rest = told_apart(one)
        for outcomes in told:
            _wrong(report, one, outcomes, console)
        if rest:
            console.print(f"\n{rest}", highlight=False, soft_wrap=True)
    for line in mutants(report):
        console.print(plain(line), highlight=False, soft_wrap=True)
    for line in filter(None, (report.stand_ins, report.left_out)):
        console.print(plain(line), style="dim", highlight=False, soft_wrap=True)
    colour = "green" if report.right else "red"
    console.print(f"{plain(report.file)}: [{colour}]{plain(verdict(report))}[/]", highlight=False, soft_wrap=True)
    console.print(plain(report.device), style="dim", highlight=False, soft_wrap=True)


def _table(one: Judged) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (("tried", "left"), ("trials", "right"), ("", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for group in GROUPS:
        planned = [trial for trial in one.trials if trial.group == group]
        if planned:
            table.add_row(group, str(len(one.of(group))), _mark(one.of(group), len(planned)))
    return table


def _mark(outcomes: list[Outcome], planned: int) -> str:
    wrong = sum(outcome.bad for outcome in outcomes)
    if wrong:
        return f"[red]{wrong} wrong[/]"
    if len(outcomes) < planned:
        return "[yellow]stopped[/]"
    right = sum(outcome.state == "right" for outcome in outcomes)
    others = {state: sum(outcome.state == state for outcome in outcomes) for state in ("refused", "remark", "skipped")}
    if not right:
        return "[yellow]" + ", ".join(f"{count} {state}" for state, count in others.items() if count) + "[/]"
    return "[green]right[/]"


def ordered(one: Judged) -> list[list[Outcome]]:
    """What is wrong, by group. What has a line of the file is first, in each and of them; then as they were tried."""
    groups = [sorted((each for each in one.of(group) if each.bad), key=lambda each: not each.line) for group in GROUPS]
    return sorted(filter(None, groups), key=lambda outcomes: not outcomes[0].line)


def told_apart(one: Judged) -> tuple[list[list[Outcome]], str]:
    """The wrong groups that say something of their own, and a line about the others. Most trials begin with the
    plainest inputs: where these are wrong, a layout or a dtype is not what the others show, but a line is."""
    wrong = ordered(one)
    told = [each for each in wrong if each[0].line or each[0].trial.group == "sizes" or not one.plainly][:_SHOWN]
    rest = [outcomes[0].trial.group for outcomes in wrong if outcomes not in told]
    first = ". Mend the above first: most of these begin with the same inputs" if one.plainly else ""
    return told, f"wrong too: {', '.join(rest)}{first} (--only {rest[0]} shows more)" if rest else ""


def _wrong(report: Report, one: Judged, wrong: list[Outcome], console: Console) -> None:
    """The first of a group, which has a line, or the smallest inputs."""
    first = wrong[0]
    place = f"{report.file}:{first.line}: " if first.line else ""
    console.print(f"\n[red bold]{plain(str(first.trial))}[/]", highlight=False)
    console.print(f"  {plain(place + first.message)}", highlight=False, soft_wrap=True)
    console.print(f"  [dim]{plain(first.trial.described())}[/]", highlight=False, soft_wrap=True)
    why = one.cause(first)
    console.print(f"  Mostly: {plain(why.sentence)} See {plain(why.address)}", highlight=False, soft_wrap=True)
    if others := [outcome.trial.name for outcome in wrong[1:]]:
        more = f"; {len(others) - _ALSO} more" if len(others) > _ALSO else ""
        console.print(f"  [dim]also: {plain('; '.join(others[:_ALSO]))}{more}[/]", highlight=False, soft_wrap=True)


# ---------------------------------------------------------------- as HTML
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:72rem;padding:1rem 1.25rem;color-scheme:light dark}
main>section{margin:1.5rem 0}table{border-collapse:collapse}td,th{padding:.2rem 1rem .2rem 0;text-align:left;
vertical-align:top}.bad{color:#b3261e;font-weight:600}.good{color:#1b6e3c}.quiet{opacity:.75}
@media(prefers-color-scheme:dark){.bad{color:#ff8a80}.good{color:#7bd88f}}
"""


def html(report: Report, path: Path) -> str:
    """The report, and the recorded run of the failing trial with the smallest inputs, if there is one."""
    body = _body(report)
    found = first_failing(report)
    if found is None:
        return _document(report, body)
    name, outcome = found
    told = f"<section><h2>The run of {escape(name)}, {escape(str(outcome.trial))}</h2>"
    told += f"<p>{escape(outcome.message)}<br><span class=quiet>{escape(outcome.trial.described())}</span></p>"
    recording, reason = recorded(path, name, outcome)
    told += f"<p>{escape(reason)}</p>" if reason else ""
    if recording is None:
        return _document(report, f"{body}{told}</section>")
    return page.standalone(path, recording, f"<style>{_STYLE}</style>{body}{told}</section>")


def _document(report: Report, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(report.file)}, judged</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style><body><main><h1>{escape(Path(report.file).name)}</h1>{body}</main></body></html>"
    )


def _body(report: Report) -> str:
    kind = "good" if report.right else "bad"
    parts = [
        f'<section><p class="{kind}">{escape(verdict(report))}</p><p class=quiet>{escape(report.device)}</p>',
        *(f"<p class=quiet>{escape(line)}</p>" for line in (report.stand_ins, report.left_out) if line),
    ]
    for one in report.judged:
        parts.append(f"<h2>{escape(one.name)} against {escape(one.against)}</h2><table>")
        for group, about in GROUPS.items():
            outcomes = one.of(group)
            if outcomes:
                wrong = sum(outcome.bad for outcome in outcomes)
                mark = f"<span class=bad>{wrong} wrong</span>" if wrong else "<span class=good>right</span>"
                if not wrong and not any(outcome.state == "right" for outcome in outcomes):
                    mark = "not tried"
                parts.append(f"<tr><td>{group}<td class=quiet>{escape(about)}<td>{len(outcomes)}<td>{mark}")
        parts.append(f"</table><p>{escape(_gradients(one))}</p>")
        told, rest = told_apart(one)
        for outcome in chain.from_iterable(told):
            place = f"line {outcome.line}: " if outcome.line else ""
            why = one.cause(outcome)
            page = escape(why.address)
            parts.append(
                f"<p><span class=bad>{escape(str(outcome.trial))}</span><br>{escape(place + outcome.message)}<br>"
                f"<span class=quiet>{escape(outcome.trial.described())}</span><br>Mostly: {escape(why.sentence)} See "
                + (f'<a href="{page}">{page}</a>' if "://" in page else page)
            )
        parts += [f"<p>{escape(each)}</p>" for each in [rest, *remarks(one)] if each]
    return "".join([*parts, *(f"<p>{escape(line)}</p>" for line in mutants(report)), "</section>"])


# ---------------------------------------------------------------- the recorded run
def first_failing(report: Report) -> tuple[str, Outcome] | None:
    """Function and outcome of the wrong trial with the smallest inputs. A call that must be refused has no run."""
    found = [(one.name, outcome) for one in report.judged for outcome in one.wrong if outcome.trial.how != "misfit"]
    return min(found, key=lambda each: _elements(each[1]), default=None)


def _elements(outcome: Outcome) -> int:
    return prod(size for _, size in outcome.trial.sizes)


def recorded(path: Path, name: str, outcome: Outcome) -> tuple[Recording | None, str]:
    """The run of a trial's call in Triton's interpreter, in a process of its own; or None. And why it
    ended too early, or why there is none."""
    if _elements(outcome) > _LARGEST:
        return None, "its inputs are too large to show"
    job = pickle.dumps((path.resolve(), name, outcome.trial))
    environment = {**environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": _python_path()}
    options: dict = dict(capture_output=True, env=environment, timeout=120)
    try:
        with Lifeline() as line:
            command = [sys.executable, "-m", "academy.judge.recorded", str(line.pipe)]
            finished = subprocess.run(command, input=job, pass_fds=[line.pipe], **options)
        recording: Recording = pickle.loads(finished.stdout)
    except (subprocess.TimeoutExpired, pickle.UnpicklingError, EOFError) as error:
        return None, f"it can't be recorded: {type(error).__name__}"
    reason = recording.data["error"]["message"] if recording.data["error"] else ""
    return (recording, reason) if recording.launches else (None, reason or "it launches no kernel")


def _python_path() -> str:
    return ":".join([str(cache.ROOT), *filter(None, [environ.get("PYTHONPATH")])])
