r"""Without a tolerance: two computations are compared as functions, whatever was rounded on the way.

Beside each float goes a second number, its residue modulo 3²⁰, 7¹¹, 11⁹ and 23⁷. What is an identity of real numbers is
one of residues, so a kernel and its formula end with the same residue, in whatever order they add, rescale or divide.
What differs by a term, however small, ends with another one.

    from academy.exact import without_rounding

    with without_rounding() as session:
        y = softmax(x)                                           # a kernel in Triton's interpreter
        print(session.compare(y, torch.softmax(x.double(), -1)))  # the same function: all 111 elements, …

- `residues` is the arithmetic, `array` what an operation does to residues, given the floats beside it.
- `memory` finds the residues of a place in memory; `triton`, `gluon` and `torch` carry them through kernels and
  PyTorch.
- `compare` is the switch and the verdict.

**What a yes means.** Both sides have equal residues at random inputs, modulo each prime that decides. For quotients of
polynomials that is identity testing by random evaluation: a wrong kernel passes an element with a chance of at most
degree / p, and of about degree / p^(k-2) where the zeros of the difference are simple; it has to pass every prime in
every element. With exp, log and √, which have no identities but their own, it is the same in practice, and no theorem.
`docs/guides/without-a-tolerance.md` has the numbers, the limits and the sources.

**What it doesn't say.** It stands beside the comparison in floats, and never alone:

- how accurate a result is;
- what happens between two thresholds if no input lies there; what follows an order follows the floats;
- modulo p^k, exp is a polynomial of degree k - 1, and tanh x, exp(x) - 1 and differences of softmax's weights are
  divisible by p. A term with 18 such factors is 0 modulo all four primes. (In floats it need not be small.)
- where 0 stands for something, as -1e30 for -∞: a number that is 0 in float32 may be 0 here;
- the sign of a root follows the float: each number has two, and that one is taken with which both sides agree;
- logarithms are compared without their turn: of y and -y the logarithm is the same. (In floats one is NaN.)
- where an operation has no rule, an element is not decided (NAR), and what was lost is counted. Nothing decided is not
  "equal", and with something lost a difference is not a refusal.
"""

from __future__ import annotations

from academy.exact.compare import Found, Session, Verdict, compared, over_draws, without_rounding

__all__ = ["Found", "Session", "Verdict", "compared", "over_draws", "without_rounding"]
