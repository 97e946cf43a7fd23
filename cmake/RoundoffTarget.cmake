# What every target of Roundoff shares: language level, warnings and pinned floating-point semantics.
include(GNUInstallDirs)

set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(ROUNDOFF_CCACHE ccache)
mark_as_advanced(ROUNDOFF_CCACHE)
if(ROUNDOFF_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ROUNDOFF_CCACHE}")
endif()

add_library(roundoff_flags INTERFACE)
target_compile_features(roundoff_flags INTERFACE cxx_std_20)
# One meaning for a * b + c on every compiler: two roundings, unless std::fma is written.
target_compile_options(roundoff_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -ffp-contract=off>)
if(ROUNDOFF_NATIVE)
  target_compile_options(roundoff_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
endif()

# roundoff_library(NAME SOURCES file... [LINK target...] [PRIVATE target...])
# A static library roundoff_NAME, used as roundoff::NAME.
function(roundoff_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(roundoff_${name} STATIC ${arg_SOURCES})
  add_library(roundoff::${name} ALIAS roundoff_${name})
  target_compile_features(roundoff_${name} PUBLIC cxx_std_20)
  target_include_directories(roundoff_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/roundoff>)
  target_link_libraries(roundoff_${name} PUBLIC ${arg_LINK}
    PRIVATE $<BUILD_INTERFACE:roundoff_flags> ${arg_PRIVATE})
  set_target_properties(roundoff_${name} PROPERTIES EXPORT_NAME ${name})
endfunction()
