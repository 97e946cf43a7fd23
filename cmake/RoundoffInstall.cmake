# The package that find_package(roundoff) reads, and the headers. The libraries are installed by
# roundoff_library, the program by cli/.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/roundoff")
foreach(folder kernels engine ops models verify)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/roundoff"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
endforeach()

get_property(ROUNDOFF_BLAS_NAME GLOBAL PROPERTY ROUNDOFF_BLAS_NAME)
install(TARGETS roundoff_blas EXPORT roundoffTargets)
install(EXPORT roundoffTargets NAMESPACE roundoff:: DESTINATION "${package_dir}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/roundoffConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/roundoffConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/roundoffConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/roundoffConfig.cmake"
              "${PROJECT_BINARY_DIR}/roundoffConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindCBLAS.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/RoundoffKernels.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/checked.map"
  DESTINATION "${package_dir}")
