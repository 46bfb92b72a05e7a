# OVERDRIVE_UNITY: headers of the C++ library and of GoogleTest are read once and then loaded.
#
# Half of what is left of a unit test's compilation, once several share one, is these headers. What a
# source includes is not changed by it: every source still names its headers, which are then skipped;
# builds without OVERDRIVE_UNITY compile each by itself and notice one that is missing.
#
# A precompiled header fits sources with the same flags only; those with flags of their own do without.

# Once it comes from a precompiled header, GCC 12 forgets that the C++ library is no code of ours, and
# warns of moves of strings that do not happen (its bug 105651). Other builds have the warnings.
if(OVERDRIVE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(overdrive_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>"
    # Precompiled headers stay visible in preprocessed text, which is what ccache compares.
    $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
elseif(OVERDRIVE_UNITY)
  # Without it a precompiled header made again of the same text fits no object that ccache has kept.
  target_compile_options(overdrive_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

set(OVERDRIVE_PRECOMPILED
  <algorithm> <array> <atomic> <charconv> <cstdint> <cstdio> <cstdlib> <cstring> <functional> <limits>
  <map> <memory> <mutex> <new> <optional> <random> <set> <span> <string> <string_view> <thread> <utility>
  <vector>)

# Makes the precompiled header of a target; further arguments are headers beside the library's.
function(overdrive_precompile target)
  if(NOT OVERDRIVE_UNITY)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${OVERDRIVE_PRECOMPILED} ${ARGN})
  overdrive_keep_own_flags(${target})
endfunction()

# Lets a target load what `owner` has precompiled.
function(overdrive_share_precompiled target owner)
  if(NOT OVERDRIVE_UNITY)
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
  overdrive_keep_own_flags(${target})
endfunction()

# Sources of a target that have flags of their own are compiled without its precompiled header.
function(overdrive_keep_own_flags target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "^\\$<")
      continue()
    endif()
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    if(options)
      set_source_files_properties("${source}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
