# What `make install` puts where:
#
#   bin/overdrive                     the command        lib/liboverdrive.so     what is preloaded
#   bin/overdrive-switch              the switch         lib/systemd/system/     its service
#   lib/overdrive/liboverdrive-*.so   the faces          share/overdrive/cli/    the command's package
#   include/overdrive/                headers            lib/pkgconfig, lib/cmake/Overdrive
#   share/man, share/modulefiles/overdrive/VERSION, share/doc/overdrive, completions of shells
#
# Parts that were not built are left out; the loader finds the faces relative to itself.
#
# Packages take components, never lists of files: `runtime` (what is not said to be anything else),
# `development` (headers, pkg-config, CMake package), `documentation`, `completions`, `modulefile`,
# `service` (the switch for systemd).

include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
set(OVERDRIVE_MODULEFILE_DIR "${CMAKE_INSTALL_DATADIR}/modulefiles/overdrive")
set(packaging "${CMAKE_BINARY_DIR}/packaging")

foreach(abi IN LISTS OVERDRIVE_FACES)
  install(TARGETS overdrive-${abi} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/overdrive")
endforeach()
if(EXISTS "${CMAKE_SOURCE_DIR}/include/overdrive")
  install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/overdrive" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
          COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "smpi_f08.f90" PATTERN "smpi_fortran.c")
endif()
if(EXISTS "${CMAKE_SOURCE_DIR}/examples")
  install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/overdrive" COMPONENT development
          PATTERN "__pycache__" EXCLUDE)
endif()

# The file for pkg-config finds the prefix relative to itself.
file(RELATIVE_PATH OVERDRIVE_PC_TO_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" OVERDRIVE_PC_TO_PREFIX "${OVERDRIVE_PC_TO_PREFIX}")
configure_file("${CMAKE_SOURCE_DIR}/packaging/overdrive.pc.in" "${packaging}/overdrive.pc" @ONLY)
install(FILES "${packaging}/overdrive.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT development)

# The modulefile names the prefix, and is therefore written when `--prefix` is known.
install(CODE "set(PROJECT_VERSION \"${PROJECT_VERSION}\")
set(CMAKE_INSTALL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
set(CMAKE_INSTALL_MANDIR \"${CMAKE_INSTALL_MANDIR}\")
set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
configure_file(\"${CMAKE_SOURCE_DIR}/packaging/modulefile.in\" \"${packaging}/modulefile\" @ONLY)"
  COMPONENT modulefile)
install(FILES "${packaging}/modulefile" DESTINATION "${OVERDRIVE_MODULEFILE_DIR}"
        RENAME "${PROJECT_VERSION}" COMPONENT modulefile)
install(FILES "${CMAKE_SOURCE_DIR}/VERSION" DESTINATION "${CMAKE_INSTALL_LIBDIR}/overdrive")

# The command; it looks for its package and the library relative to itself.
if(EXISTS "${CMAKE_SOURCE_DIR}/overdrive")
  install(PROGRAMS "${CMAKE_SOURCE_DIR}/overdrive" DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(DIRECTORY "${CMAKE_SOURCE_DIR}/cli/overdrive"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/overdrive/cli"
          FILES_MATCHING PATTERN "*.py"
          PATTERN "__pycache__" EXCLUDE
          PATTERN "*_test.py" EXCLUDE
          PATTERN "test_*.py" EXCLUDE)
  # Users cannot write beside what an administrator has installed: without this Python would compile
  # the command at each start.
  option(OVERDRIVE_COMPILE_PYTHON "Compile the command's Python modules when they are installed" ON)
  if(OVERDRIVE_COMPILE_PYTHON)
    install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" -m compileall -q
      -s \"\$ENV{DESTDIR}\"
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/overdrive/cli\")")
  endif()
endif()
# What `overdrive bench` compiles with the compiler of the user's MPI library.
if(EXISTS "${CMAKE_SOURCE_DIR}/bench/coll")
  foreach(part IN ITEMS bench/coll bench/arrival bench/p2p)
    install(DIRECTORY "${CMAKE_SOURCE_DIR}/${part}"
            DESTINATION "${CMAKE_INSTALL_DATADIR}/overdrive/bench"
            FILES_MATCHING PATTERN "*.c" PATTERN "*.h"
            PATTERN "tools" EXCLUDE)
  endforeach()
endif()
install(TARGETS overdrive-settings overdrive-measure overdrive-collectives overdrive-pinning
        RUNTIME
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/overdrive")
if(TARGET overdrive-switch)
  install(TARGETS overdrive-switch RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  # Like the modulefile it names the prefix.
  install(CODE "set(CMAKE_INSTALL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
configure_file(\"${CMAKE_SOURCE_DIR}/packaging/overdrive-switch.service.in\"
  \"${packaging}/overdrive-switch.service\" @ONLY)"
    COMPONENT service)
  install(FILES "${packaging}/overdrive-switch.service" DESTINATION lib/systemd/system
          COMPONENT service)
endif()
install(FILES "${CMAKE_BINARY_DIR}/lib/overdrive/skipped-faces.txt"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/overdrive")

# The library that is preloaded, and where CMake finds it.
if(TARGET overdrive)
  install(TARGETS overdrive LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  set(OVERDRIVE_PRELOAD_FILE "${CMAKE_INSTALL_LIBDIR}/liboverdrive.so")
  set(OVERDRIVE_COMMAND_FILE "${CMAKE_INSTALL_BINDIR}/overdrive")
  set(OVERDRIVE_HEADER_DIR "${CMAKE_INSTALL_INCLUDEDIR}")
  set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Overdrive")
  configure_package_config_file("${CMAKE_SOURCE_DIR}/packaging/OverdriveConfig.cmake.in"
    "${packaging}/OverdriveConfig.cmake"
    INSTALL_DESTINATION "${config_dir}"
    PATH_VARS OVERDRIVE_PRELOAD_FILE OVERDRIVE_COMMAND_FILE OVERDRIVE_HEADER_DIR)
  write_basic_package_version_file("${packaging}/OverdriveConfigVersion.cmake"
    COMPATIBILITY SameMajorVersion)
  install(FILES "${packaging}/OverdriveConfig.cmake" "${packaging}/OverdriveConfigVersion.cmake"
          DESTINATION "${config_dir}" COMPONENT development)
endif()

# Man pages: docs/man/NAME.SECTION.md, made with the build.
file(GLOB OVERDRIVE_PAGES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/docs/man/*.md")
set(pages "")
foreach(source IN LISTS OVERDRIVE_PAGES)
  get_filename_component(file "${source}" NAME)
  if(NOT file MATCHES "^(.+\\.([1-8]))\\.md$")
    continue()
  endif()
  set(page "${CMAKE_BINARY_DIR}/man/man${CMAKE_MATCH_2}/${CMAKE_MATCH_1}")
  add_custom_command(OUTPUT "${page}"
    COMMAND ${Python3_EXECUTABLE} "${CMAKE_SOURCE_DIR}/packaging/manpage.py"
            --version ${PROJECT_VERSION} "${source}" "${page}"
    DEPENDS "${source}" "${CMAKE_SOURCE_DIR}/packaging/manpage.py"
    COMMENT "Man page ${file}"
    VERBATIM)
  list(APPEND pages "${page}")
  set(component runtime)
  if(CMAKE_MATCH_2 EQUAL 3)
    set(component development)
  endif()
  install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${CMAKE_MATCH_2}"
          COMPONENT ${component} OPTIONAL)
endforeach()
# Functions that share a page: each name leads to it.
foreach(pair IN ITEMS Comm_detach=Comm_attach Comm_near=Comm_attach Free=Alloc Lent=Alloc Reclaim=Alloc
        Isend=Send Ipass=Pass Irecv=Recv Iprobe=Probe View_get=View View_release=View View_own=View
        Ibcast=Bcast Iscatter=Scatter Iallgather=Allgather)
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 function)
  list(GET pair 1 page)
  set(alias "${CMAKE_BINARY_DIR}/man/man3/SMPI_${function}.3")
  file(WRITE "${alias}" ".so man3/SMPI_${page}.3\n")
  install(FILES "${alias}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man3" COMPONENT development)
endforeach()
if(pages)
  add_custom_target(man ALL DEPENDS ${pages})
endif()

# Completion: the command prints the scripts, shells look for them in these folders.
set(completions "")
set(OVERDRIVE_ZSH_COMPLETIONS "${CMAKE_INSTALL_DATADIR}/zsh/site-functions"
    CACHE STRING "Where zsh looks for completions, below the prefix")
function(overdrive_install_completion shell file folder)
  set(script "${CMAKE_BINARY_DIR}/completions/${file}")
  add_custom_command(OUTPUT "${script}"
    COMMAND ${CMAKE_COMMAND} -DPYTHON=${Python3_EXECUTABLE} -DCOMMAND=${CMAKE_SOURCE_DIR}/overdrive
            -DSHELL=${shell} -DOUTPUT=${script} -P "${CMAKE_SOURCE_DIR}/cmake/WriteCompletion.cmake"
    DEPENDS "${CMAKE_SOURCE_DIR}/cli/overdrive/completion.py"
            "${CMAKE_SOURCE_DIR}/cmake/WriteCompletion.cmake"
    COMMENT "Completion for ${shell}"
    VERBATIM)
  install(FILES "${script}" DESTINATION "${folder}" COMPONENT completions)
  set(completions ${completions} "${script}" PARENT_SCOPE)
endfunction()
overdrive_install_completion(bash overdrive "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
overdrive_install_completion(zsh _overdrive "${OVERDRIVE_ZSH_COMPLETIONS}")
overdrive_install_completion(fish overdrive.fish
  "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
add_custom_target(completions ALL DEPENDS ${completions})

# The manual: its pages lie otherwise than in the sources, and their links follow.
file(GLOB OVERDRIVE_MANUAL CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/README.md" "${CMAKE_SOURCE_DIR}/CHANGELOG.md" "${CMAKE_SOURCE_DIR}/LICENSE"
  "${CMAKE_SOURCE_DIR}/docs/manual.md" "${CMAKE_SOURCE_DIR}/docs/manual/*.md")
set(manual "${CMAKE_BINARY_DIR}/manual")
add_custom_command(OUTPUT "${manual}/manual.md"
  COMMAND ${CMAKE_COMMAND} -E rm -rf "${manual}"
  COMMAND ${Python3_EXECUTABLE} "${CMAKE_SOURCE_DIR}/packaging/pages.py" "${manual}"
  DEPENDS ${OVERDRIVE_MANUAL} "${CMAKE_SOURCE_DIR}/packaging/pages.py"
  COMMENT "Pages of the manual"
  VERBATIM)
add_custom_target(manual ALL DEPENDS "${manual}/manual.md")
install(DIRECTORY "${manual}/" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT documentation
        OPTIONAL)
