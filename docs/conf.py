"""The site: ``sphinx-build -W -c docs . site`` from the top, where all links of the pages lead as they stand.

Sphinx with MyST: the pages stay plain Markdown that reads in a checkout as well, and the reference takes docstrings.
"""

import re

project = "rollergen"
author = "The rollergen developers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "devices/*.md", "examples/README.md",
    "benches/gpu/README.md", "benches/results/verifier/*.md",
]  # fmt: skip
root_doc = "docs/index"
html_theme = "furo"
html_title = "rollergen"
html_show_copyright = False
html_static_path, html_css_files, html_js_files = ["static"], ["narrow.css"], ["narrow.js"]
highlight_language = "none"  # of blocks that name no language: what the program prints
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "alphabetical"


def setup(app) -> None:  # type: ignore[no-untyped-def]
    def verbatim_bars(app, what, name, object, options, lines):  # type: ignore[no-untyped-def]
        lines[:] = [line.replace("|", r"\|") for line in lines]  # absolute values, no substitutions

    def short_defaults(app, what, name, object, options, signature, result):  # type: ignore[no-untyped-def]
        for _ in range(2 if signature else 0):  # records in records: AlignmentRules() for all that it holds
            signature = re.sub(r"\b(\w+)\(\w+=[^()]*(?:\(\)[^()]*)*\)", r"\1()", signature)
        return signature, result

    app.connect("autodoc-process-docstring", verbatim_bars)
    app.connect("autodoc-process-signature", short_defaults)
