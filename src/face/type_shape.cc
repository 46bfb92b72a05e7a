// Reads envelopes and contents (MPI_Type_get_envelope, MPI_Type_get_contents) recursively and feeds
// them to the layout builder.
//
// Extents always come from the host, because the padding of structures and the old bound markers
// are its business. The result is compared with the size and the true extent that the host reports.
#include "face/type_shape.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "face/datatypes.h"
#include "face/face_mpi.h"
#include "face/state.h"
#include "observe/log.h"
#include "p2p/layout_builder.h"

namespace od::face {
namespace {

using p2p::Flat;
using p2p::Part;
using Numbers = std::vector<std::int64_t>;

// Types are rarely nested deeper than five.
constexpr int kMostDepth = 100;

struct Envelope {
  MPI_Count integers = 0;
  MPI_Count addresses = 0;
  MPI_Count large = 0;  // not 0: made by a constructor with large counts
  MPI_Count datatypes = 0;
  int combiner = 0;
};

bool read_envelope(MPI_Datatype type, Envelope* envelope) {
  if (OD_HOST_HAS(Type_get_envelope_c) && OD_HOST_HAS(Type_get_contents_c)) {
    return OD_HOST(Type_get_envelope_c)(type, &envelope->integers, &envelope->addresses,
                                        &envelope->large, &envelope->datatypes,
                                        &envelope->combiner) == MPI_SUCCESS;
  }
  int integers = 0, addresses = 0, datatypes = 0;
  if (OD_HOST(Type_get_envelope)(type, &integers, &addresses, &datatypes, &envelope->combiner) !=
      MPI_SUCCESS) {
    return false;
  }
  envelope->integers = integers;
  envelope->addresses = addresses;
  envelope->datatypes = datatypes;
  return true;
}

// Types that nobody has made and nobody may free.
bool is_predefined(int combiner) {
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

struct Bounds {
  std::int64_t lower = 0;
  std::int64_t extent = 0;
};

// By the host's function for large types where it has that one.
template <typename Large, typename Plain>
Bounds ask_bounds(Large* large, Plain* plain, MPI_Datatype type) {
  if (large != nullptr) {
    MPI_Count lower = 0, extent = 0;
    large(type, &lower, &extent);
    return {lower, extent};
  }
  MPI_Aint lower = 0, extent = 0;
  plain(type, &lower, &extent);
  return {lower, extent};
}

Bounds bounds_of(MPI_Datatype type) {
  return ask_bounds(OD_HOST(Type_get_extent_x), OD_HOST(Type_get_extent), type);
}

Bounds true_bounds_of(MPI_Datatype type) {
  return ask_bounds(OD_HOST(Type_get_true_extent_x), OD_HOST(Type_get_true_extent), type);
}

std::int64_t size_of(MPI_Datatype type) {
  if (OD_HOST_HAS(Type_size_x)) {
    MPI_Count size = 0;
    OD_HOST(Type_size_x)(type, &size);
    return size;
  }
  int size = 0;
  OD_HOST(Type_size)(type, &size);
  return size;
}

// Two values of C types that lie as in a structure.
Flat value_and_index(std::int64_t value_bytes, std::int64_t index_bytes,
                     std::int64_t index_offset) {
  Flat flat = Flat::run(0, value_bytes);
  flat.append(Flat::run(index_offset, index_bytes));
  return flat;
}

Flat flat_of_predefined(MPI_Datatype type) {
  const std::int64_t size = size_of(type);
  const Bounds bounds = true_bounds_of(type);
  if (size == 0) return {};
  if (size == bounds.extent) return Flat::run(bounds.lower, size);
  // The only predefined types with gaps are pairs of a value and an int: MPI_SHORT_INT, and others
  // depending on how the processor aligns. The int comes last.
  const std::int64_t index_bytes = sizeof(int);
  if (bounds.lower != 0 || size <= index_bytes) return Flat::opaque();
  return value_and_index(size - index_bytes, index_bytes, bounds.extent - index_bytes);
}

// What a derived type was made of. Small and large constructors deliver the same numbers in
// different places; the accessors hide that.
class Contents {
 public:
  Contents(MPI_Datatype type, const Envelope& envelope) : large_(envelope.large > 0) {
    integers_.resize(static_cast<std::size_t>(envelope.integers));
    addresses_.resize(static_cast<std::size_t>(envelope.addresses));
    counts_.resize(static_cast<std::size_t>(envelope.large));
    types_.resize(static_cast<std::size_t>(envelope.datatypes));
    if (large_) {
      valid_ =
          OD_HOST(Type_get_contents_c)(type, envelope.integers, envelope.addresses, envelope.large,
                                       envelope.datatypes, integers_.data(), addresses_.data(),
                                       counts_.data(), types_.data()) == MPI_SUCCESS;
    } else {
      valid_ = OD_HOST(Type_get_contents)(type, static_cast<int>(envelope.integers),
                                          static_cast<int>(envelope.addresses),
                                          static_cast<int>(envelope.datatypes), integers_.data(),
                                          addresses_.data(), types_.data()) == MPI_SUCCESS;
    }
    if (!valid_) types_.clear();
  }
  ~Contents() {
    // Contents are new references, except to types that cannot be freed.
    for (MPI_Datatype& type : types_) {
      Envelope envelope;
      if (read_envelope(type, &envelope) && !is_predefined(envelope.combiner)) {
        OD_HOST(Type_free)(&type);
      }
    }
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  bool valid() const { return valid_; }
  MPI_Datatype type(std::size_t i = 0) const { return types_[i]; }
  std::size_t type_count() const { return types_.size(); }
  int integer(std::size_t i) const { return integers_[i]; }

  // The next numbers in the order in which the constructor took them: counts, lengths and strides
  // are integers of a small constructor and large counts of a large one.
  std::int64_t count() { return large_ ? counts_[next_count_++] : integers_[next_integer_++]; }
  std::int64_t plain_integer() { return integers_[next_integer_++]; }
  // Byte displacements are addresses of a small constructor.
  std::int64_t address() { return large_ ? counts_[next_count_++] : addresses_[next_address_++]; }
  Numbers counts(std::int64_t n, std::int64_t factor = 1) {
    Numbers numbers;
    for (std::int64_t i = 0; i < n; ++i) numbers.push_back(count() * factor);
    return numbers;
  }
  Numbers addresses(std::int64_t n) {
    Numbers numbers;
    for (std::int64_t i = 0; i < n; ++i) numbers.push_back(address());
    return numbers;
  }
  Numbers plain_integers(std::int64_t n) {
    Numbers numbers;
    for (std::int64_t i = 0; i < n; ++i) numbers.push_back(plain_integer());
    return numbers;
  }

 private:
  bool large_;
  bool valid_ = false;
  std::vector<int> integers_;
  std::vector<MPI_Aint> addresses_;
  std::vector<MPI_Count> counts_;
  std::vector<MPI_Datatype> types_;
  std::size_t next_integer_ = 0;
  std::size_t next_address_ = 0;
  std::size_t next_count_ = 0;
};

Flat flat_of(MPI_Datatype type, int depth);

Part part_of(MPI_Datatype type, int depth) {
  return {flat_of(type, depth), bounds_of(type).extent};
}

Flat read_subarray(Contents& contents, const Part& part) {
  const std::int64_t dimensions = contents.plain_integer();
  const Numbers sizes = contents.counts(dimensions);
  const Numbers subsizes = contents.counts(dimensions);
  const Numbers starts = contents.counts(dimensions);
  const bool fortran = contents.plain_integer() == MPI_ORDER_FORTRAN;
  return p2p::flat_subarray(part, sizes, subsizes, starts,
                            fortran ? p2p::ArrayOrder::fortran : p2p::ArrayOrder::c);
}

Flat read_darray(Contents& contents, const Part& part) {
  contents.plain_integer();  // size of the process grid
  const std::int64_t rank = contents.plain_integer();
  const std::int64_t count = contents.plain_integer();
  const Numbers sizes = contents.counts(count);
  const Numbers distributions = contents.plain_integers(count);
  const Numbers arguments = contents.plain_integers(count);
  const Numbers processes = contents.plain_integers(count);
  const bool fortran = contents.plain_integer() == MPI_ORDER_FORTRAN;
  std::vector<p2p::DistributedDimension> dimensions(static_cast<std::size_t>(count));
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    dimensions[d].size = sizes[d];
    dimensions[d].processes = processes[d];
    if (distributions[d] == MPI_DISTRIBUTE_BLOCK) {
      dimensions[d].distribution = p2p::Distribution::block;
    } else if (distributions[d] == MPI_DISTRIBUTE_CYCLIC) {
      dimensions[d].distribution = p2p::Distribution::cyclic;
    }
    dimensions[d].argument = arguments[d] == MPI_DISTRIBUTE_DFLT_DARG ? 0 : arguments[d];
  }
  return p2p::flat_darray(part, rank, dimensions,
                          fortran ? p2p::ArrayOrder::fortran : p2p::ArrayOrder::c);
}

Flat read_struct(Contents& contents, int depth) {
  const std::int64_t count = contents.count();
  const Numbers lengths = contents.counts(count);
  const Numbers displacements = contents.addresses(count);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < contents.type_count(); ++i) {
    parts.push_back(part_of(contents.type(i), depth));
  }
  return p2p::flat_struct(parts, lengths, displacements);
}

Flat flat_of_constructed(int combiner, Contents& contents, int depth) {
  if (combiner == MPI_COMBINER_STRUCT) return read_struct(contents, depth);
  const Part part = part_of(contents.type(), depth);
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      return part.flat;
    case MPI_COMBINER_CONTIGUOUS:
      return part.flat.repeated(contents.count(), part.extent);
    case MPI_COMBINER_VECTOR: {
      const Numbers n = contents.counts(3);
      return p2p::flat_vector(part, n[0], n[1], n[2] * part.extent);
    }
    case MPI_COMBINER_HVECTOR: {
      const Numbers n = contents.counts(2);
      return p2p::flat_vector(part, n[0], n[1], contents.address());
    }
    case MPI_COMBINER_INDEXED: {
      const std::int64_t count = contents.count();
      const Numbers lengths = contents.counts(count);
      return p2p::flat_indexed(part, lengths, contents.counts(count, part.extent));
    }
    case MPI_COMBINER_HINDEXED: {
      const std::int64_t count = contents.count();
      const Numbers lengths = contents.counts(count);
      return p2p::flat_indexed(part, lengths, contents.addresses(count));
    }
    case MPI_COMBINER_INDEXED_BLOCK: {
      const Numbers n = contents.counts(2);
      return p2p::flat_indexed_block(part, n[1], contents.counts(n[0], part.extent));
    }
    case MPI_COMBINER_HINDEXED_BLOCK: {
      const Numbers n = contents.counts(2);
      return p2p::flat_indexed_block(part, n[1], contents.addresses(n[0]));
    }
    case MPI_COMBINER_SUBARRAY:
      return read_subarray(contents, part);
    case MPI_COMBINER_DARRAY:
      return read_darray(contents, part);
    default:
      return Flat::opaque();
  }
}

Flat flat_of(MPI_Datatype type, int depth) {
  Envelope envelope;
  if (depth > kMostDepth || !read_envelope(type, &envelope)) return Flat::opaque();
  if (is_predefined(envelope.combiner)) return flat_of_predefined(type);
  if (envelope.datatypes == 0) return Flat::opaque();
  Contents contents(type, envelope);
  if (!contents.valid()) return Flat::opaque();
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  if (envelope.combiner == MPI_COMBINER_VALUE_INDEX) {
    const std::int64_t index_bytes = size_of(contents.type(1));
    return value_and_index(size_of(contents.type(0)), index_bytes,
                           true_bounds_of(type).extent - index_bytes);
  }
#endif
  return flat_of_constructed(envelope.combiner, contents, depth + 1);
}

bool is_committed(MPI_Datatype type, int depth = 0) {
  if (type_cache_holder.value.known_as_committed(abi::to_handle(type))) return true;
  Envelope envelope;
  if (depth > kMostDepth || !read_envelope(type, &envelope)) return false;
  if (is_predefined(envelope.combiner)) return true;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  if (envelope.combiner == MPI_COMBINER_VALUE_INDEX) return true;  // unnamed, but predefined
#endif
  if (envelope.combiner != MPI_COMBINER_DUP) return false;
  // A duplicate of a predefined type. (Those of committed types are known from MPI_Type_dup: some
  // hosts show copies instead of the originals.)
  const Contents contents(type, envelope);
  return contents.valid() && is_committed(contents.type(), depth + 1);
}

void free_host_type(host::Handle handle) {
  // In a forked child and after MPI_Finalize the host must not be called any more.
  if (any_rank() == nullptr) return;
  HostCallScope scope(HostCallKind::kLocal);
  MPI_Datatype type = abi::from_handle<MPI_Datatype>(handle);
  OD_HOST(Type_free)(&type);
}

// What is known of the basic elements of a type.
constexpr std::int64_t kNoElement = 0;
constexpr std::int64_t kMixedElements = -1;

// The size of the basic elements of a type if all have the same.
std::int64_t element_bytes_of(MPI_Datatype type, int depth) {
  Envelope envelope;
  if (depth > kMostDepth || !read_envelope(type, &envelope)) return kMixedElements;
  if (is_predefined(envelope.combiner)) {
    const std::int64_t size = size_of(type);
    return size == true_bounds_of(type).extent ? size : kMixedElements;  // else a pair with a gap
  }
  if (envelope.datatypes == 0) return kMixedElements;
  const Contents contents(type, envelope);
  if (!contents.valid()) return kMixedElements;
  std::int64_t bytes = kNoElement;
  for (std::size_t i = 0; i < contents.type_count(); ++i) {
    const std::int64_t part = element_bytes_of(contents.type(i), depth + 1);
    if (part == kNoElement || part == bytes) continue;
    if (bytes != kNoElement) return kMixedElements;
    bytes = part;
  }
  return bytes;
}

// Gives an opaque layout a type of its own, which the program cannot free. Not a duplicate: that
// would call the program's attribute functions.
void keep_host_type(MPI_Datatype type, p2p::Layout* layout) {
  layout->host_type = abi::to_handle(type);
  MPI_Datatype copy;
  if (OD_HOST(Type_contiguous)(1, type, &copy) != MPI_SUCCESS) return;
  if (OD_HOST(Type_commit)(&copy) != MPI_SUCCESS) {
    OD_HOST(Type_free)(&copy);
    return;
  }
  layout->host_type = abi::to_handle(copy);
  layout->dispose = free_host_type;
}

}  // namespace

std::unique_ptr<p2p::Layout> make_layout(host::Handle handle) {
  const MPI_Datatype type = abi::from_handle<MPI_Datatype>(handle);
  if (type == abi::type_null() || handle == 0) return nullptr;
  HostCallScope scope(HostCallKind::kLocal);
  if (!is_committed(type)) return nullptr;
  auto layout = std::make_unique<p2p::Layout>();
  Envelope envelope;
  layout->immortal = read_envelope(type, &envelope) && is_predefined(envelope.combiner);
  Flat flat = flat_of(type, 0);
  const std::int64_t size = size_of(type);
  if (!flat.is_opaque()) {
    const Bounds bounds = true_bounds_of(type);
    // Some hosts report wider bounds than the data has (cyclic distributions in MPICH).
    const bool agrees =
        flat.size() == size && (size == 0 || (flat.lowest() >= bounds.lower &&
                                              flat.end() <= bounds.lower + bounds.extent));
    if (!agrees) {
      log(Level::kWarning,
          "a datatype of %lld bytes is packed by the MPI library: its shape is not clear",
          static_cast<long long>(size));
      flat = Flat::opaque();
    }
  }
  flat.finish(bounds_of(type).extent, layout.get());
  if (layout->shape == p2p::Shape::opaque) {
    layout->size = size;
    keep_host_type(type, layout.get());
  }
  if (state.host.err_split_element != 0 && layout->shape != p2p::Shape::contiguous) {
    const std::int64_t bytes = element_bytes_of(type, 0);
    if (bytes > 1) layout->whole_bytes = bytes;
  }
  return layout;
}

}  // namespace od::face
