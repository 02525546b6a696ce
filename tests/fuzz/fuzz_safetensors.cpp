// Fuzz target: any bytes as a safetensors file, the tensors it claims bound as a tiny Llama's weights. Errors of ours
// are the expected outcome. The seeds in corpus/safetensors are files of tests/support/safetensors_writer.h.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "runtime/formats/model_contents.h"
#include "runtime/formats/safetensors_file.h"
#include "tests/support/layers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream;
    const auto bytes = std::as_bytes(std::span(data, size));
    try {
        const SafetensorsFile file = SafetensorsFile::parse(bytes, "fuzz");
        std::vector<FileTensor> tensors;
        for (const SafetensorsTensor& tensor : file.tensors)
            tensors.push_back(make_file_tensor(tensor.name, tensor.type_name, tensor.dtype, tensor.shape,
                                               bytes.subspan(tensor.offset, tensor.bytes)));
        ModelConfig config;
        config.d_model = 8;
        set_layers(config, {.n_layers = 2, .d_ff = 12, .n_q_heads = 2, .n_kv_heads = 1, .head_dim = 4});
        config.vocab = 10;
        config.context_tokens = 32;
        static_cast<void>(bind_weights(config, TensorIndex(tensors), kLlama.hf_names, {}));
    } catch (const Error&) {
        return 0;
    }
    return 0;
}
