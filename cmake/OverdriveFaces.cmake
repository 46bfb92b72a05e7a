# The faces: one module per MPI ABI, made of the same sources compiled with that ABI's mpi.h.
#
# A face holds the engine and the C++ library statically, exports one symbol and never links libmpi.
# libgcc stays shared: a C++ program's error handler may throw, and then the program's unwinder walks
# through frames of the face, which it can only do with the same libgcc on both sides.
# Compilers with an unwinder of their own (zig) are told where libgcc is: OVERDRIVE_UNWINDER.
# Where no mpi.h of an ABI is found that face is skipped; OVERDRIVE_<ABI>_INCLUDE names one by hand.

set(OVERDRIVE_UNWINDER "" CACHE FILEPATH "Shared libgcc to link where the compiler does not by itself")

if(OVERDRIVE_HOSTS_DIR)
  set(hosts "${OVERDRIVE_HOSTS_DIR}")
elseif(DEFINED ENV{OVERDRIVE_HOSTS_DIR})
  set(hosts "$ENV{OVERDRIVE_HOSTS_DIR}")
else()
  set(hosts "${CMAKE_SOURCE_DIR}/build/hosts")
endif()

# Sets `out` to the first folder of the rest of the arguments (glob patterns) that holds `header`.
function(overdrive_find_header out header)
  set(${out} "" PARENT_SCOPE)
  foreach(pattern IN LISTS ARGN)
    file(GLOB found "${pattern}/${header}")
    if(found)
      list(GET found 0 first)
      get_filename_component(folder "${first}" DIRECTORY)
      set(${out} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Open MPI: a face compiled with the headers of 4.1 also runs over 5.0, so the older ones come first.
overdrive_find_header(openmpi_include mpi.h
  /usr/lib/*/openmpi/include /usr/include/openmpi-* /usr/include/openmpi /usr/lib64/openmpi/include
  "${hosts}/openmpi5/include")
set(openmpi_how "install libopenmpi-dev, or run `python3 tools/hosts/hosts.py setup openmpi5`")

overdrive_find_header(mpich_include mpi.h
  /usr/include/*/mpich /usr/include/mpich-* /usr/include/mpich
  "${hosts}/mpich5/include" "${hosts}/impi/include" "$ENV{I_MPI_ROOT}/include")
set(mpich_how "install libmpich-dev, or run `python3 tools/hosts/hosts.py setup mpich5`")

overdrive_find_header(mpiabi_include mpi_abi.h
  "${hosts}/mpich5/include" "${hosts}/impi/include" /usr/include /usr/include/mpich-*
  /usr/include/*/mpich "$ENV{I_MPI_ROOT}/include")
set(mpiabi_how "run `python3 tools/hosts/hosts.py setup mpiabi`")

# The first lines of each mpi.h say whose it is; a header of another ABI would compile and then crash.
set(openmpi_mark "OMPI_MAJOR_VERSION")
set(mpich_mark "MPICH_VERSION|I_MPI_VERSION|MVAPICH")

file(GLOB OVERDRIVE_FACE_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/face/*.cc")
set(OVERDRIVE_FACE_TEST_SOURCES ${OVERDRIVE_FACE_SOURCES})
list(FILTER OVERDRIVE_FACE_SOURCES EXCLUDE REGEX "_test\\.cc$")
list(FILTER OVERDRIVE_FACE_TEST_SOURCES INCLUDE REGEX "_test\\.cc$")

set(OVERDRIVE_FACES "")  # the ABIs whose face is built
set(OVERDRIVE_SKIPPED "")  # "abi: reason" lines, which `overdrive info` shows

# Records why a face is not built.
function(overdrive_skip_face abi reason)
  message(STATUS "Face ${abi}: skipped, ${reason}")
  set(OVERDRIVE_SKIPPED "${OVERDRIVE_SKIPPED}${abi}: ${reason}\n" PARENT_SCOPE)
endfunction()

function(overdrive_add_face abi include)
  set(generated "${CMAKE_BINARY_DIR}/generated/face-${abi}")
  overdrive_generate("${generated}" face_entries.inc --what face --abi ${abi})
  if(abi STREQUAL "mpiabi")
    # The header of the standard ABI has a name of its own; programs include it as mpi.h.
    file(CONFIGURE OUTPUT "${generated}/include/mpi.h"
         CONTENT "// The standard MPI ABI under the name that sources include.\n#include \"@include@/mpi_abi.h\"\n"
         @ONLY)
    set(include "${generated}/include")
  endif()
  string(TOUPPER "${abi}" upper)

  add_library(overdrive_face_${abi} OBJECT
    ${OVERDRIVE_FACE_SOURCES} "${generated}/face_entries.inc")
  overdrive_unite(overdrive_face_${abi})
  target_include_directories(overdrive_face_${abi} PUBLIC "${generated}")
  target_include_directories(overdrive_face_${abi} SYSTEM PUBLIC "${include}")
  # The C++ bindings that old headers bring along are of no use here.
  target_compile_definitions(overdrive_face_${abi} PUBLIC
    OD_FACE_${upper}=1 OD_FACE_ABI=OD_ABI_${upper} "OD_FACE_ABI_NAME=\"${abi}\""
    OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
  target_link_libraries(overdrive_face_${abi} PUBLIC overdrive_core)
  overdrive_share_precompiled(overdrive_face_${abi} overdrive_core)

  add_library(overdrive-${abi} MODULE $<TARGET_OBJECTS:overdrive_face_${abi}>)
  target_link_libraries(overdrive-${abi} PRIVATE overdrive_core ${OVERDRIVE_UNWINDER})
  set_target_properties(overdrive-${abi} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/overdrive"
    LINKER_LANGUAGE CXX)
  target_link_options(overdrive-${abi} PRIVATE
    -Wl,-z,nodelete -Wl,-Bsymbolic -Wl,--as-needed)
  overdrive_link_optimised(overdrive-${abi})
  if(NOT OVERDRIVE_SANITIZER)
    target_link_options(overdrive-${abi} PRIVATE
      -static-libstdc++ -Wl,-z,defs
      "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/face.map")
    set_property(TARGET overdrive-${abi} APPEND PROPERTY
      LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/face.map")
  endif()
endfunction()

foreach(abi IN ITEMS openmpi mpich mpiabi)
  string(TOUPPER "${abi}" upper)
  set(OVERDRIVE_${upper}_INCLUDE "" CACHE PATH "Folder of the mpi.h for the ${abi} face")
  if(OVERDRIVE_${upper}_INCLUDE)
    set(${abi}_include "${OVERDRIVE_${upper}_INCLUDE}")
  endif()
  if(NOT abi IN_LIST OVERDRIVE_ABIS)
    overdrive_skip_face(${abi} "OVERDRIVE_ABIS leaves it out")
    continue()
  endif()
  if(NOT OVERDRIVE_FACE_SOURCES OR NOT EXISTS "${OVERDRIVE_GENERATOR}")
    overdrive_skip_face(${abi} "its sources are not here")
    continue()
  endif()
  if(NOT ${abi}_include)
    overdrive_skip_face(${abi} "no mpi.h of this ABI was found when this was built; to get one \
${${abi}_how}, or set OVERDRIVE_${upper}_INCLUDE, and build again")
    continue()
  endif()
  if(${abi}_mark)
    file(STRINGS "${${abi}_include}/mpi.h" marks REGEX "${${abi}_mark}" LIMIT_COUNT 1)
    if(NOT marks)
      overdrive_skip_face(${abi} "${${abi}_include}/mpi.h is for another ABI")
      continue()
    endif()
  endif()
  message(STATUS "Face ${abi}: ${${abi}_include}")
  overdrive_add_face(${abi} "${${abi}_include}")
  list(APPEND OVERDRIVE_FACES ${abi})
endforeach()
file(WRITE "${CMAKE_BINARY_DIR}/lib/overdrive/skipped-faces.txt" "${OVERDRIVE_SKIPPED}")
