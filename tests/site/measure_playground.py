"""What the playground costs a reader, in headless Chromium: `python -m tests.site.measure_playground SITE`.

SITE is the folder of a built site. Prints bytes by part, the time from the click to the first run (cold; and on a later
visit, when the service worker has kept the runtime), then for each lesson the time from Run to the picture, with and
without an edit, and the memory of Python, and for each exercise the time of a check of its solution. Edited runs and
checks are the best of three. Other work on the machine lengthens all of them. It ends at the first run that fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from academy.exercises import files
from tests.site.browser import Browser, served

EDITOR = "document.querySelector('[data-academy=editor]')"
STATE = "document.querySelector('[data-academy=outcome]').dataset.state"
MEASURES = "performance.getEntriesByType('measure').map(m => [m.name, m.duration, m.detail])"


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


def main() -> None:
    site = Path(sys.argv[1])
    listed = json.loads((site / "assets/playground/runtime.json").read_text())["files"]
    for name, entry in listed.items():
        print(f"{entry['bytes']:>9} bytes  {name}")
    print(f"{sum(entry['bytes'] for entry in listed.values()):>9} bytes in all")
    with served(site) as address:
        browser = Browser()
        first = address + "kernels/tutorials/vector_add/"
        for visit in ("cold", "warm"):
            opened(browser, first)
            run = acted(browser, "run")
            start = next(detail for name, _, detail in browser.run(MEASURES) if name == "academy: start")
            print(f"{visit}: {run['ms']} ms from the click to the run; {start}")
        for starter in sorted((site / "assets/playground/starters").rglob("*.py")):
            name = starter.relative_to(site / "assets/playground/starters/annotated_examples").with_suffix("")
            opened(browser, f"{address}kernels/{name.as_posix()}/")
            acted(browser, "run")
            unchanged = acted(browser, "run")["ms"]
            # The first edit runs the original too, to compare with it.
            edits = [edited(browser, number) for number in range(4)]
            best = min(edits[1:], key=lambda each: each["ms"])
            print(
                f"{best['ms']:>6} ms  {name.as_posix()}, edited (the first edit: {edits[0]['ms']} ms, unchanged: ",
                end="",
            )
            print(f"{unchanged} ms; Python's heap: {best['heap'] >> 20} MiB)")
        for exercise in files.every():
            opened(browser, f"{address}exercises/{exercise.name}/")
            browser.run(f"{EDITOR}.academyText = {json.dumps(exercise.solution)}")
            first_check = acted(browser, "check")["ms"]
            best_check = min(acted(browser, "check")["ms"] for _ in range(3))
            print(f"{best_check:>6} ms  check of {exercise.name} ({first_check} ms with the start of Python)")
        browser.close()


if __name__ == "__main__":
    main()
