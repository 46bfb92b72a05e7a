// hwloc as it is found at run time: a program that uses it starts where it is not installed, too.
//
// The layout of its objects has to be that of the header here; the library's name says it, which is
// libhwloc.so.15 for all of hwloc 2.
#pragma once

#include <dlfcn.h>
#include <hwloc.h>

static_assert(HWLOC_API_VERSION >= 0x20000 && HWLOC_API_VERSION < 0x30000,
              "libhwloc.so.15 has the layout of hwloc 2");

namespace od::programs {

struct HwlocLibrary {
  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_topology_is_thissystem) is_this_system = nullptr;
  decltype(&hwloc_get_type_depth) depth_of = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) count_at = nullptr;
  decltype(&hwloc_get_obj_by_depth) object_at = nullptr;
  decltype(&hwloc_bitmap_first) first = nullptr;
  decltype(&hwloc_bitmap_next) next = nullptr;

  // Whether the library is there with all that is used of it; it stays loaded.
  bool open() {
    void* const library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find(library, "hwloc_topology_init", &init) &&
           find(library, "hwloc_topology_load", &load) &&
           find(library, "hwloc_topology_destroy", &destroy) &&
           find(library, "hwloc_topology_is_thissystem", &is_this_system) &&
           find(library, "hwloc_get_type_depth", &depth_of) &&
           find(library, "hwloc_get_nbobjs_by_depth", &count_at) &&
           find(library, "hwloc_get_obj_by_depth", &object_at) &&
           find(library, "hwloc_bitmap_first", &first) && find(library, "hwloc_bitmap_next", &next);
  }

  // Calls `each` with every object of a type.
  template <typename Each>
  void objects(hwloc_topology_t machine, hwloc_obj_type_t type, const Each& each) const {
    const int depth = depth_of(machine, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) return;
    const unsigned count = count_at(machine, depth);
    for (unsigned i = 0; i < count; ++i) each(*object_at(machine, depth, i));
  }

 private:
  template <typename Function>
  static bool find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    return *function != nullptr;
  }
};

}  // namespace od::programs
