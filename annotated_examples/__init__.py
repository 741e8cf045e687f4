import academy  # noqa: F401  finds files of this package that have moved
