"""Compile the three C extensions of the package with cffi in API mode; used at build time only.

Python sees the declarations between the two cdef marks of each extension's headers, so that they
exist once and C tools can read them. This file must not import the package it builds.
"""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

CSRC = Path("csrc")
BEGIN = "/* cdef begin */"
END = "/* cdef end */"

COMPILE_FLAGS = [
    "-std=c11",
    "-O2",
    "-fvisibility=hidden",  # makes calls between files of csrc/ direct calls
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wconversion",
    "-D_GNU_SOURCE",
    "-UNDEBUG",  # a broken invariant stops the process in production, too
    "-pthread",
]
LINK_FLAGS = ["-pthread"]
# The linker compiles all of csrc/ as one unit: 8 % fewer instructions per command, 12 s per build.
LTO = ["-O2", "-flto=" + os.environ.get("BEANSTALKD_PY_LTO", "auto")]
SANITIZE = ["-fsanitize=address,undefined"]
SANITIZE_COMPILE = [*SANITIZE, "-fno-omit-frame-pointer", "-O1"]

# cffi's generated wrappers are compiled with the flags of csrc/, but cause these warnings.
IGNORED_WARNINGS = ("-Wconversion", "-Wsign-conversion", "-Wunused-parameter")

# In the order in which cffi reads them.
CORE_HEADERS = (
    *("api/types.h", "api/server.h", "api/replication.h", "api/policies.h", "api/transfer.h"),
    *("api/reader.h", "api/history.h", "api/load.h", "api/testing.h"),
)

# Folders of csrc/ that belong to one extension only.
STORE = "store"
COLUMNS = "columns"

# The parsers that decide which bytes of a file are valid are shared with the server and the store.
COLUMNS_SHARED = (
    "binlog_files/scan.c",
    "binlog_files/entry.c",
    "binlog_files/entry_index.c",
    "base/crc32c.c",
    "base/file_io.c",
    "base/folder.c",
    "protocol/tube_name.c",
    "store/record.c",
    "store/text.c",
    "store/index.c",
)


def declarations(header: Path) -> str:
    """Return the part of a header that cffi reads; raises ValueError without its marks."""
    _, begin, rest = header.read_text(encoding="utf-8").partition(BEGIN)
    body, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{header} lacks its cdef marks")
    return body


def builder(module: str, headers: tuple[str, ...], sources: list[Path]) -> FFI:
    """Return the builder of one extension, as two environment variables say.

    BEANSTALKD_PY_SANITIZE=1 adds ASan and UBSan; BEANSTALKD_PY_LTO=0 leaves out link-time
    optimization, for a quick build or a compiler that lacks it. Other values are for -flto=:
    gcc has `auto`, clang has `full`.
    """
    compile_flags, link_flags = COMPILE_FLAGS, LINK_FLAGS
    if os.environ.get("BEANSTALKD_PY_SANITIZE") == "1":
        compile_flags, link_flags = compile_flags + SANITIZE_COMPILE, link_flags + SANITIZE
    elif os.environ.get("BEANSTALKD_PY_LTO") != "0":
        compile_flags, link_flags = compile_flags + LTO, link_flags + LTO
    ignored = [f'#pragma GCC diagnostic ignored "{warning}"' for warning in IGNORED_WARNINGS]
    ffi = FFI()
    ffi.cdef("".join(declarations(CSRC / header) for header in headers))
    ffi.set_source(
        module,
        "\n".join([*ignored, *(f'#include "{header}"' for header in headers), ""]),
        sources=sorted(str(path) for path in sources),
        depends=sorted(str(path) for path in CSRC.rglob("*.h")),
        include_dirs=[str(CSRC)],
        extra_compile_args=compile_flags,
        extra_link_args=link_flags,
    )
    return ffi


def core_sources() -> list[Path]:
    """Return all C files except those of the other two extensions."""
    return [path for path in CSRC.rglob("*.c") if path.parent.name not in (STORE, COLUMNS)]


# cffi runs this file once for each extension, and calls one of the functions.


def core() -> FFI:
    return builder("beanstalkd_py.core._core", CORE_HEADERS, core_sources())


def store() -> FFI:
    sources = [*(CSRC / STORE).glob("*.c"), CSRC / "base/alloc.c"]
    return builder("beanstalkd_py.history._store", ("store/store.h",), sources)


def columns() -> FFI:
    sources = [*(CSRC / COLUMNS).glob("*.c"), *(CSRC / path for path in COLUMNS_SHARED)]
    return builder("beanstalkd_py.pipeline._columns", ("columns/columns.h",), sources)
