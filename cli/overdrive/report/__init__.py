"""`overdrive report`: what a recorded run spent in MPI, as one page."""
