// Builds the shape of a derived datatype out of the shapes of its parts, without MPI.
//
// A Flat is the typemap of one element without its extent: one run, a regular pattern of blocks, or
// a list of runs; in typemap order, adjacent runs merged. Regular patterns stay small however many
// blocks they have; a list that would get too long makes the whole Flat opaque, and so does every
// opaque part.
#ifndef OVERDRIVE_P2P_LAYOUT_BUILDER_H_
#define OVERDRIVE_P2P_LAYOUT_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "p2p/layout.h"

namespace od::p2p {

// A list of runs costs 16 bytes each and its walk is worth more than the host's pack routine only
// while it stays in the cache.
inline constexpr std::int64_t kMostSegments = 65536;

class Flat {
 public:
  Flat() = default;  // no bytes
  static Flat run(std::int64_t offset, std::int64_t bytes);
  static Flat opaque();

  std::int64_t size() const { return size_; }
  bool is_opaque() const { return opaque_; }
  // Lowest offset of a byte and one past the highest; 0 and 0 when there are none.
  std::int64_t lowest() const;
  std::int64_t end() const;

  Flat shifted(std::int64_t bytes) const;
  // `count` copies, each `stride_bytes` after the one before.
  Flat repeated(std::int64_t count, std::int64_t stride_bytes) const;
  // Adds the runs of `other` behind the own ones.
  void append(const Flat& other);

  // The finished shape, for a type of this extent. Fields that opaque layouts need are left to the
  // caller.
  void finish(std::int64_t extent, Layout* layout) const;

 private:
  std::int64_t run_count() const;
  void push(Segment run);
  // Calls visit(Segment) for every run.
  template <typename Visit>
  void for_each(Visit&& visit) const;
  // Takes in a pattern that goes on where the own one ends; false if it does not.
  bool continues_pattern(const Flat& other);
  // Turns a list of equal runs at equal distances into a pattern.
  void recognise();

  bool opaque_ = false;
  std::int64_t size_ = 0;
  // The pattern, when segments_ is empty and size_ is not 0.
  std::int64_t lower_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t block_bytes_ = 0;
  std::int64_t stride_ = 0;
  std::vector<Segment> segments_;
};

// A part of a derived type: its shape and the distance of its consecutive copies.
struct Part {
  Flat flat;
  std::int64_t extent = 0;
};

// The constructors of MPI. Displacements and strides are in bytes; callers multiply.
Flat flat_vector(const Part& part, std::int64_t count, std::int64_t blocklength,
                 std::int64_t stride_bytes);
Flat flat_indexed(const Part& part, std::span<const std::int64_t> blocklengths,
                  std::span<const std::int64_t> displacements_bytes);
Flat flat_indexed_block(const Part& part, std::int64_t blocklength,
                        std::span<const std::int64_t> displacements_bytes);
Flat flat_struct(std::span<const Part> parts, std::span<const std::int64_t> blocklengths,
                 std::span<const std::int64_t> displacements_bytes);

enum class ArrayOrder : std::uint8_t { c, fortran };
Flat flat_subarray(const Part& part, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> subsizes, std::span<const std::int64_t> starts,
                   ArrayOrder order);

enum class Distribution : std::uint8_t { none, block, cyclic };
struct DistributedDimension {
  std::int64_t size = 0;  // of the global array
  Distribution distribution = Distribution::none;
  std::int64_t argument = 0;   // block size; 0: the default
  std::int64_t processes = 1;  // along this dimension
};
// The share of process `rank` in a grid that is counted in C order.
Flat flat_darray(const Part& part, std::int64_t rank,
                 std::span<const DistributedDimension> dimensions, ArrayOrder order);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_LAYOUT_BUILDER_H_
