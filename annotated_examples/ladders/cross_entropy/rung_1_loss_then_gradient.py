r"""# The loss, then the gradient

[The lesson](../../classics/cross_entropy.py). Forward goes over the logits for the log-sum-exp of each row. Backward
goes over them again and writes the gradient.

**Predict:** 8192 rows of 128256 logits in bfloat16 are 2.1 GB, read twice and written once. A copy reads them once.
"""

from annotated_examples.classics.cross_entropy import cross_entropy_loss  # noqa: F401
