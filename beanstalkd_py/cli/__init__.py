"""The command line, a folder per group of commands.

Converts arguments to options, and errors to one line and an exit status. Imports the modules of a
command only when the command runs.
"""
