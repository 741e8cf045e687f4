"""The site: kernel pages in two columns, formulas set while it is built, links both ways between equations and kernels.

The page logic is a Python-Markdown extension, `academy.site` in mkdocs.yml, because that outlives any one site
generator; the MkDocs plugin (`plugin`) only adds what an extension can't reach. Neither imports torch or triton.
"""


def makeExtension(**settings):
    """Called by Python-Markdown for `markdown_extensions: [academy.site]`."""
    from academy.site.extension import AcademyExtension

    return AcademyExtension(**settings)
