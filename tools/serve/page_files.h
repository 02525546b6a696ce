// The page at "/": the files of page/, built into the program (tools/cmake/write_page.cmake).
#pragma once

#include <array>
#include <string_view>

namespace slipstream::tools {

struct PageFile {
    std::string_view path;  // of a request
    std::string_view content_type;
    std::string_view text;
};

[[nodiscard]] const std::array<PageFile, 3>& page_files();

}  // namespace slipstream::tools
