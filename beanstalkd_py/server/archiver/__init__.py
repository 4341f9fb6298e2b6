"""The process that archives finished jobs, and its supervision."""
