"""The web console: pages about one or more servers, and operations on their jobs and tubes.

It runs in a process of its own and uses the protocol, and the control socket of a local server.
"""
