#include "tests/support/golden_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/safetensors_writer.h"

namespace slipstream {

namespace {

std::filesystem::path golden_folder() {
    return std::filesystem::path(SLIPSTREAM_GOLDEN_DIR) / "models";
}

std::string read_all(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file || text.empty())
        throw std::runtime_error(fmt::format("golden file {} is absent or empty", path.string()));
    return text;
}

void write_all(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.flush();
    if (!file) throw std::runtime_error(fmt::format("cannot write {}", path.string()));
}

std::uint64_t fnv1a(std::string_view text) {
    std::uint64_t state = 0xCBF29CE484222325U;
    for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    return state;
}

/// Returns element `index` of the splitmix64 stream of `seed` (Steele, Lea, Flood 2014, figure 16).
std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

std::int64_t elements(const GoldenTensor& tensor) {
    std::int64_t count = 1;
    for (const std::int64_t size : tensor.shape) count *= size;
    return count;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
    static_assert(std::endian::native == std::endian::little);
    const std::string bytes = read_all(path);
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
    return floats;
}

}  // namespace

std::vector<std::string> golden_model_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(golden_folder()))
        if (std::filesystem::exists(entry.path() / "case.txt")) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

GoldenModel load_golden_model(const std::string& name) {
    const std::filesystem::path folder = golden_folder() / name;
    GoldenModel model;
    model.name = name;
    model.config_json = read_all(folder / "config.json");
    std::istringstream lines(read_all(folder / "case.txt"));
    for (std::string text; std::getline(lines, text);) {
        std::istringstream line(text);
        std::string key;
        line >> key;
        if (key == "context") {
            line >> model.context_tokens;
        } else if (key == "tokens") {
            for (TokenId token = 0; line >> token;) model.tokens.push_back(token);
        } else if (key == "greedy") {
            for (TokenId token = 0; line >> token;) model.greedy.push_back(token);
        } else if (key == "tensor") {
            GoldenTensor& tensor = model.tensors.emplace_back();
            line >> tensor.name;
            for (std::int64_t size = 0; line >> size;) tensor.shape.push_back(size);
            if (tensor.name == "model.embed_tokens.weight") model.vocab = tensor.shape.at(0);
        } else {
            throw std::runtime_error(fmt::format("{}/case.txt: unknown line '{}'", name, text));
        }
    }
    model.logits = read_floats(folder / "logits.f32");
    if (std::filesystem::exists(folder / "logits_q8.f32")) model.logits_q8 = read_floats(folder / "logits_q8.f32");
    const auto n_tokens = static_cast<std::int64_t>(model.tokens.size());
    if (model.vocab < 1 || model.context_tokens < n_tokens ||
        model.logits.size() % static_cast<std::size_t>(model.vocab) != 0 || model.n_rows() < 1 ||
        model.n_rows() > n_tokens || (!model.logits_q8.empty() && model.logits_q8.size() != model.logits.size()))
        throw std::runtime_error(fmt::format("golden model {} contradicts itself", name));
    return model;
}

std::vector<float> golden_values(const GoldenTensor& tensor) {
    float offset = 0.0F;
    float scale = 1.0F;
    const auto ends_in = [&](std::initializer_list<const char*> ends) {
        return std::ranges::any_of(ends, [&](const char* end) { return tensor.name.ends_with(end); });
    };
    if (ends_in(
            {"norm.weight", "layer_scalar", "norm_1.weight", "norm_2.weight", "router.scale", "per_expert_scale"})) {
        offset = 1.0F;
        scale = 0.25F;
    } else if (tensor.name.ends_with(".bias")) {
        scale = 0.5F;
    } else if (tensor.name.ends_with(".A_log")) {
        scale = 1.0F;
    } else if (tensor.name.ends_with(".dt_bias")) {
        offset = -1.0F;
    } else if (tensor.name.find("embed_tokens") == std::string::npos) {
        const auto fan_in = static_cast<std::uint64_t>(tensor.shape.back());
        scale = std::ldexp(1.0F, -((std::bit_width(fan_in) - 1) / 2));
        for (const char* part : {"q_proj", "k_proj", "qkv_proj"})
            if (tensor.name.find(part) != std::string::npos) {
                scale *= 2.0F;
                break;
            }
        if (tensor.name.find("router.proj") != std::string::npos) scale *= 8.0F;
    }
    const std::uint64_t seed = fnv1a(tensor.name);
    std::vector<float> values(static_cast<std::size_t>(elements(tensor)));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto bits = static_cast<float>(splitmix64(seed, i) >> 48);
        values[i] = offset + scale * ((bits - 32768.0F) / 32768.0F);
    }
    return values;
}

std::string golden_bytes(const GoldenTensor& tensor) {
    const std::uint64_t seed = fnv1a(tensor.name);
    std::string bytes(static_cast<std::size_t>(elements(tensor)), '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const std::uint64_t bits = splitmix64(seed, i) >> 48;
        bytes[i] = static_cast<char>(tensor.name.ends_with("_scales") ? 119 + (bits >> 14) : bits >> 8);
    }
    return bytes;
}

void write_hugging_face(const GoldenModel& model, const std::filesystem::path& folder,
                        const std::function<std::string(const std::string&)>& name_in_file) {
    SafetensorsWriter writer;
    for (const GoldenTensor& tensor : model.tensors) {
        const std::string name = name_in_file ? name_in_file(tensor.name) : tensor.name;
        if (tensor.is_bytes()) {
            writer.tensor(name, "U8", tensor.shape, golden_bytes(tensor));
            continue;
        }
        const std::vector<float> values = golden_values(tensor);
        writer.tensor(name, "F32", tensor.shape,
                      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }
    write_all(folder / "config.json", model.config_json);
    write_all(folder / "model.safetensors", writer.bytes());
}

}  // namespace slipstream
