"""Settings of the documentation's site: ``make docs`` builds it into ``build/docs``."""

import torchrl_elegant

project = "torchrl_elegant"
author = "the torchrl_elegant authors"
release = version = torchrl_elegant.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "torchrl_elegant"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# Pages link to files of the repository, which are not part of the site.
suppress_warnings = ["myst.xref_missing"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
