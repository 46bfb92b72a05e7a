#!/usr/bin/env python3
"""Installs the Debian packages that a part of the project needs, and only those that are missing.

Safe to repeat: packages that are present are not touched and the package index is refreshed only
when something is missing. Nothing here is needed on systems without apt-get; there the missing
packages are named and the caller decides what can still be done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

GROUPS: dict[str, list[str]] = {
    "build": [
        "g++",
        "cmake",
        "ninja-build",
        "ccache",
        "make",
        "pkg-config",
        "libtomlplusplus-dev",
        "libhwy-dev",
        "nlohmann-json3-dev",
        "libcli11-dev",
        "libhwloc-dev",
    ],
    "test": ["libgtest-dev", "python3-venv"],
    "lint": ["clang-format"],
    # Only the sanitizers' builds use it, which take half as long with it as with GCC.
    "sanitizers": ["clang-16", "libclang-rt-16-dev", "lld-16"],
    "hosts": [
        "openmpi-bin",
        "libopenmpi-dev",
        "mpich",
        "libmpich-dev",
        "gfortran",
        "python3-venv",
        "python3-dev",
    ],
    "programs": ["netpipe-openmpi", "netpipe-mpich2", "hpcc", "lammps", "lammps-data"],
    "conformance": ["automake", "autoconf", "libtool", "dpkg-dev", "xz-utils"],
    "packages": ["debhelper", "dh-python", "dpkg-dev", "lintian", "mmdebstrap"],
    "shells": ["fish", "zsh"],
    "simulation": ["libsimgrid-dev"],
    "network": ["tshark"],
    "blas": ["libopenblas-serial-dev"],
    "faults": ["libjemalloc2", "libtcmalloc-minimal4", "iproute2", "util-linux"],
}
"""Package names by purpose; `python3 tools/setup/packages.py GROUP...` installs them."""

APT_ATTEMPTS = 3
"""Mirrors fail now and then; three tries outlast a passing fault without hiding a lasting one."""

LOCK_TIMEOUT_SECONDS = 300
"""How long apt-get waits for another apt-get to finish before it gives up."""


_one_at_a_time = threading.Lock()
"""Of installations: a second one finds out afterwards what is still missing."""


class SetupError(RuntimeError):
    """Something that is needed is missing and could not be installed."""


def log(message: str) -> None:
    """Print a progress line to standard error."""
    print(f"setup: {message}", file=sys.stderr, flush=True)


def is_installed(package: str) -> bool:
    """Tell whether the Debian package is installed and configured."""
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return query.returncode == 0 and query.stdout.strip() == "installed"


def missing(packages: list[str]) -> list[str]:
    """Return the packages of the list that are not installed, in order, without repeats."""
    if shutil.which("dpkg-query") is None:
        return []
    return [name for name in dict.fromkeys(packages) if not is_installed(name)]


def _privileged(command: list[str]) -> list[str]:
    """Prefix the command with what makes it run as root, or say why that is impossible."""
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo") is not None:
        return ["sudo", "--preserve-env=DEBIAN_FRONTEND", *command]
    raise SetupError(
        "these packages are missing and can only be installed by root (no sudo here): run\n"
        f"  {' '.join(command)}\nas root and try again"
    )


def run_with_retries(
    command: list[str], env: dict[str, str], name: str, attempts: int, hopeless: str | None = None
) -> None:
    """Run what may fail in passing; raise SetupError with its last lines when it keeps failing.

    An output that contains `hopeless` is not worth another try.
    """
    output = ""
    for attempt in range(1, attempts + 1):
        result = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode == 0:
            return
        output = result.stdout
        if hopeless is not None and hopeless in output:
            break
        if attempt < attempts:
            log(f"{name} failed (try {attempt} of {attempts}), trying again")
            time.sleep(5 * attempt)
    tail = "\n".join(output.strip().splitlines()[-8:])
    raise SetupError(f"`{' '.join(command)}` failed:\n{tail}")


def _run_apt(arguments: list[str]) -> None:
    """Run apt-get with retries; raise SetupError with its last lines when it keeps failing."""
    command = _privileged(
        ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_SECONDS}", *arguments]
    )
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run_with_retries(command, environment, f"apt-get {arguments[0]}", APT_ATTEMPTS)


def ensure(packages: list[str]) -> list[str]:
    """Install what is missing of the packages; return what was installed now.

    Raises SetupError when something is missing and cannot be installed.
    """
    with _one_at_a_time:
        wanted = missing(packages)
        if not wanted:
            return []
        if shutil.which("apt-get") is None:
            raise SetupError(f"no apt-get here; please install: {' '.join(wanted)}")
        log(f"installing {' '.join(wanted)}")
        try:
            _run_apt(["install", "-y", "--no-install-recommends", *wanted])
        except SetupError:
            # The usual reason on a fresh machine is an empty or old package index.
            _run_apt(["update"])
            _run_apt(["install", "-y", "--no-install-recommends", *wanted])
        return wanted


def main(arguments: list[str]) -> int:
    """Install the named groups; without names, say what each holds and what of it is missing."""
    if not arguments:
        for group, packages in GROUPS.items():
            absent = missing(packages)
            print(f"{group}: {' '.join(packages)}" + (f"  (missing: {absent})" if absent else ""))
        return 0
    unknown = [name for name in arguments if name not in GROUPS]
    if unknown:
        print(f"unknown group {' '.join(unknown)}; known: {' '.join(GROUPS)}", file=sys.stderr)
        return 2
    try:
        ensure([package for name in arguments for package in GROUPS[name]])
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
