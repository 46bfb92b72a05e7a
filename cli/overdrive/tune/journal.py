"""What has been measured so far, beside the output: a tuning can be stopped at any moment.

The first line says what is tuned, where and how; each further one holds a heat that was finished. A
line that was cut off does not count. Whoever asks for the same goes on from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from overdrive import trusted
from overdrive.bench_tables import Sample
from overdrive.errors import CommandError

FIELDS = ("job", "collective", "bytes", "ranks", "us", "probe_before_ns", "probe_after_ns",
          "waited")  # fmt: skip


def _unpack(values: Mapping[str, Any]) -> Sample:
    known = {name: values[name] for name in FIELDS}
    return Sample(shape=values["shape"], mode="blocking", what="all", **known)


class Journal:
    """Finished heats by name."""

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path = path
        self.heats: dict[str, list[Sample]] = {}
        self._head = json.dumps(plan, sort_keys=True)
        good = self._read()
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = "r+" if good else "w"
        self._file = open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o644))
        if good:
            # Whatever follows the last whole line was cut off.
            self._file.truncate(good)
            self._file.seek(good)
        else:
            self._line(self._head)

    def _read(self) -> int:
        """Take up what is there; return how many bytes of it are good."""
        try:
            trusted.check_own_file(self.path)
            text = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        good = 0
        for number, line in enumerate(text.splitlines(keepends=True)):
            if not line.endswith(b"\n"):
                break
            if number == 0:
                if line.decode(errors="replace").rstrip("\n") != self._head:
                    return 0
            else:
                try:
                    heat = json.loads(line)
                    self.heats[heat["heat"]] = [_unpack(values) for values in heat["samples"]]
                except (ValueError, KeyError, TypeError):
                    break
            good += len(line)
        return good

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def add(self, heat: str, samples: Iterable[Sample]) -> None:
        """Keep a heat that is finished."""
        kept = list(samples)
        self.heats[heat] = kept
        packed = [
            {**{name: getattr(sample, name) for name in FIELDS}, "shape": sample.shape}
            for sample in kept
        ]
        self._line(json.dumps({"heat": heat, "samples": packed}))

    def close(self, remove: bool) -> None:
        """End; the file goes when what it was kept for is done."""
        self._file.close()
        if remove:
            self.path.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a file at once and as a whole."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not writable for a group, whatever the umask: such a file would have no effect.
        with open(aside, "x", opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as reason:
        aside.unlink(missing_ok=True)
        raise CommandError(f"{reason.filename or path}: {reason.strerror}") from reason
