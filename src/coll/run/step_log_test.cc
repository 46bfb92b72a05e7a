// Steps find their call, old calls are forgotten, and the JSON says what a picture needs.

#include "coll/run/step_log.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "coll/plan/registry.h"

namespace od {
namespace {

StepLog::Call call_of(std::uint64_t bytes) {
  StepLog::Call call;
  call.collective = coll::Collective::kBcast;
  call.decision.algorithm = coll::find_algorithm(coll::Collective::kBcast, "binomial");
  call.bytes = bytes;
  call.unit_bytes = 8;
  call.rank = 1;
  call.size = 2;
  call.node_of_rank = {0, 1};
  call.begin_ns = 10;
  return call;
}

StepLog::Call::Timed message(std::uint64_t begin_ns, std::uint64_t end_ns) {
  coll::Step step;
  step.kind = coll::StepKind::kReceive;
  step.peer = 0;
  step.count = 4;
  step.segment = 3;
  return {step, true, begin_ns, end_ns};
}

TEST(StepLog, CallsUnderWayTogetherKeepTheirSteps) {
  StepLog log;
  const std::uint64_t first = log.begin_call(call_of(1));
  const std::uint64_t second = log.begin_call(call_of(2));
  log.step(second, message(20, 30));
  log.step(first, message(15, 25));
  log.step(second, message(31, 32));
  log.end_call(second, 40);
  ASSERT_EQ(log.calls().size(), 2u);
  EXPECT_EQ(log.calls()[0].steps.size(), 1u);
  EXPECT_EQ(log.calls()[1].steps.size(), 2u);
  EXPECT_EQ(log.calls()[0].end_ns, 0u);
  EXPECT_EQ(log.calls()[1].end_ns, 40u);
}

TEST(StepLog, TheOldestCallsAreForgottenFirst) {
  StepLog log;
  for (std::size_t i = 0; i < StepLog::kMostCalls + 3; ++i) log.begin_call(call_of(i));
  EXPECT_EQ(log.calls().size(), StepLog::kMostCalls);
  EXPECT_EQ(log.forgotten(), 3u);
  log.step(1, message(1, 2));  // forgotten: nothing happens
  log.end_call(2, 3);
  EXPECT_EQ(log.calls().front().number, 3u);
  EXPECT_TRUE(log.calls().front().steps.empty());
}

TEST(StepLog, MemoryIsBoundedByStepsAsWellButTheNewestCallStays) {
  StepLog log;
  log.step(log.begin_call(call_of(1)), message(1, 2));
  const std::uint64_t large = log.begin_call(call_of(2));
  for (std::size_t i = 0; i < StepLog::kMostSteps + 10; ++i) log.step(large, message(1, 2));
  ASSERT_EQ(log.calls().size(), 1u);
  EXPECT_EQ(log.calls()[0].steps.size(), StepLog::kMostSteps + 10);
  log.step(log.begin_call(call_of(3)), message(1, 2));
  ASSERT_EQ(log.calls().size(), 1u);
  EXPECT_EQ(log.calls()[0].bytes, 3u);
}

TEST(StepLog, JsonHasCompletedCallsOnly) {
  StepLog log;
  const std::uint64_t number = log.begin_call(call_of(32));
  log.step(number, message(20, 30));
  log.end_call(number, 40);
  log.begin_call(call_of(64));
  std::string json = log.json(5, 6);
  std::erase_if(json, [](char c) { return c == ' ' || c == '\n'; });
  EXPECT_NE(json.find("\"bytes\":32"), std::string::npos) << json;
  EXPECT_EQ(json.find("\"bytes\":64"), std::string::npos) << json;
  EXPECT_NE(json.find("\"algorithm\":\"binomial\""), std::string::npos) << json;
  EXPECT_NE(json.find("\"what\":\"receive\",\"peer\":0,\"between_nodes\":true,\"segment\":3"),
            std::string::npos)
      << json;
}

}  // namespace
}  // namespace od
