// Checks the exchanges of long reductions: alike on all members, every byte combined once, and what
// is kept in a slot shown where and when it was planned.

#include "coll/shm/reduction_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace od::coll::shm {
namespace {

constexpr std::uint64_t kSlotBytes = 256 << 10;

struct Case {
  std::vector<int> caches;  // the cache of each member
  Driver driver;
  int root;
  std::uint64_t bytes;
  std::uint64_t extent;
  ReductionForm form = ReductionForm::automatic;

  int size() const { return static_cast<int>(caches.size()); }
  std::string text() const {
    return std::to_string(size()) + " members, driver " + std::to_string(static_cast<int>(driver)) +
           ", root " + std::to_string(root) + ", form " + std::to_string(static_cast<int>(form)) +
           ", " + std::to_string(bytes) + " bytes of " + std::to_string(extent);
  }
};

TeamShape shape_of(const Case& c, int me) {
  Tuning tuning;
  tuning.driver = c.driver;
  tuning.segment_slice_bytes = 16 << 10;
  std::vector<CacheClaim> claims;
  for (const int cache : c.caches) {
    CacheClaim claim;
    claim.group = cache;
    claims.push_back(claim);
  }
  return {c.size(), me, kSlotBytes, tuning, claims};
}

// What members have to agree about.
void expect_alike(const ExchangeSpec& a, const ExchangeSpec& b) {
  EXPECT_EQ(a.pattern, b.pattern);
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.use, b.use);
  EXPECT_EQ(a.root, b.root);
  EXPECT_EQ(a.combines_groups(), b.combines_groups());
  EXPECT_EQ(a.across.total, b.across.total);
  EXPECT_EQ(a.circle == nullptr, b.circle == nullptr);
}

class PlanOfMember {
 public:
  PlanOfMember(const Case& c, int me) : shape_(shape_of(c, me)) {
    combiner_.extent_bytes = c.extent;
    combiner_.commutative = true;
    const bool gets = c.root == ReducedVector::kEverybody || c.root == me;
    vector_.resize(c.bytes);
    plan_.make(shape_, {vector_.data(), gets ? vector_.data() : nullptr, c.bytes, c.root,
                        &combiner_, c.form});
  }
  ReductionPlan& plan() { return plan_; }

  // Describes all exchanges in order; `combined` are the parts of the vector of which this member
  // makes the final result.
  std::vector<PlannedExchange> describe(const Case& c, std::vector<std::uint64_t>& combined) {
    std::vector<PlannedExchange> exchanges;
    std::map<std::uint32_t, std::uint64_t> shown_at;
    std::uint64_t next_place = 0;
    for (std::uint32_t i = 0; i < plan_.exchanges(); ++i) {
      const auto needs = plan_.needs(i);
      EXPECT_TRUE(!needs || *needs < i);
      const PlannedExchange x = plan_.describe(i);
      if (x.part.origin == Origin::kept_result) {
        EXPECT_TRUE(shown_at.contains(i)) << "exchange " << i;
        EXPECT_EQ(x.part.shown_at, shown_at[i]);
        shown_at.erase(i);
      }
      if (x.part.keep.wanted()) {
        EXPECT_GT(x.part.keep.shown_later, 0u);
        *x.part.keep.at = ++next_place * 1000;
        shown_at[i + x.part.keep.shown_later] = next_place * 1000;
      }
      const bool last_combine =
          x.spec.use == Use::combine && (!plan_.in_groups() || x.spec.combines_groups());
      if (last_combine) {
        EXPECT_EQ(x.part.in.total % c.extent, 0u);
        combined.push_back(x.part.in.total);
        EXPECT_NE(x.part.keep.wanted(), x.part.in.base != nullptr || x.part.in.total == 0);
      }
      exchanges.push_back(x);
    }
    EXPECT_TRUE(shown_at.empty()) << "kept, but never shown";
    return exchanges;
  }

 private:
  TeamShape shape_;
  Combiner combiner_;
  std::vector<std::byte> vector_;
  ReductionPlan plan_;
};

void check(const Case& c) {
  SCOPED_TRACE(c.text());
  std::vector<PlannedExchange> first;
  std::uint64_t combined_bytes = 0;
  for (int me = 0; me < c.size(); ++me) {
    PlanOfMember member(c, me);
    std::vector<std::uint64_t> combined;
    const std::vector<PlannedExchange> exchanges = member.describe(c, combined);
    for (const std::uint64_t bytes : combined) combined_bytes += bytes;
    if (me == 0) first = exchanges;
    ASSERT_EQ(exchanges.size(), first.size());
    for (std::size_t i = 0; i < first.size(); ++i) expect_alike(exchanges[i].spec, first[i].spec);
  }
  EXPECT_EQ(combined_bytes, c.bytes) << "all of the vector, by somebody, once";
}

TEST(ReductionPlan, MembersAgreeAndEveryByteIsCombinedOnce) {
  const std::vector<std::vector<int>> teams = {
      {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1, 1}, {0, 0, 0, 1, 1, 2}};
  for (const std::vector<int>& caches : teams) {
    for (const Driver driver : {Driver::generic, Driver::segmented}) {
      for (const int root : {ReducedVector::kEverybody, 0, 2}) {
        for (const std::uint64_t extent : {1, 8, 24}) {
          for (const std::uint64_t count : {1'000, 20'000, 70'001}) {
            for (const ReductionForm form : {ReductionForm::automatic, ReductionForm::slices,
                                             ReductionForm::segments, ReductionForm::groups}) {
              check({caches, driver, root, count * extent, extent, form});
            }
          }
        }
      }
    }
  }
}

// Whatever the driver; what cannot be is made simpler.
TEST(ReductionPlan, TakesTheFormThatIsAskedFor) {
  const auto plan_of = [](std::vector<int> caches, Driver driver, ReductionForm form) {
    const Case c{std::move(caches), driver, ReducedVector::kEverybody, 1 << 20, 8, form};
    return PlanOfMember(c, 0).plan().pipeline();
  };
  for (const Driver driver : {Driver::generic, Driver::segmented}) {
    EXPECT_EQ(plan_of({0, 0, 1, 1}, driver, ReductionForm::slices).exchanges(), 2u);
    EXPECT_EQ(plan_of({0, 0, 1, 1}, driver, ReductionForm::segments).phases, 2u);
    EXPECT_GT(plan_of({0, 0, 1, 1}, driver, ReductionForm::segments).segments, 1u);
    EXPECT_EQ(plan_of({0, 0, 1, 1}, driver, ReductionForm::groups).phases, 3u);
    EXPECT_EQ(plan_of({0, 0, 0, 0}, driver, ReductionForm::groups).phases, 2u);
  }
  const TeamShape shape = shape_of({{0, 0, 1, 1}, Driver::segmented, 0, 0, 8}, 0);
  for (const std::uint64_t bytes : {std::uint64_t{8}, std::uint64_t{1} << 30}) {
    EXPECT_TRUE(shape.reduces_whole(bytes, ReductionForm::whole));
    EXPECT_TRUE(shape.allreduces_whole(bytes, ReductionForm::whole));
    EXPECT_FALSE(shape.reduces_whole(bytes, ReductionForm::slices));
    EXPECT_FALSE(shape.allreduces_whole(bytes, ReductionForm::groups));
  }
  EXPECT_TRUE(shape.allreduces_whole(0, ReductionForm::slices)) << "there is nothing to cut";
}

TEST(ReductionPlan, TakesThreePhasesWhereGroupsSaveAnything) {
  const auto plan_of = [](std::vector<int> caches, Driver driver) {
    const Case c{std::move(caches), driver, ReducedVector::kEverybody, 1 << 20, 8};
    return PlanOfMember(c, 0).plan().pipeline().phases;
  };
  EXPECT_EQ(plan_of({0, 0, 1, 1}, Driver::segmented), 3u);
  EXPECT_EQ(plan_of({0, 0, 1, 1}, Driver::generic), 2u);
  EXPECT_EQ(plan_of({0, 0, 0, 0}, Driver::segmented), 2u);
  EXPECT_EQ(plan_of({0, 1, 2, 3}, Driver::segmented), 2u);
}

}  // namespace
}  // namespace od::coll::shm
