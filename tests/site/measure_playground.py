"""What the playground costs a reader, in headless Chromium: `python -m tests.site.measure_playground SITE [JSON]`.

SITE is the folder of a built site; JSON is where the figures are written, too. Bytes by part; the time from the click
to the first run (cold; and on a later visit, when the browser has kept the runtime). For each lesson the time
from Run to the picture: of a first edit with nothing run before, without Python's start, when the original has to run
too; of a later edit (the best of three); of the lesson unchanged; and the memory of Python. For each exercise the
time of a check of its solution, the first and the best of three more. Other work on the machine lengthens all of them.
It ends at the first run that fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from academy.book import exercise_files
from tests.site.browser import Browser, served

EDITOR = "document.querySelector('[data-academy=editor]')"
STATE = "document.querySelector('[data-academy=outcome]').dataset.state"
MEASURES = "performance.getEntriesByType('measure').map(m => [m.name, m.duration, m.detail])"

#: A question to the page's Python, as its editor asks it: the state, and the time until the answer is there.
ASK = """import("/assets/playground/runtime.js").then(async ({ ask }) => {
    const begun = performance.now(), answer = await ask(%s, () => {})
    return [answer.state, performance.now() - begun]
})"""


def acted(browser: Browser, action: str) -> dict:
    """Press a button, wait for its end, and return the last measure of its kind. Ends the program unless it passed."""
    browser.run(f"document.querySelector('[data-action={action}]').click()")
    state = browser.wait(f"['passed', 'failed', 'error'].includes({STATE}) && {STATE}", 180)
    if state != "passed":
        said = browser.run("document.querySelector('[data-academy=outcome]').innerText")
        raise SystemExit(f"{browser.run('location.href')}: {action} {state}: {said}")
    name, duration, detail = [each for each in browser.run(MEASURES) if each[0] == f"academy: {action}"][-1]
    return {"ms": round(duration), **detail}


def opened(browser: Browser, url: str) -> None:
    browser.open("about:blank")
    browser.open(url)
    if browser.run("!!document.querySelector('.k-bar [data-action=edit]')"):
        browser.run("document.querySelector('.k-bar [data-action=edit]').click()")
        browser.wait("document.querySelector('.cm-content')", 60)


def edited(browser: Browser, number: int) -> dict:
    """An edit that changes nothing that is computed, and the run of it."""
    browser.run(f"{EDITOR}.academyText += '\\nEDIT = {number}\\n'")
    return acted(browser, "run")


def lesson(browser: Browser, url: str) -> dict:
    opened(browser, url)
    first = edited(browser, 0)
    later = min((edited(browser, number) for number in range(1, 4)), key=lambda each: each["ms"])
    browser.run("document.querySelector('[data-action=reset]').click()")
    unchanged = acted(browser, "run")["ms"]
    return {"first": first["milliseconds"], "later": later["ms"], "unchanged": unchanged, "mib": later["heap"] >> 20}


def main() -> None:
    site = Path(sys.argv[1])
    parts = json.loads((site / "assets/playground/runtime.json").read_text())["files"]
    figures: dict = {"bytes": {name: entry["bytes"] for name, entry in parts.items()}, "lessons": {}, "checks": {}}
    figures["bytes"]["all"] = sum(figures["bytes"].values())
    print(figures["bytes"])
    with served(site) as address:
        browser = Browser(timed=True)
        for visit in ("cold", "warm"):
            opened(browser, address + "kernels/tutorials/vector_add/")
            run = acted(browser, "run")
            start = next(detail for name, _, detail in browser.run(MEASURES) if name == "academy: start")
            figures[visit] = {"ms": run["ms"], **start}
            print(f"{visit}: {run['ms']} ms from the click to the run; {start}")
        starters = site / "assets/playground/starters/annotated_examples"
        for starter in sorted(starters.rglob("*.py")):
            name = starter.relative_to(starters).with_suffix("").as_posix()
            figures["lessons"][name] = lesson(browser, f"{address}kernels/{name}/")
            print(f"{name}: {figures['lessons'][name]}", flush=True)
        opened(browser, f"{address}exercises/{exercise_files.every()[0].name}/")  # one page's Python for all of them
        for exercise in exercise_files.every():
            question = json.dumps({"action": "check", "name": exercise.name, "source": exercise.solution})
            states, times = zip(*(browser.run(ASK % question) for _ in range(4)))
            if set(states) != {"passed"}:
                raise SystemExit(f"{exercise.name}: {states}")
            figures["checks"][exercise.name] = {"first": round(times[0]), "later": round(min(times[1:]))}
            print(f"check of {exercise.name}: {figures['checks'][exercise.name]}", flush=True)
        browser.close()
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
