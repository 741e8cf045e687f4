r"""LaTeX source -> tokens. Strict: a command, character or environment that the grammar doesn't know is an error.

Public LaTeX parsers skip what they don't know and so read another formula than the one on the page. Here nothing is
skipped but spacing (`\,`, `\left`, `\displaystyle` …), and the list of what that is stands below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from academy.formulas.errors import FormulaError


@dataclass(frozen=True)
class Token:
    """kind: name, num, op, cmd, text or end. pos: offset in the formula's source (not compared)."""

    kind: str
    text: str
    pos: int = field(compare=False, default=0)


_LEX = re.compile(
    r"""(?P<ws>\s+|\\[,;:! ]|~) | (?P<num>\d+(?:\.\d+)?) | (?P<cmd>\\[A-Za-z]+\*?|\\\\)
      | (?P<letter>[A-Za-z]) | (?P<op>:=|[-+*/=^_(){}\[\]|,.:'<>!&])""",
    re.X,
)
#: Layout only: no meaning.
_LAYOUT = {
    *(r"\left", r"\right", r"\bigl", r"\bigr", r"\Bigl", r"\Bigr", r"\biggl", r"\biggr"),
    *(r"\displaystyle", r"\limits", r"\notag", r"\nonumber"),
}
#: Decorated names: `\hat{X}` is a name of its own.
DECORATIONS = {
    r"\hat": "hat",
    r"\bar": "bar",
    r"\tilde": "tilde",
    r"\dot": "dot",
    r"\mathbf": "bf",
    r"\mathcal": "cal",
    r"\mathbb": "bb",
    r"\boldsymbol": "bs",
}
_ROMAN = {r"\operatorname", r"\mathrm", r"\text"}
_GREEK = {
    "\\" + name
    for name in """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma
    tau phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega ell nabla""".split()
}
_ALIASES = {
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\coloneqq": ":=",
    r"\neq": r"\ne",
    r"\leq": r"\le",
    r"\geq": r"\ge",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\vert": "|",
    r"\intercal": r"\top",
    r"\circ": r"\odot",
    r"\qquad": r"\quad",
    r"\argmax": r"\arg\max",
    r"\argmin": r"\arg\min",
}
_COMMANDS = set(
    r"""\frac \sqrt \sum \prod \log \ln \exp \tanh \sinh \cosh \sin \cos \max \min \arg \partial \cdot \times \odot
    \top \quad \pi \ne \le \ge \approx \sim \begin \end""".split()
) | {"\\\\"}
#: Environments in which `&` separates things (elsewhere it only aligns).
_COLUMNS = {"cases", "pmatrix", "bmatrix"}


def lex(source: str) -> tuple[list[Token], str | None]:
    """Tokens of a formula, and the text of its `\\tag` (None without one).

    Raises:
        FormulaError: something is not in the grammar, or delimiters don't match.
    """
    tokens, tag = _Lexer(source).run()
    _join_continued_lines(tokens)
    return _drop_alignment(tokens, len(source.rstrip())), tag


class _Lexer:
    def __init__(self, source: str):
        self.source, self.at = source, 0
        self.tokens: list[Token] = []
        self.tag: str | None = None
        self.nesting: list[str] = []

    def run(self) -> tuple[list[Token], str | None]:
        while self.at < len(self.source):
            match = _LEX.match(self.source, self.at)
            if not match:
                raise FormulaError(f"character {self.source[self.at]!r} is not in the grammar", self.at)
            kind, text, start = match.lastgroup, match.group(), self.at
            self.at = match.end()
            if kind == "cmd":
                self.command(text, start)
            elif kind == "letter":
                self.put("name", text, start)
            elif kind == "num":
                self.put("num", text, start)
            elif kind == "op":
                self.operator(text, start)
        if self.nesting:
            raise FormulaError(r"unbalanced { or \left", len(self.source.rstrip()))
        return self.tokens, self.tag

    def put(self, kind: str, text: str, start: int) -> None:
        self.tokens.append(Token(kind, text, start))

    def operator(self, text: str, start: int) -> None:
        if text == "{":
            self.nesting.append("{")
        elif text == "}" and (not self.nesting or self.nesting.pop() != "{"):
            raise FormulaError(r"} without {, or across \left...\right", start)
        self.put("op", text, start)

    def command(self, text: str, start: int) -> None:
        text = _ALIASES.get(text, text)
        if text in (r"\left", r"\right"):
            self.delimiter(text, start)
        if text == r"\left" and self.source[self.at : self.at + 1] == ".":
            self.put("op", "left.", start)
            self.at += 1
        elif text in _LAYOUT:
            return
        elif text == r"\tag":
            self.read_tag(start)
        elif text in _ROMAN or text == r"\operatorname*":
            self.roman(text, self.group(), start)
        elif text in DECORATIONS:
            self.put("name", f"{DECORATIONS[text]}:{self.group()}", start)
        elif text in _GREEK:
            self.put("name", text, start)
        elif text in (":=", "|"):
            self.put("op", text, start)
        elif text in (r"\arg\max", r"\arg\min"):
            self.put("cmd", r"\arg", start)
            self.put("cmd", text[4:], start)
        elif text in _COMMANDS:
            self.put("cmd", text, start)
        else:
            raise FormulaError(f"command {text} is not in the grammar", start)

    def delimiter(self, text: str, start: int) -> None:
        if not re.match(r"\s*[()\[\].|]", self.source[self.at :]):
            raise FormulaError(f"{text} without a delimiter", start)
        if text == r"\left":
            self.nesting.append("left")
        elif not self.nesting or self.nesting.pop() != "left":
            raise FormulaError(r"\right without its \left", start)

    def read_tag(self, start: int) -> None:
        if self.tag is not None:
            raise FormulaError("two tags", start)
        self.tag = self.group()
        if not re.fullmatch(r"[A-Za-z0-9][-\w]*", self.tag):
            raise FormulaError(f"a tag is letters, digits and dashes, not {self.tag!r}", start)
        if self.source[self.at :].strip():
            raise FormulaError("a tag must end the formula", self.at)

    def roman(self, command: str, body: str, start: int) -> None:
        if command == r"\text" and re.match(r"if$|for$|and$|for any$|otherwise|when$|where$", body):
            self.put("text", body, start)
        else:
            self.put("name", "rm:" + body, start)

    def group(self) -> str:
        """The text of the {group} that follows."""
        opening = self.at
        while opening < len(self.source) and self.source[opening].isspace():
            opening += 1
        if self.source[opening : opening + 1] != "{":
            raise FormulaError("expected a {group}", opening)
        depth = 0
        for at in range(opening, len(self.source)):
            depth += {"{": 1, "}": -1}.get(self.source[at], 0)
            if depth == 0:
                self.at = at + 1
                return self.source[opening + 1 : at].strip()
        raise FormulaError("unbalanced {", opening)


def _join_continued_lines(tokens: list[Token]) -> None:
    r"""`\\ & \quad + …` continues the line above: drop the line break, in place."""
    at = 0
    while at < len(tokens):
        if tokens[at].text == "\\\\" and at + 1 < len(tokens) and tokens[at + 1].text == "&":
            end = at + 2
            while end < len(tokens) and tokens[end].text == r"\quad":
                end += 1
            if end < len(tokens) and tokens[end].text in ("+", "-", r"\cdot", r"\odot"):
                del tokens[at:end]
        at += 1


def environment(tokens: list[Token], at: int) -> str:
    r"""The word of `\begin{word}` at position `at`."""
    word = ""
    for token in tokens[at + 2 :]:
        if token.text == "}":
            break
        word += token.text
    return word


def _drop_alignment(tokens: list[Token], end: int) -> list[Token]:
    """Check every `&`; keep those that separate the columns of cases and matrices."""
    out, open_, depth = [], [], 0
    for at, token in enumerate(tokens):
        if token.kind == "cmd" and token.text in (r"\begin", r"\end"):
            word = environment(tokens, at)
            if token.text == r"\begin":
                open_.append([word, depth, 0])
            elif not open_ or open_.pop()[0] != word:
                raise FormulaError(r"\end without its \begin", token.pos)
        depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "op" else 0
        if token.text == "\\\\" and open_:
            open_[-1][2] = 0
        if token.kind == "op" and token.text == "&":
            if not open_ or depth != open_[-1][1]:
                raise FormulaError("misplaced &", token.pos)
            open_[-1][2] += 1
            if open_[-1][2] > 1 and open_[-1][0] not in ("pmatrix", "bmatrix"):
                raise FormulaError("more than one & in a line", token.pos)
            if open_[-1][0] not in _COLUMNS:
                continue
        out.append(token)
    if open_:
        raise FormulaError(r"\begin without its \end", end)
    return out


def canonical(tex: object) -> tuple[tuple[str, str], ...]:
    """A name's tokens without positions: how declared names are looked up."""
    tokens, _ = lex(str(tex))
    return tuple((token.kind, token.text) for token in tokens)


def latex_of(key: tuple[tuple[str, str], ...]) -> str:
    """Back from `canonical`."""
    back = {short: command for command, short in DECORATIONS.items()} | {"rm": r"\operatorname"}
    parts = []
    for _, text in key:
        prefix, _, rest = text.partition(":")
        parts.append(f"{back[prefix]}{{{rest}}}" if rest else text)
    return "".join(parts)


def python_name(tex: object) -> str:
    r"""The keyword by which a symbol is handed to a formula: `\nabla_Y` -> nabla_Y, `\hat{X}` -> X_hat."""
    text = re.sub(r"\\(operatorname|mathrm|text|mathcal|mathbf|boldsymbol)\{([^{}]*)\}", r"\2", str(tex))
    text = re.sub(r"\\(hat|bar|tilde|dot)\{([^{}]*)\}", r"\2_\1", text)
    return re.sub(r"\W", "", text.replace("\\", "").replace("_{", "_").replace("'", "_prime"))
