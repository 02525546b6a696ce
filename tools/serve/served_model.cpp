#include "tools/serve/served_model.h"

#include <chrono>
#include <functional>
#include <system_error>

#include <fmt/format.h>

#include "kernels/base/dtype.h"
#include "runtime/formats/model_fingerprint.h"
#include "tools/base/build_version.h"

namespace slipstream::tools {

namespace {

std::int64_t changed_at(const std::filesystem::path& path) {
    std::error_code error;
    const auto time = std::filesystem::last_write_time(path, error);
    if (error) return 0;
    const auto system = std::chrono::file_clock::to_sys(time).time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(system).count();
}

std::int64_t n_elements(const FileTensor& tensor) {
    std::int64_t n = 1;
    for (const std::int64_t extent : tensor.shape) n *= extent;
    return n;
}

// Returns a text that identifies everything, besides the request, on which a generated text depends. Memory budgets are
// left out, since it does not depend on them.
std::string fingerprint_of(const OpenedModel& opened, const ComputeOptions& compute, const std::string& defaults) {
    std::string all =
        fmt::format("{} {} {:x} {} {}", build_version(), build_commit(), model_fingerprint(opened.files()),
                    compute.context_tokens.value_or(0), compute.kv_dtype ? dtype_name(*compute.kv_dtype) : "auto");
    for (const DeviceChoice& device : compute.devices) all += fmt::format(" {} {}", device.name(), device.form);
    if (compute.offload.split) all += fmt::format(" split {}", static_cast<int>(*compute.offload.split));
    for (const double share : compute.offload.shares) all += fmt::format(" {}", share);
    all += ' ' + defaults;
    return fmt::format("slipstream-{:016x}", std::hash<std::string>()(all));
}

}  // namespace

std::string served_name(const std::filesystem::path& path, const std::filesystem::path& bundled) {
    std::error_code error;
    if (!bundled.empty() && std::filesystem::equivalent(path, bundled, error)) return "slipstream-bundled";
    const std::filesystem::path whole = std::filesystem::absolute(path, error).lexically_normal();
    const std::filesystem::path last = whole.has_filename() ? whole : whole.parent_path();
    const std::string cached = last.parent_path().parent_path().filename().string();
    constexpr std::string_view kCached = "models--";
    if (last.parent_path().filename() == "snapshots" && cached.starts_with(kCached)) {
        const std::string name = cached.substr(kCached.size());
        const std::size_t dashes = name.find("--");
        return dashes == std::string::npos ? name
                                           : fmt::format("{}/{}", name.substr(0, dashes), name.substr(dashes + 2));
    }
    return last.extension() == ".gguf" ? last.stem().string() : last.filename().string();
}

ServedModel describe_served(const OpenedModel& opened, const Tokenizer& tokenizer, const ComputeOptions& compute,
                            const std::string& defaults, std::string name) {
    const auto spelling = [&](std::optional<TokenId> id) {
        return id ? std::string(tokenizer.piece(*id)) : std::string();
    };
    ServedModel model{.name = std::move(name),
                      .created = changed_at(opened.files().paths().front()),
                      .train_context_tokens = opened.config().context_tokens,
                      .file_bytes = static_cast<std::int64_t>(opened.files().total_bytes()),
                      .vocab = opened.config().vocab,
                      .fingerprint = fingerprint_of(opened, compute, defaults),
                      .bos = spelling(tokenizer.bos_id()),
                      .eos = spelling(tokenizer.eos_id())};
    for (const FileTensor& tensor : opened.files().tensors()) model.n_parameters += n_elements(tensor);
    return model;
}

}  // namespace slipstream::tools
