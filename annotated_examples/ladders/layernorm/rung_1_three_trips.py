r"""# Three passes

[The lesson](../../classics/layernorm.py). One program takes a row and goes over it three times, in chunks: for the
mean, for the variance, which needs the mean, and for the result.

**Predict:** a row of 4096 numbers in bfloat16 is 8 KB. The second and the third pass find it in a cache. What do they
cost, then?
"""

from annotated_examples.classics.layernorm import layernorm_forward  # noqa: F401
