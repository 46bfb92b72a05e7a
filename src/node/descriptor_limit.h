// Raises the limit on open descriptors for a while.
#ifndef OVERDRIVE_NODE_DESCRIPTOR_LIMIT_H_
#define OVERDRIVE_NODE_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>

namespace od::node {

// Many descriptors pass through during the hand-over: uses what the hard limit allows meanwhile.
class RaisedDescriptorLimit {
 public:
  RaisedDescriptorLimit() {
    if (getrlimit(RLIMIT_NOFILE, &saved_) != 0 || saved_.rlim_cur >= saved_.rlim_max) return;
    const rlimit raised = {saved_.rlim_max, saved_.rlim_max};
    raised_ = setrlimit(RLIMIT_NOFILE, &raised) == 0;
  }
  // What the program has.
  rlim_t usual() const { return saved_.rlim_cur; }
  ~RaisedDescriptorLimit() {
    if (raised_) setrlimit(RLIMIT_NOFILE, &saved_);
  }
  RaisedDescriptorLimit(const RaisedDescriptorLimit&) = delete;
  RaisedDescriptorLimit& operator=(const RaisedDescriptorLimit&) = delete;

 private:
  rlimit saved_ = {};
  bool raised_ = false;
};

}  // namespace od::node

#endif  // OVERDRIVE_NODE_DESCRIPTOR_LIMIT_H_
