"""This project's derivations and cases, read once in a process of the tests."""

from academy.formulas.comparing import coverage
from academy.formulas.project import Project

PROJECT = Project.here()
PAGES, ERRORS = PROJECT.pages()
BY_PAGE, FAULTS = coverage.declared(PROJECT, PAGES)
CASES = [comparison for found in BY_PAGE.values() for comparison in found]
