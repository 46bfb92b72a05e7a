# In-network computing: the packets, and the host's side of it. Used by the switch; needs no MPI.

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
set(OVERDRIVE_INNETWORK_DIR "${CMAKE_SOURCE_DIR}/src/innetwork")
set(generated "${CMAKE_BINARY_DIR}/generated/innetwork/packet_fields.h")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/generated/innetwork")
add_custom_command(OUTPUT "${generated}"
  COMMAND ${Python3_EXECUTABLE} "${OVERDRIVE_INNETWORK_DIR}/generate.py" header "${generated}"
  DEPENDS "${OVERDRIVE_INNETWORK_DIR}/generate.py" "${OVERDRIVE_INNETWORK_DIR}/packet_fields.txt"
  COMMENT "Headers of in-network packets"
  VERBATIM)

file(GLOB OVERDRIVE_INNETWORK_SOURCES CONFIGURE_DEPENDS "${OVERDRIVE_INNETWORK_DIR}/*.cc")
set(OVERDRIVE_INNETWORK_TESTS ${OVERDRIVE_INNETWORK_SOURCES})
list(FILTER OVERDRIVE_INNETWORK_TESTS INCLUDE REGEX "_test\\.cc$")
list(FILTER OVERDRIVE_INNETWORK_SOURCES EXCLUDE REGEX "_(test|tool)\\.cc$")
add_library(overdrive_innetwork STATIC ${OVERDRIVE_INNETWORK_SOURCES} "${generated}")
target_include_directories(overdrive_innetwork PUBLIC "${CMAKE_BINARY_DIR}/generated")
target_link_libraries(overdrive_innetwork PUBLIC overdrive_options)
