r"""LaTeX source -> tokens. Strict: a command, character or environment that the grammar doesn't know is an error.

Public LaTeX parsers skip what they don't know and so read another formula than the one on the page. Here nothing is
skipped but spacing (`\,`, `\left`, `\displaystyle` …), and the list of what that is stands below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
      | (?P<name>[A-Za-z]) | (?P<op>:=|[-+*/=^_(){}\[\]|,.:'<>!&])""",
    re.X,
)
#: Layout only: no meaning.
_LAYOUT = set(r"\left \right \bigl \bigr \Bigl \Bigr \biggl \biggr \displaystyle \limits \notag \nonumber".split())
#: Decorated names: `\hat{X}` is a name of its own.
DECORATIONS = {rf"\{name}": name for name in ("hat", "bar", "tilde", "dot")}
DECORATIONS |= {r"\mathbf": "bf", r"\mathcal": "cal", r"\mathbb": "bb", r"\boldsymbol": "bs"}
_ROMAN = {r"\operatorname", r"\operatorname*", r"\mathrm", r"\text"}
_GREEK = {
    "\\" + name
    for name in """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma
    tau phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega ell nabla""".split()
}
_ALIASES = dict(
    pair.split("=", 1)
    for pair in r"""\dfrac=\frac \tfrac=\frac \coloneqq=:= \neq=\ne \leq=\le \geq=\ge \lvert=| \rvert=| \vert=|
    \intercal=\top \circ=\odot \qquad=\quad \argmax=\arg\max \argmin=\arg\min""".split()
)
_COMMANDS = set(
    r"""\frac \sqrt \sum \prod \log \ln \exp \tanh \sinh \cosh \sin \cos \max \min \arg \partial \cdot \times \odot
    \top \quad \pi \ne \le \ge \approx \sim \begin \end \\""".split()
)
#: Environments in which `&` separates things (elsewhere it only aligns).
_COLUMNS = {"cases", "pmatrix", "bmatrix"}


def lex(source: str) -> tuple[list[Token], str | None]:
    """Tokens of a formula, and the text of its `\\tag` (None without one).

    Raises:
        FormulaError: something is not in the grammar, or delimiters don't match.
    """
    lexer = _Lexer(source)
    tokens = _joined_lines(lexer.run())
    return list(_without_alignment(tokens, len(source.rstrip()))), lexer.tag


class _Lexer:
    def __init__(self, source: str):
        self.source, self.at = source, 0
        self.tokens: list[Token] = []
        self.tag: str | None = None
        self.nesting: list[str] = []

    def run(self) -> list[Token]:
        while self.at < len(self.source):
            match = _LEX.match(self.source, self.at)
            if not match:
                raise FormulaError(f"character {self.source[self.at]!r} is not in the grammar", self.at)
            kind, text, start = str(match.lastgroup), match.group(), self.at
            self.at = match.end()
            if kind == "cmd":
                self.command(_ALIASES.get(text, text), start)
            elif kind != "ws":
                if text in "{}":
                    self.nest(text, "{", r"} without {, or across \left...\right", start)
                self.put(kind, text, start)
        if self.nesting:
            raise FormulaError(r"unbalanced { or \left", len(self.source.rstrip()))
        return self.tokens

    def put(self, kind: str, text: str, start: int) -> None:
        self.tokens.append(Token(kind, text, start))

    def nest(self, text: str, opening: str, message: str, start: int) -> None:
        if text == opening:
            self.nesting.append(opening)
        elif not self.nesting or self.nesting.pop() != opening:
            raise FormulaError(message, start)

    def command(self, text: str, start: int) -> None:
        if text in (r"\left", r"\right"):
            if not re.match(r"\s*[()\[\].|]", self.source[self.at :]):
                raise FormulaError(f"{text} without a delimiter", start)
            self.nest(text, r"\left", r"\right without its \left", start)
        if text == r"\left" and self.source[self.at : self.at + 1] == ".":
            self.put("op", "left.", start)
            self.at += 1
        elif text in _LAYOUT:
            return
        elif text == r"\tag":
            self.read_tag(start)
        elif text in _ROMAN:
            body = self.group()
            word = text == r"\text" and re.match(r"if$|for$|and$|for any$|otherwise|when$|where$", body)
            self.put(*(("text", body) if word else ("name", "rm:" + body)), start)
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

    def read_tag(self, start: int) -> None:
        if self.tag is not None:
            raise FormulaError("two tags", start)
        self.tag = self.group()
        if not re.fullmatch(r"[A-Za-z0-9][-\w]*", self.tag):
            raise FormulaError(f"a tag is letters, digits and dashes, not {self.tag!r}", start)
        if self.source[self.at :].strip():
            raise FormulaError("a tag must end the formula", self.at)

    def group(self) -> str:
        """The text of the {group} that follows."""
        opening = len(self.source) - len(self.source[self.at :].lstrip())
        if self.source[opening : opening + 1] != "{":
            raise FormulaError("expected a {group}", opening)
        depth = 0
        for at in range(opening, len(self.source)):
            depth += {"{": 1, "}": -1}.get(self.source[at], 0)
            if depth == 0:
                self.at = at + 1
                return self.source[opening + 1 : at].strip()
        raise FormulaError("unbalanced {", opening)


def _joined_lines(tokens: list[Token]) -> list[Token]:
    r"""`\\ & \quad + …` continues the line above: without the line break."""
    at = 0
    while at < len(tokens):
        if [token.text for token in tokens[at : at + 2]] == ["\\\\", "&"]:
            end = at + 2
            while end < len(tokens) and tokens[end].text == r"\quad":
                end += 1
            if end < len(tokens) and tokens[end].text in ("+", "-", r"\cdot", r"\odot"):
                del tokens[at:end]
        at += 1
    return tokens


def environment(tokens: list[Token], at: int) -> str:
    r"""The word of `\begin{word}` at position `at`."""
    texts = [token.text for token in tokens[at + 2 :]]
    return "".join(texts[: texts.index("}")]) if "}" in texts else "".join(texts)


def _without_alignment(tokens: list[Token], end: int) -> Iterator[Token]:
    """Check every `&`; keep those that separate the columns of cases and matrices."""
    open_: list[list] = []  # word, depth of braces, `&` in this line
    depth = 0
    for at, token in enumerate(tokens):
        if token.kind == "cmd" and token.text in (r"\begin", r"\end"):
            word = environment(tokens, at)
            if token.text == r"\begin":
                open_.append([word, depth, 0])
            elif not open_ or open_.pop()[0] != word:
                raise FormulaError(r"\end without its \begin", token.pos)
        if token.kind == "op":
            depth += {"{": 1, "}": -1}.get(token.text, 0)
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
        yield token
    if open_:
        raise FormulaError(r"\begin without its \end", end)


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
