# The engine: everything below the faces, compiled without mpi.h into one static library.

set(OVERDRIVE_CORE_DIRS base config topology memory node host p2p coll overlap smpi engine observe)

# Sets `out` to the sources under src/<dir>... that are (tests: TRUE) or are not (FALSE) unit tests.
function(overdrive_core_sources out tests)
  set(result "")
  foreach(dir IN LISTS OVERDRIVE_CORE_DIRS)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${dir}/*.cc")
    list(APPEND result ${found})
  endforeach()
  if(tests)
    list(FILTER result INCLUDE REGEX "_test\\.cc$")
  else()
    list(FILTER result EXCLUDE REGEX "_(test|bench|tool)\\.cc$|/testing/")
  endif()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

overdrive_core_sources(OVERDRIVE_CORE_SOURCES FALSE)
if(NOT OVERDRIVE_CORE_SOURCES)
  file(WRITE "${CMAKE_BINARY_DIR}/generated/empty.cc" "// Stands in for the engine's sources.\n")
  set(OVERDRIVE_CORE_SOURCES "${CMAKE_BINARY_DIR}/generated/empty.cc")
endif()
# The reduction kernels need the headers of Highway, and only these: nothing of it is linked.
find_path(OVERDRIVE_HIGHWAY_INCLUDE hwy/highway.h)
if(NOT OVERDRIVE_HIGHWAY_INCLUDE)
  message(FATAL_ERROR "Highway is missing: install libhwy-dev, or set OVERDRIVE_HIGHWAY_INCLUDE")
endif()
file(GLOB OVERDRIVE_KERNEL_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/coll/ops/*.cc")
# Not fused: a sum of products must have the same bits on every processor. No optimisation across
# files: there is nothing to gain, and each face would compile all kernels again.
set_source_files_properties(${OVERDRIVE_KERNEL_SOURCES} PROPERTIES
  COMPILE_OPTIONS "-ffp-contract=off;-fno-lto")

# The vector kernels are instantiated thousands of times; what a sanitizer has nothing to find in is not
# instrumented, which would take minutes: intrinsics have no undefined behaviour that it knows, and no
# thread calls them in a test. What is not instrumented under the thread sanitizer is not optimised
# either: a compiler takes 6 s instead of 15.
if(OVERDRIVE_SANITIZER MATCHES "address")
  set_property(SOURCE "${CMAKE_SOURCE_DIR}/src/coll/ops/vector_kernels.cc" APPEND PROPERTY
    COMPILE_OPTIONS -fno-sanitize=undefined)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Every access is judged all the same, by a call: that halves what the compiler has to do.
    set_property(SOURCE "${CMAKE_SOURCE_DIR}/src/coll/ops/vector_kernels.cc" APPEND PROPERTY
      COMPILE_OPTIONS --param=asan-instrumentation-with-call-threshold=0)
  else()
    set_property(SOURCE "${CMAKE_SOURCE_DIR}/src/coll/ops/vector_kernels.cc" APPEND PROPERTY
      COMPILE_OPTIONS -mllvm -asan-instrumentation-with-call-threshold=0)
  endif()
elseif(OVERDRIVE_SANITIZER STREQUAL "thread")
  set_property(SOURCE "${CMAKE_SOURCE_DIR}/src/coll/ops/vector_kernels.cc" APPEND PROPERTY
    COMPILE_OPTIONS -fno-sanitize=thread -O0)
endif()

add_library(overdrive_core STATIC ${OVERDRIVE_CORE_SOURCES})
overdrive_unite(overdrive_core)
# XPMEM: its header says how to call it; the library is loaded at run time where it is installed.
find_path(OVERDRIVE_XPMEM_INCLUDE xpmem.h DOC "Folder of xpmem.h; without it XPMEM is not built in")
if(OVERDRIVE_XPMEM_INCLUDE)
  message(STATUS "XPMEM: ${OVERDRIVE_XPMEM_INCLUDE}")
  set_source_files_properties("${CMAKE_SOURCE_DIR}/src/memory/xpmem.cc" PROPERTIES
    COMPILE_DEFINITIONS OVERDRIVE_XPMEM
    INCLUDE_DIRECTORIES "${OVERDRIVE_XPMEM_INCLUDE}")
else()
  message(STATUS "XPMEM: not built in, no xpmem.h was found")
endif()
target_link_libraries(overdrive_core PUBLIC overdrive_innetwork overdrive_options)
overdrive_precompile(overdrive_core)
target_include_directories(overdrive_core SYSTEM PRIVATE "${OVERDRIVE_HIGHWAY_INCLUDE}")

# The program behind `overdrive info` and the manual's tables: the library's own view of the settings.
add_executable(overdrive-settings "${CMAKE_SOURCE_DIR}/src/programs/settings_tool.cc")
target_link_libraries(overdrive-settings PRIVATE overdrive_core overdrive_options)
overdrive_link_plainly(overdrive-settings)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive-settings PRIVATE -static-libstdc++ -static-libgcc)
endif()

# The program behind `overdrive info --pinning`. With hwloc, which it loads where that is installed, it
# knows machines other than this one.
find_path(OVERDRIVE_HWLOC_INCLUDE hwloc.h DOC "Folder of hwloc.h; without it ranks' view is shown")
add_executable(overdrive-pinning "${CMAKE_SOURCE_DIR}/src/programs/pinning_tool.cc")
target_link_libraries(overdrive-pinning PRIVATE overdrive_core overdrive_options)
overdrive_link_plainly(overdrive-pinning)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive-pinning PRIVATE -static-libstdc++ -static-libgcc)
endif()
if(OVERDRIVE_HWLOC_INCLUDE)
  message(STATUS "hwloc: ${OVERDRIVE_HWLOC_INCLUDE}")
  target_compile_definitions(overdrive-pinning PRIVATE OVERDRIVE_HWLOC)
  target_include_directories(overdrive-pinning SYSTEM PRIVATE "${OVERDRIVE_HWLOC_INCLUDE}")
else()
  message(STATUS "hwloc: not built in, hwloc.h was not found")
endif()

# The program behind `overdrive calibrate` and `overdrive study`: the engine between two processes,
# without an MPI. Optimised like a face, because its times stand for those of a face.
file(GLOB OVERDRIVE_MEASURE_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/measure/*.cc")
list(APPEND OVERDRIVE_MEASURE_SOURCES "${CMAKE_SOURCE_DIR}/src/programs/measure_tool.cc")
add_executable(overdrive-measure ${OVERDRIVE_MEASURE_SOURCES})
target_link_libraries(overdrive-measure PRIVATE overdrive_core overdrive_options)
overdrive_link_optimised(overdrive-measure)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive-measure PRIVATE -static-libstdc++ -static-libgcc)
endif()
