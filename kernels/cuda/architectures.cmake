# Which cards the CUDA module is compiled for, by what the toolkit knows: toolkits before 12.8 refuse sm_120. PTX of the
# oldest serves what is newer than all and what lies in between (sm_100, 103, 110): the driver compiles it at first use.

# slipstream_nvcc_version(OUT NVCC): "12.4", or empty where NVCC does not say.
function(slipstream_nvcc_version out nvcc)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE said ERROR_QUIET)
  set(version "")
  if(said MATCHES "release ([0-9]+\\.[0-9]+)")
    set(version ${CMAKE_MATCH_1})
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# slipstream_cuda_architectures(OUT VERSION): the list for CMAKE_CUDA_ARCHITECTURES.
function(slipstream_cuda_architectures out version)
  set(list 80 86-real 89-real 90)
  if(NOT version STREQUAL "" AND version VERSION_GREATER_EQUAL 12.8)
    set(list 80 86-real 89-real 90-real 120)
  endif()
  set(${out} "${list}" PARENT_SCOPE)
endfunction()
