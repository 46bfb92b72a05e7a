# The engine: everything below the faces, compiled without mpi.h into one static library.

set(OVERDRIVE_CORE_DIRS config topology memory node host p2p engine observe)

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
    list(FILTER result EXCLUDE REGEX "_(test|bench|tool)\\.cc$")
  endif()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

overdrive_core_sources(OVERDRIVE_CORE_SOURCES FALSE)
if(NOT OVERDRIVE_CORE_SOURCES)
  file(WRITE "${CMAKE_BINARY_DIR}/generated/empty.cc" "// Stands in for the engine's sources.\n")
  set(OVERDRIVE_CORE_SOURCES "${CMAKE_BINARY_DIR}/generated/empty.cc")
endif()
add_library(overdrive_core STATIC ${OVERDRIVE_CORE_SOURCES})
target_link_libraries(overdrive_core PUBLIC overdrive_options)

# The program behind `overdrive info` and the manual's tables: the library's own view of the settings.
add_executable(overdrive-settings "${CMAKE_SOURCE_DIR}/src/config/settings_tool.cc")
target_link_libraries(overdrive-settings PRIVATE overdrive_core overdrive_options)
# It prints tables: optimising the engine into it would only lengthen the build.
set_property(TARGET overdrive-settings PROPERTY INTERPROCEDURAL_OPTIMIZATION OFF)
target_link_options(overdrive-settings PRIVATE -fno-lto)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive-settings PRIVATE -static-libstdc++ -static-libgcc)
endif()

# The program behind `overdrive calibrate` and `overdrive study`: the engine between two processes,
# without an MPI. Optimised like a face, because its times stand for those of a face.
file(GLOB OVERDRIVE_MEASURE_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/measure/*.cc")
add_executable(overdrive-measure ${OVERDRIVE_MEASURE_SOURCES})
target_link_libraries(overdrive-measure PRIVATE overdrive_core overdrive_options)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive-measure PRIVATE -static-libstdc++ -static-libgcc)
endif()
