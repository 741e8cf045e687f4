"""Past one card: kernels between the collectives, and one that is a collective."""
