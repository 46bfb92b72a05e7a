"""Makes C++, a Wireshark dissector and a page of documentation of packet_fields.txt.

generate.py header|lua|page OUTPUT     write one of them
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "packet_fields.txt"

FOLLOWING = {
    "query": "control",
    "notify": "control",
    "kill": "control",
    "data": "values",
    "result": "values",
    "kept": "values",
    "refuse": "refusal",
}
"""The header behind the common one, by kind of packet."""


@dataclass
class Field:
    """A field of a header."""

    name: str
    bits: int
    kind: str  # an enum, `ip`, or nothing
    text: str


@dataclass
class Format:
    """What the text says."""

    constants: list[tuple[str, str, str]] = field(default_factory=list)
    enums: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    headers: dict[str, tuple[str, list[Field]]] = field(default_factory=dict)

    def bytes_of(self, header: str) -> int:
        """Return the length of a header."""
        return sum(item.bits for item in self.headers[header][1]) // 8


def read(text: str) -> Format:
    """Read the description; raises ValueError with the line that is wrong."""
    found = Format()
    enum: list[tuple[int, str, str]] | None = None
    fields: list[Field] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        left, _, explained = (part.strip() for part in line.partition("|"))
        words = left.split()
        try:
            if words[0] == "constant":
                found.constants.append((words[1], words[2], explained))
            elif words[0] == "enum":
                enum, fields = found.enums.setdefault(words[1], []), None
            elif words[0] == "header":
                enum, fields = None, []
                found.headers[words[1]] = (explained, fields)
            elif enum is not None:
                enum.append((int(words[0]), words[1], explained))
            elif fields is not None:
                bits = int(words[1])
                kind = words[2] if len(words) > 2 else ""
                if bits not in (8, 16, 32, 64) or (kind not in ("", "ip", *found.enums)):
                    raise ValueError("no such width or enum")
                fields.append(Field(words[0], bits, kind, explained))
            else:
                raise ValueError("nothing to add it to")
        except (IndexError, ValueError) as reason:
            raise ValueError(f"{SOURCE.name}:{number}: {line}: {reason}") from reason
    return found


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def header(form: Format) -> str:
    """Return the C++ header."""
    lines = [
        "// Headers of in-network packets: made by generate.py of packet_fields.txt.",
        "#ifndef OVERDRIVE_INNETWORK_PACKET_FIELDS_H_",
        "#define OVERDRIVE_INNETWORK_PACKET_FIELDS_H_",
        "",
        "#include <cstddef>",
        "#include <cstdint>",
        "",
        "namespace od::innetwork {",
        "",
    ]
    for name, value, text in form.constants:
        lines += [f"// {text}", f"inline constexpr std::uint32_t k{_camel(name)} = {value};"]
    for name, values in form.enums.items():
        lines += ["", f"enum class {_camel(name)} : std::uint8_t {{"]
        for value, own, text in values:
            lines.append(f"  {own} = {value}," + (f"  // {text}" if text else ""))
        lines += ["};", f"inline constexpr int k{_camel(name)}s = {max(v[0] for v in values) + 1};"]
        lines += [f"inline const char* {name}_name(std::uint8_t value) {{", "  switch (value) {"]
        for value, own, _ in values:
            lines += [f"    case {value}:", f'      return "{own.replace("_", " ")}";']
        lines += ["    default:", '      return "unknown";', "  }", "}"]
    for name, (text, fields) in form.headers.items():
        lines += ["", f"// {text}", f"struct {_camel(name)}Header {{"]
        lines.append(f"  static constexpr std::size_t kBytes = {form.bytes_of(name)};")
        lines += [f"  std::uint{f.bits}_t {f.name} = 0;  // {f.text}" for f in fields]
        for verb in ("read", "write"):
            const = "const " if verb == "read" else ""
            lines.append(
                f"  void {verb}({const}std::uint8_t* at){' const' if verb == 'write' else ''} {{"
            )
            offset = 0
            for item in fields:
                for i in range(item.bits // 8):
                    shift = item.bits - 8 - 8 * i
                    place = f"at[{offset + i}]"
                    if verb == "write":
                        lines.append(
                            f"    {place} = static_cast<std::uint8_t>({item.name} >> {shift});"
                        )
                if verb == "read":
                    kind = f"std::uint{item.bits}_t"
                    parts = " | ".join(
                        f"static_cast<std::uint64_t>(at[{offset + i}]) << {item.bits - 8 - 8 * i}"
                        for i in range(item.bits // 8)
                    )
                    lines.append(f"    {item.name} = static_cast<{kind}>({parts});")
                offset += item.bits // 8
            lines.append("  }")
        lines.append("};")
    lines += ["", "}  // namespace od::innetwork", ""]
    lines += ["#endif  // OVERDRIVE_INNETWORK_PACKET_FIELDS_H_", ""]
    return "\n".join(lines)


def lua(form: Format) -> str:
    """Return the dissector."""
    constants = {name: value for name, value, _ in form.constants}
    lines = [
        "-- Dissects the headers of Overdrive's in-network packets behind InfiniBand's (RoCEv2).",
        "-- Made by generate.py of packet_fields.txt. Use: tshark -X lua_script:packets.lua",
        'local overdrive = Proto("overdrive", "Overdrive in-network computing")',
        "local fields = overdrive.fields",
    ]
    for name, values in form.enums.items():
        pairs = ", ".join(f'[{value}] = "{own}"' for value, own, _ in values)
        lines.append(f"local {name}_names = {{{pairs}}}")
    for name, (_, fields) in form.headers.items():
        for item in fields:
            own = f"{name}_{item.name}"
            abbreviation = f"overdrive.{name}.{item.name}"
            if item.kind == "ip":
                made = f'ProtoField.ipv4("{abbreviation}", "{item.name}")'
            else:
                names = f", {item.kind}_names" if item.kind else ""
                base = "base.HEX" if item.name in ("magic", "key", "operations", "types") else (
                    "base.DEC"
                )  # fmt: skip
                made = f'ProtoField.uint{item.bits}("{abbreviation}", "{item.name}", {base}{names})'
            lines.append(f"fields.{own} = {made}")
    lines.append('fields.payload = ProtoField.bytes("overdrive.payload", "values")')
    for name, (_, fields) in form.headers.items():
        lines += ["", f"local function add_{name}(buffer, tree)"]
        offset = 0
        for item in fields:
            size = item.bits // 8
            lines.append(f"  tree:add(fields.{name}_{item.name}, buffer({offset}, {size}))")
            offset += size
        lines.append("end")
    common = form.bytes_of("common")
    kinds = {own: value for value, own, _ in form.enums["kind"]}
    lines += [
        "",
        "local function dissect(buffer, info, tree)",
        f"  if buffer:len() < {common} then return false end",
        f"  if buffer(0, 2):uint() ~= {constants['magic']} then return false end",
        f"  if buffer(2, 1):uint() ~= {constants['version']} then return false end",
        "  local kind = buffer(3, 1):uint()",
        '  local top = tree:add(overdrive, buffer(), "Overdrive in-network")',
        '  info.cols.info:append(" Overdrive " .. (kind_names[kind] or "unknown"))',
        "  add_common(buffer, top)",
        f"  local rest = buffer:len() - {common}",
    ]
    for own, following in FOLLOWING.items():
        size = form.bytes_of(following)
        lines.append(f"  if kind == {kinds[own]} and rest >= {size} then")
        lines.append(f"    add_{following}(buffer({common}, {size}), top)")
        if following == "values":
            lines.append(f"    if rest > {size} then")
            lines.append(f"      top:add(fields.payload, buffer({common + size}))")
            lines.append("    end")
        lines.append("  end")
    lines += ["  return true", "end", ""]
    lines.append('overdrive:register_heuristic("infiniband.payload", dissect)')
    return "\n".join(lines) + "\n"


def page(form: Format) -> str:
    """Return the page of documentation."""
    lines = [
        "# In-network packets",
        "",
        "*Made by `src/innetwork/generate.py` of `packet_fields.txt`; do not edit.*",
        "",
        "    Ethernet | IPv4 | UDP, port 4791 | BTH | DETH (UD only) | common | values or control |"
        " payload | pad | ICRC",
        "",
        "RC packets are SEND Only (opcode 0x04), UD packets are SEND Only (0x64). All numbers are",
        "big endian, values of the payload little endian, as the processors have them.",
        "",
        "| Constant | Value | Meaning |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {value} | {text} |" for name, value, text in form.constants]
    for name, (text, fields) in form.headers.items():
        kinds = [own for own, following in FOLLOWING.items() if following == name]
        used = f" ({', '.join(kinds)})" if kinds else ""
        lines += ["", f"## Header `{name}`: {form.bytes_of(name)} bytes{used}", "", text, ""]
        lines += ["| Offset | Bits | Field | Meaning |", "|---|---|---|---|"]
        offset = 0
        for item in fields:
            lines.append(f"| {offset} | {item.bits} | {item.name} | {item.text} |")
            offset += item.bits // 8
    for name, values in form.enums.items():
        lines += ["", f"## Values of `{name}`", "", "| Value | Name | Meaning |", "|---|---|---|"]
        lines += [f"| {value} | {own} | {text} |" for value, own, text in values]
    return "\n".join(lines) + "\n"


WRITERS = {"header": header, "lua": lua, "page": page}


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if len(arguments) != 2 or arguments[0] not in WRITERS:
        print(__doc__, file=sys.stderr)
        return 2
    Path(arguments[1]).write_text(WRITERS[arguments[0]](read(SOURCE.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
