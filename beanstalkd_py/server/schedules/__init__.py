"""Puts the jobs of schedules, in the parent."""
