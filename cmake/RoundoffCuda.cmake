# The CUDA side: Ampere's instructions as portable PTX that newer GPUs translate when a program
# starts, and Hopper's own (sm_90a, which no other GPU runs) as machine code.
if(NOT CMAKE_CUDA_COMPILER)
  # Where the toolkit is installed without being on PATH.
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "ROUNDOFF_CUDA is on, but no nvcc was found: install the CUDA toolkit (12.0 or "
    "later), put nvcc on PATH or set CMAKE_CUDA_COMPILER, or build without ROUNDOFF_CUDA")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "GPU architectures to compile for")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc 12 and later take C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
