"""`overdrive study`: hands over to the study that is meant."""

from __future__ import annotations

from collections.abc import Mapping

from overdrive.errors import CommandError
from overdrive.installation import Installation

USAGE = """\
Usage: overdrive study copy [--output DIR] [--quick] [--patterns] [...]
       overdrive study collectives [--output DIR] [...]
       overdrive study timeline COLLECTIVE BYTES [...]
       overdrive study overlap [--mode on|trace] COMMAND...

  copy         measure every way a message can take on this node, with plots
  collectives  which algorithm wins where, by simulation, up to large clusters, with plots
  timeline     what happens when in a collective in two levels, simulated or measured, a picture
  overlap      how much of a program's collectives hides behind its computation, a page

`overdrive study NAME --help` shows the options of one.
"""


def run(installation: Installation, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Study; return the exit status."""
    name = arguments[0] if arguments else ""
    if name in ("--help", "-h"):
        print(USAGE, end="")
        return 0
    if name == "copy":
        from overdrive.study import copy_paths

        return copy_paths.run(installation, arguments, environment)
    if name == "collectives":
        from overdrive.study import collectives

        return collectives.run(installation, arguments[1:], environment)
    if name == "timeline":
        from overdrive.study import timeline

        return timeline.run(installation, arguments[1:], environment)
    if name == "overlap":
        from overdrive.study import overlap

        return overlap.run(installation, arguments[1:], environment)
    what = f"has no '{name}'" if name else "needs a name"
    raise CommandError(f"`overdrive study` {what}: copy, collectives, timeline or overlap")
