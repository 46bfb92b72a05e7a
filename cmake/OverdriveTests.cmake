# Unit tests: every *_test.cc becomes a GoogleTest program named by its stem (with OVERDRIVE_UNITY those
# of a room become one program), each case a ctest test.

find_package(GTest QUIET)
if(NOT GTest_FOUND AND NOT TARGET GTest::gtest_main)
  if(EXISTS /usr/src/googletest/CMakeLists.txt)
    add_subdirectory(/usr/src/googletest "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
    if(NOT TARGET GTest::gtest_main)
      add_library(GTest::gtest_main ALIAS gtest_main)
    endif()
  else()
    message(STATUS "Unit tests: skipped, GoogleTest is missing (install libgtest-dev)")
    return()
  endif()
endif()
include(GoogleTest)

# A case that takes longer hangs: the slowest ones take seconds, also under a sanitizer, and jobs of
# forked processes have limits of 100 s of their own. Far more than a busy machine makes of it.
set(OVERDRIVE_TEST_TIMEOUT_SECONDS 300)

# Builds every unit test and nothing that they do not need.
add_custom_target(unit_tests)

# The thread sanitizer sees what the threads of one process do, and nothing of processes that share
# memory. Its build therefore holds the programs with threads alone: those whose source says so. A
# program that starts threads without saying so ends with an error in every build without sanitizers
# (tests/support/threads_guard.cc). Where the code under test starts them, a comment says it in words.
set(OVERDRIVE_THREADS "std::j?thread|std::async|pthread_create|[Ss]tarts threads")

add_library(overdrive_threads_guard OBJECT "${CMAKE_SOURCE_DIR}/tests/support/threads_guard.cc")

# Test code converts freely; the warnings guard the library. It is optimised less than what it tests,
# and its own undefined behaviour is not looked for, which would take two fifths of its compilation.
set(OVERDRIVE_TEST_OPTIONS -Wno-conversion -Wno-sign-conversion $<$<CONFIG:Release>:-O1>)
if(OVERDRIVE_SANITIZER MATCHES "address")
  list(APPEND OVERDRIVE_TEST_OPTIONS -fno-sanitize=undefined)
endif()

# What all test programs include, read once.
if(OVERDRIVE_UNITY)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/test_headers.cc"
       CONTENT "// Holds the tests' precompiled header.\n")
  add_library(overdrive_test_headers OBJECT "${CMAKE_BINARY_DIR}/generated/test_headers.cc")
  # As a program's sources are compiled: a library's would not fit them.
  set_property(TARGET overdrive_test_headers PROPERTY POSITION_INDEPENDENT_CODE OFF)
  set_property(TARGET overdrive_test_headers PROPERTY INTERPROCEDURAL_OPTIMIZATION OFF)
  target_link_libraries(overdrive_test_headers PRIVATE overdrive_options GTest::gtest_main)
  target_compile_options(overdrive_test_headers PRIVATE ${OVERDRIVE_TEST_OPTIONS} -fPIE)
  overdrive_precompile(overdrive_test_headers <gtest/gtest.h>)
endif()

# Sets `out` to whether the test's source starts threads.
function(overdrive_starts_threads out source)
  file(STRINGS "${source}" found REGEX "${OVERDRIVE_THREADS}" LIMIT_COUNT 1)
  if(found)
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
  if(OVERDRIVE_SANITIZER STREQUAL "thread")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  endif()
endfunction()

# Adds the test program `name` made of sources that all start threads or all do not, linked to the
# libraries that follow SOURCES.
function(overdrive_add_test_program name threads)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  overdrive_unite(${name})
  if(NOT OVERDRIVE_SANITIZER AND NOT threads)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:overdrive_threads_guard>)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} overdrive_options GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${OVERDRIVE_TEST_OPTIONS})
  overdrive_share_precompiled(${name} overdrive_test_headers)
  set_property(TARGET ${name} PROPERTY RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  overdrive_link_test(${name})
  add_dependencies(unit_tests ${name})
  gtest_discover_tests(${name}
    TEST_PREFIX "${name}."
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${OVERDRIVE_TEST_TIMEOUT_SECONDS})
endfunction()

# Adds the test program `name` made of one source, linked to the libraries that follow.
function(overdrive_add_test name source)
  overdrive_starts_threads(threads "${source}")
  if(NOT OVERDRIVE_SANITIZER STREQUAL "thread" OR threads)
    overdrive_add_test_program(${name} ${threads} SOURCES "${source}" LIBRARIES ${ARGN})
  endif()
endfunction()

# Adds the tests of a room: a program for each source, or with OVERDRIVE_UNITY two for all of them,
# of which one starts threads. `library` is what they need.
function(overdrive_add_tests room library)
  set(plain "")
  set(with_threads "")
  foreach(source IN LISTS ARGN)
    if(NOT OVERDRIVE_UNITY)
      get_filename_component(name "${source}" NAME_WE)
      string(REGEX MATCH "_(openmpi|mpich|mpiabi)$" abi "${library}")
      if(TARGET ${name}${abi})
        message(FATAL_ERROR "Two unit tests are called ${name}: ${source}")
      endif()
      overdrive_add_test(${name}${abi} "${source}" ${library})
      continue()
    endif()
    overdrive_starts_threads(threads "${source}")
    if(threads)
      list(APPEND with_threads "${source}")
    else()
      list(APPEND plain "${source}")
    endif()
  endforeach()
  if(plain AND NOT OVERDRIVE_SANITIZER STREQUAL "thread")
    overdrive_add_test_program(${room}_tests FALSE SOURCES ${plain} LIBRARIES ${library})
  endif()
  if(with_threads)
    overdrive_add_test_program(${room}_threads_tests TRUE SOURCES ${with_threads} LIBRARIES ${library})
  endif()
endfunction()

# What is built with sources of its own, further down.
set(OVERDRIVE_LONE_TESTS schedules_test hierarchy_test xpmem_test attached_buffers_test)

overdrive_core_sources(OVERDRIVE_CORE_TESTS TRUE)
set(lone ${OVERDRIVE_CORE_TESTS})
list(JOIN OVERDRIVE_LONE_TESTS "|" pattern)
list(FILTER lone INCLUDE REGEX "/(${pattern})\\.cc$")
list(FILTER OVERDRIVE_CORE_TESTS EXCLUDE REGEX "/(${pattern})\\.cc$")
foreach(room IN LISTS OVERDRIVE_CORE_DIRS)
  set(sources ${OVERDRIVE_CORE_TESTS})
  list(FILTER sources INCLUDE REGEX "^${CMAKE_SOURCE_DIR}/src/${room}/")
  overdrive_add_tests(${room} overdrive_core ${sources})
endforeach()
foreach(source IN LISTS lone)
  get_filename_component(name "${source}" NAME_WE)
  overdrive_add_test(${name} "${source}" overdrive_core)
endforeach()
overdrive_add_tests(innetwork overdrive_innetwork ${OVERDRIVE_INNETWORK_TESTS})
overdrive_add_tests(switch overdrive_switch_core ${OVERDRIVE_SWITCH_TESTS})

# Runs all ranks of a collective in one process.
file(GLOB OVERDRIVE_COLL_TESTING_SOURCES CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/coll/plan/testing/*.cc")
foreach(name IN ITEMS schedules_test hierarchy_test)
  if(TARGET ${name})
    target_sources(${name} PRIVATE ${OVERDRIVE_COLL_TESTING_SOURCES})
  endif()
endforeach()

if(TARGET overdrive_loader_objects)
  file(GLOB OVERDRIVE_LOADER_TESTS CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/face/loader/*_test.cc")
  foreach(source IN LISTS OVERDRIVE_LOADER_TESTS)
    get_filename_component(name "${source}" NAME_WE)
    overdrive_add_test(${name} "${source}")
    # Only the unit itself: the entry points would take the place of dlsym in the test program.
    if(TARGET ${name})
      string(REGEX REPLACE "_test\\.cc$" ".cc" unit "${source}")
      target_sources(${name} PRIVATE "${unit}")
    endif()
  endforeach()
endif()

# The machine code of the entry points, in the order of libraries that preloading makes.
if(TARGET overdrive AND NOT OVERDRIVE_SANITIZER)
  add_library(plain_mpi SHARED "${CMAKE_SOURCE_DIR}/tests/face/plain_mpi.c")
  add_executable(entry_points "${CMAKE_SOURCE_DIR}/tests/face/entry_points.c")
  set_target_properties(plain_mpi entry_points PROPERTIES
    C_VISIBILITY_PRESET default
    INTERPROCEDURAL_OPTIMIZATION OFF
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests"
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(entry_points PRIVATE -Wl,--no-as-needed overdrive plain_mpi ${CMAKE_DL_LIBS})
  add_test(NAME entry_points.MachineCode COMMAND entry_points)
  set_property(TEST entry_points.MachineCode PROPERTY TIMEOUT ${OVERDRIVE_TEST_TIMEOUT_SECONDS})
  add_dependencies(unit_tests entry_points)
endif()

foreach(abi IN LISTS OVERDRIVE_FACES)
  overdrive_add_tests(face_${abi} overdrive_face_${abi} ${OVERDRIVE_FACE_TEST_SOURCES})
endforeach()

# XPMEM without its kernel module: a stand-in for libxpmem, and the file that would call the real one.
# It comes before the core, where that file may have been built for no library at all.
set(OVERDRIVE_XPMEM_CALLS "${CMAKE_SOURCE_DIR}/src/memory/xpmem.cc")
set(OVERDRIVE_XPMEM_DECLARED "${CMAKE_SOURCE_DIR}/tests/memory/xpmem")
add_library(xpmem_stand_in SHARED "${OVERDRIVE_XPMEM_DECLARED}/stand_in.c")
set_target_properties(xpmem_stand_in PROPERTIES
  OUTPUT_NAME xpmem
  SOVERSION 0
  C_VISIBILITY_PRESET default
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/xpmem")
target_compile_definitions(xpmem_stand_in PRIVATE _GNU_SOURCE)
foreach(name IN ITEMS xpmem_test attached_buffers_test)
  if(NOT TARGET ${name})
    continue()
  endif()
  target_sources(${name} PRIVATE "${OVERDRIVE_XPMEM_CALLS}")
  target_include_directories(${name} PRIVATE "${OVERDRIVE_XPMEM_DECLARED}")
  target_compile_definitions(${name} PRIVATE
    OVERDRIVE_XPMEM "XPMEM_STAND_IN_LIBRARY=\"$<TARGET_FILE:xpmem_stand_in>\"")
  add_dependencies(${name} xpmem_stand_in)
endforeach()

# The whole library with XPMEM as the stand-in declares it, for tests/memory/test_xpmem.py: what has
# been built anyway, but for that one file.
if(OVERDRIVE_SANITIZER OR NOT TARGET overdrive)
  return()
endif()
set(with_xpmem "${CMAKE_BINARY_DIR}/tests/with-xpmem")
add_custom_target(with_xpmem ALL
  COMMAND ${CMAKE_COMMAND} -E make_directory "${with_xpmem}/lib"
  COMMAND ${CMAKE_COMMAND} -E copy "$<TARGET_FILE:overdrive>" "${with_xpmem}/lib"
  VERBATIM)
function(overdrive_use_xpmem target)
  target_sources(${target} PRIVATE "${OVERDRIVE_XPMEM_CALLS}")
  target_include_directories(${target} PRIVATE "${OVERDRIVE_XPMEM_DECLARED}")
  target_compile_definitions(${target} PRIVATE OVERDRIVE_XPMEM)
  target_link_libraries(${target} PRIVATE overdrive_core overdrive_options)
  overdrive_link_plainly(${target})
  add_dependencies(with_xpmem ${target})
endfunction()
foreach(abi IN LISTS OVERDRIVE_FACES)
  set(name overdrive-${abi}-with-xpmem)
  add_library(${name} MODULE $<TARGET_OBJECTS:overdrive_face_${abi}>)
  overdrive_use_xpmem(${name})
  set_target_properties(${name} PROPERTIES
    OUTPUT_NAME overdrive-${abi}
    LIBRARY_OUTPUT_DIRECTORY "${with_xpmem}/lib/overdrive"
    LINKER_LANGUAGE CXX)
  target_link_options(${name} PRIVATE
    -Wl,-z,nodelete -Wl,-Bsymbolic -Wl,--as-needed -static-libstdc++ -Wl,-z,defs
    "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/face.map")
endforeach()
add_executable(overdrive-settings-with-xpmem "${CMAKE_SOURCE_DIR}/src/programs/settings_tool.cc")
overdrive_use_xpmem(overdrive-settings-with-xpmem)
set_target_properties(overdrive-settings-with-xpmem PROPERTIES
  OUTPUT_NAME overdrive-settings
  RUNTIME_OUTPUT_DIRECTORY "${with_xpmem}/bin")
