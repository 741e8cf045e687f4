r"""Definitions that mention the name they define: what is read, what it is worth, its derivative, and its mutants."""

from pathlib import Path

import pytest
import torch

from academy.formulas import Page, PageError
from academy.formulas.comparing.equations import check
from academy.formulas.meaning import names
from academy.formulas.mutation.engine import Equations
from tests.formulas import tagged

DOUBLE = dict(dtype=torch.float64)
FRONT = r"""---
math:
  dims: [m, n]
  index: {t: m, s: m, u: m, k: n, v: "2..m", w: "1..m-1", r: "2..n"}
  given: {a: "m, n", x: "m, n", A: "m, m", y: m, b: m, \nabla_h: "m, n"}
---
"""
#: A decaying sum, and what its loss says about a and x.
RECURRENCE = r"""
$$\begin{aligned} h_{1,k} &:= x_{1,k} \\ h_{v,k} &:= a_{v,k} h_{v-1,k} + x_{v,k} \end{aligned} \tag{H}$$

$$h_{t,k} = \sum_{s \le t} x_{s,k}
\prod_u \begin{cases} a_{u,k} & \text{if } s < u \le t \\ 1 & \text{otherwise} \end{cases}$$

$$\begin{aligned} \lambda_{m,k} &:= \nabla_{h_{m,k}} \\
\lambda_{w,k} &:= \nabla_{h_{w,k}} + a_{w+1,k} \lambda_{w+1,k} \end{aligned} \tag{L}$$

$$\nabla_{x_{t,k}} = \lambda_{t,k} \tag{H-x}$$

$$\begin{aligned} \nabla_{a_{1,k}} &= 0 \\
\nabla_{a_{v,k}} &= \lambda_{v,k} h_{v-1,k} \end{aligned} \tag{H-a}$$
"""
DECAY = r"""
$$\begin{aligned} h_1 &:= y_1 \\ h_v &:= b_v h_{v-1} + y_v \end{aligned}$$

$$h_t = \sum_{s \le t} y_s \prod_u \begin{cases} b_u & \text{if } s < u \le t \\ 1 & \text{otherwise} \end{cases}$$
"""
PAGE = FRONT[:-4] + "  loss: {name: L, of: h, upstream: \\nabla_h}\n---\n" + RECURRENCE


def loop(a, x):
    states = [x[0]]
    for decay, value in zip(a[1:], x[1:]):
        states.append(decay * states[-1] + value)
    return torch.stack(states)


def page(*displays: str) -> Page:
    return Page("page.md", FRONT + "".join(f"\n$${display}$$\n" for display in displays))


def test_a_recurrence_and_its_gradients_hold():
    check(Page("page.md", PAGE))


def test_as_a_function_it_is_the_loop_at_any_length():
    a, x = torch.randn(2, 37, 3, **DOUBLE)
    rest = dict(A=torch.zeros(37, 37), y=torch.zeros(37), b=torch.zeros(37))
    torch.testing.assert_close(tagged(Page("page.md", PAGE), "H")(a=a, x=x, **rest), loop(a, x))


def test_of_one_element_the_first_line_is_left():
    a, x = torch.randn(2, 1, 3, **DOUBLE)
    given = dict(a=a, x=x, A=torch.zeros(1, 1), y=torch.zeros(1), b=torch.zeros(1), nabla_h=torch.ones(1, 3))
    for tag, expected in (("H", x), ("L", torch.ones(1, 3)), ("H-a", torch.zeros(1, 3))):
        torch.testing.assert_close(tagged(Page("page.md", PAGE), tag)(**given), expected.double())


def test_autograd_goes_through_it():
    a, x, upstream = torch.randn(3, 11, 2, **DOUBLE)
    a.requires_grad_(), x.requires_grad_()
    rest = dict(A=torch.zeros(11, 11), y=torch.zeros(11), b=torch.zeros(11))
    h = tagged(Page("page.md", PAGE), "H")(a=a, x=x, **rest)
    of_formula = torch.autograd.grad((h * upstream).sum(), (a, x))
    of_loop = torch.autograd.grad((loop(a, x) * upstream).sum(), (a, x))
    torch.testing.assert_close(of_formula, of_loop)
    given = dict(a=a.detach(), x=x.detach(), nabla_h=upstream, **rest)
    # lines of a claim, each for some elements, are put together like those of a definition
    for tag, gradient in zip(("H-a", "H-x"), of_loop):
        torch.testing.assert_close(tagged(Page("page.md", PAGE), tag)(**given), gradient)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[-1, 0]], 5),  # h_{t,k} of h_{t-1,k}
        ([[1, 0], [2, 0]], 5),
        ([[-1, 0], [-1, None]], 5),  # S_{t,a} of S_{t-1,a} and of a sum over all S_{t-1,c}
        ([[None, 0]], 5),  # U_{t,k} of a sum over U_{s,k}
        ([[-1, 0], [0, -1]], 15),  # along both axes in turn
        ([[-1, 0], [1, 0]], 5),
        ([[-1, -1]], 3),
        ([[None, None]], 15),
        ([[0, 0]], 1),
    ],
)
def test_as_many_rounds_as_a_chain_can_have_links(steps, expected):
    assert names.rounds([5, 3], steps) == expected


@pytest.mark.parametrize(
    ("sums", "way"),
    [
        (r"\sum_{s < t}", (0, -1)),
        (r"\sum_{s > t}", (0, 1)),
        (r"\sum_{s \le t}", None),
        (r"\sum_{s \ne t}", None),
    ],
)
def test_a_sum_over_those_before_or_behind_is_settled_place_by_place(monkeypatch, sums, way):
    found, one_way = [], names.one_way
    monkeypatch.setattr(names, "one_way", lambda *arguments: found.append(one_way(*arguments)) or found[-1])
    A, y = torch.randn(9, 9, **DOUBLE) / 9, torch.randn(9, **DOUBLE)
    rest = dict(a=torch.zeros(9, 2), x=torch.zeros(9, 2), b=torch.zeros(9))
    U = tagged(page(rf"U_t := y_t - {sums} A_{{ts}} U_s \tag{{U}}"), "U")(A=A, y=y, **rest)
    assert set(found) == {way}
    if way:
        mixed = A.tril(-1) if way == (0, -1) else A.triu(1)
        torch.testing.assert_close(U, torch.linalg.solve(torch.eye(9, **DOUBLE) + mixed, y))


def test_a_sum_over_another_axis_costs_no_more_rounds(monkeypatch):
    """Every element of a matrix is made of a whole column of the matrix before: still a round for each matrix."""
    formula = (
        r"\begin{aligned} Z_{1,t,k} &:= x_{tk} \\ "
        r"Z_{v,t,k} &:= Z_{v-1,t,k} + b_v \sum_s A_{ts} Z_{v-1,s,k} \end{aligned} \tag{Z}"
    )
    counted, rounds = [], names.rounds
    monkeypatch.setattr(names, "rounds", lambda *arguments: counted.append(rounds(*arguments)) or counted[-1])
    A, b, x = torch.randn(4, 4, **DOUBLE), torch.randn(4, **DOUBLE), torch.randn(4, 3, **DOUBLE)
    states = [x]
    for factor in b[1:]:
        states.append(states[-1] + factor * A @ states[-1])
    given = dict(a=torch.zeros(4, 3), x=x, A=A, y=torch.zeros(4), b=b)
    torch.testing.assert_close(tagged(page(formula), "Z")(**given), torch.stack(states))
    assert counted == [4]


def test_a_batch_of_recurrences():
    a, x = torch.randn(2, 5, 7, 3, **DOUBLE)
    rest = dict(A=torch.zeros(7, 7), y=torch.zeros(7), b=torch.zeros(7))
    result = tagged(Page("page.md", PAGE), "H")(batch=("a", "x"), a=a, x=x, **rest)
    torch.testing.assert_close(result, torch.stack([loop(*pair) for pair in zip(a, x)]))


@pytest.mark.parametrize(
    "displays",
    [
        # forward substitution: U = (1 + strict lower A)^-1 x, without an inverse
        (r"U_{tk} := x_{tk} - \sum_{s < t} A_{ts} U_{sk}", r"x_{tk} = U_{tk} + \sum_{s < t} A_{ts} U_{sk}"),
        # backward substitution
        (r"U_{tk} := x_{tk} - \sum_{s > t} A_{st} U_{sk}", r"x_{tk} = U_{tk} + \sum_{s > t} A_{st} U_{sk}"),
        # along both axes: the number of ways
        (
            r"\begin{aligned} p_{1,1} &:= 1 \\ p_{1,r} &:= 1 \\ p_{v,1} &:= 1 \\ "
            r"p_{v,r} &:= p_{v-1,r} + p_{v,r-1} \end{aligned}",
            r"p_{2,n} = n",
        ),
        # a value that isn't there yet may be divided by, and the last element may come first
        (
            r"\begin{aligned} f_m &:= 2 \\ f_w &:= 1 + \frac{1}{f_{w+1}} \end{aligned}",
            r"f_{m-1} = 1.5",
            r"f_w \cdot f_{w+1} = f_{w+1} + 1",
        ),
        # no linear one
        (r"q_t := y_t + \sum_{s < t} (q_s)^2", r"q_1 = y_1", r"q_2 = y_2 + y_1^2"),
        # one definition on top of another
        (
            r"\begin{aligned} S_1 &:= y_1 \\ S_v &:= S_{v-1} + y_v \end{aligned}",
            r"\begin{aligned} Z_1 &:= S_1 \\ Z_v &:= Z_{v-1} + S_v \end{aligned}",
            r"\frac{\partial Z_m}{\partial y_t} = \sum_{s \ge t} 1 \cdot \mathbf{1}_{s \ge 1}",
        ),
    ],
    ids=["forward substitution", "backward substitution", "both axes", "fraction", "squares", "sum of sums"],
)
def test_what_can_be_defined(displays):
    check(page(*displays))


@pytest.mark.parametrize(
    "formula",
    [
        r"\begin{aligned} S_1 &:= y_1 \\ S_v &:= S_v + y_v \end{aligned}",
        r"\begin{aligned} S_1 &:= y_1 \\ S_v &:= b_v S_v \end{aligned}",  # 0 would do, and no loop finds anything else
        r"\begin{aligned} S_m &:= y_m \\ S_w &:= S_{m-w} + y_w \end{aligned}",
        r"U_{tk} := x_{tk} - \sum_{s \le t} A_{ts} U_{sk}",
        r"S_t := y_t + \frac{1}{2} \sum_s S_s",
        r"S_t := b_t \, S^\top y",
    ],
)
def test_a_definition_that_never_settles_is_refused(formula):
    with pytest.raises(
        PageError, match="this definition never settles: an element of [SU] depends on itself"
    ) as caught:
        check(page(formula))
    assert caught.value.kind == "type" and caught.value.problem.line == FRONT.count("\n") + 2


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (r"S := y + S", "symbol 'S' is not declared or not yet defined"),
        (r"\begin{aligned} S_t &:= y_t \\ Z_t &:= S_t \end{aligned}", "symbol 'S' is not declared or not yet defined"),
        (r"\begin{aligned} S_1 &:= y_1 \\ S_t &:= y_t \end{aligned}", "the lines of this definition overlap"),
        (r"S_v := S_{v-1} + y_v", "the lines of this definition overlap or leave a gap"),
        (r"\begin{aligned} S_1 &:= y_1 \\ S_t &:= S_{t-1} + y_t \end{aligned}", "this index reaches 0"),
        (r"S_{2t - v} := y_t", "left of ':=' each subscript needs one index of its own"),
        (r"p_{v,v} := y_v", "left of ':=' each subscript must be an index of its own"),
        (r"\begin{aligned} S_1 &:= y_1 \\ S_v &:= S_{v-1, 1} + y_v \end{aligned}", "2 subscripts on something with 1"),
        (r"U_{tk} := x_{tk} + U_k", "1 subscripts on something with 2 axes"),  # as a mutant may have it
    ],
)
def test_what_is_no_recursive_definition(formula, message):
    with pytest.raises(PageError) as caught:
        check(page(formula))
    assert message in caught.value.message


def test_every_change_of_a_recurrence_is_noticed():
    judge = Equations(Path("page.md"), FRONT + DECAY)
    mutants = judge.mutants()
    assert {mutant.operator for mutant in mutants} >= {"sign", "index", "coefficient", "drop term", "symbol"}
    verdicts = {
        mutant.name: judge.verdict(mutant) for mutant in mutants if mutant.start < DECAY.index("$$h_t") + len(FRONT)
    }
    assert "survived" not in verdicts.values(), [name for name, verdict in verdicts.items() if verdict == "survived"]
    never = r"\begin{aligned} h_1 &:= y_1 \\ h_v &:= b_v h_{v-0} + y_v \end{aligned}"
    assert verdicts[never] == "type"
