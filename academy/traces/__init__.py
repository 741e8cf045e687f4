"""Recorded runs of kernels: watch them, and check every number that a comment quotes.

A kernel file has a function `EXAMPLE()` that builds small inputs and calls the launchers. It is run once in Triton's
interpreter, unchanged, and every statement of every program is recorded (`recorder`), kept by content (`store`),
searched for races, unwritten outputs and the bytes it moves (`proof`), shown on the page (`page`) or in the terminal
(`command`).

# Numbers in comments

A span in backticks of the form

    [pid=P[, P2]] [, k=n ...]: EXPRESSION = LITERAL

in a comment inside a jitted function is a claim about the recorded run (`quotes`):

- It is about EXAMPLE's first launch of that kernel (of a helper: the first launch that calls it). `launch=1` picks the
  second one.
- `pid=P` or `pid=(P, P2)` names the program. It stays in force until the next `pid=` in the same function; before the
  first one it is program 0. `k=n` picks an iteration of the loop over `k`, for this claim alone.
- It holds right after the first statement, at or below the comment, that assigns one of the names in EXPRESSION. If
  there is none, after the last statement above it. A comment after code on the same line is about that code.
- EXPRESSION is Python: names, indices, arithmetic, `.shape`, and `len min max sum abs any all`. Pointers are element
  offsets from the start of their tensor. A mask is 1 and 0.
- LITERAL is a number, True, False, inf, or a (nested) list; `...` leaves out the middle. A whole number has to be
  exact, another one right to the digits that are written.
- Lanes that a load without `other` masks off are undefined, so they can't be quoted; neither can NaN.

Outside jitted functions a claim names its kernel: `layernorm_kernel, pid=2: rows = [4, 5]`.

Text elsewhere (a guide, a derivation) doesn't copy such a number but draws it from the recording:
`[[run: classics/layernorm: layernorm_forward_kernel, pid=0: mean[0]]]`.

A link leads into the run of a page: `#pid=13&line=79&k=1`, with `launch=1` for another launch than the first one that
runs that line, `pid=1,0` in a grid of two dimensions, and `whole=9` for the whole launch after nine programs. Every
claim in a note is such a link by itself, and moves along with its line.

These are errors: a claim that doesn't hold; a span with `= number` that can't be evaluated, anywhere in the file's
comments (quote a keyword argument without its value); a list of numbers, `name = number`, or a sentence with "program
7" and another number, outside backticks inside a jitted function.

# What else a recording proves

An access outside a tensor; two programs that meet at one element, one of them storing, without an atomic or a lock; two
lanes of one store that put different values into one element; an element of an allocated output that nobody wrote; a
read of memory that nobody wrote; an entry of `EXAMPLES` in operations/<op>.py that differs from the distinct bytes that
EXAMPLE's first call in each direction reads and writes (scratch between its launches is left out; what a PyTorch
operation moves between them isn't seen; an entry for both passes together, `forward+backward`, has no run of its own).
Each is a `Problem` with file and line.

A store whose lanes lie apart as the strides of *another* tensor say is no proof of a mistake. `academy trace` warns of
it, and shows where every store goes; see `academy.traces.proof.suspicious_stores`.
"""
