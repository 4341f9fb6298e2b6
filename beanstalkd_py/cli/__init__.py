"""The command line: one file per group of commands.

Turns arguments into options and errors into one line and an exit status. Imports what a command
needs only when that command runs.
"""
