"""The site: kernel pages in two columns, formulas set while it is built, links both ways between equations and kernels.

The page logic is a Python-Markdown extension, `academy.site` in mkdocs.yml, because that outlives any one site
generator; `academy/site/hook.py` only adds what an extension can't reach (published files, edit links). Neither imports
torch or triton.
"""


def makeExtension(**settings):
    """Called by Python-Markdown for `markdown_extensions: [academy.site]`."""
    from academy.site.extension import AcademyExtension

    return AcademyExtension(**settings)
