"""Numbers as the report writes them: three digits and a unit."""

from __future__ import annotations


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    for unit, factor in units:
        if abs(value) >= factor:
            scaled = value / factor
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{digits}f} {unit}"
    return "0" if value == 0 else f"{value:.3g} {units[-1][0]}"


def time_text(ns: float) -> str:
    """Return a time; `ns` in nanoseconds."""
    return _scaled(ns, (("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3),
                        ("ns", 1.0)))  # fmt: skip


def bytes_text(count: float) -> str:
    """Return a number of bytes in powers of 1024."""
    units = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
    return f"{count:.0f} B" if abs(count) < 1024 else _scaled(count, units)


def count_text(count: float) -> str:
    """Return a count, short from 10,000 on."""
    if abs(count) < 10_000:
        return f"{count:,.0f}"
    return _scaled(count, (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))).replace(" ", "")


def percent(share: float) -> str:
    """Return a share of 1 in percent."""
    return f"{100 * share:.1f} %"
