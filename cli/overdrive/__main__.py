"""Runs the command as `python3 -m overdrive`."""

import sys

from overdrive.main import main

sys.exit(main(sys.argv[1:]))
