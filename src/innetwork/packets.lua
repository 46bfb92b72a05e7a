-- Dissects the headers of Overdrive's in-network packets behind InfiniBand's (RoCEv2).
-- Made by generate.py of packet_fields.txt. Use: tshark -X lua_script:packets.lua
local overdrive = Proto("overdrive", "Overdrive in-network computing")
local fields = overdrive.fields
local kind_names = {[1] = "query", [2] = "notify", [3] = "kill", [4] = "data", [5] = "result", [6] = "refuse", [7] = "ask", [8] = "promise", [9] = "kept"}
local cause_names = {[0] = "none", [1] = "cannot_compute", [2] = "no_slots", [3] = "unknown_group", [4] = "mismatch", [5] = "bad_version", [6] = "unsupported", [7] = "waiting"}
local operation_names = {[0] = "max", [1] = "min", [2] = "sum", [3] = "prod", [4] = "land", [5] = "band", [6] = "lor", [7] = "bor", [8] = "lxor", [9] = "bxor", [10] = "barrier"}
local type_names = {[0] = "int8", [1] = "uint8", [2] = "int16", [3] = "uint16", [4] = "int32", [5] = "uint32", [6] = "int64", [7] = "uint64", [8] = "float32", [9] = "float64", [10] = "float16", [11] = "bfloat16"}
local mpi_names = {[0] = "unknown", [1] = "openmpi", [2] = "mpich", [3] = "mpiabi"}
fields.common_magic = ProtoField.uint16("overdrive.common.magic", "magic", base.HEX)
fields.common_version = ProtoField.uint8("overdrive.common.version", "version", base.DEC)
fields.common_kind = ProtoField.uint8("overdrive.common.kind", "kind", base.DEC, kind_names)
fields.common_group = ProtoField.uint32("overdrive.common.group", "group", base.DEC)
fields.common_key = ProtoField.uint64("overdrive.common.key", "key", base.HEX)
fields.common_sequence = ProtoField.uint32("overdrive.common.sequence", "sequence", base.DEC)
fields.common_member = ProtoField.uint16("overdrive.common.member", "member", base.DEC)
fields.common_flags = ProtoField.uint16("overdrive.common.flags", "flags", base.DEC)
fields.values_operation = ProtoField.uint8("overdrive.values.operation", "operation", base.DEC, operation_names)
fields.values_type = ProtoField.uint8("overdrive.values.type", "type", base.DEC, type_names)
fields.values_count = ProtoField.uint16("overdrive.values.count", "count", base.DEC)
fields.control_operations = ProtoField.uint16("overdrive.control.operations", "operations", base.HEX)
fields.control_types = ProtoField.uint16("overdrive.control.types", "types", base.HEX)
fields.control_mpi = ProtoField.uint8("overdrive.control.mpi", "mpi", base.DEC, mpi_names)
fields.control_cause = ProtoField.uint8("overdrive.control.cause", "cause", base.DEC, cause_names)
fields.control_hops = ProtoField.uint8("overdrive.control.hops", "hops", base.DEC)
fields.control_mode = ProtoField.uint8("overdrive.control.mode", "mode", base.DEC)
fields.control_destination_rank = ProtoField.uint32("overdrive.control.destination_rank", "destination_rank", base.DEC)
fields.control_destination_ip = ProtoField.ipv4("overdrive.control.destination_ip", "destination_ip")
fields.control_destination_port = ProtoField.uint16("overdrive.control.destination_port", "destination_port", base.DEC)
fields.control_source_port = ProtoField.uint16("overdrive.control.source_port", "source_port", base.DEC)
fields.control_source_ip = ProtoField.ipv4("overdrive.control.source_ip", "source_ip")
fields.control_tor1 = ProtoField.ipv4("overdrive.control.tor1", "tor1")
fields.control_spine = ProtoField.ipv4("overdrive.control.spine", "spine")
fields.control_tor2 = ProtoField.ipv4("overdrive.control.tor2", "tor2")
fields.control_job = ProtoField.uint64("overdrive.control.job", "job", base.DEC)
fields.control_communicator = ProtoField.uint32("overdrive.control.communicator", "communicator", base.DEC)
fields.control_world_rank = ProtoField.uint32("overdrive.control.world_rank", "world_rank", base.DEC)
fields.control_group_size = ProtoField.uint16("overdrive.control.group_size", "group_size", base.DEC)
fields.control_tor1_members = ProtoField.uint16("overdrive.control.tor1_members", "tor1_members", base.DEC)
fields.control_tor2_members = ProtoField.uint16("overdrive.control.tor2_members", "tor2_members", base.DEC)
fields.control_tors = ProtoField.uint16("overdrive.control.tors", "tors", base.DEC)
fields.control_window = ProtoField.uint16("overdrive.control.window", "window", base.DEC)
fields.control_payload_bytes = ProtoField.uint16("overdrive.control.payload_bytes", "payload_bytes", base.DEC)
fields.control_load = ProtoField.uint32("overdrive.control.load", "load", base.DEC)
fields.refusal_cause = ProtoField.uint8("overdrive.refusal.cause", "cause", base.DEC, cause_names)
fields.refusal_reserved = ProtoField.uint8("overdrive.refusal.reserved", "reserved", base.DEC)
fields.refusal_refused_kind = ProtoField.uint8("overdrive.refusal.refused_kind", "refused_kind", base.DEC, kind_names)
fields.refusal_reserved2 = ProtoField.uint8("overdrive.refusal.reserved2", "reserved2", base.DEC)
fields.payload = ProtoField.bytes("overdrive.payload", "values")

local function add_common(buffer, tree)
  tree:add(fields.common_magic, buffer(0, 2))
  tree:add(fields.common_version, buffer(2, 1))
  tree:add(fields.common_kind, buffer(3, 1))
  tree:add(fields.common_group, buffer(4, 4))
  tree:add(fields.common_key, buffer(8, 8))
  tree:add(fields.common_sequence, buffer(16, 4))
  tree:add(fields.common_member, buffer(20, 2))
  tree:add(fields.common_flags, buffer(22, 2))
end

local function add_values(buffer, tree)
  tree:add(fields.values_operation, buffer(0, 1))
  tree:add(fields.values_type, buffer(1, 1))
  tree:add(fields.values_count, buffer(2, 2))
end

local function add_control(buffer, tree)
  tree:add(fields.control_operations, buffer(0, 2))
  tree:add(fields.control_types, buffer(2, 2))
  tree:add(fields.control_mpi, buffer(4, 1))
  tree:add(fields.control_cause, buffer(5, 1))
  tree:add(fields.control_hops, buffer(6, 1))
  tree:add(fields.control_mode, buffer(7, 1))
  tree:add(fields.control_destination_rank, buffer(8, 4))
  tree:add(fields.control_destination_ip, buffer(12, 4))
  tree:add(fields.control_destination_port, buffer(16, 2))
  tree:add(fields.control_source_port, buffer(18, 2))
  tree:add(fields.control_source_ip, buffer(20, 4))
  tree:add(fields.control_tor1, buffer(24, 4))
  tree:add(fields.control_spine, buffer(28, 4))
  tree:add(fields.control_tor2, buffer(32, 4))
  tree:add(fields.control_job, buffer(36, 8))
  tree:add(fields.control_communicator, buffer(44, 4))
  tree:add(fields.control_world_rank, buffer(48, 4))
  tree:add(fields.control_group_size, buffer(52, 2))
  tree:add(fields.control_tor1_members, buffer(54, 2))
  tree:add(fields.control_tor2_members, buffer(56, 2))
  tree:add(fields.control_tors, buffer(58, 2))
  tree:add(fields.control_window, buffer(60, 2))
  tree:add(fields.control_payload_bytes, buffer(62, 2))
  tree:add(fields.control_load, buffer(64, 4))
end

local function add_refusal(buffer, tree)
  tree:add(fields.refusal_cause, buffer(0, 1))
  tree:add(fields.refusal_reserved, buffer(1, 1))
  tree:add(fields.refusal_refused_kind, buffer(2, 1))
  tree:add(fields.refusal_reserved2, buffer(3, 1))
end

local function dissect(buffer, info, tree)
  if buffer:len() < 24 then return false end
  if buffer(0, 2):uint() ~= 0x4f44 then return false end
  if buffer(2, 1):uint() ~= 1 then return false end
  local kind = buffer(3, 1):uint()
  local top = tree:add(overdrive, buffer(), "Overdrive in-network")
  info.cols.info:append(" Overdrive " .. (kind_names[kind] or "unknown"))
  add_common(buffer, top)
  local rest = buffer:len() - 24
  if kind == 1 and rest >= 68 then
    add_control(buffer(24, 68), top)
  end
  if kind == 2 and rest >= 68 then
    add_control(buffer(24, 68), top)
  end
  if kind == 3 and rest >= 68 then
    add_control(buffer(24, 68), top)
  end
  if kind == 4 and rest >= 4 then
    add_values(buffer(24, 4), top)
    if rest > 4 then
      top:add(fields.payload, buffer(28))
    end
  end
  if kind == 5 and rest >= 4 then
    add_values(buffer(24, 4), top)
    if rest > 4 then
      top:add(fields.payload, buffer(28))
    end
  end
  if kind == 9 and rest >= 4 then
    add_values(buffer(24, 4), top)
    if rest > 4 then
      top:add(fields.payload, buffer(28))
    end
  end
  if kind == 6 and rest >= 4 then
    add_refusal(buffer(24, 4), top)
  end
  return true
end

overdrive:register_heuristic("infiniband.payload", dissect)
