// Which other ways are compared with the usual choice of a collective in the running program.
//
// The model says which, and it may know the network badly: from a tuning file of another one, from
// an MPI_Init during which somebody else used it, or because processors are shared, where a message
// takes as long as it takes to be noticed. So after the first look, for which the ranks have added
// up their times, the network is fitted to what our own ways took. If by that others promise more
// than the best of these, they take the places of those that have lost, and all have another look.
//
// What no network explains stays unknown so: with some algorithm the model is simply wrong. So
// before each measurement from call kAgain on what has never been measured takes the place of who
// has lost, or if nobody has, of the slowest, the next by the fitted network; a program that makes
// many calls tries all that come near.
#ifndef OVERDRIVE_COLL_RUN_RIVALS_H_
#define OVERDRIVE_COLL_RUN_RIVALS_H_

#include <cstdint>
#include <vector>

#include "coll/plan/select/selection.h"
#include "coll/run/communicator.h"

namespace od {

// What is compared with the usual choice: the host first, then what the model takes for nearly as
// good.
std::vector<coll::Decision> rivals_of(const coll::Selection& selection, const coll::Layout& layout,
                                      const Compared& compared, bool long_calls);

// Whether a call is expected to take so long that few of them are measured.
bool expects_long_calls(const coll::Selection& selection, const coll::Layout& layout,
                        const Compared& compared);

// Which way an earlier run's choice is, among the usual choice and its rivals: it becomes one of
// them if it is none.
int way_of_learnt(const coll::Decision& learnt, Compared& compared);

// In place of contest.judge(). True: the first look has shown that others promise more than what is
// compared, and the contest has begun anew with them. The same on all ranks.
bool begins_anew(Contest& contest, const coll::Selection& selection, const coll::Layout& layout);

// After a verdict. How many other ways take part in the next measurement, since there are some that
// come near and places for them. The same on all ranks.
int renew_rivals(Contest& contest, const coll::Selection& selection, const coll::Layout& layout);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_RIVALS_H_
