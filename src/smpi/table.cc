// The service as a table of plain functions (include/overdrive/smpi_engine.h).
#include "smpi/service.h"

namespace od::smpi {
namespace {

Service& at(void* self) { return *static_cast<Service*>(self); }

}  // namespace

void Service::fill_table() {
  using Place = overdrive_smpi_place;
  table_.version = OVERDRIVE_SMPI_VERSION;
  table_.size_bytes = sizeof table_;
  table_.self = this;
  table_.member = static_cast<std::int32_t>(member_);
  table_.debug = debug_ != nullptr ? 1 : 0;
  table_.alloc = [](void* self, std::uint64_t bytes, const char* site) {
    return at(self).alloc(bytes, site);
  };
  table_.free = [](void* self, void* block, const char* site) {
    return at(self).free(block, site);
  };
  table_.capacity = [](void* self, const void* block, std::uint64_t* bytes) {
    return at(self).capacity(block, bytes);
  };
  table_.lend = [](void* self, const void* address, std::uint64_t bytes, std::uint32_t views,
                   Place* place) { return at(self).lend(address, bytes, views, place); };
  table_.take_back = [](void* self, const Place* place, std::uint32_t views) {
    at(self).take_back(*place, views);
  };
  table_.pass = [](void* self, void* block, std::uint64_t bytes, Place* place) {
    return at(self).pass(block, bytes, place);
  };
  table_.settle = [](void* self, void* block, std::uint64_t bytes, Place* place) {
    return at(self).settle(block, bytes, place);
  };
  table_.open = [](void* self, const Place* place, const char* site, const void** address,
                   std::uint64_t* view) { return at(self).open(*place, site, address, view); };
  table_.close = [](void* self, const Place* place, std::uint64_t view) {
    at(self).close(*place, view);
  };
  table_.own = [](void* self, const Place* place, std::uint64_t view, const char* site,
                  void** block) { return at(self).own(*place, view, site, block); };
  table_.lent = [](void* self, const void* block) { return at(self).lent(block); };
  table_.pause = [](void* self) { at(self).pause(); };
  table_.released_twice = [](void* self, std::uint64_t view) { at(self).released_twice(view); };
  table_.note_copy = [](void* self, std::uint64_t bytes) { at(self).note_copy(bytes); };
  table_.offer = [](void* self, const void* address, std::uint64_t bytes, Place* place) {
    return at(self).offer(address, bytes, place);
  };
  table_.free_after = [](void* self, void* block, const void* request) {
    return at(self).free_after(block, request);
  };
}

}  // namespace od::smpi
