// Checks when a buffered send may go ahead, by what the program has attached.
#include "face/bsend_ledger.h"

#include <gtest/gtest.h>

namespace od::face {
namespace {

constexpr host::Handle kProcess = 0;
constexpr host::Handle kComm = 0x84000001;

TEST(BsendLedger, NothingFitsWithoutABuffer) {
  BsendLedger ledger;
  EXPECT_FALSE(ledger.has_room(kComm, 0));
  EXPECT_FALSE(ledger.has_room(kComm, 1));
}

TEST(BsendLedger, TheBufferOfTheProcessServesEveryCommunicator) {
  BsendLedger ledger;
  ledger.attach(kProcess, 1000);
  EXPECT_TRUE(ledger.has_room(kComm, 1000));
  EXPECT_FALSE(ledger.has_room(kComm, 1001));
  ledger.detach(kProcess);
  EXPECT_FALSE(ledger.has_room(kComm, 1));
}

TEST(BsendLedger, ACommunicatorsOwnBufferReplacesTheProcesss) {
  BsendLedger ledger;
  ledger.attach(kProcess, 1000);
  ledger.attach(kComm, 10);
  EXPECT_FALSE(ledger.has_room(kComm, 11));
  EXPECT_TRUE(ledger.has_room(kComm + 1, 11));
  ledger.detach(kComm);
  EXPECT_TRUE(ledger.has_room(kComm, 11));
}

TEST(BsendLedger, AutomaticBuffersHoldEverything) {
  BsendLedger ledger;
  ledger.attach(kComm, BsendLedger::kUnlimited);
  EXPECT_TRUE(ledger.has_room(kComm, std::int64_t{1} << 50));
}

}  // namespace
}  // namespace od::face
