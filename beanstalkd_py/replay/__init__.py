"""Put finished jobs of a history store into a server again.

Combines `history` and `admin`, which do not import each other.
"""
