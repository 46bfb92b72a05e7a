// What is wrong with the places of the ranks of a node, from what they have told each other.
#ifndef OVERDRIVE_NODE_CROWDING_H_
#define OVERDRIVE_NODE_CROWDING_H_

#include <string>
#include <vector>

#include "node/identity.h"

namespace od::node {

// Sentences for the ranks of the same machine as `rank`; nothing unless it is the first of these.
std::vector<std::string> crowding_on_node(const std::vector<Identity>& all, int rank);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_CROWDING_H_
