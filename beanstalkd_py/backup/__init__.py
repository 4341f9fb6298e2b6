"""Backups of binlog folders, taken while a server runs: consistent, incremental, on any disk."""
