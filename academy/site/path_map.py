"""The map of the learning path and its short tracks, with the time that they take."""

from __future__ import annotations

from markdown.extensions.toc import slugify

from academy.book.exercise_files import GAP, Exercise
from academy.book.learning_path import HOME, Stage, Track, kind
from academy.site import exercise_pages
from academy.site.library import Library
from academy.site.page_facts import title
from academy.site.reading_time import minutes

#: Minutes for an exercise, by its kind; what is to be filled in at several places takes as much for each.
PRACTICE = {"predict a number": 4, "find the bug": 6, "fill in": 8, "read fewer bytes": 8}


def practice(exercise: Exercise) -> int:
    """Minutes for an exercise: an estimate."""
    places = len(GAP.findall(exercise.text)) if exercise.kind == "fill in" else 1
    return PRACTICE[exercise.kind] * places


def reading(index: Library, pages: tuple[str, ...] | list[str]) -> int:
    """Minutes to read these pages."""
    return sum(minutes(index, uri) for uri in pages)


def until(index: Library, stage: Stage) -> int:
    """Minutes from the path's first page to the milestone at the end of a stage: reading, and the milestone itself."""
    stages = index.path.stages[: index.path.stages.index(stage) + 1]
    return sum(reading(index, each.pages) for each in stages) + practice(_named(index, stage.milestone))


def _named(index: Library, name: str) -> Exercise:
    return next(exercise for exercise in index.exercises.values() if exercise.name == name)


def _of(index: Library, stage: Stage) -> list[Exercise]:
    return [index.exercises[page.source] for page in exercise_pages.of_stage(index, stage.exercises)]


def hours(time: int) -> str:
    """`50 min`, `2 h`, `2 h 10 min`, `25 h`: no more exact than a reader's pace."""
    if time > 60:
        step = 60 if time > 600 else 10
        time = round(time / step) * step
    whole, rest = divmod(time, 60)
    parts = [f"{whole}\N{NO-BREAK SPACE}h"] if whole else []
    return " ".join(parts + [f"{rest}\N{NO-BREAK SPACE}min"] if rest or not whole else parts)


def _about(index: Library, reads: int, exercises: list[Exercise]) -> str:
    count = f"{len(exercises)} exercise{'s' * (len(exercises) != 1)}"
    done = f", {count} for about {hours(sum(map(practice, exercises)))}" if exercises else ""
    return f"{hours(reads)} to read{done}"


def _list(index: Library, pages: tuple[str, ...], first: int | None) -> list[str]:
    start = f' start="{first}"' if first else ""
    out = [f'<ol class="path"{start} markdown="1">']
    for uri in pages:
        out.append(_item(title(index, uri), uri, f"{kind(uri) or 'page'} · {minutes(index, uri)} min"))
    return [*out, "</ol>", ""]


def _item(title: str, uri: str, about: str) -> str:
    return f'<li markdown="span">[{title}](/{uri}) <span class="path-kind">{about}</span></li>'


def stages(index: Library) -> list[str]:
    """The whole path, stage by stage."""
    path = index.path
    everything = [exercise for stage in path.stages for exercise in _of(index, stage)]
    out = ["", f"{len(path.pages)} steps: {_about(index, reading(index, path.pages), everything)}.", ""]
    number = 1
    for stage in path.stages:
        exercises = _of(index, stage)
        out += ["", f"### {stage.title}", "", stage.about, ""]
        out += [f"{_about(index, reading(index, stage.pages), exercises)}.", "{ .path-time }", ""]
        out += _list(index, stage.pages, number)
        if links := exercise_pages.in_line(index, stage.exercises):
            out += [f"Exercises: {links}", "{ .exercise-links }", ""]
        if stage.milestone:
            name = _named(index, stage.milestone)
            out += [f"**[{name.title}](/{name.uri})**: {hours(until(index, stage))} from the first page, if you read"]
            out += ["every page and keep the other exercises for later.", "{ .path-time }", ""]
        number += len(stage.pages)
    return out


def exercises(index: Library) -> list[str]:
    """Every exercise, stage by stage, with its kind and the time that it takes."""
    out: list[str] = []
    for stage in index.path.stages:
        found = _of(index, stage)
        if not found:
            continue
        out += ["", f"## {stage.title}", "", f"{len(found)} for about {hours(sum(map(practice, found)))}."]
        out += ["{ .path-time .exercise-count }", "", '<ol class="path" markdown="1">']
        out += [_item(each.title, each.uri, f"{each.kind} · {hours(practice(each))}") for each in found]
        out += ["</ol>", ""]
    return out


def tracks(index: Library) -> list[str]:
    """The short tracks: some pages of the path, in its order, and some exercises."""
    out: list[str] = []
    for track in index.path.tracks:
        exercises = [_named(index, name) for name in track.exercises]
        out += ["", f"### {track.title}", "", track.about, ""]
        out += [f"{_about(index, reading(index, track.pages), exercises)}.", "{ .path-time }", ""]
        out += _list(index, track.pages, None)
        if exercises:
            links = "\u00a0· ".join(f"[{exercise.title}](/{exercise.uri})" for exercise in exercises)
            out += [f"Exercises: {links}", "{ .exercise-links }", ""]
    return out


def cards(index: Library) -> list[str]:
    """The short tracks in a few words each, with links to the map."""
    out = ["", '<div class="offers tracks" markdown="1">', ""]
    for track in index.path.tracks:
        link = f"**[{track.title}](/{HOME}#{slugify(track.title, '-')})**"
        out += [f"- {link}", f"    {track.about}", f"    *{hours(time_of(index, track))}*", ""]
    return [*out, "</div>", ""]


def time_of(index: Library, track: Track) -> int:
    """Minutes for a track, with its exercises."""
    return reading(index, track.pages) + sum(practice(_named(index, name)) for name in track.exercises)
