"""In-network packets seen by others: Wireshark with our dissector, a checksum from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from support import jobs

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "src" / "innetwork"
SOURCE, DESTINATION = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])

pytestmark = pytest.mark.quick


def generator():
    spec = importlib.util.spec_from_file_location("innetwork_generate", ROOM / "generate.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> list[tuple[int, bytes]]:
    """Packets of all kinds as C++ writes them: kind, and the bytes from BTH on."""
    folder = jobs.overdrive_library().parents[1] / "tests"
    # One program, or several in one (OVERDRIVE_UNITY).
    programs = sorted(folder.glob("innetwork_*test*"))
    if not programs:
        pytest.skip("the unit tests of packets are not built")
    path = tmp_path_factory.mktemp("packets") / "samples"
    for program in programs:
        subprocess.run(
            [program, "--gtest_filter=*WhatIsWrittenIsRead"],
            env={**os.environ, "OVERDRIVE_PACKET_SAMPLES": str(path)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    lines = [line.split() for line in path.read_text().splitlines()]
    assert len(lines) >= 18
    return [(int(kind), bytes.fromhex(text)) for kind, text in lines]


def ip_packet(content: bytes) -> bytes:
    udp = struct.pack(">HHHH", 49152, 4791, 8 + len(content), 0)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(content), 0, 0x4000, 64, 17, 0)
    return head + SOURCE + DESTINATION + udp + content


def test_the_check_is_the_checksum_of_zlib_over_the_masked_packet(samples):
    for _, content in samples:
        masked = bytearray(b"\xff" * 8 + ip_packet(content[:-4]))
        length = 28 + len(content)
        struct.pack_into(">H", masked, 8 + 2, length)
        struct.pack_into(">H", masked, 8 + 24, length - 20)
        for place in (1, 8, 10, 11, 26, 27, 28 + 4):
            masked[8 + place] = 0xFF
        assert struct.pack("<I", zlib.crc32(masked)) == content[-4:]


def test_the_dissector_shows_what_was_written(samples, tmp_path):
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed")
    form = generator().read((ROOM / "packet_fields.txt").read_text())
    following = generator().FOLLOWING
    capture = tmp_path / "packets.pcap"
    with capture.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for _, content in samples:
            packet = ip_packet(content)
            file.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)
    names = [
        f"overdrive.{header}.{item.name}"
        for header, (_, fields) in form.headers.items()
        for item in fields
    ]
    options = [word for name in names for word in ("-e", name)]
    shown = subprocess.run(
        [tshark, "-r", str(capture), "-X", f"lua_script:{ROOM / 'packets.lua'}", "-T", "fields"]
        + ["-E", "separator=;", *options],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(shown) == len(samples)
    kinds = {value: name for value, name, _ in form.enums["kind"]}
    for (kind, content), line in zip(samples, shown):
        got = dict(zip(names, line.split(";")))
        offset = 12 + (8 if content[0] == 0x64 else 0)
        for header in ("common", following.get(kinds[kind])):
            if header is None:
                continue
            for item in form.headers[header][1]:
                size = item.bits // 8
                value = int.from_bytes(content[offset : offset + size], "big")
                offset += size
                text = got[f"overdrive.{header}.{item.name}"]
                if item.kind == "ip":
                    assert text == ".".join(str(b) for b in value.to_bytes(4, "big"))
                else:
                    assert int(text, 0) == value, (kinds[kind], header, item.name)


@pytest.mark.parametrize(
    ("what", "path"),
    [("lua", ROOM / "packets.lua"), ("page", ROOT / "docs" / "design" / "in-network-packets.md")],
)
def test_generated_files_are_current(what, path):
    module = generator()
    made = module.WRITERS[what](module.read(module.SOURCE.read_text()))
    assert path.read_text() == made, f"run: python3 src/innetwork/generate.py {what} {path}"


def test_mistakes_in_the_description_are_named():
    with pytest.raises(ValueError, match="packet_fields.txt:2: .*no such width"):
        generator().read("header a | b\nfield 7 | c")
