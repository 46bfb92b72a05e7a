"""Collectives and constructors of communicators as lines of C."""

from __future__ import annotations

from collections.abc import Sequence
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
    neighbours = printer.program.comms[op.args["c"]].neighbours
    ranks = max(len(members), *(len(side) for sides in neighbours for side in sides), 1)
    room = max(8, printer.packed(spec, n) * ranks)
    buffer = f"filled({room}, 1) + {printer.shift(spec)}"
    here = "MPI_IN_PLACE" if op.get("place") and name not in ROOTED else buffer
    root = op.get("root")
    root = {"root": "MPI_ROOT", "null": "MPI_PROC_NULL"}.get(root, root)
    rooted = f", {root}" if name in ROOTED else ""
    lines = []
    if "op" in op.args:
        operation = f"MPI_{op.args['op'].upper()}"
        if op.args["op"] in ("add", "chain"):
            operation = "own"
            lines.append("MPI_Op own;")
            commutes = int(op.args["op"] == "add")
            lines.append(f"MPI_Op_create({op.args['op']}, {commutes}, &own);")
        length = str(count)
        if name == "reduce_scatter":
            length = "counts"
            lines.append(static("int", "counts", [count] * len(members)))
        arguments = f"{here}, {buffer}, {length}, {kind}, {operation}{rooted}"
        return block([*lines, f"{function}({arguments}{tail});"])
    if name == "bcast":
        return [f"{function}({buffer}, {count}, {kind}{rooted}{tail});"]
    send = receive = f"{count}, {kind}"
    if name[-1] in "vw":
        step = printer.packed(spec, n) if name.endswith("w") else count
        lines.append(static("int", "counts", [count] * ranks))
        place = "MPI_Aint" if name == "neighbor_alltoallw" else "int"
        lines.append(static(place, "places", [i * step for i in range(ranks)]))
        both = f"counts, places, {kind}"
        if name.endswith("w"):
            lines.append(f"static MPI_Datatype kinds[{ranks}];")
            lines.append(f"for (int i = 0; i < {ranks}; i++) kinds[i] = {kind};")
            both = "counts, places, kinds"
        plain = name.removeprefix("neighbor_")
        send = both if plain in ("scatterv", "alltoallv", "alltoallw") else send
        receive = both if plain in ("gatherv", "allgatherv", "alltoallv", "alltoallw") else receive
    return block([*lines, f"{function}({here}, {send}, {buffer}, {receive}{rooted}{tail});"])


def static(kind: str, name: str, values: Sequence[int]) -> str:
    """Return an array that stays valid until a non-blocking call is complete."""
    return f"static {kind} {name}[] = {{{', '.join(map(str, values or [0]))}}};"


def block(lines: list[str]) -> list[str]:
    """Return lines with names of their own, where there are any."""
    return lines if len(lines) == 1 else ["{", *lines, "}"]


def graph(program: Program, op: Op) -> list[str]:
    """Return the lines that make a graph; each rank names the edges that leave it."""
    parent, made = f"c[{op.args['parent']}]", f"&c[{op.args['id']}]"
    comm = program.comms[op.args["id"]]
    members, (into, out) = comm.members, zip(*comm.neighbours)
    if op.args["how"] == "graph":
        index = [sum(map(len, out[: i + 1])) for i in range(len(members))]
        flat = [end for each in out for end in each]
        call = f"MPI_Graph_create({parent}, {len(members)}, index, edges, 0, {made});"
        return ["{", static("int", "index", index), static("int", "edges", flat), call, "}"]
    rest = f"MPI_UNWEIGHTED, MPI_INFO_NULL, 0, {made});"
    lines = []
    for i, rank in enumerate(members):
        lines += [f"if (rank == {rank}) {{", static("int", "to", out[i])]
        if op.args["how"] == "adjacent":
            lines.append(static("int", "from", into[i]))
            call = f"MPI_Dist_graph_create_adjacent({parent}, {len(into[i])}, from, MPI_UNWEIGHTED"
            lines.append(f"{call}, {len(out[i])}, to, {rest}")
        else:
            lines.append(f"static int me = {i}, degree = {len(out[i])};")
            lines.append(f"MPI_Dist_graph_create({parent}, 1, &me, &degree, to, {rest}")
        lines.append("}")
    return lines


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
        return graph(program, op)
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
