"""What tests of collectives share: seeds that stay the same where hosts are the reference."""

from __future__ import annotations

import os
import random
import zlib

import pytest


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of this test's random choices; part of the command that a failure shows.

    Every host gets some calls wrong, and which of them a test meets depends on the seed. Short runs
    therefore always make the same calls, slow ones others every time; OVERDRIVE_TEST_SEED chooses.
    """
    given = os.environ.get("OVERDRIVE_TEST_SEED")
    if given:
        return int(given)
    if request.node.get_closest_marker("slow") is not None:
        return random.SystemRandom().randrange(1, 2**31)
    return zlib.crc32(request.node.name.encode()) % (2**31 - 1) + 1
