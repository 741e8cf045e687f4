r"""# A kernel for each direction

[The lesson](../../classics/layernorm.py). One kernel goes along the rows, for `dx`, in two passes. Another goes down
the columns, for `dweight` and `dbias`.

**Predict:** `dy` and `x` are read by both. How far is that from a copy, which would read each once?
"""

from annotated_examples.classics.layernorm import layernorm_backward  # noqa: F401
