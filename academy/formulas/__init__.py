"""LaTeX -> checked equations -> torch callables: every equation of a derivation page is evaluated in float64."""
