"""The C core and its thin, typed wrapper.

`build.py` compiles csrc/ into `_core`; `core.py` is what the rest of the package uses. Nothing in
here knows processes, sockets, options or how anything is shown.
"""
