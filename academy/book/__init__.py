"""The project read once: its files, what is written in them, and at which line. For the site, the equation checker, the
recorder, the exercises and the tests.

`layout` says where everything lies. `syntax` is the tree of a Python text, `comments` its comments, `splitter` its
notes beside its code, `imports` what a module is made of. `texts`, `front_matter` and `directives` read Markdown,
`maths` and `tex` the formulas in it. `learning_path`, `facts`, `exercise_files`, `operations` and `reviewed` say
what those files hold; `problems` is the one form of a finding.
Nothing here imports torch or triton, or another part of `academy`: the site is built where neither is installed.
"""
