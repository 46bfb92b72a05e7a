# OVERDRIVE_UNITY: several sources are compiled as one, and unit tests lie in a few programs.
#
# Most of what a compiler does here is to read the same headers again. Which sources go together is
# found by tools/unity/unity.py. Left off where single files are edited and built again.

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
set(OVERDRIVE_UNITY_TOOL "${CMAKE_SOURCE_DIR}/tools/unity/unity.py")
set(OVERDRIVE_UNITY_SOURCES 8)  # of one group at most: enough groups for all processors
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${OVERDRIVE_UNITY_TOOL}")

# Lets the C++ sources of a target be compiled in groups. Sources with flags of their own stay alone.
function(overdrive_unite target)
  if(NOT OVERDRIVE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(FILTER sources EXCLUDE REGEX "^\\$<")
  # Test programs bring their own form of it, in place of the library's.
  list(FILTER sources EXCLUDE REGEX "src/memory/xpmem\\.cc$")
  list(LENGTH sources number)
  if(number LESS 2)
    return()
  endif()
  execute_process(
    COMMAND ${Python3_EXECUTABLE} "${OVERDRIVE_UNITY_TOOL}"
            --most ${OVERDRIVE_UNITY_SOURCES} ${sources}
    OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "|" lines "${lines}")
  string(REPLACE "\n" ";" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([^|]*)\\|(.*)$" line "${line}")
    set_property(SOURCE "${CMAKE_MATCH_2}" PROPERTY UNITY_GROUP "${CMAKE_MATCH_1}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
