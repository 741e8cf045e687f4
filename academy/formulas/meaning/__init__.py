from academy.formulas.meaning import rules  # noqa: F401  fills `environment.RULES`
