// Checks what is kept of calls: sizes, peers, and time over a run that becomes ever longer.
#include "observe/recording.h"

#include <gtest/gtest.h>

#include <memory>

namespace od::observe {
namespace {

std::uint64_t total(const TimeSlots& slots, Activity activity) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < TimeSlots::kSlots; ++i) sum += slots.ns(i, activity);
  return sum;
}

TEST(TimeSlots, ACallIsDividedAmongItsSlots) {
  const auto slots = std::make_unique<TimeSlots>();
  slots->add(Activity::kSend, 500'000, 2'250'000);
  EXPECT_EQ(slots->ns(0, Activity::kSend), 500'000u);
  EXPECT_EQ(slots->ns(1, Activity::kSend), 1'000'000u);
  EXPECT_EQ(slots->ns(2, Activity::kSend), 250'000u);
  EXPECT_EQ(total(*slots, Activity::kSend), 1'750'000u);
  EXPECT_EQ(total(*slots, Activity::kWait), 0u);
}

TEST(TimeSlots, SlotsBecomeLongerAndLoseNothing) {
  const auto slots = std::make_unique<TimeSlots>();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    slots->add(Activity::kWait, i * 1'000'000, i * 1'000'000 + 10);
  }
  slots->add(Activity::kCollective, 10'000'000'000, 10'000'000'007);
  EXPECT_EQ(slots->slot_ns(), 16'000'000u);
  EXPECT_EQ(total(*slots, Activity::kWait), 10'000u);
  EXPECT_EQ(slots->ns(0, Activity::kWait), 160u);
  EXPECT_EQ(slots->ns(625, Activity::kCollective), 7u);
  const auto other = std::make_unique<TimeSlots>();
  other->add(Activity::kWait, 40'000'000, 40'000'005);
  slots->add(*other);
  EXPECT_EQ(slots->ns(2, Activity::kWait), 165u);
  other->add(*slots);
  EXPECT_EQ(other->slot_ns(), 16'000'000u);
  EXPECT_EQ(total(*other, Activity::kWait), 10'010u);
}

TEST(Recording, ClassesOfSizes) {
  EXPECT_EQ(SizeClasses::class_of(0), 0u);
  EXPECT_EQ(SizeClasses::class_of(1), 1u);
  EXPECT_EQ(SizeClasses::class_of(4095), 12u);
  EXPECT_EQ(SizeClasses::class_of(4096), 13u);
  EXPECT_EQ(SizeClasses::class_of(~std::uint64_t{0}), SizeClasses::kClasses - 1);
}

TEST(Recording, KindsOfCalls) {
  const auto is = [](const char* name, Activity activity) {
    EXPECT_EQ(activity_of(name), activity) << name;
  };
  for (const char* name : {"MPI_Send", "MPI_Isend", "MPI_Sendrecv", "MPI_Bsend", "MPI_Issend_c"}) {
    is(name, Activity::kSend);
  }
  is("MPI_Recv", Activity::kReceive);
  is("MPI_Imrecv", Activity::kReceive);
  for (const char* name : {"MPI_Waitall", "MPI_Test", "MPI_Iprobe", "MPI_Mprobe", "MPI_Probe"}) {
    is(name, Activity::kWait);
  }
  for (const char* name :
       {"MPI_Allreduce", "MPI_Ibarrier", "MPI_Alltoallw", "MPI_Neighbor_allgather", "MPI_Exscan",
        "MPI_Scan", "MPI_Bcast", "MPI_Gatherv", "MPI_Iscatter"}) {
    is(name, Activity::kCollective);
  }
  for (const char* name : {"MPI_Win_fence", "MPI_Put", "MPI_Get", "MPI_Rget", "MPI_Win_wait"}) {
    is(name, Activity::kOneSided);
  }
  is("MPI_File_write_all", Activity::kOther);
  is("MPI_Start", Activity::kOther);
}

TEST(Recording, JoinsThreads) {
  static const char* const names[] = {"MPI_Send", "MPI_Bcast"};
  start_recording(names, 1000);
  ASSERT_TRUE(is_recording());
  Recording* mine = own_recording();
  ASSERT_NE(mine, nullptr);
  mine->add(0, 1000, 3000, {.bytes = 100, .known = true, .peer = 2});
  mine->add(0, 0, 1100, {.bytes = 100, .known = true, .peer = 2});  // began before the record
  mine->add(1, 4000, 4500, {});
  const std::string text = recording_json(names);
  EXPECT_NE(text.find("\"below_bytes\": 128"), std::string::npos) << text;
  EXPECT_NE(text.find("\"calls\": 2"), std::string::npos) << text;
  EXPECT_NE(text.find("\"ns\": 2100"), std::string::npos) << text;
  EXPECT_NE(text.find("\"rank\": 2"), std::string::npos) << text;
  EXPECT_NE(text.find("\"bytes\": 200"), std::string::npos) << text;
}

}  // namespace
}  // namespace od::observe
