"""Many runs: the list of jobs, their processes, the table."""
