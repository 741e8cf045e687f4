"""Measuring: how fast a kernel is, beside what the card could do at best and beside its peers.

`operation` reads `operations/<op>.py`, `run` measures a case with `runtime.timing`, `command` is `academy bench`,
and `academy.results` keeps and shows what comes out.
"""
