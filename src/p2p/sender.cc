// The choice of path, and messages that go in one piece.

#include "p2p/sender.h"

#include <algorithm>
#include <new>
#include <utility>

#include "memory/copy.h"
#include "memory/reach.h"
#include "p2p/opaque.h"
#include "p2p/path/path.h"
#include "p2p/path/short.h"

namespace od::p2p {

std::uint64_t Sender::inline_max(const Links& links, const config::Settings& settings) {
  const std::uint64_t wanted = settings.inline_max_bytes;
  const std::uint64_t box_bytes = links.layout().box_bytes;
  if (box_bytes <= sizeof(BoxHeader)) return wanted;
  return std::min<std::uint64_t>(wanted, box_line_count(box_bytes) / 4 * kContinuationPayloadBytes);
}

Sender::Sender(Links& links, Receiver& receiver, const config::Settings& settings,
               const host::HostTable& host, observe::Counters& counters,
               memory::SendHistory& history)
    : links_(links.all_links()),
      frames_(links.all_frames()),
      counters_(counters),
      inline_max_(inline_max(links, settings)),
      wake_(links.wake_mode()),
      verify_(settings.verify),
      settings_(settings),
      host_(host),
      all_links_(links),
      receiver_(receiver),
      plan_(settings),
      memory_(links, settings),
      stores_(settings, counters),
      outbox_(links, memory_, receiver, settings, counters),
      side_{links, memory_, outbox_, stores_, settings, counters, settings.verify},
      history_(history),
      packed_(inline_max_ + kHeadPayloadBytes) {
  eager_max_ = std::min<std::uint64_t>(settings.eager_max_bytes, memory_.pool().chunk_bytes());
  // Where ranks share cores the time between calls is that of others.
  if (plan_.chooses() && settings.learn == config::LearnMode::kOn &&
      !links.node().oversubscribed()) {
    learnt_ = std::make_unique<PathTable>(counters, links.my_index(), links.count());
  }
}

ChosenPath Sender::choose_path(std::uint32_t peer, const Payload& payload) {
  if (payload.contiguous == nullptr) return {};  // strided data takes cells
  Link& link = links_[peer];
  const bool far = link.distance.far();
  std::uint64_t place = memory::kUnreachable;
  if (link.reaches_us) place = memory::reach_offset(payload.contiguous, payload.bytes);
  const bool in_file = place != memory::kUnreachable;
  const bool reachable = in_file || (link.opens_us && payload.bytes >= settings_.xpmem_min_bytes);
  const bool learns = learnt_ != nullptr && payload.bytes >= PathTable::kLeastBytes;
  memory::BufferUse use = memory::BufferUse::fresh;
  if (reachable && (learns || plan_.wants_guess(payload.bytes, far))) {
    use = history_.look(payload.contiguous, payload.bytes);
  }
  Path path = plan_.choose(payload.bytes, far, reachable, use);
  if (learns) path = learnt_path(peer, payload, reachable, use, path);
  if (row_of(path).mapped && !in_file) {
    // Not before it matters: it is a system call.
    place = all_links_.attachable_place(peer, payload.contiguous, payload.bytes);
    if (place == memory::kUnreachable) {
      path = plan_.choose(payload.bytes, far, false, use);
      if (learns) learnt_->spoil_last();
    }
  }
  const PathRow& row = row_of(path);
  ChosenPath chosen{.path = path};
  if (row.offer(all_links_, peer, payload, place, &chosen.source_address)) return chosen;
  if (learns && row.mapped) learnt_->spoil_last();
  return {.path = Path::cells, .late = row.offers};
}

Path Sender::learnt_path(std::uint32_t peer, const Payload& payload, bool reachable,
                         memory::BufferUse use, Path prior) {
  unsigned able = PathChoice::bit(prior);
  for (std::size_t i = 0; i < kPathCount; ++i) {
    const PathRow& row = kPathRows[i];
    if (row.able != nullptr && payload.bytes >= row.least_bytes &&
        row.able(all_links_, peer, reachable)) {
      able |= PathChoice::bit(static_cast<Path>(i));
    }
  }
  return learnt_->choose({.peer = peer,
                          .far = links_[peer].distance.far(),
                          .reachable = reachable,
                          .use = use,
                          .bytes = payload.bytes,
                          .prior = prior,
                          .able = able});
}

int Sender::send(std::uint32_t peer, const MessageHeader& header_in, const Payload& payload,
                 SendMode mode, Request& request) {
  MessageHeader header = header_in;
  std::unique_ptr<char[]> packed;
  Payload view = payload;
  const Layout& layout = **payload.layout;
  if (layout.shape == Shape::opaque && payload.bytes > 0) {
    packed.reset(new (std::nothrow) char[payload.bytes]);
    if (packed == nullptr) return host_.err_no_mem;
    const int error = pack_opaque(host_, layout, payload.address, payload.count, packed.get(),
                                  static_cast<std::int64_t>(payload.bytes));
    if (error != host::kSuccess) return error;
    if (packed_by_host(layout)) ++counters_.layouts_host_packed;
    view.contiguous = packed.get();
  }
  Cursor cursor;
  Cursor* walk = nullptr;
  if (view.contiguous == nullptr && view.bytes > 0) {
    cursor = Cursor(const_cast<void*>(payload.address), payload.count, layout);
    walk = &cursor;
    ++counters_.layouts_direct;
  }
  ChosenPath chosen;
  // A buffered send may not wait for its receiver.
  if (view.bytes >= plan_.floor_bytes() && mode != SendMode::buffered)
    chosen = choose_path(peer, view);
  if (mode != SendMode::synchronous) {
    if (view.bytes <= inline_max_) {
      const auto bytes = static_cast<std::uint32_t>(view.bytes);
      const void* data = view.contiguous;
      if (walk != nullptr) {
        Cursor once = cursor;
        once.pack(packed_.data(), bytes, memory::copy_ordinary);
        data = packed_.data();
      }
      if (verify_) {
        header.checksum =
            memory::checksum_fold(memory::checksum_update(memory::kChecksumStart, data, bytes));
      }
      header.kind = Kind::inline_data;
      if (send_inline(side_, peer, header, data, bytes)) {
        request.complete = true;
        return host::kSuccess;
      }
    }
    if (chosen.path == Path::cells && view.bytes <= eager_max_ &&
        (send_frame(side_, peer, header, view, walk) ||
         send_cell(side_, peer, header, view, walk))) {
      request.complete = true;
      return host::kSuccess;
    }
  }
  return send_stream(peer, header, view, walk, std::move(packed), mode, chosen, request);
}

}  // namespace od::p2p
