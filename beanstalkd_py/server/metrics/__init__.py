"""Prometheus metrics and health checks over HTTP."""
