"""Commands for jobs and for all jobs of a tube."""
