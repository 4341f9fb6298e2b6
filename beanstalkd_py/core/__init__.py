"""The C core, which build_extensions.py compiles from csrc/, and its thin, typed wrapper."""
