"""Compiles csrc/columns/ into beanstalkd_py.pipeline._columns (cffi, API mode), at build time only.

The judges of what is to be believed in a file are the server's and the store's own, so their
sources go in as well. This script must not import the package it builds.
"""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

CSRC = Path("csrc")
COLUMNS = CSRC / "columns"
STORE = CSRC / "store"
JUDGES = (
    CSRC / "scan.c",
    CSRC / "entry.c",
    CSRC / "index.c",
    CSRC / "crc32c.c",
    CSRC / "tube_name.c",
    CSRC / "io.c",
    STORE / "record.c",
    STORE / "crc32.c",
    STORE / "text.c",
    STORE / "index.c",
)
HEADERS = (COLUMNS / "columns.h",)
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
    "-UNDEBUG",
    "-pthread",
]
SANITIZE_COMPILE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1"]
SANITIZE_LINK = ["-fsanitize=address,undefined"]

# The wrappers that cffi generates share the flags of csrc/, whose warnings are not theirs to keep.
PREAMBLE = """
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "columns.h"
"""


def declarations() -> str:
    """The parts of the headers that cffi reads."""
    return "".join(_declarations(header) for header in HEADERS)


def _declarations(header: Path) -> str:
    _, begin, rest = header.read_text(encoding="utf-8").partition(BEGIN)
    body, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{header} lacks its cdef marks")
    return body


def builder() -> FFI:
    """The builder that setuptools finds by name. BEANSTALKD_PY_SANITIZE=1 adds ASan and UBSan."""
    sanitize = os.environ.get("BEANSTALKD_PY_SANITIZE") == "1"
    folders = (COLUMNS, CSRC, STORE)
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source(
        "beanstalkd_py.pipeline._columns",
        PREAMBLE,
        sources=sorted(str(path) for path in (*COLUMNS.glob("*.c"), *JUDGES)),
        depends=sorted(str(path) for folder in folders for path in folder.glob("*.h")),
        include_dirs=[str(folder) for folder in folders],
        extra_compile_args=COMPILE_FLAGS + (SANITIZE_COMPILE if sanitize else []),
        extra_link_args=["-pthread"] + (SANITIZE_LINK if sanitize else []),
    )
    return ffi


ffibuilder = builder()
