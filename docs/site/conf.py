"""Configures Sphinx, which builds the documentation site from the Markdown files."""

from importlib import metadata

project = "Pressroom"
release = metadata.version("pressroom")
html_title = f"Pressroom {release}"

# Paths are relative to the root of the repository, because the documents link to files outside
# ``docs``.
root_doc = "docs/site/index"
include_patterns = [
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "clients/*/README.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/site/index.md",
    "tests/*/README.md",
]
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_llms_txt"]
# Headings down to this level are link targets. Sphinx warns of links to unknown targets.
myst_heading_anchors = 4
# The examples of HTTP messages are shortened by "…", which the highlighter of HTTP doesn't accept.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
# The Markdown file of each page, which llms.txt links to.
html_copy_source = True
html_sourcelink_suffix = ""
llms_txt_uri_template = "_sources/{docname}.md"
llms_txt_summary = (
    "Pressroom is the back end of a newsletter platform: an HTTP API with a console for mailing "
    "lists, members, images, generated texts and credits."
)
