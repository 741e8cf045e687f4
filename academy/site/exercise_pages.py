"""The pages of exercises, and the links to them from the pages that they belong to."""

from __future__ import annotations

import re
import textwrap
from xml.etree.ElementTree import Element

from markupsafe import Markup

from academy.book import exercise_files
from academy.book.learning_path import HOME
from academy.site.conversion import TreeStep, element
from academy.site.library import Library, Page
from academy.site.page_facts import title


def markdown(library: Library, exercise: exercise_files.Exercise) -> list[str]:
    """The page of an exercise. The editor's script takes the place of the starter; without it the code is shown."""
    lesson = f"[{title(library, exercise.page)}](/{exercise.page})"
    file = f"{exercise.path.stem}.py"
    out = [f"# {exercise.title}", "", f"{exercise.kind.capitalize()} · an exercise of {lesson}", "{ .page-facts }", ""]
    out += [*exercise.question.split("\n"), ""]
    out += [f'<div data-academy="editor" data-exercise="{exercise.name}"{_kind(exercise)} markdown="1">', ""]
    out += ["```python", *exercise.starter.rstrip().split("\n"), "```", "", "</div>", ""]
    out += [f"In the terminal: `academy exercise start {exercise.name}`, then `academy exercise check {file}`.", ""]
    for number, hint in enumerate(exercise.hints, 1):
        out += _folded("tip", f"Hint {number} of {len(exercise.hints)}", hint)
    out += _folded("success", "Solution", f"```python\n{exercise.solution.rstrip()}\n```\n\n{exercise.why}")
    return [*out, f"{_next(library, exercise)}Back to {lesson}.", ""]


def _kind(exercise: exercise_files.Exercise) -> str:
    """What the editor's script has to know: whether there are kernels to watch, whether only a number is asked for."""
    if exercise.starter.strip() == "answer = None":
        return ' data-number=""'
    return ' data-watch=""' if re.search(r"@(triton|gluon)\.jit", exercise.solution) else ""


def of_stage(library: Library, stage: str) -> list[Page]:
    """The pages of a stage's exercises, in the order of the sidebar."""
    return [page for page in library.shown("exercise") if page.group == stage]


def _next(library: Library, exercise: exercise_files.Exercise) -> str:
    """A link to the next exercise of the stage; after its last, to the first page of the next stage, or to the path."""
    stage, stages = of_stage(library, exercise.stage), library.path.stages
    after = [(page.title, page.uri) for page in stage[[page.uri for page in stage].index(exercise.uri) + 1 :]]
    if not after and stages:
        own = next((number for number, each in enumerate(stages) if each.exercises == exercise.stage), len(stages))
        later = stages[own + 1 :]
        after = [(each.title, each.pages[0]) for each in later] or [("the learning path", HOME)]
    return f"Next: [{after[0][0]}](/{after[0][1]}){{ .exercise-next }}. " if after else ""


def _folded(kind: str, summary: str, text: str) -> list[str]:
    return [f'??? {kind} "{summary}"', "", *textwrap.indent(text, "    ").split("\n"), ""]


def listed(library: Library, uri: str) -> list[str]:
    """The exercises of a page, as a list."""
    return [f"- [{each.title}](/{each.uri}): {each.kind}" for each in library.exercises_of(uri)]


def in_line(library: Library, stage: str) -> str:
    """The exercises of a stage of the learning path, in one paragraph."""
    return "\u00a0· ".join(f"[{page.title}]({page.href})" for page in of_stage(library, stage))


class ExerciseLinks(TreeStep):
    """A line at the end of a page that has exercises and doesn't list them itself."""

    def run(self, root: Element) -> None:
        exercises = self.conversion.index.exercises_of(self.conversion.uri)
        hrefs = {link.get("href") for link in root.iter("a")}
        if exercises and f"/{exercises[0].uri}" not in hrefs:
            links = (Markup('<a href="/{}">{}</a>').format(each.uri, each.title) for each in exercises)
            line = '<p class="exercise-links" data-search-exclude="">Exercises: {links}</p>'
            root.append(element(line, links=Markup("\u00a0· ").join(links)))
