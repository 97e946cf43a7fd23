# CUDA kernels that run on every target. One text, several builds:
#   NAME_sim      the host compiler's, onto the emulator, as fast as it goes
#   NAME_checked  the same with every access instrumented, for the emulator's sanitizer and profiler
#   NAME_cuda     nvcc's, where ROUNDOFF_CUDA is on
# NAME links those that this build has, and tells its users which (ROUNDOFF_HAS_*).

# A build that is itself under AddressSanitizer or ThreadSanitizer cannot hold the instrumented
# kernels: their hooks have the names of ThreadSanitizer's.
# `-D ROUNDOFF_CHECKED=OFF` leaves them out of any other, for a shorter build.
string(FIND "${CMAKE_CXX_FLAGS}" "-fsanitize=" sanitized)
if(NOT sanitized EQUAL -1)
  set(ROUNDOFF_CHECKED OFF)
elseif(NOT DEFINED ROUNDOFF_CHECKED)
  set(ROUNDOFF_CHECKED ON)
endif()

# Calls at the end of a function stay calls: they are told apart by where they return to.
set(ROUNDOFF_CHECKED_FLAGS -fsanitize=thread -O1 -g1 -fno-omit-frame-pointer
    -fno-optimize-sibling-calls)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Line tables are looked up by address.
  list(APPEND ROUNDOFF_CHECKED_FLAGS -gdwarf-aranges -fno-vectorize -fno-slp-vectorize
       "SHELL:-mllvm -tsan-instrument-func-entry-exit=0" "SHELL:-mllvm -tsan-distinguish-volatile=1")
else()
  list(APPEND ROUNDOFF_CHECKED_FLAGS -fno-tree-vectorize
       "SHELL:--param tsan-instrument-func-entry-exit=0" "SHELL:--param tsan-distinguish-volatile=1")
endif()
set(ROUNDOFF_PTXAS_STRICT -Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error)
set(ROUNDOFF_CHECKED_EXPORTS "${CMAKE_CURRENT_LIST_DIR}/checked.map")

# roundoff_kernel_library(NAME SOURCES file.cu... [LINK target...] [PRIVATE target...]
#                         [INSTALL] [SIM_ONLY])
# Sources are relative to the current folder. INSTALL: NAME and its builds join Roundoff's package.
# SIM_ONLY: never for a GPU, for kernels that are wrong on purpose.
function(roundoff_kernel_library name)
  cmake_parse_arguments(arg "INSTALL;SIM_ONLY" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  # Inside Roundoff its own flags; in another project what a kernel's meaning depends on.
  if(TARGET roundoff_flags)
    list(APPEND arg_PRIVATE $<BUILD_INTERFACE:roundoff_flags>)
  endif()
  add_library(${name} INTERFACE)
  set(builds sim)
  if(ROUNDOFF_CHECKED)
    list(APPEND builds checked)
  endif()
  foreach(build IN LISTS builds)
    # The language is a property of a source in a folder, and .cu is CUDA's: a file that includes it.
    set(sources "")
    foreach(source IN LISTS arg_SOURCES)
      # By its place in the project, so that a compiler's cache serves every copy of it.
      file(RELATIVE_PATH text "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
      set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/${name}_${build}/${source}.cpp")
      file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${text}\"\n")
      list(APPEND sources "${wrapper}")
    endforeach()
    if(build STREQUAL "sim")
      add_library(${name}_${build} STATIC ${sources})
    else()
      add_library(${name}_${build} SHARED ${sources})
      target_compile_options(${name}_${build} PRIVATE ${ROUNDOFF_CHECKED_FLAGS})
      target_compile_definitions(${name}_${build} PRIVATE ROUNDOFF_TARGET_CHECKED)
      # Launchers are exported and nothing else: an instrumented copy of an inline function must not
      # stand in for the program's own, or the other way about.
      set_target_properties(${name}_${build} PROPERTIES CXX_VISIBILITY_PRESET default
        VISIBILITY_INLINES_HIDDEN OFF LINK_DEPENDS "${ROUNDOFF_CHECKED_EXPORTS}")
      target_link_options(${name}_${build} PRIVATE "-Wl,--version-script=${ROUNDOFF_CHECKED_EXPORTS}"
        -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset)
    endif()
    target_compile_features(${name}_${build} PUBLIC cxx_std_20)
    target_include_directories(${name}_${build} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name}_${build} PUBLIC roundoff::simt ${arg_LINK} PRIVATE ${arg_PRIVATE})
    target_compile_options(${name}_${build} PRIVATE -ffp-contract=off)
    string(TOUPPER ${build} upper)
    target_link_libraries(${name} INTERFACE ${name}_${build})
    target_compile_definitions(${name} INTERFACE ROUNDOFF_HAS_${upper}=1)
  endforeach()
  if(CMAKE_CUDA_COMPILER_LOADED AND NOT arg_SIM_ONLY)
    list(APPEND builds cuda)
    add_library(${name}_cuda STATIC ${arg_SOURCES})
    target_compile_features(${name}_cuda PUBLIC cxx_std_20)
    target_link_libraries(${name}_cuda PUBLIC roundoff::simt ${arg_LINK} PRIVATE ${arg_PRIVATE})
    target_compile_options(${name}_cuda PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr>)
    if(TARGET roundoff_flags)
      # Roundoff's own kernels keep everything in registers: a stack frame or a spill is an error.
      target_compile_options(${name}_cuda PRIVATE
        $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<CONFIG:Debug>>>:${ROUNDOFF_PTXAS_STRICT}>)
    endif()
    target_link_libraries(${name} INTERFACE ${name}_cuda)
    target_compile_definitions(${name} INTERFACE ROUNDOFF_HAS_CUDA=1)
  endif()
  if(arg_INSTALL AND ROUNDOFF_INSTALL)
    list(TRANSFORM builds PREPEND "${name}_" OUTPUT_VARIABLE targets)
    foreach(target IN ITEMS ${name} ${targets})
      string(REGEX REPLACE "^roundoff_" "" export_name ${target})
      set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name})
    endforeach()
    install(TARGETS ${name} ${targets} EXPORT roundoffTargets)
  endif()
endfunction()
