# `cmake --install`: the program, the CUDA module where one was built, the bundled pair, the manual page and completions
# of shells (made by the program itself, so that they fit it). `cpack` in the build folder makes a .deb for the system
# that it runs on (dpkg-dev finds out what the package depends on).
include(GNUInstallDirs)
# `cmake --install` does not require that all targets are built, only those that are installed.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)

install(TARGETS slipstream RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The program looks for the CUDA module and for the demo model in folders relative to its own.
if(TARGET slipstream_cuda)
  install(TARGETS slipstream_cuda LIBRARY DESTINATION lib/slipstream OPTIONAL)
endif()
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/demo_model/target ${CMAKE_CURRENT_SOURCE_DIR}/demo_model/draft
  DESTINATION share/slipstream/demo_model)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# get_model needs no other file of this tree.
install(PROGRAMS ${CMAKE_CURRENT_SOURCE_DIR}/get_model DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME slipstream-get-model)

set(help_files ${CMAKE_CURRENT_BINARY_DIR}/help_files)
install(CODE "
  file(MAKE_DIRECTORY ${help_files})
  function(from_program file)
    execute_process(COMMAND $<TARGET_FILE:slipstream> help \${ARGN} OUTPUT_FILE ${help_files}/\${file}
      COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  from_program(slipstream.1 --man)
  execute_process(COMMAND gzip -9nf ${help_files}/slipstream.1 COMMAND_ERROR_IS_FATAL ANY)
  from_program(slipstream --completion bash)
  from_program(_slipstream --completion zsh)
  from_program(slipstream.fish --completion fish)
")
install(FILES ${help_files}/slipstream.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${help_files}/slipstream DESTINATION share/bash-completion/completions)
# zsh finds completions of packages in /usr/share/zsh/vendor-completions and others in
# /usr/local/share/zsh/site-functions. For every other prefix the user must add the folder to fpath.
install(CODE "
  set(zsh_folder \${CMAKE_INSTALL_PREFIX}/share/zsh/site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES [[/usr/?$]])
    set(zsh_folder \${CMAKE_INSTALL_PREFIX}/share/zsh/vendor-completions)
  elseif(NOT CMAKE_INSTALL_PREFIX MATCHES [[/usr/local/?$]])
    message(STATUS \"For completion in zsh put 'fpath+=(\${zsh_folder})' before compinit into ~/.zshrc\")
  endif()
  file(INSTALL DESTINATION \${zsh_folder} TYPE FILE FILES ${help_files}/_slipstream)
")
install(FILES ${help_files}/slipstream.fish DESTINATION share/fish/vendor_completions.d)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Slipstream authors <slipstream@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-pip")  # slipstream-get-model runs pip
include(CPack)
