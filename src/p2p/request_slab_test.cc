// Checks that requests keep their places, and that places are made when they are needed.
#include "p2p/request_slab.h"

#include <gtest/gtest.h>

#include <vector>

namespace od {
namespace {

Request* pending(RequestSlab& slab) {
  Request* request = slab.allocate();
  if (request != nullptr) request->kind = RequestKind::recv;
  return request;
}

TEST(RequestSlab, PlacesAreConstantAndLastFreedIsFirstReused) {
  RequestSlab slab;
  std::vector<Request*> requests;
  for (std::uint32_t i = 2; i <= 3 * RequestSlab::kChunk; ++i) {
    Request* request = pending(slab);
    ASSERT_NE(request, nullptr);
    ASSERT_EQ(request->index, i);  // in order, also from chunk to chunk
    requests.push_back(request);
  }
  for (Request* request : requests) ASSERT_EQ(slab.at(request->index), request);
  EXPECT_EQ(slab.in_use(), 3 * RequestSlab::kChunk + 1);
  Request* first = requests[10];
  Request* second = requests[2000];
  slab.release(*first);
  slab.release(*second);
  EXPECT_EQ(slab.at(first->index), nullptr);
  EXPECT_EQ(pending(slab), second);
  EXPECT_EQ(pending(slab), first);
  EXPECT_EQ(pending(slab)->index, 3 * RequestSlab::kChunk + 1);
}

TEST(RequestSlab, WhatWasNeverHandedOutIsNoRequest) {
  RequestSlab slab;
  EXPECT_NE(slab.at(RequestSlab::kCompletedSend), nullptr);
  EXPECT_NE(slab.at(RequestSlab::kCompletedCollective), nullptr);
  Request* request = pending(slab);
  EXPECT_EQ(slab.at(request->index + 1), nullptr);
  EXPECT_EQ(slab.at(RequestSlab::kChunk), nullptr);
  EXPECT_EQ(slab.at(RequestSlab::kCapacity), nullptr);
  EXPECT_EQ(slab.at(~std::uint32_t{0}), nullptr);
  int seen = 0;
  slab.each([&](Request&) { ++seen; });
  EXPECT_EQ(seen, 3);  // the completed ones and this one
}

TEST(RequestSlab, EndsAtItsCapacity) {
  RequestSlab slab;
  for (std::uint32_t i = 2; i < RequestSlab::kCapacity; ++i) ASSERT_NE(pending(slab), nullptr);
  EXPECT_EQ(slab.allocate(), nullptr);
  slab.release(*slab.at(77));
  EXPECT_EQ(pending(slab)->index, 77u);
}

}  // namespace
}  // namespace od
