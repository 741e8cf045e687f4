"""What each page of the learning path uses of Triton, and what was explained by then.

The pages are read from front to back: chapters, lessons with the shared functions that they call, guides with their
snippets, exercises after the page that they belong to. Nothing has to be declared. A name counts as explained after a
sentence that says what it does: the name in backticks, then a verb, "`tl.sum` adds up the lanes of a block". In code
the sentence stands in a comment above the line that uses the name, as notes do anyway. `CONSTRUCTS` lists what has
no name of its own.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from academy.book import comments, exercise_files, layout, syntax
from academy.book.layout import ROOT
from academy.files.cache import kept
from academy.files.dependencies import made_by

#: Modules whose names belong to Triton.
TRITON = ("tl", "triton", "libdevice")
#: Words with the ending of a verb that are none.
NO_VERBS = (
    "as its this thus less unless besides across always plus perhaps whereas sometimes towards afterwards "
    "arguments bits blocks bytes columns elements lanes names numbers pointers programs rows stages threads tiles warps"
)
VERB = rf"(?!(?:{NO_VERBS.replace(' ', '|')})\b)(?:[a-z]+s|can|may|must|need)\b"
#: Dtypes, which all go by the name of one. (int64 has a lesson of its own.)
DTYPES = frozenset(
    """float16 bfloat16 float32 float64 float8e4nv float8e5 int1 int8 int16 int32 uint8 uint16 uint32 uint64""".split()
)
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.M | re.S)
SNIPPET = re.compile(r'--8<-- "(?P<file>[^":]+)(?::(?P<section>\w+))?"')


@dataclass(frozen=True)
class Use:
    """Something of Triton's in a line of code."""

    what: str
    file: str
    line: int


@dataclass(frozen=True)
class Construct:
    """A piece of the language without a name: which nodes of code may use it and whether one does, and what the
    sentence that explains it must hold."""

    name: str
    nodes: tuple[type[ast.AST], ...]
    used: Callable[[Any], object]
    explained: str


def _in_launch(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)


def _new_axis(node: ast.Subscript) -> bool:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else ()
    return any(isinstance(part, ast.Constant) and part.value is None for part in parts)


def _method(*names: str) -> Callable[[ast.AST], bool]:
    def used(node):
        method = isinstance(node.func, ast.Attribute) and node.func.attr in names
        return method and ast.unparse(node.func.value).split(".")[0] not in (*TRITON, "torch")

    return used


def _called(node: ast.Call) -> bool:
    """A call of a function that the file defines or imports, none of Python's own."""
    builtins = ("range", "min", "max", "len", "print", "float", "int")
    return isinstance(node.func, ast.Name) and node.func.id not in builtins


#: In jitted functions (the launch: everywhere).
CONSTRUCTS = (
    Construct("the launch, `kernel[grid](…)`", (ast.Call,), _in_launch, r"⟨kernel\[grid\]\("),
    Construct("a tensor arrives as a pointer", (ast.arg,), lambda node: node.arg.endswith("_ptr"),
              r"\bpointer\b[^.]*\baddress of its first element"),
    Construct("a block of pointers", (ast.Call,),
              lambda node: ast.unparse(node.func) in ("tl.load", "tl.store") and isinstance(node.args[0], ast.BinOp),
              r"\bblock of pointers"),
    Construct("a column and a row, `[:, None]`", (ast.Subscript,), _new_axis, r"⟨[\w.]*\[:, None\]⟩[^.]* column"),
    Construct("a loop, `range`", (ast.For,), lambda node: ast.unparse(node.iter).startswith("range("),
              r"⟨range⟩[^.]*\bloop|\bloop\b[^.]*⟨range⟩"),
    Construct("a conversion, `.to(…)`", (ast.Call,), _method("to"), r"⟨\.to\([^⟩]*\)⟩[^.]*\bconverts"),
    Construct("a pointer that moves on, `x_ptr += …`", (ast.AugAssign,),
              lambda node: re.search(r"_ptrs?$", ast.unparse(node.target)), r"⟨\w+_ptrs? \+= [^⟩]+⟩ moves"),
    Construct("an `if` that is decided by the compiler", (ast.If, ast.IfExp),
              lambda node: isinstance(node.test, ast.Name) and node.test.id.isupper(), r"⟨if⟩[^.]*\bcompile"),
    Construct("`None` instead of a pointer", (ast.Compare,),
              lambda node: re.search(r"_ptr is (not )?None", ast.unparse(node)),
              r"⟨None⟩ (comes|arrives|is passed)[^.]*\bpointer"),
    Construct("two masks, `&`", (ast.BinOp,),
              lambda node: isinstance(node.op, ast.BitAnd) and re.search("mask|<", ast.unparse(node)),
              r"⟨&⟩[^.]*\bboth\b"),
    Construct("a jitted function called by a kernel", (ast.Call,), _called, r"\bjitted function\b[^.]*\bcall"),
    Construct("a descriptor's own load and store", (ast.Call,), _method("load", "store"),
              r"⟨[\w.]*desc\.load[^⟩]*⟩ [a-z]+s\b"),
)  # fmt: skip
#: Type of a node -> what it may use inside of a kernel.
_INSIDE = {kind: [c for c in CONSTRUCTS[1:] if kind in c.nodes] for each in CONSTRUCTS for kind in each.nodes}


@dataclass
class Reader:
    """Reads page after page. `missing`: what was used before its explanation, in the order of the path."""

    missing: list[Use] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    root: Path = ROOT
    _helpers: set[str] = field(default_factory=set)
    _said: list[str] = field(default_factory=list)

    @functools.cached_property
    def _exercises(self) -> dict[str, list[exercise_files.Exercise]]:
        """Page -> its exercises."""
        found: dict[str, list[exercise_files.Exercise]] = {}
        for exercise in exercise_files.every():
            found.setdefault(exercise.page, []).append(exercise)
        return found

    @property
    def said(self) -> str:
        """The prose so far."""
        self._said = [" ".join(self._said)]  # once for each question, and not for each of thousands of comments
        return self._said[0]

    def page(self, uri: str) -> None:
        """A page of the path, named as in the table of docs/learn/index.md."""
        if uri.startswith("kernels/"):
            file = layout.module_path(self.root, layout.dotted(uri.removeprefix("kernels/").removesuffix(".md")))
        else:
            file = self.root / layout.DOCS / uri
            file = self.root / layout.DERIVATIONS / file.name if uri.startswith("derivations/") else file
        text = file.read_text("utf-8")
        name = file.relative_to(self.root).as_posix()
        self.python(text, name) if file.suffix == ".py" else self.markdown(text, name)
        for exercise in self._exercises.get(uri, ()):
            self.exercise(exercise)

    def exercise(self, exercise: exercise_files.Exercise) -> None:
        """An exercise is done after its page: the question with its hints, then the solution and the starter."""
        name = exercise.path.relative_to(self.root).as_posix()
        first = exercise.path.read_text("utf-8").partition("# %% solution\n")[0].count("\n") + 2
        self.prose(f"{exercise.question} {' '.join(exercise.hints)}")
        self.python(exercise.text, name, first)
        self.python(exercise.starter, name, first)

    def markdown(self, text: str, file: str, line: int = 1) -> None:
        """Prose with fenced code, in its order."""
        position = 0
        for found in FENCE.finditer(text):
            self.prose(text[position : found.start()])
            if found[2] == "python":
                self._fenced(found[3], file, line + text.count("\n", 0, found.start()) + 1)
            position = found.end()
        self.prose(text[position:])

    def _fenced(self, code: str, file: str, line: int) -> None:
        for snippet in SNIPPET.finditer(code):
            whole = (self.root / snippet["file"]).read_text("utf-8")
            start = end = 0
            if snippet["section"]:
                start = whole.index(f"[start:{snippet['section']}]") + len(f"[start:{snippet['section']}]")
                end = whole.index(f"[end:{snippet['section']}]")
                end = whole.rindex("\n", 0, end) + 1
            part = whole[start : end or None]
            self.python(textwrap.dedent(part), snippet["file"], 1 + whole.count("\n", 0, start))
        if not SNIPPET.search(code):
            self.python(textwrap.dedent(code), file, line)

    def prose(self, text: str) -> None:
        self._said.append(re.sub(r"`([^`]+)`", r"⟨\1⟩", re.sub(r"\s+", " ", text)))

    def python(self, text: str, file: str, first: int = 1) -> None:
        """Code with its comments, docstrings and notebook cells, in the order of the lines."""
        for line, kind, what in events(text):
            if kind == PROSE:
                self.markdown(what, file, first + line - 1)
            elif kind == USE:
                self.use(Use(what, file, first + line - 1))
            else:
                self.helper(*what)

    def helper(self, file: str, name: str) -> None:
        """A shared function, which the page of a lesson shows where it is called: its comment and its code."""
        if (key := f"{file}:{name}") in self._helpers:
            return
        self._helpers.add(key)
        lines = (text := (self.root / file).read_text("utf-8")).split("\n")
        named = {part: node for node in syntax.tree(text).body for part in _defines(node)}
        if name not in named:  # imported there from elsewhere
            return
        definition = named[name]
        start = syntax.first_line(definition) if isinstance(definition, syntax.DEFINITION) else definition.lineno
        start -= 1
        while start and (lines[start - 1].startswith("#") or not lines[start - 1]):
            start -= 1
        self.python("\n".join(lines[start : definition.end_lineno]) + "\n", file, start + 1)
        for node in syntax.walk(definition):  # what it needs of the same file
            if isinstance(node, ast.Name) and node.id in named:
                self.helper(file, node.id)

    def use(self, use: Use) -> None:
        if use.what not in self.seen and not explained(use.what, self.said):
            self.missing.append(use)
        self.seen.add(use.what)


def explained(what: str, said: str) -> bool:
    """Whether a sentence of the prose so far says what this does. `said` has ⟨…⟩ for code in backticks."""
    for construct in CONSTRUCTS:
        if what == construct.name:
            return re.search(construct.explained, said) is not None
    if what.endswith("="):  # an option of a call: ⟨other⟩, ⟨other=0.0⟩, or the call with the option written out
        mark = rf"⟨(?:[^⟨⟩]*\W)?{what[:-1]}\b[^⟨⟩]*⟩"
    else:
        mark = rf"⟨@?{re.escape(what)}(?:\([^⟨⟩]*\))?⟩"
    aside = r"(?: \([^)]*\)|,? and ⟨[^⟩]+⟩|, ⟨[^⟩]+⟩)*"
    together = rf"(?:⟨[^⟩]+⟩,? and {mark}|{mark},? and ⟨[^⟩]+⟩) [a-z]+\b"
    return re.search(rf"{mark}{aside} (?:\w+ )?{VERB}|{together}", said) is not None


PROSE, USE, HELPER = range(3)


@functools.cache  # the path is read for its order, for the index of the language, and for each page that quotes it
def events(text: str) -> list[tuple[int, int, Any]]:
    """(line, kind, what) of each note, use and call of a shared function in a text, in the order of the lines. Kept:
    after a change only what has changed is read again."""
    return kept("events", [text, made_by(__name__)], lambda: _events(text), keep=lambda _: True)


def _events(text: str) -> list[tuple[int, int, Any]]:
    found: list[tuple[int, int, Any]] = [(line, PROSE, prose) for line, prose in noted(text)]
    found += [(line, USE, what) for line, what in uses(text)]
    found += [(line, HELPER, helper) for line, helper in shared_functions(text)]
    return sorted(found, key=lambda event: event[:2])


def noted(text: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of each block of comments and each docstring, blank lines inside of one included."""
    notes = comments.notes(text).split("\n")
    quoted = {line for node in syntax.docstrings(text) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    block: list[str] = []
    for number, (note, line) in enumerate(zip([*notes, ""], [*text.split("\n"), "code"]), 1):
        if line.strip().startswith("#") or number in quoted:
            block.append(note)
            continue
        if block:
            yield number - len(block), textwrap.dedent("\n".join(block)) + "\n"
            block = []
        if note.strip():  # beside the code
            yield number, note.strip()


def uses(text: str) -> Iterator[tuple[int, str]]:
    """(line, what) of everything of Triton's in a text."""
    node: Any
    nodes = syntax.nodes(text)
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {alias.name for node in imports if (node.module or "").startswith("triton.") for alias in node.names}
    for node in nodes:
        if name := dotted(node):
            yield node.lineno, name
        elif isinstance(node, ast.Name) and node.id in imported and node.id not in TRITON:
            yield node.lineno, node.id
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if _is_option(node, keyword.arg):
                    yield node.lineno, f"{keyword.arg}="
            if _in_launch(node):
                yield node.lineno, CONSTRUCTS[0].name
    for function in syntax.jitted_functions(text):
        for part in (function.args, *function.body):
            for node in syntax.walk(part):
                for construct in _INSIDE.get(type(node), ()):
                    if construct.used(node):
                        yield node.lineno, construct.name


def _is_option(call: ast.Call, name: str | None) -> bool:
    """Of a function of Triton's, or of a launch; constexprs, which a kernel names as it likes, are capitals there."""
    launch = _in_launch(call) and name in ("num_warps", "num_stages", "maxnreg", "launch_pdl")
    return launch or bool(name) and dotted(call.func).startswith("tl.")


def dotted(node: ast.AST) -> str:
    """`tl.load` of an attribute of Triton's modules, else ""; all dtypes but int64 go by one name."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id not in TRITON:
        return ""
    return "tl.float32" if node.attr in DTYPES else f"{node.value.id}.{node.attr}"


def _defines(node: ast.stmt) -> list[str]:
    """The names that a statement of a module gives to something."""
    if isinstance(node, syntax.DEFINITION):
        return [node.name]
    return [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]


def shared_functions(text: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """(line, (file, name)) where a text names a function of `annotated_examples.common`, or a table of them."""
    homes = {
        alias.asname or alias.name: ((node.module or "").replace(".", "/") + ".py", alias.name)
        for node in syntax.nodes(text)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("annotated_examples.common.")
        for alias in node.names
    }
    for node in syntax.nodes(text) if homes else ():
        if isinstance(node, ast.Name) and node.id in homes:
            yield node.lineno, homes[node.id]


def taught(root: Path, pages: list[str], names: set[str]) -> dict[str, str]:
    """Name -> the first of these pages by which it was both used and explained."""
    reader = Reader(root=root)
    used: dict[str, str] = {}
    said: dict[str, str] = {}
    found: dict[str, str] = {}
    for page in pages:
        before = len(reader.said)
        reader.page(page)
        new = reader.said[before:]
        for name in names - set(found):
            if name in reader.seen:
                used.setdefault(name, page)
            if name not in said and explained(name, new):
                said[name] = page
            if name in used and name in said:
                found[name] = page
    return found
