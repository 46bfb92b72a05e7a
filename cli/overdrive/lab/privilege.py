"""Gets the right to make namespaces, as superuser or by a user namespace, or says why not."""

from __future__ import annotations

import os
from pathlib import Path

from overdrive.errors import CommandError
from overdrive.lab import system

CAPABILITIES, USER_NAMESPACE = "capabilities", "user namespace"
"""By which right a lab was made."""

_USER_NAMESPACE_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user/max_user_namespaces", "0", "10000"),
)
"""Files of system settings, the value that forbids, and one that permits."""

SYSTEM_SETTINGS = "/proc/sys"


def hindrances() -> list[str]:
    """Return what on this machine is known to forbid user namespaces, with the remedy."""
    found = []
    for name, forbids, permits in _USER_NAMESPACE_SWITCHES:
        try:
            value = Path(SYSTEM_SETTINGS, name).read_text().strip()
        except OSError:
            continue
        if value == forbids:
            dotted = name.replace("/", ".")
            found.append(f"{dotted} is {value} (`sysctl -w {dotted}={permits}` would permit them)")
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Seccomp:") and line.split()[1] != "0":
                found.append("a seccomp filter is active, as in containers")
    except OSError:
        pass
    return found


def demand_a_root_of_its_own() -> None:
    """Raise CommandError where the root folder is not a mount, as after a plain chroot.

    Nodes have mounts of their own, and what enters them later finds itself in the root of those
    mounts: that of the machine instead of the folder that is the root here.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError as reason:
        raise CommandError(f"a lab needs /proc: {reason.strerror}") from reason
    if not any(line.split()[4] == "/" for line in mounts):
        raise CommandError(
            "the root folder here is no mount (a plain chroot?), so nodes would see another one. "
            "Run this outside, or enter the folder as containers do: bind it onto itself "
            "(`mount --bind DIR DIR`) and use pivot_root instead of chroot"
        )


def separate() -> str:
    """Make this process able to create namespaces; return by which right.

    Raises CommandError which says what is missing.
    """
    demand_a_root_of_its_own()
    has_right = system.effective_capabilities() & (1 << system.CAP_SYS_ADMIN) != 0
    first = "this process lacks CAP_SYS_ADMIN"
    if has_right:
        try:
            system.unshare(system.CLONE_NEWUTS)
            return CAPABILITIES
        except OSError as reason:
            first = f"CAP_SYS_ADMIN is there, but: {reason}"
    try:
        system.enter_user_namespace()
        system.unshare(system.CLONE_NEWUTS)
        return USER_NAMESPACE
    except OSError as reason:
        causes = hindrances() or ["the kernel gives no further reason"]
        raise CommandError(
            f"no right to make namespaces. {first}; and a user namespace cannot be used: "
            f"{reason}: {'; '.join(causes)}. Permit user namespaces, or run as root "
            f"({'in a container: with --privileged' if os.geteuid() == 0 else 'with sudo'})"
        ) from reason
