'''Exercises: a question, a starter to change, hints, and a checker that says what is wrong.

An exercise is one file, `exercises/<stage>/<name>.py`, with everything that belongs to it:

    """# Title

    The question, in Markdown.
    """

    # %% solution
    import torch
    …
        # <<<
        what the reader has to write
        # ===
        # what stands there in the starter (without `===`: a line that says "your code here")
        # >>>

    # %% checks
    PAGE = "learn/first_kernel.py"     # the page that it belongs to
    KIND = "fill in"                   # or one of the other `exercise_files.KINDS`
    ORDER = 1                          # among those of its page; may be left out
    HINTS = ("…", "…")                 # shown one by one
    WHY = "…"                          # stands under the solution

    def check(t):                      # t: `questions.Questions`
        t.compare("n = 10", "double", lambda x: 2 * x, t.values(10))

    WRONG = (("what the checker must say", "old", "new"), …)
    RIGHT = (("old", "new"), …)

The starter is cut from the solution by the marks, so the two can't drift apart. `WRONG` and `RIGHT` are edits of the
solution: each `old` is replaced by the `new` after it, and a `new` alone replaces what is between the marks. No edit at
all means the starter. Tests check that every wrong solution is rejected with its message, and that the others pass.

`academy.book.exercise_files` reads such a file without importing it, so that the site can be built without triton.
`marking` is the checker of a reader's text, for the page in the browser and for `academy exercise`:

1. `allowed` refuses what no answer needs, and `academy.compiler.rules.refused` what no kernel can have: by its text.
2. `answer` imports the text and calls it; `watch` records its kernels, and `provenance` who has computed what. Only
   plain data comes out.
3. `questions` draws the inputs and compares the results. It never runs the text itself.
4. Where Triton's compiler is installed, the kernels of a right text have to compile for an H100.

In the terminal all of it happens in a process of its own, with limits (`limited`).
'''
