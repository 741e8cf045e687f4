r"""What the grammar accepts and rejects, and as what: 86 cases of the sketch, then everything added since.

Each case is a display formula over the symbols of `FRONT`. `ok` means that it can be read and holds; "syntax" that it
can't be read; "type" that it has no meaning; "value" that it is false.
"""

import pytest

from academy.formulas import Page, PageError
from academy.formulas.comparing.equations import check

FRONT = r"""---
math:
  dims: [n, m]
  index: {i: n, j: n, k: m}
  class: {c: n}
  given: {x: n, y: n, A: "n, m", B: "m, n", s: scalar > 0, t: scalar > 0, \sigma: scalar > 0}
  generic: [f]
---
"""

CASES = [
    (r"s/t = \frac{s}{t}", "ok"),
    (r"s/t s = \frac{s s}{t}", "syntax"),
    (r"-s^2 = -(s \cdot s)", "ok"),
    (r"-s^2 = s \cdot s", "value"),
    (r"\sum_i x_i + s = s + \sum_i x_i", "ok"),
    (r"\sum_i s x_i = s \sum_i x_i", "ok"),
    (r"\sum_i s = n s", "type"),
    (r"x_i^2 = x_i x_i", "ok"),
    (r"x^2_i = x_i x_i", "type"),
    (r"\frac{d}{ds}(s)(t) = t", "syntax"),
    (r"\frac{d}{ds}(s) \cdot t = t", "ok"),
    (r"\frac{d}{ds}(s t) = t", "ok"),
    (r"\log(s)^2 = \log^2(s)", "syntax"),
    (r"\log^2(s) = \log(s) \cdot \log(s)", "ok"),
    (r"\log s = \log(s)", "syntax"),
    (r"\sigma(s) = \sigma s", "syntax"),
    (r"\sigma (s + t) = \sigma s + \sigma t", "ok"),
    (r"s(t) = s t", "syntax"),
    (r"x^T y = \sum_i x_i y_i", "syntax"),
    (r"x^\top y = \sum_i x_i y_i", "ok"),
    (r"x y = x \odot y", "type"),
    (r"x \cdot y = \sum_i x_i y_i", "type"),
    (r"x \odot y = y \odot x", "ok"),
    (r"s \odot x = s x", "type"),
    (r"A B = (B^\top A^\top)^\top", "ok"),
    (r"A B = B A", "type"),
    (r"(AB)_{ij} = \sum_k A_{ik} B_{kj}", "ok"),
    (r"(AB)_{ij} = \sum_k A_{ik} B_{jk}", "type"),
    (r"A_{ij} = B_{ji}", "type"),
    (r"x_i = y_i", "value"),
    (r"x_{12} = x_{12} + 0", "type"),
    (r"x_1 = x_1 + 0", "ok"),
    (r"A \odot A B = A", "type"),
    (r"1_{i=c} = \mathbf{1}_{i=c}", "syntax"),
    (r"\sum_i \mathbf{1}_{i=c} x_i = x_c", "ok"),
    (r"\sum_{i \ne c} x_i = \sum_i x_i - x_c", "ok"),
    (r"\sum_{i=1}^m x_i = \sum_i x_i", "type"),
    (r"\sum_{i=0}^n x_i = \sum_i x_i", "type"),
    (r"\sum_{k=1}^m x_k = 0", "type"),
    (r"\prod_i x_i = 1", "value"),
    (r"2x = x + x", "ok"),
    (r"x 2 = x + x", "syntax"),
    (r"2 3 = 6", "syntax"),
    (r"s - -t = s + t", "syntax"),
    (r"s = s", "type"),
    (r"s + t", "syntax"),
    (r"s + t = t + s \quad s = s + 0", "syntax"),
    (r"s + t = t + s \text{ always}", "syntax"),
    (r"s − t = -(t - s)", "syntax"),  # a Unicode minus
    (r"s^23 = s", "syntax"),
    (r"s^{2t} = (s^2)^t", "ok"),
    (r"e^s = \exp(s)", "ok"),
    (r"e s = 1", "syntax"),
    (r"q = s", "syntax"),
    (r"\frac12 s = 0.5 s", "syntax"),
    (r"\frac{1}{2} s = 0.5 s", "ok"),
    (r"x_i = x_i + 0 \quad \text{if } i \ne c", "ok"),
    (r"x_i \mathbf{1}_{i = c} = 0 \quad \text{if } i \ne c", "ok"),
    (r"x_i \mathbf{1}_{i = c} = 0", "value"),
    (r"x_i = \frac{x_i}{\sum_i x_i}", "type"),
    (r"\sum_i x_i \sum_i y_i = \sum_j x_j \sum_i y_i", "type"),
    (r"\sum_i x_i \sum_j y_j = \sum_j y_j \sum_i x_i", "ok"),
    (r"\begin{aligned} s + t &= t \\ &\quad + s \end{aligned}", "ok"),
    (r"\begin{aligned} s + t &= t \\ &\quad - s \end{aligned}", "value"),
    (r"\begin{aligned} s + t &= t + s \\ s t &= t s \end{aligned}", "ok"),
    (r"\begin{align} s &= s + 0 \end{align}", "syntax"),
    (r"f'(s) = \frac{d}{ds}[f(s)]", "ok"),
    (r"f'(s) = f(s)", "value"),
    (r"\frac{\partial}{\partial x_i} (x_j^2) = 2 x_i \delta_{ij}", "ok"),
    (r"\frac{\partial}{\partial x_i} x_j^2 = 2 x_i \delta_{ij}", "syntax"),
    (r"\max_j x_j \ge x_i", "ok"),
    (r"\max_j x_j \le x_i", "value"),
    (r"|s| = s", "syntax"),
    (r"\sqrt[3]{s} = s^{\frac{1}{3}}", "syntax"),
    (r"\sqrt{s} = s^{\frac{1}{2}}", "ok"),
    (r"\log(-s) = \log(-s) + 0", "value"),
    (r"x + s = s + x", "ok"),
    (r"x = s", "type"),
    (r"s! = s", "syntax"),
    (r"\hat{s} = s", "syntax"),
    (r"A_i = A_{i}", "type"),
    (r"A_{i,:}^\top y = s", "type"),
    (r"s % comment", "syntax"),
    (r"s \approx s + 0", "syntax"),
    (r"s t = t s .", "ok"),
    (r"s\,t = t~s", "ok"),
    # products
    (r"\log(\prod_i e^{x_i}) = \sum_i x_i", "ok"),
    (r"\prod_{i=1}^n x_i = \prod_{j=1}^n x_j", "ok"),
    (r"\prod_{i \ne c} x_i = \frac{\prod_i x_i}{x_c}", "ok"),
    (r"\prod_{i \ne c} x_i = \prod_i x_i", "value"),
    (r"\prod_{i=1}^m x_i = 1", "type"),
    (r"\frac{\partial}{\partial x_j} (\prod_i x_i) = \prod_{i \ne j} x_i", "ok"),
    # max, min, arg max
    (r"\max(s, t) = -\min(-s, -t)", "ok"),
    (r"\max(s, t) = s", "value"),
    (r"\max(s) = s", "syntax"),
    (r"\max s = s", "syntax"),
    (r"\max(x, y) + \min(x, y) = x + y", "ok"),
    (r"\frac{d}{ds}[\max(s - t, 0)] = \mathbf{1}_{s > t}", "ok"),
    (r"\frac{d}{ds}[\max(s - t, 0)] = \mathbf{1}_{s < t}", "value"),
    (r"x_{\arg\max_i x_i} = \max_i x_i", "ok"),
    (r"x_{\arg\min_i x_i} = \max_i x_i", "value"),
    (r"\mathbf{1}_{i = \arg\max_j x_j} = \mathbf{1}_{x_i \ge \max_j x_j}", "ok"),
    (r"\frac{\partial}{\partial x_i} (\max_j x_j) = \mathbf{1}_{i = \arg\max_j x_j}", "ok"),
    (r"\frac{\partial}{\partial x_i} (\max_j x_j) = \mathbf{1}_{i = \arg\min_j x_j}", "value"),
    (r"\arg\max_i x_i = c", "syntax"),
    (r"\min_{i \ne c} x_i \ge \min_i x_i", "ok"),
    (r"\max_{i \ne c} x_i \le x_c", "value"),
    # conditions on values
    (r"\mathbf{1}_{s > t} + \mathbf{1}_{s \le t} = 1", "ok"),
    (r"\mathbf{1}_{s > t} + \mathbf{1}_{s \ge t} = 1", "value"),
    (r"\mathbf{1}_{s = t} = 0", "type"),
    (r"\max(x_i, 0) = x_i \quad \text{if } x_i > 0", "ok"),
    (r"\max(x_i, 0) = x_i \quad \text{if } s > 0", "value"),  # never false: says nothing
    (r"\begin{cases} x_i & \text{if } x_i > 0 \\ 0 & \text{otherwise} \end{cases} = \max(x_i, 0)", "ok"),
    (r"\begin{cases} x_i & \text{if } x_i > 0 \\ 0 & \text{if } x_i > 1 \end{cases} = \max(x_i, 0)", "value"),
    (r"\max(A, 0) = A \odot \mathbf{1}_{A > 0}", "ok"),
    (r"\mathbf{1}_{i > x_i} = 0", "syntax"),
    # expectations
    (r"\mathbb{E}_i[x_i] = \frac{1}{n} \sum_i x_i", "ok"),
    (r"\mathbb{E}_i[x_i^2] - \mathbb{E}_i[x_i]^2 = \mathbb{E}_i[x_i^2] - (\mathbb{E}_i[x_i])^2", "ok"),
    (r"\mathbb{E}_i[x_i] = \frac{1}{m} \sum_i x_i", "value"),
    (r"\mathbb{E}_i x_i = \frac{1}{n} \sum_i x_i", "syntax"),
    (r"\mathbb{E}_{i \sim x}[y_i] = \sum_i x_i y_i", "value"),  # x is no distribution
    (r"\mathbb{E}_{i \sim \frac{1}{\sum_j e^{x_j}} \exp(x)}[y_i] = \frac{\sum_i e^{x_i} y_i}{\sum_j e^{x_j}}", "ok"),
    # matrices written out, stacked rows
    (
        r"\begin{pmatrix} s & t \\ t & s \end{pmatrix} \begin{pmatrix} 1 \\ 0 \end{pmatrix} "
        r"= \begin{pmatrix} s \\ t \end{pmatrix}",
        "ok",
    ),
    (
        r"\begin{pmatrix} s & t \\ t & s \end{pmatrix} \begin{pmatrix} 0 \\ 1 \end{pmatrix} "
        r"= \begin{pmatrix} s \\ t \end{pmatrix}",
        "value",
    ),
    (r"\begin{bmatrix} x^\top \\ y^\top \end{bmatrix} x = \begin{bmatrix} x^\top x \\ x^\top y \end{bmatrix}", "ok"),
    (r"\begin{bmatrix} x \\ y \end{bmatrix}^\top \begin{bmatrix} y \\ x \end{bmatrix} = 2 x^\top y", "ok"),
    (r"\begin{bmatrix} x \\ s \end{bmatrix} = x", "type"),
    (r"\begin{pmatrix} s & t \\ s \end{pmatrix} = s", "syntax"),
    (r"\begin{vmatrix} s & t \\ t & s \end{vmatrix} = s s - t t", "syntax"),
    # a function of a number acts on each element of a vector
    (r"f(x) = f(x + 0)", "ok"),
    (r"\sum_i f'(x_i) = \sum_i f(x)_i", "value"),
]

RANGES = r"""---
math:
  origin: ORIGIN
  dims: [h, r, "d = 2 h"]
  index: {i: h, j: d, p: "r+ORIGIN..d-1+ORIGIN"}
  given: {x: d, w: h}
---
"""
INDEX_CASES = [
    (1, r"\sum_{j=1}^d x_j = \sum_{i=1}^h (x_{2i-1} + x_{2i})", "ok"),
    (1, r"\sum_{j=1}^d x_j = \sum_{i=1}^h (x_{2i} + x_{2i+1})", "type"),
    (1, r"\sum_{j=1}^d x_j = \sum_{i=1}^h (x_{i} + x_{i+h})", "type"),
    (1, r"\sum_{j=1}^d x_j = \sum_{i=1}^h (x_{i+0} + x_{i+h})", "ok"),
    (1, r"\sum_{j=1}^d x_j = \sum_{i=1}^h (x_{i+0} + x_{i+r})", "value"),
    (1, r"\sum_p x_{p-r} = \sum_p x_p", "value"),
    (1, r"\sum_{p=r+1}^{d} x_{p-r} = \sum_{p=r+1}^{d} x_{p-r} + 0", "ok"),
    (1, r"\sum_{p=1}^{d} x_{p-r} = 0", "type"),
    (1, r"x_{p-r-1} = x_{p-r-1} + 0", "type"),
    (1, r"x_d = x_{2h}", "ok"),
    (1, r"x_{2i} w_i = w_i x_{2i}", "ok"),
    (1, r"x_{2 i 1} = 0", "type"),
    (1, r"x_{1i} = 0", "syntax"),
    (1, r"\frac{\partial}{\partial x_j} (\sum_i w_i x_{2i}) = \sum_i w_i \delta_{j,2i}", "ok"),
    (1, r"\frac{\partial}{\partial x_{2i-1}} (\sum_j x_j^2) = 2 x_{2i-1}", "ok"),
    (1, r"\begin{aligned} y_{2i-1} &:= w_i \\ y_{2i} &:= x_{2i} \end{aligned}", "ok"),
    (1, r"\begin{aligned} y_{2i-1} &:= w_i \\ y_{2i-1} &:= x_{2i} \end{aligned}", "type"),
    (1, r"\begin{aligned} y_{i+0} &:= w_i \\ y_{i+h} &:= x_{2i} \end{aligned}", "ok"),
    (1, r"y_{2i} := w_i", "type"),
    (0, r"\sum_{j=0}^{d-1} x_j = \sum_{i=0}^{h-1} (x_{2i} + x_{2i+1})", "ok"),
    (0, r"\sum_{j=1}^{d} x_j = \sum_{i=0}^{h-1} (x_{2i} + x_{2i+1})", "type"),
    (0, r"\sum_{j=0}^{d-1} x_j = \sum_{i=0}^{h-1} (x_{2i-1} + x_{2i})", "type"),
    (0, r"\begin{aligned} y_{2i} &:= w_i \\ y_{2i+1} &:= x_{2i} \end{aligned}", "ok"),
]


def verdict(text: str) -> tuple[str, str]:
    try:
        check(Page("case.md", text), range(3))
    except PageError as error:
        return error.kind, error.message
    return "ok", ""


@pytest.mark.parametrize(("formula", "expected"), CASES, ids=[formula for formula, _ in CASES])
def test_case(formula, expected):
    kind, message = verdict(f"{FRONT}\n$${formula}$$\n")
    assert kind == expected, message


@pytest.mark.parametrize(("origin", "formula", "expected"), INDEX_CASES, ids=[case[1] for case in INDEX_CASES])
def test_index_arithmetic(origin, formula, expected):
    kind, message = verdict(RANGES.replace("ORIGIN", str(origin)) + f"\n$${formula}$$\n")
    assert kind == expected, message
