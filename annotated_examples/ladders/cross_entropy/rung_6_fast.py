r"""# The fast version

**What was slow?** One load is in flight at a time, and a vocabulary that isn't a multiple of 16 is moved 2 bytes at a
time.

**What changes?** Two blocks are loaded together. A row is taken as a short head, a body of whole strips, and a tail, so
that loads are wide in every vocabulary. The second pass goes backwards, and hints tell the cache what will be needed.

**Predict:** how close can it get to a copy, with two exponentials for each logit?
"""

from annotated_examples.fast.cross_entropy import cross_entropy_loss  # noqa: F401
