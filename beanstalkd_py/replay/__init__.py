"""Finished jobs of a history store, put into a server again.

It brings `history` and `admin` together, which know nothing of each other. It must not know how it
is told what to do, or how anything is shown.
"""
