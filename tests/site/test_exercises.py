"""The pages of exercises: question, starter, hints, solution, and the mark of those that are solved."""

import re
from html import unescape
from urllib.parse import urljoin

from academy.book import exercise_files
from academy.book.learning_path import LearningPath

PATH = LearningPath.read(exercise_files.ROOT / "docs")


def page_of(site, uri):
    return (site / re.sub(r"(?:index)?\.(?:md|py)$", "", uri).rstrip("/") / "index.html").read_text("utf-8")


def test_a_page_has_the_starter_the_hints_and_the_solution(site):
    for exercise in exercise_files.every():
        page = page_of(site, exercise.uri)
        editor = re.search(rf'<div data-academy="editor" data-exercise="{exercise.name}"[^>]*>(.*?)</pre>', page, re.S)
        code = unescape(re.sub(r"<[^>]+>", "", editor[1]))
        assert code.strip() == exercise.starter.strip(), exercise.name
        assert f"academy exercise start {exercise.name}" in page
        assert page.count('<details class="tip">') == len(exercise.hints)
        assert page.count('<details class="success">') == 1 and "[[" not in code


def test_the_page_that_it_belongs_to_and_the_path_link_to_an_exercise(site):
    path = page_of(site, "learn/index.md")
    for exercise in exercise_files.every():
        assert f'href="../{exercise.uri.removesuffix(".md")}/"' in path, exercise.name
        lesson = page_of(site, exercise.page)
        assert re.search(rf'href="[./]*/{exercise.uri.removesuffix(".md")}/"', lesson), (exercise.name, exercise.page)


def test_what_is_solved_is_marked_on_the_path(site, browser, address):
    browser.open(urljoin(address, "exercises/first_kernel/reverse/"))
    passed = "Object.assign(document.createElement('p'), {innerHTML: '<b data-academy=outcome data-state=passed></b>'})"
    browser.run(f"document.querySelector('[data-exercise]').append({passed})")
    browser.open(urljoin(address, "learn/"))
    marks = "[...document.querySelectorAll('{} .exercise-done')].map(mark => mark.{}.textContent.trim())"
    marked = marks.format(".md-content", "previousElementSibling")
    assert browser.run(marked) == ["In reverse order"] * 2, "in its stage, and in the first of the short tracks"
    assert set(browser.run(marks.format(".md-nav--primary", "parentElement"))) <= {"In reverse order"}
    browser.run("localStorage.clear()")


def test_a_solved_exercise_has_its_tick_and_its_answer(site, browser, address):
    answer = "# my answer"
    stored = "localStorage.setItem('academy.{}', JSON.stringify({}))"
    browser.open(urljoin(address, "exercises/first_kernel/scale_and_add/"))
    browser.run(stored.format("exercises", '["first_kernel/scale_and_add"]'))
    browser.run(stored.format("answers", f'{{"first_kernel/scale_and_add": "{answer}"}}'))
    browser.open(urljoin(address, "exercises/first_kernel/scale_and_add/"))
    text = "document.querySelector('[data-exercise]').academyText"
    assert browser.run(text) == answer
    ticks = "document.querySelectorAll('{} .exercise-done').length"
    assert [browser.run(ticks.format(place)) for place in ("h1", ".md-path")] == [1, 0]
    said = "document.querySelector('[data-exercise]').innerText.includes('this is your answer')"
    browser.wait(f"document.querySelector('[data-exercise] .cm-content') && {said}", 30)
    browser.run("document.querySelector('[data-action=reset]').click()")
    assert not browser.run(said) and browser.run(text) != answer
    browser.run("localStorage.clear()")


def test_the_exercises_of_a_page_are_listed_by_difficulty(site):
    found = re.findall(r'href="[./]*/exercises/first_kernel/(\w+)/"', page_of(site, "learn/first_kernel.py"))
    assert list(dict.fromkeys(found))[:3] == ["scale_and_add", "reverse", "bytes_saved"]


def test_an_exercise_leads_to_the_next_of_its_stage(site):
    every = exercise_files.every()
    for one, other in zip(every, every[1:]):
        page = page_of(site, one.uri)
        following = re.search(r'Next: <a class="exercise-next" href="([./\w-]+)/">', page)
        leads = urljoin(f"/{one.uri.removesuffix('.md')}/", following[1]).strip("/")
        if one.stage == other.stage:
            assert leads == other.uri.removesuffix(".md")
        else:  # the last of its stage: to where the next stage begins
            stage = next(stage for stage in PATH.stages if stage.exercises == other.stage)
            assert leads == re.sub(r"\.(md|py)$", "", stage.pages[0]), one.name


def test_the_page_of_all_exercises_lists_each_once_and_says_what_is_next(site, browser, address):
    listed = re.findall(r'<li><a href="([\w/]+)/">', page_of(site, "exercises.md"))
    assert listed == [exercise.name for exercise in exercise_files.every()]
    browser.open(urljoin(address, "exercises/"), width=390, height=844)
    told = "document.querySelector('[data-exercises]').innerText"
    assert browser.run(told).startswith(f"0 of {len(listed)} solved. Begin with ")
    browser.run(f"localStorage.setItem('academy.exercises', JSON.stringify({listed[:2]!r}))")
    browser.open(urljoin(address, "exercises/"))
    assert browser.run(told).startswith(f"2 of {len(listed)} solved. Next: ")
    assert browser.run("document.querySelector('[data-exercises] a').pathname").endswith(f"/exercises/{listed[2]}/")
    assert browser.run("document.querySelector('.exercise-count').innerText").endswith(" 2 solved.")
    assert browser.run("document.querySelectorAll('.md-content ol.path .exercise-done').length") == 2
    browser.run("localStorage.clear()")
