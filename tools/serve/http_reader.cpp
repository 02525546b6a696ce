#include "tools/serve/http_reader.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fmt/format.h>

namespace slipstream::tools {

namespace {

namespace http = boost::beast::http;

// Most bytes of the head of one chunk of a body, or of the trailer fields after the last chunk. The library has no
// limit for them.
constexpr std::size_t kMostChunkHeadBytes = 16 << 10;

}  // namespace

struct HttpReader::Parser {
    http::request_parser<http::string_body> http;
};

HttpReader::HttpReader(const HttpSizes& sizes) : sizes_(sizes) {
    begin();
}

HttpReader::~HttpReader() = default;

void HttpReader::begin() {
    parser_ = std::make_unique<Parser>();
    parser_->http.header_limit(static_cast<std::uint32_t>(sizes_.head_bytes));
    parser_->http.body_limit(sizes_.body_bytes);
    in_head_ = true;
    n_head_ = 0;
    request_ = {};
}

bool HttpReader::is_complete() const {
    return parser_->http.is_done();
}

HttpReader::Step HttpReader::fail(int status, std::string reason) {
    fault_ = {status, std::move(reason)};
    keep_alive_ = false;
    received_.clear();
    return Step::Fault;
}

HttpReader::Step HttpReader::read() {
    if (!in_head_ && is_complete()) return Step::Request;
    while (!received_.empty()) {
        boost::system::error_code error;
        const std::size_t n = parser_->http.put(boost::asio::buffer(received_), error);
        received_.erase(0, n);
        const bool needs_more = error == http::error::need_more;
        if (in_head_) {
            // The library's header_limit() does not count the bytes of the head that it has parsed in earlier calls.
            n_head_ += n;
            if (n_head_ + (needs_more ? received_.size() : 0) > sizes_.head_bytes || error == http::error::header_limit)
                return fail(431, fmt::format("the head has more than {} bytes", sizes_.head_bytes));
        }
        if (error == http::error::body_limit) {
            if (in_head_) static_cast<void>(split_target(std::string(parser_->http.get().target()), request_));
            return fail(413, fmt::format("the body has more than {} bytes", sizes_.body_bytes));
        }
        if (error && !needs_more) return fail(400, fmt::format("not a valid HTTP/1.1 request: {}", error.message()));
        if (needs_more && !in_head_ && received_.size() > kMostChunkHeadBytes)
            return fail(400, "the head of a chunk of the body has no end");
        if (needs_more) return Step::NeedsMore;
        if (in_head_ && parser_->http.is_header_done()) return read_head();
        if (!in_head_ && is_complete()) {
            request_.body = std::move(parser_->http.get().body());
            return Step::Request;
        }
    }
    return Step::NeedsMore;
}

HttpReader::Step HttpReader::read_head() {
    const auto& message = parser_->http.get();
    request_.method = std::string(message.method_string());
    for (const auto& field : message) {
        if (request_.fields.size() == sizes_.n_fields)
            return fail(431, fmt::format("the head has more than {} fields", sizes_.n_fields));
        request_.fields.push_back({std::string(field.name_string()), std::string(field.value())});
    }
    is_http_1_0_ = message.version() < 11;
    keep_alive_ = parser_->http.keep_alive();
    if (auto fault = find_fault({request_.method, is_http_1_0_}, request_.fields))
        return fail(fault->status, std::move(fault->reason));
    std::string target(message.target().data(), message.target().size());
    // The absolute form of a target, "http://host/path", which proxies use. Its host must be that of the Host field, by
    // which access is decided.
    constexpr std::string_view kScheme = "http://";
    if (same_field_name(std::string_view(target).substr(0, kScheme.size()), kScheme)) {
        const std::size_t end = std::min(target.find_first_of("/?", kScheme.size()), target.size());
        if (!same_field_name(std::string_view(target).substr(0, end).substr(kScheme.size()),
                             request_.field("Host").value_or("")))
            return fail(400, "the target of the request names another host than its Host field");
        target = std::string(target.find('/', end) == end ? "" : "/").append(target, end);
    }
    if (!split_target(target, request_)) return fail(400, "the target of a request is a path, such as /v1/models");
    in_head_ = false;
    parser_->http.eager(true);
    return Step::Head;
}

}  // namespace slipstream::tools
