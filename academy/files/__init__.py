"""Reading and keeping: `textfiles` that a person names, the `cache`, the `dependencies` of a module, which are part
of a key, and what is `vendored`.
"""
