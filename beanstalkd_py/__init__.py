"""A drop-in beanstalkd: policy in Python, the hot path in C.

This module holds the version and imports nothing, so that every part of the package may import it
at no cost.
"""

from __future__ import annotations

__version__ = "0.1.0"

PROTOCOL_VERSION = "1.13"
"""The beanstalkd whose protocol is spoken; clients parse it out of `stats` as X.Y."""
