"""Compiles csrc/store/ into beanstalkd_py.history._store (cffi, API mode). Runs at build time only.

The declarations that Python sees are the text between the two marks in csrc/store/store.h. This
script must not import the package it builds.
"""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

CSRC = Path("csrc") / "store"
BEGIN = "/* cdef begin */"
END = "/* cdef end */"

COMPILE_FLAGS = [
    "-std=c11",
    "-O2",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
    "-D_GNU_SOURCE",
    "-UNDEBUG",
    "-pthread",
]
SANITIZE_COMPILE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1"]
SANITIZE_LINK = ["-fsanitize=address,undefined"]

# The wrappers that cffi generates share the flags of csrc/store/, whose warnings are not theirs.
PREAMBLE = """
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "store.h"
"""


def declarations() -> str:
    """The part of store.h that cffi reads."""
    text = (CSRC / "store.h").read_text(encoding="utf-8")
    _, begin, rest = text.partition(BEGIN)
    body, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{CSRC / 'store.h'} lacks its cdef marks")
    return body


def builder() -> FFI:
    """The builder that setuptools finds by name. BEANSTALKD_PY_SANITIZE=1 adds ASan and UBSan."""
    sanitize = os.environ.get("BEANSTALKD_PY_SANITIZE") == "1"
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source(
        "beanstalkd_py.history._store",
        PREAMBLE,
        sources=sorted(str(path) for path in CSRC.glob("*.c")),
        depends=sorted(str(path) for path in CSRC.glob("*.h")),
        include_dirs=[str(CSRC)],
        extra_compile_args=COMPILE_FLAGS + (SANITIZE_COMPILE if sanitize else []),
        extra_link_args=["-pthread"] + (SANITIZE_LINK if sanitize else []),
    )
    return ffi


ffibuilder = builder()
