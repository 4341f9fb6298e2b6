"""Tubes of a running server as a Spark sink, and jobs taken out of them."""
