"""What commands have in common.

`trouble` says what of the machine is in the way, `misspelt` which name was meant, `grids` that a grid is too large,
`progress` how far a command has come. `parent` ends processes with the one that they work for, `garbage` collects
rarely, and `setup_environment` makes the virtual environment for `make`.
"""
