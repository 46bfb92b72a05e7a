// SMPI for C++20: message memory and views as objects that clean up after themselves.
//
// `block<T>` owns message memory, `view<T>` sees a message; both can be moved and not copied, and
// both are spans. Errors throw `overdrive::smpi::error`; set MPI_ERRORS_RETURN on the communicator,
// as its handler is called first. Datatypes follow from the type of the elements.
//
//   namespace smpi = overdrive::smpi;
//   smpi::attach(comm);
//   smpi::block<double> a(1000);                       // rank 0
//   smpi::send(a.span(), 1, 0, comm);
//   auto seen = smpi::recv<double>(1000, 0, 0, comm);  // rank 1
//   double sum = std::accumulate(seen.begin(), seen.end(), 0.0);
//   smpi::pass(std::move(a), 1, 1, comm);              // ownership goes along
//   smpi::block<double> mine = smpi::recv<double>(1000, 0, 1, comm).own();
#ifndef OVERDRIVE_SMPI_HPP_
#define OVERDRIVE_SMPI_HPP_

#include <cstddef>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "overdrive/smpi.h"

namespace overdrive::smpi {

class error : public std::runtime_error {
 public:
  explicit error(int code) : std::runtime_error(text_of(code)), code_(code) {}
  // The MPI error code.
  int code() const noexcept { return code_; }

 private:
  static std::string text_of(int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return {text, static_cast<std::size_t>(length)};
  }
  int code_;
};

namespace detail {

inline void check(int code) {
  if (code != MPI_SUCCESS) throw error(code);
}

// The debug mode names places by texts that live as long as the process.
inline void at(const std::source_location& place) {
  if (smpi_engine_() == nullptr || smpi_engine_()->debug == 0) return;
  static std::vector<std::pair<const char*, unsigned>> known;
  static std::vector<const char*> texts;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i] == std::pair{place.file_name(), unsigned{place.line()}}) {
      smpi_site_ = texts[i];
      return;
    }
  }
  const std::string text = std::string(place.file_name()) + ":" + std::to_string(place.line());
  known.emplace_back(place.file_name(), place.line());
  texts.push_back((new std::string(text))->c_str());
  smpi_site_ = texts.back();
}

using place = std::source_location;

}  // namespace detail

inline void attach(MPI_Comm comm) { detail::check(SMPI_Comm_attach(comm)); }
inline void detach(MPI_Comm comm) { detail::check(SMPI_Comm_detach(comm)); }
inline bool near(MPI_Comm comm, int rank) {
  int flag = 0;
  detail::check(SMPI_Comm_near(comm, rank, &flag));
  return flag != 0;
}

// Message memory that this object owns. T: trivially copyable.
template <typename T>
class block {
  static_assert(std::is_trivially_copyable_v<T>, "messages are copied between nodes");

 public:
  block() = default;
  explicit block(std::size_t count, detail::place where = detail::place::current())
      : count_(count) {
    detail::at(where);
    detail::check((SMPI_Alloc)(static_cast<MPI_Aint>(count * sizeof(T)), &data_));
  }
  // Takes over a block that was allocated or received otherwise.
  static block adopt(T* data, std::size_t count) {
    block taken;
    taken.data_ = data;
    taken.count_ = count;
    return taken;
  }
  block(block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  block& operator=(block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  block(const block&) = delete;
  block& operator=(const block&) = delete;
  // Views of it stay valid.
  ~block() {
    if (data_ != nullptr) SMPI_Free(data_);
  }

  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + count_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() const { return {data_, count_}; }
  explicit operator bool() const { return data_ != nullptr; }
  // How many views of it there are; waits until there are none.
  int lent() const {
    int views = 0;
    detail::check(SMPI_Lent(data_, &views));
    return views;
  }
  void reclaim() const { detail::check(SMPI_Reclaim(data_)); }
  // Gives the memory up to the caller, who frees or passes it.
  T* release() {
    count_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// A received message, read-only; released with the object. Of a non-blocking receive it may be used
// when the request is complete.
template <typename T>
class view {
 public:
  view() = default;
  explicit view(SMPI_View handle) : handle_(handle) {}
  view(view&& other) noexcept { swap(other); }
  view& operator=(view&& other) noexcept {
    swap(other);
    return *this;
  }
  view(const view&) = delete;
  view& operator=(const view&) = delete;
  ~view() {
    if (handle_ != SMPI_VIEW_NULL) SMPI_View_release(&handle_);
  }

  std::span<const T> span() const {
    look();
    return {data_, count_};
  }
  const T* data() const { return span().data(); }
  std::size_t size() const { return span().size(); }
  const T* begin() const { return span().data(); }
  const T* end() const { return span().data() + count_; }
  const T& operator[](std::size_t i) const { return span()[i]; }
  int source() const {
    look();
    return source_;
  }
  int tag() const {
    look();
    return tag_;
  }
  explicit operator bool() const { return handle_ != SMPI_VIEW_NULL; }
  void release() { *this = view(); }
  // The block that was passed, or a copy of what was lent.
  block<T> own(detail::place where = detail::place::current()) {
    look();
    void* data = nullptr;
    detail::at(where);
    detail::check((SMPI_View_own)(&handle_, &data));
    looked_ = false;
    return block<T>::adopt(static_cast<T*>(data), count_);
  }
  SMPI_View* handle() { return &handle_; }

 private:
  void swap(view& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(looked_, other.looked_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    std::swap(source_, other.source_);
    std::swap(tag_, other.tag_);
  }
  void look() const {
    if (looked_) return;
    MPI_Status status;
    MPI_Count bytes = 0;
    detail::check(SMPI_View_get(handle_, &data_, &status));
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    count_ = static_cast<std::size_t>(bytes) / sizeof(T);
    source_ = status.MPI_SOURCE;
    tag_ = status.MPI_TAG;
    looked_ = true;
  }
  SMPI_View handle_ = SMPI_VIEW_NULL;
  mutable bool looked_ = false;
  mutable const T* data_ = nullptr;
  mutable std::size_t count_ = 0;
  mutable int source_ = MPI_PROC_NULL, tag_ = MPI_ANY_TAG;
};

template <typename T>
void send(std::span<T> data, int dest, int tag, MPI_Comm comm) {
  const auto bytes = static_cast<MPI_Count>(data.size_bytes());
  detail::check(SMPI_Send(data.data(), bytes, MPI_BYTE, dest, tag, comm));
}

template <typename T>
MPI_Request isend(std::span<T> data, int dest, int tag, MPI_Comm comm) {
  MPI_Request request;
  const auto bytes = static_cast<MPI_Count>(data.size_bytes());
  detail::check(SMPI_Isend(data.data(), bytes, MPI_BYTE, dest, tag, comm, &request));
  return request;
}

// On error the block stays with the caller.
template <typename T>
void pass(block<T>&& data, int dest, int tag, MPI_Comm comm) {
  const auto bytes = static_cast<MPI_Count>(data.size() * sizeof(T));
  detail::check(SMPI_Pass(data.data(), bytes, MPI_BYTE, dest, tag, comm));
  data.release();
}

template <typename T>
MPI_Request ipass(block<T>&& data, int dest, int tag, MPI_Comm comm) {
  MPI_Request request;
  const auto bytes = static_cast<MPI_Count>(data.size() * sizeof(T));
  detail::check(SMPI_Ipass(data.data(), bytes, MPI_BYTE, dest, tag, comm, &request));
  data.release();
  return request;
}

template <typename T>
view<T> recv(std::size_t most, int source, int tag, MPI_Comm comm,
             detail::place where = detail::place::current()) {
  SMPI_View made = SMPI_VIEW_NULL;
  detail::at(where);
  detail::check((SMPI_Recv)(&made, static_cast<MPI_Count>(most * sizeof(T)), MPI_BYTE, source, tag,
                            comm, MPI_STATUS_IGNORE));
  return view<T>(made);
}

template <typename T>
view<T> irecv(std::size_t most, int source, int tag, MPI_Comm comm, MPI_Request* request,
              detail::place where = detail::place::current()) {
  SMPI_View made = SMPI_VIEW_NULL;
  detail::at(where);
  detail::check((SMPI_Irecv)(&made, static_cast<MPI_Count>(most * sizeof(T)), MPI_BYTE, source, tag,
                             comm, request));
  return view<T>(made);
}

// `count` elements of the root's `data` at every rank; `data` is significant at the root.
template <typename T>
view<T> bcast(const T* data, std::size_t count, int root, MPI_Comm comm,
              detail::place where = detail::place::current()) {
  SMPI_View made = SMPI_VIEW_NULL;
  detail::at(where);
  detail::check(
      (SMPI_Bcast)(data, static_cast<MPI_Count>(count * sizeof(T)), MPI_BYTE, root, comm, &made));
  return view<T>(made);
}

template <typename T>
view<T> scatter(const T* data, std::size_t count, int root, MPI_Comm comm,
                detail::place where = detail::place::current()) {
  SMPI_View made = SMPI_VIEW_NULL;
  detail::at(where);
  detail::check(
      (SMPI_Scatter)(data, static_cast<MPI_Count>(count * sizeof(T)), MPI_BYTE, root, comm, &made));
  return view<T>(made);
}

template <typename T>
std::vector<view<T>> allgather(std::span<T> data, MPI_Comm comm,
                               detail::place where = detail::place::current()) {
  int size = 0;
  detail::check(MPI_Comm_size(comm, &size));
  std::vector<SMPI_View> made(static_cast<std::size_t>(size), SMPI_VIEW_NULL);
  detail::at(where);
  detail::check((SMPI_Allgather)(data.data(), static_cast<MPI_Count>(data.size_bytes()), MPI_BYTE,
                                 comm, made.data()));
  std::vector<view<T>> views;
  for (const SMPI_View one : made) views.emplace_back(one);
  return views;
}

// Those below do not wait; `data` and the views may be used when the request is complete.
template <typename T>
view<T> ibcast(const T* data, std::size_t count, int root, MPI_Comm comm, MPI_Request* request,
               detail::place where = detail::place::current()) {
  SMPI_View made = SMPI_VIEW_NULL;
  detail::at(where);
  detail::check((SMPI_Ibcast)(data, static_cast<MPI_Count>(count * sizeof(T)), MPI_BYTE, root, comm,
                              &made, request));
  return view<T>(made);
}

template <typename T>
view<T> iscatter(const T* data, std::size_t count, int root, MPI_Comm comm, MPI_Request* request,
                 detail::place where = detail::place::current()) {
  SMPI_View made = SMPI_VIEW_NULL;
  detail::at(where);
  detail::check((SMPI_Iscatter)(data, static_cast<MPI_Count>(count * sizeof(T)), MPI_BYTE, root,
                                comm, &made, request));
  return view<T>(made);
}

template <typename T>
std::vector<view<T>> iallgather(std::span<T> data, MPI_Comm comm, MPI_Request* request,
                                detail::place where = detail::place::current()) {
  int size = 0;
  detail::check(MPI_Comm_size(comm, &size));
  std::vector<SMPI_View> made(static_cast<std::size_t>(size), SMPI_VIEW_NULL);
  detail::at(where);
  detail::check((SMPI_Iallgather)(data.data(), static_cast<MPI_Count>(data.size_bytes()), MPI_BYTE,
                                  comm, made.data(), request));
  std::vector<view<T>> views;
  for (const SMPI_View one : made) views.emplace_back(one);
  return views;
}

}  // namespace overdrive::smpi

#endif  // OVERDRIVE_SMPI_HPP_
