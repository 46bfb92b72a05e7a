// A scope whose floating-point arithmetic is nobody else's business: estimates, tables that grow,
// numbers in texts.
//
// MPI calls that compute nothing for the program must not raise flags, and a program that traps
// exceptions must not die of ours. Costs some 100 ns, so paths of every message use integers
// instead.
#ifndef OVERDRIVE_BASE_QUIET_FLOATS_H_
#define OVERDRIVE_BASE_QUIET_FLOATS_H_

#include <cfenv>

namespace od {

class QuietFloats {
 public:
  // The default environment: also the program's rounding must not matter, or ranks that round in
  // different ways would decide differently.
  QuietFloats() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~QuietFloats() { std::fesetenv(&saved_); }
  QuietFloats(const QuietFloats&) = delete;
  QuietFloats& operator=(const QuietFloats&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace od

#endif  // OVERDRIVE_BASE_QUIET_FLOATS_H_
