"""The rules held against files, and the exceptions from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import product
from pathlib import Path

from academy.book import layout, reviewed, syntax
from academy.book.problems import Problem
from academy.compiler.rules import house_rules, kernel_rules
from academy.compiler.rules.kernel_file import Found, KernelFile
from academy.files.textfiles import read_text as read

LIST = "practice.toml"
Rule = Callable[[KernelFile], Iterable[Found]]


def every_rule() -> dict[str, Rule]:
    """Rules by name, as in "dots say their precision", in the order of the guide."""
    return {_name(rule): rule for rule in (*kernel_rules.RULES, *house_rules.RULES)}


def _name(rule: Rule) -> str:
    return rule.__name__.replace("_", " ")


def is_kernel_file(path: Path) -> bool:
    """Whether there is something in it to hold the rules against: a jitted function, or Python that can't be read."""
    if path.suffix != ".py":
        return False
    text = read(path)
    return bool(syntax.problem(text, "")) or bool(syntax.jitted_functions(text))


def files(root: Path) -> list[Path]:
    """The kernel files of a project that the rules are for. A rung of a ladder shows what is not yet done well."""
    return [path for path in layout.kernels(root) if layout.group(root, path) != "ladders"]


def lint(root: Path | None, chosen: Iterable[Path] | None, own: Iterable[Path] = ()) -> list[Problem]:
    """What breaks a rule in the kernel files of the project at `root` (of those `chosen`, if any are), and in files of
    a reader's own."""
    kernels = files(root) if root else []
    wanted = kernels if chosen is None else [path for path in kernels if path in {each.resolve() for each in chosen}]
    found = [problem for path in wanted for problem in problems(path, root)]
    found += [problem for path in own for problem in problems(path)]
    return found + (unused_entries(root) if root and chosen is None else [])


def problems(path: Path, root: Path | None = None) -> list[Problem]:
    """What breaks a rule in a file; root: its project, whose list may hold its files to the rules of a lesson."""
    text = read(path)
    shown = path.relative_to(root) if root else path
    if problem := syntax.problem(text, str(shown)):
        return [problem]
    entries = exceptions(_list(path))
    return [
        Problem.on(shown, text, found.line, f"{found.message} (best practice: {name})")
        for file, name, found in _found(path, root)
        if not any(_holds(entry, file, name, found) for entry in entries)
    ]


def unused_entries(root: Path) -> list[Problem]:
    """Exceptions of the project's list that nothing needs any more, or that give no reason."""
    path = root / layout.KERNELS / LIST
    found = [each for file in files(root) if not syntax.problem(read(file), "") for each in _found(file, root)]
    told = [
        (entry, f"nothing needs this exception any more ({_named(entry)}): remove it")
        for entry in exceptions(path)
        if not any(_holds(entry, *each) for each in found)
    ]
    told += [(e, "no reason is given") for e in [*exceptions(path), *sizes(path).values()] if not e.get("reason")]
    told += [(e, f"there is no {name}") for name, e in sizes(path).items() if not (path.parent / name).is_file()]
    shown = path.relative_to(root)
    return [Problem.on(shown, read(path), entry["line"], message) for entry, message in told]


def exceptions(path: Path) -> list[dict]:
    """The `[[exempt]]` entries of a list, one for each of several functions or pieces of code that it names."""
    found = []
    for entry in reviewed.entries(path, "exempt"):
        keys = [key for key, value in entry.items() if isinstance(value, list)]
        found += [{**entry, **dict(zip(keys, values))} for values in product(*(entry[key] for key in keys))]
    return found


def sizes(path: Path) -> dict[str, dict]:
    """File -> the `[[size]]` entry of a list."""
    return {entry["file"]: entry for entry in reviewed.entries(path, "size")}


def _list(path: Path) -> Path:
    """The nearest list of exceptions."""
    folders = path.resolve().parents
    return next((folder / LIST for folder in folders if (folder / LIST).is_file()), folders[0] / LIST)


def _found(path: Path, root: Path | None) -> list[tuple[KernelFile, str, Found]]:
    """Everything in a file that breaks a rule, exceptions too."""
    name = path.relative_to(root / layout.KERNELS).as_posix() if root else path.name
    list_ = _list(path)
    size = sizes(list_).get(name)
    file = KernelFile(read(path), name, (size["kernel"], size["code"], size["lines"]) if size else None)
    return [(file, *each) for each in _broken(file, bool(root) and reviewed.says(list_, "house_rules"))]


@lru_cache(maxsize=256)
def _broken(file: KernelFile, house: bool) -> list[tuple[str, Found]]:
    rules: tuple[Rule, ...] = (*kernel_rules.RULES, *(house_rules.RULES if house else ()))
    return [(_name(rule), found) for rule in rules for found in rule(file)]


def _named(entry: dict) -> str:
    return ", ".join(f"{key} {entry[key]}" for key in ("rule", "file", "function", "code") if key in entry)


def _holds(entry: dict, file: KernelFile, name: str, found: Found) -> bool:
    here = {"rule": name, "file": file.name, "function": found.function, "code": found.code}
    return all(entry.get(key, value) == value for key, value in here.items())
