# The loader: liboverdrive.so, the small library that is preloaded into every process of a job.
#
# It reaches shells, wrappers and daemons too, so it depends on the C library alone: no exceptions, no
# run-time types, no C++ library (the C compiler links it, and an undefined symbol is an error).

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
set(OVERDRIVE_GENERATOR "${CMAKE_SOURCE_DIR}/src/face/generate.py")
set(OVERDRIVE_INTERFACE "${CMAKE_SOURCE_DIR}/src/face/mpi_interface.txt")

# Adds the rule which generates `file` in `dir` from the interface text; further arguments go to the
# generator.
function(overdrive_generate dir file)
  file(MAKE_DIRECTORY "${dir}")
  add_custom_command(
    OUTPUT "${dir}/${file}"
    COMMAND ${Python3_EXECUTABLE} "${OVERDRIVE_GENERATOR}" --interface "${OVERDRIVE_INTERFACE}"
            ${ARGN} --output "${dir}/${file}"
    DEPENDS "${OVERDRIVE_GENERATOR}" "${OVERDRIVE_INTERFACE}"
    COMMENT "Generating ${file}"
    VERBATIM)
endfunction()

file(GLOB OVERDRIVE_LOADER_SOURCES CONFIGURE_DEPENDS
     "${CMAKE_SOURCE_DIR}/src/face/loader/*.cc" "${CMAKE_SOURCE_DIR}/src/face/loader/*.S"
     # The reachable heap: served to the program from here, tested as part of the engine.
     "${CMAKE_SOURCE_DIR}/src/memory/heap/*.cc"
     # Guards of memory that is on its way: likewise.
     "${CMAKE_SOURCE_DIR}/src/memory/guard/*.cc"
     # Ranks are pinned before the program starts.
     "${CMAKE_SOURCE_DIR}/src/config/pin_*.cc" "${CMAKE_SOURCE_DIR}/src/topology/pin_*.cc")
list(FILTER OVERDRIVE_LOADER_SOURCES EXCLUDE REGEX "_test\\.cc$")

if(NOT OVERDRIVE_LOADER_SOURCES OR NOT EXISTS "${OVERDRIVE_GENERATOR}")
  message(STATUS "Loader: skipped, its sources are not here")
  return()
endif()

set(generated "${CMAKE_BINARY_DIR}/generated/loader")
overdrive_generate("${generated}" loader_entries.inc --what loader)

enable_language(ASM)
add_library(overdrive_loader_objects OBJECT
  ${OVERDRIVE_LOADER_SOURCES} "${generated}/loader_entries.inc")
target_include_directories(overdrive_loader_objects PUBLIC "${generated}")
target_link_libraries(overdrive_loader_objects PUBLIC overdrive_options)
# The compiler must not make calloc of malloc and memset, nor anything else of these names.
set_source_files_properties("${CMAKE_SOURCE_DIR}/src/face/loader/malloc.cc" PROPERTIES
  COMPILE_OPTIONS "-fomit-frame-pointer;-fno-builtin-malloc;-fno-builtin-calloc;-fno-builtin-realloc;-fno-builtin-free")
target_compile_options(overdrive_loader_objects PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti -fno-threadsafe-statics>
  # Interposed functions are called by a sanitizer before its own memory is there.
  -fno-sanitize=all)
# The entry points are written in assembly, whose symbols link-time optimisation does not see.
set_property(TARGET overdrive_loader_objects PROPERTY INTERPROCEDURAL_OPTIMIZATION OFF)

add_library(overdrive SHARED $<TARGET_OBJECTS:overdrive_loader_objects>)
target_link_libraries(overdrive PRIVATE overdrive_options)
set_target_properties(overdrive PROPERTIES
  LINKER_LANGUAGE C
  INTERPROCEDURAL_OPTIMIZATION OFF)
target_link_options(overdrive PRIVATE -Wl,-z,nodelete -Wl,--as-needed)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive PRIVATE -Wl,-z,defs)
  # CMake puts the C++ library on the command line all the same; only a look at the result is proof.
  add_custom_command(TARGET overdrive POST_BUILD
    COMMAND ${CMAKE_COMMAND} "-DREADELF=${CMAKE_READELF}" "-DLIBRARY=$<TARGET_FILE:overdrive>"
            -P "${CMAKE_SOURCE_DIR}/cmake/CheckNeeded.cmake"
    VERBATIM)
endif()
