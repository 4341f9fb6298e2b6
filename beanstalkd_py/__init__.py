"""A drop-in beanstalkd in Python with a C core. This module imports nothing."""

from __future__ import annotations

__version__ = "0.2.0"

PROTOCOL_VERSION = "1.13"
"""The compatible version of C beanstalkd; clients parse it in `stats` as X.Y."""
