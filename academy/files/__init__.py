"""Reading and keeping: `textfiles` that a person names, the `cache`, the `dependencies` of a module, which are part
of a key, what is `vendored`, and the `size` of it all.
"""
