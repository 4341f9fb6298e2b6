"""Schedules: recurring jobs, and the times at which they run."""
