"""Configuration of Sphinx: HTML with Furo, and the man pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("extensions")))

from beanstalkd_py import __version__

project = "beanstalkd_py"
author = "the beanstalkd_py contributors"
copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "command_reference"]
exclude_patterns = ["extensions"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
default_role = "code"
smartquotes = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"beanstalkd_py {release}"

_SECTION, _ADMIN_SECTION = 1, 8
man_pages = [
    ("man/beanstalkd-py", "beanstalkd-py", "a drop-in beanstalkd", [author], _SECTION),
    ("man/beanstalkd-py-serve", "beanstalkd-py-serve", "start the server", [author], _SECTION),
    (
        "man/beanstalkd-py-takeover",
        "beanstalkd-py-takeover",
        "take over from Debian's beanstalkd",
        [author],
        _ADMIN_SECTION,
    ),
]
man_make_section_directory = False
