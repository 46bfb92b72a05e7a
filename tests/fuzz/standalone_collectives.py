"""Collectives and constructors of communicators as lines of C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.datatypes import Type
from fuzz.program import Op, Program

if TYPE_CHECKING:
    from fuzz.standalone import Printer

ROOTED = {"bcast", "gather", "gatherv", "scatter", "scatterv", "reduce"}


def call(printer: Printer, op: Op) -> list[str]:
    """Return the lines of a collective; blocks of the forms with v and w are all of length n."""
    name, comm = op.args["name"], f"c[{op.args['c']}]"
    request = op.get("q")
    persistent = op.get("form") == "p"
    function = f"MPI_{name.capitalize()}"
    if request is not None:
        function = f"{function}_init" if persistent else f"MPI_I{name}"
    tail = f", {comm}" + (", MPI_INFO_NULL" if persistent else "")
    tail += f", &q[{request}]" if request is not None else ""
    if name == "barrier":
        return [f"{function}({tail[2:]});"]
    spec, n = op.args["type"], op.args["n"]
    kind, count = printer.type_of(spec), n // Type(spec).per
    members = printer.program.comms[op.args["c"]].members
    ranks = len(members)
    room = max(8, printer.packed(spec, n) * ranks)
    buffer = f"filled({room}, 1)"
    here = "MPI_IN_PLACE" if op.get("place") and name not in ROOTED else buffer
    root = op.get("root")
    root = {"root": "MPI_ROOT", "null": "MPI_PROC_NULL"}.get(root, root)
    rooted = f", {root}" if name in ROOTED else ""
    lines = []
    if "op" in op.args:
        operation = f"MPI_{op.args['op'].upper()}"
        if op.args["op"] in ("add", "chain"):
            operation = f"op{op.unit}"
            lines.append(f"MPI_Op {operation};")
            commutes = int(op.args["op"] == "add")
            lines.append(f"MPI_Op_create({op.args['op']}, {commutes}, &{operation});")
        length = str(count)
        if name == "reduce_scatter":
            length = f"n{op.unit}"
            lines.append(f"int n{op.unit}[] = {{{', '.join([str(count)] * ranks)}}};")
        arguments = f"{here}, {buffer}, {length}, {kind}, {operation}{rooted}"
        return [*lines, f"{function}({arguments}{tail});"]
    if name == "bcast":
        return [f"{function}({buffer}, {count}, {kind}{rooted}{tail});"]
    send = receive = f"{count}, {kind}"
    if name[-1] in "vw":
        size = (
            "8" if spec[0] in "lUd" else "4" if spec[0] in "iuf" else "2" if spec[0] == "s" else "1"
        )
        unit = int(size) if name.endswith("w") else 1
        step = n * unit if len(spec) == 1 else n * 8 * unit
        lines.append(f"int n{op.unit}[] = {{{', '.join([str(count)] * ranks)}}};")
        places = ", ".join(str(i * step) for i in range(ranks))
        lines.append(f"int d{op.unit}[] = {{{places}}};")
        both = f"n{op.unit}, d{op.unit}, {kind}"
        if name.endswith("w"):
            lines.append(f"MPI_Datatype k{op.unit}[] = {{{', '.join([kind] * ranks)}}};")
            both = f"n{op.unit}, d{op.unit}, k{op.unit}"
        send = both if name in ("scatterv", "alltoallv", "alltoallw") else send
        receive = both if name in ("gatherv", "allgatherv", "alltoallv", "alltoallw") else receive
    return [*lines, f"{function}({here}, {send}, {buffer}, {receive}{rooted}{tail});"]


def new_comm(program: Program, op: Op) -> list[str]:
    """Return the lines that make a communicator."""
    parent, how = f"c[{op.args['parent']}]", op.args["how"]
    made = f"&c[{op.args.get('id')}]"
    if how == "dup":
        return [f"MPI_Comm_dup({parent}, {made});"]
    if how == "idup":
        return [f"MPI_Comm_idup({parent}, {made}, &q[{op.args['q']}]);"]
    if how == "merge":
        return [f"MPI_Intercomm_merge({parent}, {op.args['high']}, {made});"]
    if how == "inter":
        bridge = f"c[{op.args['bridge']}]"
        where = f"{op.args['leader']}, {bridge}, {op.args['remote']}, {op.args['tag']}"
        return [f"MPI_Intercomm_create({parent}, {where}, {made});"]
    if how == "split":
        members = program.comms[op.args["parent"]].members
        lines = []
        for i, rank in enumerate(members):
            color = op.args["colors"][i]
            number = op.args["ids"][color] if color >= 0 else 127
            text = str(color) if color >= 0 else "MPI_UNDEFINED"
            key = op.args["keys"][i]
            lines.append(
                f"if (rank == {rank}) MPI_Comm_split({parent}, {text}, {key}, &c[{number}]);"
            )
        return lines
    if how == "cart":
        lists = ("dims", "periods")
        made_of = [f"int {name}[] = {{{', '.join(map(str, op.args[name]))}}};" for name in lists]
        size = len(op.args["dims"])
        return ["{", *made_of, f"MPI_Cart_create({parent}, {size}, dims, periods, 0, {made});", "}"]
    if "edges" in op.args:
        return [f"// {op.text()}", f"MPI_Comm_dup({parent}, {made});"]
    ranks = ", ".join(map(str, op.args["members"]))
    lines = [
        "MPI_Group whole, part;",
        f"int in[] = {{{ranks}}};",
        f"MPI_Comm_group({parent}, &whole);",
        f"MPI_Group_incl(whole, {len(op.args['members'])}, in, &part);",
    ]
    if how == "create":
        # Ranks that are not in it get MPI_COMM_NULL.
        return ["{", *lines, f"MPI_Comm_create({parent}, part, {made});", "}"]
    return ["{", *lines, f"MPI_Comm_create_group({parent}, part, {op.args['tag']}, {made});", "}"]
