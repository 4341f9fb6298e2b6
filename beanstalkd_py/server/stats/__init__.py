"""Statistics of workers, tubes and connections, summed over all workers."""
