#include "runtime/formats/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>

#include "kernels/base/error.h"
#include "runtime/formats/file_presence.h"
#include "runtime/formats/model_contents.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

class OpenModelFiles final : public ModelFiles {
public:
    explicit OpenModelFiles(ModelContents contents) : contents_(std::move(contents)), index_(contents_.tensors) {
        for (const MappedFile& file : contents_.files) {
            paths_.push_back(file.path());
            total_bytes_ += file.bytes().size();
        }
    }

    [[nodiscard]] std::string_view format() const override { return contents_.format; }
    [[nodiscard]] const std::vector<fs::path>& paths() const override { return paths_; }
    [[nodiscard]] std::size_t total_bytes() const override { return total_bytes_; }
    [[nodiscard]] const ModelConfig& config() const override { return contents_.config; }
    [[nodiscard]] const GenerationDefaults& generation_defaults() const override {
        return contents_.generation_defaults;
    }
    [[nodiscard]] const TokenizerSource& tokenizer_source() const override { return contents_.tokenizer_source; }
    [[nodiscard]] const std::optional<std::string>& chat_template() const override { return contents_.chat_template; }
    [[nodiscard]] const std::vector<FileTensor>& tensors() const override { return contents_.tensors; }
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> metadata() const override {
        return contents_.metadata;
    }

    [[nodiscard]] ModelWeights weights() const override {
        try {
            return bind_weights(contents_.config, index_, *contents_.names, contents_.rules);
        } catch (const FormatError& error) {
            throw FormatError(fmt::format("{}: {}", contents_.label, error.what()));
        } catch (const Unsupported& error) {
            throw Unsupported(fmt::format("{}: {}", contents_.label, error.what()));
        }
    }

    void prefetch(std::span<const std::byte> part) const override {
        with_file(part, [&](const MappedFile& file, std::size_t begin) { file.populate(begin, part.size()); });
    }
    void release(std::span<const std::byte> part) const override {
        with_file(part, [&](const MappedFile& file, std::size_t begin) { file.release(begin, part.size()); });
    }

private:
    /// Calls use(file, offset) for the file that contains `part`.
    template <typename Use>
    void with_file(std::span<const std::byte> part, const Use& use) const {
        for (const MappedFile& file : contents_.files) {
            const std::span<const std::byte> bytes = file.bytes();
            if (std::less_equal<>()(bytes.data(), part.data()) &&
                std::less_equal<>()(part.data() + part.size(), bytes.data() + bytes.size()))
                return use(file, part.data() - bytes.data());
        }
        CHECK(part.empty(), "{} bytes that no file of {} holds", part.size(), contents_.label);
    }

    ModelContents contents_;
    TensorIndex index_;  // into contents_.tensors, which must not change
    std::vector<fs::path> paths_;
    std::size_t total_bytes_ = 0;
};

[[noreturn]] void refuse_directory(const fs::path& path) {
    std::vector<std::string> gguf_files;
    std::error_code error;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
        if (at->path().extension() == ".gguf") gguf_files.push_back(at->path().filename().string());
    if (error) throw IoError(fmt::format("cannot read {}: {}", path.string(), error.message()));
    std::sort(gguf_files.begin(), gguf_files.end());
    if (gguf_files.empty())
        throw FormatError(fmt::format("{}: a directory without a model (no config.json, no GGUF file)", path.string()));
    throw FormatError(fmt::format("{}: a directory without config.json; name one of its {} GGUF files, e.g. {}",
                                  path.string(), gguf_files.size(), printable(gguf_files.front())));
}

ModelContents open_contents(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (error || !fs::exists(status))
        throw IoError(
            fmt::format("cannot open {}: {}", path.string(), error ? error.message() : std::strerror(ENOENT)));
    if (fs::is_directory(status)) {
        if (!is_there(path / "config.json")) refuse_directory(path);
        return open_hf_directory(path);
    }
    if (path.filename() == "config.json") return open_hf_directory(path.has_parent_path() ? path.parent_path() : ".");
    if (path.extension() == ".safetensors" || path.extension() == ".json")
        throw FormatError(fmt::format("{}: open the directory that holds it and its config.json", path.string()));
    return open_gguf(path);
}

}  // namespace

std::unique_ptr<ModelFiles> ModelFiles::open(const fs::path& path) {
    return std::make_unique<OpenModelFiles>(open_contents(path));
}

FileTensor make_file_tensor(std::string name, std::string_view type_name, std::optional<DType> dtype,
                            std::vector<std::int64_t> shape, std::span<const std::byte> data) {
    FileTensor tensor;
    tensor.name = std::move(name);
    tensor.type_name = type_name;
    tensor.data = data.data();
    tensor.bytes = data.size();
    if (dtype && !shape.empty() && shape.size() <= kMaxRank) {
        tensor.view.data = data.data();
        tensor.view.dtype = *dtype;
        tensor.view.rank = static_cast<int>(shape.size());
        std::copy(shape.begin(), shape.end(), tensor.view.shape.begin());
        tensor.view.row_stride_bytes = row_bytes(*dtype, shape.back());
    }
    tensor.shape = std::move(shape);
    return tensor;
}

}  // namespace slipstream
