# Writes a C++ file that has the files of the server's page as raw strings (declared in serve/page_files.h).
# usage: cmake -DOUTPUT=F -DFOLDER=D -P write_page.cmake
function(raw_string out name)
  file(READ ${FOLDER}/${name} text)
  if(text MATCHES "\\)slipstream\"")
    message(FATAL_ERROR "${name}: the mark that ends a raw string is in it")
  endif()
  set(${out} "R\"slipstream(${text})slipstream\"" PARENT_SCOPE)
endfunction()
raw_string(html index.html)
raw_string(css page.css)
raw_string(js page.js)
file(WRITE ${OUTPUT} "#include \"tools/serve/page_files.h\"

namespace slipstream::tools {

const std::array<PageFile, 3>& page_files() {
    static constexpr std::array<PageFile, 3> kFiles{{
        {\"/\", \"text/html; charset=utf-8\", ${html}},
        {\"/page.css\", \"text/css; charset=utf-8\", ${css}},
        {\"/page.js\", \"text/javascript; charset=utf-8\", ${js}},
    }};
    return kFiles;
}

}  // namespace slipstream::tools
")
