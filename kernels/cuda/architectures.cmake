# The GPUs that the CUDA module is compiled for, as far as the toolkit supports them: toolkits before 12.8 refuse sm_120.
# GPUs without machine code of their own, newer ones or ones in between (sm_100, 103, 110), use PTX, which the driver
# compiles at first use.

# slipstream_nvcc_version(OUT NVCC): sets OUT to NVCC's version, as "12.4"; empty if NVCC does not print one.
function(slipstream_nvcc_version out nvcc)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE said ERROR_QUIET)
  set(version "")
  if(said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(version ${CMAKE_MATCH_1})
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# slipstream_cuda_architectures(OUT VERSION): sets OUT to the list for CMAKE_CUDA_ARCHITECTURES; VERSION is NVCC's.
function(slipstream_cuda_architectures out version)
  set(list 80 86-real 89-real 90)
  if(NOT version STREQUAL "" AND version VERSION_GREATER_EQUAL 12.8)
    set(list 80 86-real 89-real 90-real 120)
  endif()
  set(${out} "${list}" PARENT_SCOPE)
endfunction()
