"""The project read once: its files, what is written in them, and at which line. For the site, the equation checker, the
recorder, the exercises and the tests.

`layout` says where everything lies, `comments` reads the comments of Python, `imports` finds what a module is made of.
Nothing here imports torch or triton, so that the site is built where neither is installed.
"""
