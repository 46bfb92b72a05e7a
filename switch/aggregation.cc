// Combines contributions.
#include "switch/aggregation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "coll/ops/kinds.h"
#include "coll/ops/scalar_kernels.h"

namespace od::fabric {
namespace {

using coll::ops::Kernel;
using coll::ops::Kind;
using coll::ops::Op;
using innetwork::Operation;
using innetwork::Type;

Kind kind_of(std::uint8_t type) {
  constexpr Kind kKinds[] = {Kind::int8,   Kind::uint8, Kind::int16,  Kind::uint16,  Kind::int32,
                             Kind::uint32, Kind::int64, Kind::uint64, Kind::float32, Kind::float64};
  return type < std::size(kKinds) ? kKinds[type] : Kind::none;
}

Op op_of(std::uint8_t operation) {
  constexpr Op kOps[] = {Op::max,  Op::min, Op::sum, Op::prod, Op::land,
                         Op::band, Op::lor, Op::bor, Op::lxor, Op::bxor};
  return operation < std::size(kOps) ? kOps[operation] : Op::no_op;
}

bool is_short_float(std::uint8_t type) {
  return type == static_cast<std::uint8_t>(Type::float16) ||
         type == static_cast<std::uint8_t>(Type::bfloat16);
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  float value = 0;
  if (exponent == 31) {
    return std::bit_cast<float>((std::uint32_t{bits} & 0x8000u) << 16 | 0x7f800000u |
                                static_cast<std::uint32_t>(fraction) << 13);
  }
  value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                        : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

// Rounds to nearest, ties to even.
std::uint16_t to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN stays one, quiet
    return static_cast<std::uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  }
  if (magnitude >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);  // from 65520 on
  if (magnitude < 0x38800000) {  // below 2^-14: subnormal, in units of 2^-24
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(scaled)));
  }
  const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

float from_brain(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint16_t to_brain(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The product or sum of two values with 8 or 11 bits of fraction is rounded twice, to float and to
// the short type; float has more than twice the bits plus two, so that is the same as once.
float step(Operation operation, float left, float right) {
  switch (operation) {
    case Operation::max:
      return right > left ? right : left;
    case Operation::min:
      return right < left ? right : left;
    case Operation::sum:
      return left + right;
    default:
      return left * right;
  }
}

void combine_short(Operation operation, bool half, std::span<const std::uint8_t* const> sources,
                   std::size_t count, std::uint8_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, sources[0] + 2 * i, 2);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      std::uint16_t other = 0;
      std::memcpy(&other, sources[k] + 2 * i, 2);
      bits = half ? to_half(step(operation, from_half(bits), from_half(other)))
                  : to_brain(step(operation, from_brain(bits), from_brain(other)));
    }
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

Kernel kernel_of(std::uint8_t operation, std::uint8_t type) {
  const Kind kind = kind_of(type);
  if (kind == Kind::none || operation >= static_cast<std::uint8_t>(Operation::barrier)) {
    return nullptr;
  }
  return coll::ops::find_scalar_kernel(op_of(operation), kind);
}

}  // namespace

bool supports(std::uint8_t operation, std::uint8_t type) {
  if (operation == static_cast<std::uint8_t>(Operation::barrier)) return true;
  if (is_short_float(type)) return operation <= static_cast<std::uint8_t>(Operation::prod);
  return kernel_of(operation, type) != nullptr;
}

std::uint16_t supported_operations() { return (1u << innetwork::kOperations) - 1; }
std::uint16_t supported_types() { return (1u << innetwork::kTypes) - 1; }

bool combine(std::uint8_t operation, std::uint8_t type,
             std::span<const std::uint8_t* const> sources, std::size_t count, std::uint8_t* out) {
  if (!supports(operation, type)) return false;
  if (count == 0) return true;
  if (is_short_float(type)) {
    combine_short(static_cast<Operation>(operation),
                  type == static_cast<std::uint8_t>(Type::float16), sources, count, out);
    return true;
  }
  const Kernel kernel = kernel_of(operation, type);
  if (kernel == nullptr) return false;
  // Most groups are small: no memory is asked for then.
  std::array<const void*, 16> few;
  std::vector<const void*> many;
  const void** arrays = few.data();
  if (sources.size() > few.size()) {
    many.resize(sources.size());
    arrays = many.data();
  }
  std::ranges::copy(sources, arrays);
  kernel(out, arrays, sources.size(), count, coll::ops::Store::ordinary);
  return true;
}

Aggregation::Aggregation(std::size_t members, std::uint32_t window, std::size_t payload_bytes)
    : members_(members),
      payload_bytes_(payload_bytes),
      slots_(std::size_t{2} * window),
      present_(slots_.size() * members),
      buffer_(slots_.size() * (members + 1) * payload_bytes),
      sources_(members) {
  for (std::size_t i = 0; i < slots_.size(); ++i)
    slots_[i].sequence = static_cast<std::uint32_t>(i);
}

Outcome Aggregation::contribute(std::size_t member, std::uint32_t sequence,
                                const innetwork::ValuesHeader& values,
                                std::span<const std::uint8_t> payload) {
  const std::size_t index = sequence % slots_.size();
  Slot& slot = slots_[index];
  const std::size_t base = index * members_;
  if (sequence != slot.sequence) {
    // Only the next round may take the slot, and only from a finished one.
    if (sequence - slot.sequence != slots_.size() || !slot.finished) return Outcome::stale;
    slot = Slot{};
    slot.sequence = sequence;
    for (std::size_t i = 0; i < members_; ++i) present_[base + i] = false;
  }
  if (payload.size() > payload_bytes_) return Outcome::mismatch;
  const bool first = slot.arrived == 0;
  if (!first && (slot.values.operation != values.operation || slot.values.type != values.type ||
                 slot.values.count != values.count)) {
    return Outcome::mismatch;
  }
  if (present_[base + member]) return slot.finished ? Outcome::answered : Outcome::repeated;
  if (first) slot.values = values;
  present_[base + member] = true;
  if (!payload.empty()) std::memcpy(place(index, member), payload.data(), payload.size());
  if (++slot.arrived < members_) return Outcome::accepted;
  for (std::size_t i = 0; i < members_; ++i) sources_[i] = place(index, i);
  combine(values.operation, values.type, sources_, values.count, place(index, members_));
  return Outcome::complete;
}

std::span<const std::uint8_t> Aggregation::combined(std::uint32_t sequence) const {
  const std::size_t index = sequence % slots_.size();
  const innetwork::ValuesHeader& values = slots_[index].values;
  return {buffer_.data() + (index * (members_ + 1) + members_) * payload_bytes_,
          values.count * innetwork::type_bytes(values.type)};
}

const innetwork::ValuesHeader& Aggregation::values(std::uint32_t sequence) const {
  return slot_of(sequence).values;
}

bool Aggregation::finish(std::uint32_t sequence, const innetwork::ValuesHeader& values,
                         std::span<const std::uint8_t> payload) {
  const std::size_t index = sequence % slots_.size();
  Slot& slot = slots_[index];
  if (slot.sequence != sequence || slot.arrived != members_ || slot.finished) return false;
  if (values.operation != slot.values.operation || values.type != slot.values.type ||
      values.count != slot.values.count) {
    return false;
  }
  if (!payload.empty()) std::memcpy(place(index, members_), payload.data(), payload.size());
  slot.finished = true;
  return true;
}

std::size_t Aggregation::slots_in_use() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      slots_, [](const Slot& slot) { return slot.arrived > 0 && !slot.finished; }));
}

}  // namespace od::fabric
