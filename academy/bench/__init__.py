"""Measuring: how fast a kernel is, beside what the card could do at best and beside its peers.

`measure` times calls on a GPU, `operation` reads what a kernel file offers, `run` measures a case, `store` keeps
results with their provenance, `command` is `academy bench`, `plots` and `pages` draw results on the site.
"""


def print_speed(bench: dict, cost) -> None:
    """See `academy.bench.command.print_speed`: the table that a kernel script prints on a GPU."""
    from academy.bench.command import print_speed as show

    show(bench, cost)
