r"""LaTeX source -> tokens. Strict: a command, character or environment that the grammar doesn't know is an error.

Public LaTeX parsers skip what they don't know and so read another formula than the one on the page. Here nothing is
skipped but spacing and layout (`\,`, `\left`, `\displaystyle`, the `&` that aligns lines), and the list of what that is
stands below. `pieces` is for TeX that is only set: it takes whatever comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from academy.book.problems import FormulaError


@dataclass(frozen=True)
class Token:
    r"""kind: name, num, text (`\text{if}`), other or end. text: as LaTeX, in one spelling (`\ne`, never `\neq`).

    pos, end: offsets in the formula's source (not compared).
    """

    kind: str
    text: str
    pos: int = field(compare=False, default=0)
    end: int = field(compare=False, default=0)


_TAG = r"\\tag\s*\{(?P<tag>[^{}]*)\}"
#: A tag, with the spaces before it.
TAG = re.compile(rf"\s*{_TAG}")
_ANY = re.compile(r"\\[A-Za-z]+|\\.|[^\s]", re.S)
_GROUP = r"\s*\{(?P<body>(?:[^{}]|\{[^{}]*\})*)\}"
_LEX = re.compile(
    rf"""(?P<space>\s+|\\[,;:!\ ]|~|\\(?:displaystyle|limits|notag|nonumber|[bB]igg?[lr])(?![A-Za-z]))
      | (?P<continued>\\\\\s*&(?:\s|\\q?quad(?![A-Za-z]))*(?=[-+]|\\cdot|\\odot|\\circ))
      | \\(?P<side>left|right)\s*(?P<delimiter>[()\[\].|])
      | \\(?P<decoration>operatorname\*?|mathrm|text|hat|bar|tilde|dot|mathbf|mathcal|mathbb|boldsymbol){_GROUP}
      | {_TAG} | \\(?P<edge>begin|end)\s*\{{(?P<environment>\w+\*?)\}}
      | (?P<num>\d+(?:\.\d+)?) | (?P<name>[A-Za-z])
      | (?P<command>\\arg\s*\\(?:max|min)|\\[A-Za-z]+|\\\\|:=|[-+*/=^_(){{}}\[\]|,.:'<>!&])""",
    re.X,
)
_ALIASES = dict(
    pair.split("=", 1)
    for pair in r"""\dfrac=\frac \tfrac=\frac \coloneqq=:= \neq=\ne \leq=\le \geq=\ge \lvert=| \rvert=| \vert=|
    \intercal=\top \circ=\odot \qquad=\quad \arg\max=\argmax \arg\min=\argmin""".split()
)
_GREEK = {
    "\\" + name
    for name in """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma
    tau phi varphi chi psi omega Gamma Delta Theta Lambda Sigma Phi Psi Omega ell nabla""".split()
}
_COMMANDS = set(
    r"""\frac \sqrt \sum \prod \log \ln \exp \tanh \sinh \cosh \sin \cos \max \min \argmax \argmin \partial \cdot \times
    \odot \top \quad \pi \ne \le \ge \approx \sim \\""".split()
)
_WORDS = ("if", "for", "and", "for any", "otherwise", "when", "where")
#: Environments, and whether `&` separates things in them; elsewhere it only aligns.
_ENVIRONMENTS = {"aligned": False, "gathered": False, "cases": True, "pmatrix": True, "bmatrix": True}
_CLOSES = {"}": "{", r"\right": r"\left"}


def bare(source: str) -> str:
    """A formula without its tag and spaces, by which it is known again."""
    return re.sub(r"\s+", "", TAG.sub("", source))


def lex(source: str) -> tuple[list[Token], str | None]:
    """Tokens of a formula, and the text of its `\\tag` (None without one).

    Raises:
        FormulaError: something is not in the grammar, or delimiters don't match.
    """
    tokens, tag = [], None
    for token in _tokens(source):
        if tag is not None:
            raise FormulaError("a tag must end the formula", token.pos)
        if token.kind == "tag":
            tag = token.text
        else:
            tokens.append(token)
    return tokens, tag


def _tokens(source: str) -> Iterator[Token]:
    open_: list[str] = []  # braces, \left and environments
    at = 0
    while at < len(source):
        match = _LEX.match(source, at)
        if not match:
            raise FormulaError(f"character {source[at]!r} is not in the grammar", at)
        start, at = at, match.end()
        token = _token(match, start)
        _nest(open_, match["side"] and "\\" + match["side"] or match.group(), start)
        aligns = token and token.text == "&" and open_ and not _ENVIRONMENTS.get(open_[-1], True)
        if token and not aligns:
            yield token
    if open_:
        raise FormulaError(f"unbalanced {open_[-1]}", len(source.rstrip()))


def _nest(open_: list[str], text: str, start: int) -> None:
    r"""Keep book of `{`, `\left` and `\begin`, which close in the reverse order."""
    edge = re.match(r"\\(begin|end)\s*\{(.*)\}", text)
    if text in ("{", r"\left") or (edge and edge[1] == "begin"):
        open_.append(edge[2] if edge else text)
    elif text in _CLOSES or edge:
        opening = edge[2] if edge else _CLOSES[text]
        if not open_ or open_.pop() != opening:
            raise FormulaError(f"{text} without its {opening}", start)
    elif text == "&" and (not open_ or open_[-1] not in _ENVIRONMENTS):
        raise FormulaError("misplaced &", start)


def _token(match: re.Match, start: int) -> Token | None:
    """None for spacing."""
    kind, text = "other", match.group()
    if match["space"] or match["continued"]:
        return None
    if match["side"]:
        text = "left." if (match["side"], match["delimiter"]) == ("left", ".") else match["delimiter"]
    elif match["tag"] is not None:
        kind, text = "tag", match["tag"].strip()
        if not re.fullmatch(r"[A-Za-z0-9][-\w]*", text):
            raise FormulaError(f"a tag is letters, digits and dashes, not {text!r}", start)
    elif match["decoration"]:
        kind, text = _decorated(match["decoration"], match["body"].strip())
    elif match["edge"]:
        text = f"\\{match['edge']}{{{match['environment']}}}"
        if match["environment"] not in _ENVIRONMENTS:
            raise FormulaError(f"environment {match['environment']!r} is not in the grammar", start)
    elif match["num"] or match["name"]:
        kind = match.lastgroup or ""
    else:
        text = re.sub(r"\s", "", text)
        text = _ALIASES.get(text, text)
        kind = "name" if text in _GREEK else "other"
        if text.startswith("\\") and text not in _GREEK | _COMMANDS:
            raise FormulaError(f"command {text} is not in the grammar", start)
    return Token(kind, text, start, match.end())


def _decorated(command: str, body: str) -> tuple[str, str]:
    """Kind and text: a decorated name (`\\hat{X}`) is a name of its own."""
    if command == "text" and body in _WORDS:
        return "text", body
    roman = command in ("operatorname", "operatorname*", "mathrm", "text")
    return "name", f"\\{'operatorname' if roman else command}{{{body}}}"


def canonical(tex: object) -> tuple[str, ...]:
    """How declared names are looked up: by the texts of their tokens."""
    return tuple(token.text for token in lex(str(tex))[0])


def python_name(tex: object) -> str:
    r"""The keyword by which a symbol is handed to a formula: `\nabla_Y` -> nabla_Y, `\hat{X}` -> X_hat."""
    text = re.sub(r"\\(operatorname|mathrm|text|mathcal|mathbf|boldsymbol)\{([^{}]*)\}", r"\2", str(tex))
    text = re.sub(r"\\(hat|bar|tilde|dot)\{([^{}]*)\}", r"\2_\1", text)
    name = re.sub(r"\W", "", text.replace("\\", "").replace("_{", "_").replace("'", "_prime"))
    return {"1": "ones", "0": "zeros"}.get(name, name)


def pieces(tex: str) -> list[tuple[str, int, int]]:
    """The commands and characters of any TeX, each with its first and last place. Nothing is an error."""
    return [(found[0], found.start(), found.end()) for found in _ANY.finditer(tex)]
