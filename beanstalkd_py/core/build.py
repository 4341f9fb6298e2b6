"""Compiles csrc/ into beanstalkd_py.core._core (cffi, API mode). Runs at build time only.

The declarations that Python sees are the text between the two marks in the HEADERS, so that there
is one copy of them and C tools can read it. This script must not import the package it builds.
"""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

CSRC = Path("csrc")
HEADERS = ("core.h", "load.h")
BEGIN = "/* cdef begin */"
END = "/* cdef end */"

COMPILE_FLAGS = [
    "-std=c11",
    "-O2",
    "-fvisibility=hidden",  # calls between files of csrc/ are direct ones
    "-g",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
    "-D_GNU_SOURCE",
    "-UNDEBUG",  # broken invariants stop the process in production too
    "-pthread",
]
LINK_FLAGS = ["-pthread"]
SANITIZE_COMPILE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1"]
SANITIZE_LINK = ["-fsanitize=address,undefined"]

# The wrappers that cffi generates share the flags of csrc/, whose warnings are not theirs to keep.
PREAMBLE = """
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "core.h"
#include "load.h"
"""


def declarations() -> str:
    """The parts of the headers that cffi reads."""
    return "".join(_declarations(CSRC / name) for name in HEADERS)


def _declarations(header: Path) -> str:
    _, begin, rest = header.read_text(encoding="utf-8").partition(BEGIN)
    body, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{header} lacks its cdef marks")
    return body


def builder() -> FFI:
    """The builder that setuptools finds by name. BEANSTALKD_PY_SANITIZE=1 adds ASan and UBSan."""
    sanitize = os.environ.get("BEANSTALKD_PY_SANITIZE") == "1"
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source(
        "beanstalkd_py.core._core",
        PREAMBLE,
        sources=sorted(str(path) for path in CSRC.glob("*.c")),
        depends=sorted(str(path) for path in CSRC.glob("*.h")),
        include_dirs=[str(CSRC)],
        extra_compile_args=COMPILE_FLAGS + (SANITIZE_COMPILE if sanitize else []),
        extra_link_args=LINK_FLAGS + (SANITIZE_LINK if sanitize else []),
    )
    return ffi


ffibuilder = builder()
