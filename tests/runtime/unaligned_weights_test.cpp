// Safetensors do not align: a header of odd length, as old writers leave it, puts every weight at an odd address. The
// logits are the same bits, in every float type and instruction form.
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/float16.h"
#include "kernels/cpu_device.h"
#include "runtime/formats/model_files.h"
#include "runtime/pass/forward.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

constexpr std::int64_t kTokens = 9;  // more than any form takes one by one

template <typename Element>
void append(std::string& data, Element value) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The tensors of tiny_llama_safetensors() with small values, in `type`.
std::string tiny_in(DType type) {
    const TempFolder folder;
    folder.write("config.json", kTinyLlamaConfig);
    folder.write("model.safetensors", tiny_llama_safetensors().bytes());
    const auto model = ModelFiles::open(folder.path());
    SafetensorsWriter writer;
    std::uint32_t state = 1;
    for (const FileTensor& tensor : model->tensors()) {
        std::string data;
        for (std::size_t i = 0; i < tensor.bytes / sizeof(float); ++i) {
            state = state * 1664525U + 1013904223U;
            const float value = static_cast<float>(state >> 16) / 65536.0F - 0.3F;
            if (type == DType::F32) append(data, value);
            if (type == DType::F16) append(data, to_half(value));
            if (type == DType::BF16) append(data, to_bfloat16(value));
        }
        writer.tensor(tensor.name, std::string(dtype_name(type)), tensor.shape, data);
    }
    return writer.bytes();
}

/// The same file with `n` more spaces at the end of its header.
std::string with_longer_header(const std::string& bytes, std::size_t n) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const std::string_view rest = std::string_view(bytes).substr(sizeof length);
    return safetensors_bytes(std::string(rest.substr(0, length)) + std::string(n, ' '), rest.substr(length));
}

std::vector<float> logits_of(const std::string& safetensors, CpuForm form) {
    const TempFolder folder;
    folder.write("config.json", kTinyLlamaConfig);
    folder.write("model.safetensors", safetensors);
    const auto files = ModelFiles::open(folder.path());
    CpuDevice device({.n_threads = 1, .form = form});
    const Model model(*files, device, {});
    KvCache cache(device, model.kv_layouts(), model.context_tokens(), kTokens);
    Forward forward(model, {.max_tokens = kTokens, .max_logit_rows = kTokens});
    std::vector<float> logits;
    const auto run = [&](std::int64_t first, std::int64_t n) {  // n tokens from `first` on, as one pass
        std::vector<TokenId> tokens;
        std::vector<NodeId> nodes;
        std::vector<std::int32_t> rows;
        for (std::int64_t i = 0; i < n; ++i) {
            tokens.push_back(static_cast<TokenId>((first + i) * 7 % model.config().vocab));
            nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back()));
            rows.push_back(static_cast<std::int32_t>(i));
        }
        const ConstTensorView view = forward.run(cache, tokens, nodes, rows);
        for (std::int64_t i = 0; i < n; ++i)
            logits.insert(logits.end(), float_row(view, i), float_row(view, i) + view.cols());
        cache.commit(forward.exec(), nodes);
    };
    run(0, kTokens);
    run(kTokens, 1);
    return logits;
}

TEST(UnalignedWeights, GiveTheBitsOfAlignedOnes) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
        const std::string aligned = tiny_in(type);
        for (const CpuForm form : {CpuForm::Scalar, CpuForm::Avx2, CpuForm::Avx512}) {
            if (!cpu_has_form(form)) continue;
            const std::vector<float> expected = logits_of(aligned, form);
            EXPECT_NE(expected.front(), expected.back());
            for (const std::size_t spaces : {1U, 2U, 3U}) {
                const std::vector<float> found = logits_of(with_longer_header(aligned, spaces), form);
                ASSERT_EQ(found.size(), expected.size());
                EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)), 0)
                    << dtype_name(type) << ", " << cpu_form_name(form) << ", " << spaces << " spaces";
            }
        }
    }
}

}  // namespace
}  // namespace slipstream
