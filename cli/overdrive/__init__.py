"""The `overdrive` command: starts jobs, tells what is installed and prints the settings reference.

Starting a job and `info` need nothing but Python's standard library.
"""
