"""Answers that attack the checker, or its reader's patience: each must get a verdict with a message, never "Right"."""
