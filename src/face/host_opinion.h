// What the host thinks of calls that the standard forbids but some hosts accept.
//
// Asked by making the call on a communicator of this process alone, with errors returned: the
// answer depends on arguments only. Calls that the host refuses go to it and raise its error; those
// that it accepts are served like others, because they may be made by some of the ranks only.
#ifndef OVERDRIVE_SRC_FACE_HOST_OPINION_H_
#define OVERDRIVE_SRC_FACE_HOST_OPINION_H_

#include <atomic>
#include <mutex>

#include "coll/plan/shape.h"
#include "face/face_mpi.h"

namespace od::face {

// A buffer of a collective that no valid call has.
struct OddBuffer {
  coll::Collective collective;
  bool later;     // the call does not block
  bool receives;  // it is where data go
  // At a null pointer, or without elements and with this datatype, which is none.
  bool null_pointer;
  MPI_Datatype type;
};

class HostOpinion {
 public:
  // Before the host's MPI_Finalize.
  void finish();

 private:
  friend bool host_accepts_reduction(MPI_Op op, MPI_Datatype type);
  friend bool host_accepts_aliasing(coll::Collective collective, bool several);
  friend bool host_accepts_no_type(MPI_Datatype type, bool receives);
  friend bool host_accepts_odd(const OddBuffer& odd);

  enum Answer : unsigned char { unknown, accepts, refuses };

  // Over this process, made when first needed.
  bool communicator(MPI_Comm* comm);

  std::mutex mutex_;
  host::Handle comm_ = 0;
  // Relaxed: threads may ask twice.
  std::atomic<Answer> aliasing_[coll::kCollectives][2] = {};  // of one element, of several
};

// A predefined operation on a datatype with which the standard does not let it be used.
bool host_accepts_reduction(MPI_Op op, MPI_Datatype type);
// Input and output in the same memory. `several`: of more than one element, which is what Open MPI
// refuses in MPI_Allreduce.
bool host_accepts_aliasing(coll::Collective collective, bool several);
// A message without elements whose datatype is none, or not committed.
bool host_accepts_no_type(MPI_Datatype type, bool receives);
bool host_accepts_odd(const OddBuffer& odd);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_HOST_OPINION_H_
