"""Random legal MPI programs: planner, analysis, shrinker, and how they are run."""
