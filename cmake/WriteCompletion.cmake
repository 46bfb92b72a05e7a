# Writes what `overdrive completion SHELL` prints into OUTPUT.
execute_process(COMMAND "${PYTHON}" -I -S -B "${COMMAND}" completion "${SHELL}"
  OUTPUT_FILE "${OUTPUT}" RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  file(REMOVE "${OUTPUT}")
  message(FATAL_ERROR "overdrive completion ${SHELL} failed")
endif()
