"""Measurements on disk and on the site: nothing here measures, and nothing needs torch.

`store` keeps results with their provenance, `ladder` describes the steps to a fast version; `figures` reads
numbers from both. `plots`, `tables`, `pages` and `training` show them.
"""
