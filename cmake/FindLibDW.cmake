# Finds elfutils' libdw, which reads line tables.
#
# Target: LibDW::LibDW. Variables: LibDW_FOUND.
include(FindPackageHandleStandardArgs)

find_path(LibDW_INCLUDE_DIR NAMES elfutils/libdwfl.h)
find_library(LibDW_LIBRARY NAMES dw)
mark_as_advanced(LibDW_INCLUDE_DIR LibDW_LIBRARY)

find_package_handle_standard_args(LibDW
  REQUIRED_VARS LibDW_LIBRARY LibDW_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "no libdw with its headers (Debian: libdw-dev)")

if(LibDW_FOUND AND NOT TARGET LibDW::LibDW)
  add_library(LibDW::LibDW UNKNOWN IMPORTED)
  set_target_properties(LibDW::LibDW PROPERTIES
    IMPORTED_LOCATION "${LibDW_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibDW_INCLUDE_DIR}")
endif()
