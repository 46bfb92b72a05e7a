"""Other projects' MPI test suites, run without and with Overdrive."""
