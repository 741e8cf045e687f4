"""What several tests of formulas share."""

from academy.formulas.meaning.formula import Formulas


def tagged(page, tag):
    """A single tagged equation as a function of its inputs."""
    formulas = Formulas(page, [tag])
    return lambda **inputs: formulas(**inputs)[tag]
