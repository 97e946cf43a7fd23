# What every target of Roundoff shares: language level, warnings, pinned floating-point semantics, and
# the functions that declare libraries.
include(GNUInstallDirs)

set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
# An installation finds its shared libraries wherever it is moved.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(ROUNDOFF_CCACHE ccache)
mark_as_advanced(ROUNDOFF_CCACHE)
if(ROUNDOFF_CCACHE)
  foreach(language CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${ROUNDOFF_CCACHE}")
    endif()
  endforeach()
endif()

add_library(roundoff_flags INTERFACE)
target_compile_features(roundoff_flags INTERFACE cxx_std_20)
# One meaning for a * b + c on every compiler and device: two roundings, unless std::fma is written.
target_compile_options(roundoff_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr --Werror=all-warnings
                             -Xcompiler=-Wall,-Wextra,-ffp-contract=off>)
if(ROUNDOFF_NATIVE)
  target_compile_options(roundoff_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
endif()

# roundoff_command_line(TARGET): code that reads a command line and prints. CLI11's templates take
# longer to compile than the program ever spends in them, so they are optimised little; where
# sanitizers instrument every line of them, not at all.
function(roundoff_command_line target)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0>)
endfunction()

# roundoff_library(NAME SOURCES file... [LINK target...] [PRIVATE target...])
# A static library roundoff_NAME, used as roundoff::NAME and installed with its headers. LINK is what
# its headers need, PRIVATE what only its sources need.
function(roundoff_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(roundoff_${name} STATIC ${arg_SOURCES})
  add_library(roundoff::${name} ALIAS roundoff_${name})
  target_compile_features(roundoff_${name} PUBLIC cxx_std_20)
  target_include_directories(roundoff_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/roundoff>)
  target_link_libraries(roundoff_${name} PUBLIC ${arg_LINK} PRIVATE $<BUILD_INTERFACE:roundoff_flags>)
  get_property(header_only GLOBAL PROPERTY ROUNDOFF_HEADER_ONLY)
  foreach(target IN LISTS arg_PRIVATE)
    if(target IN_LIST header_only)
      set(target "$<BUILD_INTERFACE:${target}>")
    endif()
    target_link_libraries(roundoff_${name} PRIVATE ${target})
  endforeach()
  set_target_properties(roundoff_${name} PROPERTIES EXPORT_NAME ${name})
  if(ROUNDOFF_INSTALL)
    install(TARGETS roundoff_${name} EXPORT roundoffTargets)
  endif()
endfunction()
