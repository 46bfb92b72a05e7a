"""Where pip has put Overdrive: `python -c 'import overdrive_mpi; print(overdrive_mpi.PRELOAD)'`."""

import os

PREFIX = os.path.dirname(os.path.abspath(__file__))
"""The folder of everything that is installed, laid out as below /usr."""

PRELOAD = os.path.join(PREFIX, "lib", "liboverdrive.so")
"""What LD_PRELOAD has to name where jobs are not started by the `overdrive` command."""
