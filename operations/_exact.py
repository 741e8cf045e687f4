"""Helpers of several operations that approximate a function, for the comparison without rounding: what each is taken
for. tests/exact measures how far each is from it."""

#: Chunks of a sequence.
CHUNKS = {"common.chunks.decay_of": "exp", "common.chunks.round_to_tf32": "same"}
