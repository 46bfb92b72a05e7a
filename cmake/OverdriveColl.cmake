# What belongs to collectives beside the engine: the program behind `overdrive explain` and `overdrive
# info --algorithms`.

# Tuning files are read by the headers of a JSON library; nothing of it is linked.
find_path(OVERDRIVE_JSON_INCLUDE nlohmann/json.hpp)
if(NOT OVERDRIVE_JSON_INCLUDE)
  message(FATAL_ERROR
    "nlohmann/json.hpp is missing: install nlohmann-json3-dev, or set OVERDRIVE_JSON_INCLUDE")
endif()
target_include_directories(overdrive_core SYSTEM PRIVATE "${OVERDRIVE_JSON_INCLUDE}")

add_executable(overdrive-collectives "${CMAKE_SOURCE_DIR}/src/programs/coll_tool.cc")
target_link_libraries(overdrive-collectives PRIVATE overdrive_core overdrive_options)
overdrive_link_plainly(overdrive-collectives)
if(NOT OVERDRIVE_SANITIZER)
  target_link_options(overdrive-collectives PRIVATE -static-libstdc++ -static-libgcc)
endif()

# Collectives of forked processes in shared memory alone, for choosing thresholds.
if(OVERDRIVE_TESTS)
  add_executable(overdrive-node-bench "${CMAKE_SOURCE_DIR}/src/programs/node_bench.cc")
  target_link_libraries(overdrive-node-bench PRIVATE overdrive_core overdrive_options)
  overdrive_link_optimised(overdrive-node-bench)
endif()
