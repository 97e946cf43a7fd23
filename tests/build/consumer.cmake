# Configures, builds and runs a small project that uses Roundoff as another project does.
# WAY is `install` (an installation, moved after it was made, and find_package) or `embed`
# (add_subdirectory). The build directory's compiler and flags are used, so that sanitizers agree.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "status ${status}: ${line}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(work "${BUILD}/consumer/${WAY}")
file(REMOVE_RECURSE "${work}")
if(WAY STREQUAL "embed")
  set(CONFIG Debug)  # Roundoff is compiled once more: the quick way
endif()
set(options -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_FLAGS=${FLAGS}
            -D CMAKE_BUILD_TYPE=${CONFIG})

if(WAY STREQUAL "install")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/first")
  # The package must not remember where it was installed, or where it was built.
  file(RENAME "${work}/first" "${work}/prefix")
  file(GLOB_RECURSE package "${work}/prefix/*.cmake")
  foreach(file IN LISTS package)
    file(READ "${file}" text)
    foreach(path "${SOURCE}" "${BUILD}")
      string(FIND "${text}" "${path}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names ${path}")
      endif()
    endforeach()
  endforeach()
  run("${work}/prefix/bin/roundoff" --version)
  list(APPEND options -D CMAKE_PREFIX_PATH=${work}/prefix)
else()
  list(APPEND options -D ROUNDOFF_SOURCE=${SOURCE} -D ROUNDOFF_BLAS=${BLAS} -D ROUNDOFF_CHECKED=OFF)
endif()

run("${CMAKE_COMMAND}" -S "${SOURCE}/tests/build/consumer" -B "${work}/build" ${options})
run("${CMAKE_COMMAND}" --build "${work}/build" --target consumer)
run("${work}/build/consumer")
message("${output}")
