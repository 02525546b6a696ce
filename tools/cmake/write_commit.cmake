# Writes OUTPUT, a source with the version and the commit of SOURCE_DIR, whenever either has changed.
# usage: cmake -DOUTPUT=... -DSOURCE_DIR=... -DVERSION=... -P write_commit.cmake
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -c safe.directory=* -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE described ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed AND described MATCHES "^[0-9a-f]+(-dirty)?$")
    set(commit ${described})
  endif()
endif()
set(text "#include \"tools/base/build_version.h\"

namespace slipstream::tools {

std::string_view build_version() { return \"${VERSION}\"; }
std::string_view build_commit() { return \"${commit}\"; }

}  // namespace slipstream::tools
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()
