// Finds the shape of a datatype by asking the host how it was made, constructor by constructor.
#ifndef OVERDRIVE_SRC_FACE_TYPE_SHAPE_H_
#define OVERDRIVE_SRC_FACE_TYPE_SHAPE_H_

#include <memory>

#include "host/host_table.h"
#include "p2p/layout.h"

namespace od::face {

// The layout of a type; null for the null type and for types that have not been committed. What
// cannot be found out, is too irregular, or does not agree with the sizes that the host reports,
// becomes opaque: the host packs it.
std::unique_ptr<p2p::Layout> make_layout(host::Handle type);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_TYPE_SHAPE_H_
