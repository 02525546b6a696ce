// Fuzz target: any bytes as a GGUF file, through header, values, vocabulary, configuration and weights by role.
// Errors of ours are the expected outcome; anything else that leaves is a finding. The seeds in corpus/gguf are files
// of tests/support/gguf_writer.h (a tiny Llama, all types of metadata, a vocabulary alone, rope tensors, one part of
// two), and a tiny Gemma 2 and 3.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_config.h"
#include "runtime/formats/gguf_vocabulary.h"
#include "runtime/formats/model_contents.h"

namespace {

using namespace slipstream;

void read_values(const GgufFile& file) {
    for (const auto& [key, value] : file.entries()) {
        static_cast<void>(value.to_text());
        static_cast<void>(value.integers());
        static_cast<void>(value.numbers());
        static_cast<void>(value.strings());
    }
}

void read_model(const GgufFile& file) {
    std::vector<FileTensor> tensors;
    for (const GgufTensor& tensor : file.tensors())
        tensors.push_back(make_file_tensor(tensor.name, tensor.type->name, tensor.type->dtype,
                                           {tensor.shape.begin(), tensor.shape.begin() + tensor.rank},
                                           file.bytes().subspan(tensor.offset, tensor.bytes)));
    const TensorIndex index(tensors);
    const ModelConfig config = read_gguf_config(file, index);
    static_cast<void>(bind_weights(config, index, find_family(config.family).gguf_names, {}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const GgufFile file = GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
        read_values(file);
        try {
            static_cast<void>(read_gguf_generation_defaults(file, read_gguf_vocabulary(file)));
        } catch (const Error&) {
            // A file without a vocabulary may still hold a model.
        }
        read_model(file);
    } catch (const Error&) {
        return 0;
    }
    return 0;
}
