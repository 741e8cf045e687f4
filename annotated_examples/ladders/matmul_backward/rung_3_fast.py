r"""# The fast version

**What was slow?** The products, which compute addresses and masks.

**What changes?** They are those of the forward pass, with descriptors and persistent programs. Transposed matrices are
described as they are stored, and for each order of storage the fastest tiles are searched for.

**Predict:** what it gains in the forward pass, twice.
"""

from annotated_examples.fast.matmul import matmul_backward  # noqa: F401
