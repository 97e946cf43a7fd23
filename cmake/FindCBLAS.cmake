# Finds a fast BLAS with the C interface: OpenBLAS or BLIS (CBLAS_NAMES narrows the list).
# The netlib reference BLAS, which Debian's generic libblas.so may be, is not asked for: it is slower
# than the Eigen products that take its place.
#
# Target: CBLAS::CBLAS. Variables: CBLAS_FOUND, CBLAS_NAME (openblas or blis).
# The installed package uses this file too, so that it names no path of the build machine.
include(FindPackageHandleStandardArgs)

if(NOT CBLAS_NAMES)
  set(CBLAS_NAMES openblas blis)
endif()

set(CBLAS_NAME "")
foreach(_cblas_name IN LISTS CBLAS_NAMES)
  find_library(CBLAS_${_cblas_name}_LIBRARY NAMES ${_cblas_name}
               PATH_SUFFIXES ${_cblas_name}-pthread ${_cblas_name}-openmp ${_cblas_name}-serial)
  # A header of the library's own folder comes before one that an alternatives system points at.
  find_path(CBLAS_${_cblas_name}_INCLUDE_DIR NAMES cblas.h NO_DEFAULT_PATH
            PATHS /usr/include /usr/local/include
            PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/${_cblas_name}-pthread
                          ${CMAKE_LIBRARY_ARCHITECTURE}/${_cblas_name}-openmp
                          ${CMAKE_LIBRARY_ARCHITECTURE}/${_cblas_name}-serial ${_cblas_name})
  find_path(CBLAS_${_cblas_name}_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES ${_cblas_name})
  mark_as_advanced(CBLAS_${_cblas_name}_LIBRARY CBLAS_${_cblas_name}_INCLUDE_DIR)
  if(CBLAS_${_cblas_name}_LIBRARY AND CBLAS_${_cblas_name}_INCLUDE_DIR)
    set(CBLAS_NAME ${_cblas_name})
    break()
  endif()
endforeach()

find_package_handle_standard_args(CBLAS
  REQUIRED_VARS CBLAS_NAME
  REASON_FAILURE_MESSAGE "no OpenBLAS or BLIS with its cblas.h (Debian: libopenblas-dev)")

if(CBLAS_FOUND AND NOT TARGET CBLAS::CBLAS)
  add_library(CBLAS::CBLAS UNKNOWN IMPORTED)
  set_target_properties(CBLAS::CBLAS PROPERTIES
    IMPORTED_LOCATION "${CBLAS_${CBLAS_NAME}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CBLAS_${CBLAS_NAME}_INCLUDE_DIR}")
endif()
