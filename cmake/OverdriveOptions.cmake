# Language level, warnings, sanitizers and link-time optimisation: what holds for every target.
#
# `overdrive_options` carries it; every target of the project links it privately.

set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Kind of build" FORCE)
endif()
# Line tables cost nothing at run time and make a backtrace from a user's machine readable.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

find_program(OVERDRIVE_CCACHE ccache)
if(OVERDRIVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Relative paths and no folder in the key: every checkout and build folder shares one cache.
  set(launcher "${CMAKE_COMMAND}" -E env CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=true)
  if(OVERDRIVE_UNITY)
    # Objects made with a precompiled header are kept too. What this leaves unlooked at is macros of
    # the command line that a precompiled header uses, and the compiler refuses such a header itself.
    list(APPEND launcher CCACHE_SLOPPINESS=pch_defines,time_macros)
  endif()
  list(APPEND launcher "${OVERDRIVE_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
endif()

find_package(Threads REQUIRED)

add_library(overdrive_options INTERFACE)
target_include_directories(overdrive_options INTERFACE
  "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
target_compile_definitions(overdrive_options INTERFACE
  _GNU_SOURCE "OVERDRIVE_VERSION=\"${PROJECT_VERSION}\"")
target_compile_options(overdrive_options INTERFACE
  -Wall -Wextra -Wconversion
  # For GCC -Wconversion does not mean signs in C++; with both compilers the same is asked of a source.
  # SHELL: tests name it too, before what would switch it on again, and CMake names nothing twice.
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Wno-sign-conversion>"
  $<$<BOOL:${OVERDRIVE_WERROR}>:-Werror>
  # Faces are loaded into programs that may unwind through them only on the way to abort; frame
  # pointers keep profiles of such mixed processes usable at no cost that can be measured.
  -fno-omit-frame-pointer)
# The re-entrancy guard is read on every MPI call. With this model that is one instruction; the few
# bytes that it needs come from the reserve which the C library keeps for libraries loaded late.
target_compile_options(overdrive_options INTERFACE -ftls-model=initial-exec)
# Structures of some hundred bytes are copied and cleared for every message and collective; what GCC
# chooses for them by itself (string instructions) takes 20 to 40 cycles to begin.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(overdrive_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-mmemcpy-strategy=unrolled_loop:1024:noalign,libcall:-1:noalign>
    $<$<COMPILE_LANGUAGE:C,CXX>:-mmemset-strategy=unrolled_loop:1024:noalign,libcall:-1:noalign>)
endif()
include(OverdriveProcessor)
target_link_libraries(overdrive_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

if(OVERDRIVE_SANITIZER)
  set(OVERDRIVE_SANITIZER_FLAGS -fsanitize=${OVERDRIVE_SANITIZER} -fno-sanitize-recover=all)
  add_compile_options(${OVERDRIVE_SANITIZER_FLAGS} -fno-omit-frame-pointer)
  add_link_options(${OVERDRIVE_SANITIZER_FLAGS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # What GCC says by itself about a sanitizer, and code asks for.
    if(OVERDRIVE_SANITIZER MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(OVERDRIVE_SANITIZER STREQUAL "thread")
      add_compile_definitions(__SANITIZE_THREAD__=1)
    endif()
    # Objects with a sanitizer are large: the usual linker takes four times as long for a test program.
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=lld OVERDRIVE_LLD_WORKS)
    if(OVERDRIVE_LLD_WORKS)
      add_link_options(-fuse-ld=lld)
    endif()
  endif()
endif()

if(OVERDRIVE_LTO)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT OVERDRIVE_IPO_WORKS OUTPUT OVERDRIVE_IPO_OUTPUT LANGUAGES CXX)
  if(OVERDRIVE_IPO_WORKS)
    set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # Objects that also hold machine code: unit tests link that and need no optimisation run each.
      set(CMAKE_CXX_COMPILE_OPTIONS_IPO -flto=auto -ffat-lto-objects)
      set(CMAKE_C_COMPILE_OPTIONS_IPO -flto=auto -ffat-lto-objects)
    endif()
  else()
    message(STATUS "Link-time optimisation is off: the compiler does not support it")
  endif()
endif()

# Links a program or module as its objects are. What is not measured gains nothing from being optimised
# as a whole, which takes 5 to 35 s each.
function(overdrive_link_plainly target)
  set_property(TARGET ${target} PROPERTY INTERPROCEDURAL_OPTIMIZATION OFF)
  target_link_options(${target} PRIVATE -fno-lto)
endfunction()

# Links a program or module optimised as a whole, where OVERDRIVE_LTO says so and OVERDRIVE_LTO_TARGETS
# holds its name.
function(overdrive_link_optimised target)
  if(NOT "all" IN_LIST OVERDRIVE_LTO_TARGETS AND NOT target IN_LIST OVERDRIVE_LTO_TARGETS)
    # Its sources are compiled as ever, so that a later build for use only links it again.
    target_link_options(${target} PRIVATE -fno-lto)
  endif()
endfunction()

# Links a test program: plainly, unless OVERDRIVE_LTO_TARGETS holds `tests`. Then what it tests is
# optimised as a whole, as a face is, and the tests' own objects stay what they are.
#
# What the address and undefined-behaviour sanitizers note about every object and every check are a
# million pointers. At a fixed address they need not be adjusted at each start, of which there is one
# for each test.
function(overdrive_link_test target)
  if(OVERDRIVE_SANITIZER MATCHES "address")
    target_link_options(${target} PRIVATE -no-pie)
  endif()
  set_property(TARGET ${target} PROPERTY INTERPROCEDURAL_OPTIMIZATION OFF)
  if(OVERDRIVE_LTO AND "tests" IN_LIST OVERDRIVE_LTO_TARGETS)
    target_link_options(${target} PRIVATE ${CMAKE_CXX_COMPILE_OPTIONS_IPO})
  else()
    target_link_options(${target} PRIVATE -fno-lto)
  endif()
endfunction()
