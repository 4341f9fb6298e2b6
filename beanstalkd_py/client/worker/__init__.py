"""Workers: handlers of jobs, in threads and processes, on the synchronous client."""
