import json
from importlib import metadata

project = "voxpop"
author = "the voxpop developers"
release = version = metadata.version("voxpop")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
templates_path = ["_templates"]
html_theme = "furo"
html_title = "voxpop"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["voxpop.css"]
exclude_patterns = ["_build", "benchmark-table.md", "**/.ipynb_checkpoints"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".ipynb": "markdown"}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False


def setup(app):
    """Show a notebook as a page: its words, its code, and what that printed."""
    app.connect("source-read", read_notebook)


def read_notebook(app, docname, source):
    path = app.env.doc2path(docname)
    if path.suffix != ".ipynb":
        return
    parts = []
    for cell in json.loads(source[0])["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            printed = "".join(output.get("text") or output["data"]["text/plain"])
            parts.append(f"```text\n{printed.rstrip()}\n```")
    parts.insert(
        1, f"*This page is a notebook: {{download}}`download it <{path.name}>` and run it.*"
    )
    source[0] = "\n\n".join(parts)
