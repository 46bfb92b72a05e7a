# overdrive-switch, the software switch: its own program, without an MPI and without the engine.
#
# Skipped with a message where CLI11 or the headers of toml++ and JSON are missing.

find_path(OVERDRIVE_CLI11_INCLUDE CLI/CLI.hpp DOC "Folder of CLI/CLI.hpp; without it there is no switch")
if(NOT OVERDRIVE_CLI11_INCLUDE)
  message(STATUS "overdrive-switch: skipped, CLI11 is missing (install libcli11-dev)")
  return()
endif()

file(GLOB OVERDRIVE_SWITCH_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/switch/*.cc")
set(OVERDRIVE_SWITCH_TESTS ${OVERDRIVE_SWITCH_SOURCES})
list(FILTER OVERDRIVE_SWITCH_TESTS INCLUDE REGEX "_test\\.cc$")
list(FILTER OVERDRIVE_SWITCH_SOURCES EXCLUDE REGEX "(_test|_fuzz|_tool|/main)\\.cc$")

# The same arithmetic as on the hosts, without the vector kernels: packets are short.
set(OVERDRIVE_SWITCH_KERNELS
  "${CMAKE_SOURCE_DIR}/src/coll/ops/kinds.cc"
  "${CMAKE_SOURCE_DIR}/src/coll/ops/scalar_kernels.cc"
  "${CMAKE_SOURCE_DIR}/src/coll/ops/complex_product.cc")

add_library(overdrive_switch_core STATIC ${OVERDRIVE_SWITCH_SOURCES} ${OVERDRIVE_SWITCH_KERNELS})
overdrive_unite(overdrive_switch_core)
target_include_directories(overdrive_switch_core PUBLIC "${CMAKE_SOURCE_DIR}")
target_include_directories(overdrive_switch_core SYSTEM PRIVATE
  "${OVERDRIVE_CLI11_INCLUDE}" "${OVERDRIVE_JSON_INCLUDE}")
target_link_libraries(overdrive_switch_core PUBLIC overdrive_innetwork overdrive_options)
overdrive_share_precompiled(overdrive_switch_core overdrive_core)

# Adds a program of one source, linked with the switch's parts.
function(overdrive_add_switch_program name source)
  add_executable(${name} "${CMAKE_SOURCE_DIR}/switch/${source}")
  target_include_directories(${name} SYSTEM PRIVATE "${OVERDRIVE_CLI11_INCLUDE}")
  target_link_libraries(${name} PRIVATE overdrive_switch_core overdrive_options)
  overdrive_link_optimised(${name})
  if(NOT OVERDRIVE_SANITIZER)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()
overdrive_add_switch_program(overdrive-switch main.cc)
# Leaders without an MPI, for tests and measurements.
overdrive_add_switch_program(overdrive-switch-leaders leaders_tool.cc)
