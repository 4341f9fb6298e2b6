"""Builds the C parts with the package.

Everything static is in pyproject.toml. This file holds what setuptools takes only from code: the
cffi modules, the wheel's stable-ABI tag, manual pages if `tools/docs man` has made them, and a
readme that may be missing from a partial checkout.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup

MANUAL = Path("build/docs/man")
README = Path(__file__).with_name("README.md")

setup(
    cffi_modules=[
        "beanstalkd_py/build_extensions.py:core",
        "beanstalkd_py/build_extensions.py:store",
        "beanstalkd_py/build_extensions.py:columns",
    ],
    data_files=[("share/man/man1", [str(page) for page in sorted(MANUAL.glob("*.1"))])],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
)
