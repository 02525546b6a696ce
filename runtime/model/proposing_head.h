// The MTP head (multi-token prediction; "nextn" in GGUF files), which proposes tokens: one layer that the model's files
// have beside the model. From the token at position i + 1 and the model's hidden state at position i it computes a
// hidden state from which the model's LM head makes logits of position i + 2; fed back with the next token, that hidden
// state gives those of position i + 3, and so on. (DeepSeek-V3, arXiv 2412.19437, section 2.2; vLLM:
// model_executor/models/qwen3_next_mtp.py, qwen3_5_mtp.py.)
//
//     x = projection [norm of the token's embedding | norm of (the hidden state after the model's output norm)]
//     h = output norm (layer (x));  logits = LM head (h);  h is the hidden state of the next step
//
// The heads of Qwen and GLM-4.5 take the hidden state after the output norm, the model's and their own, as llama.cpp
// (src/models/qwen35.cpp, glm4-moe.cpp: h_nextn), SGLang (glm4_moe_nextn.py) and vLLM (Glm4MoeModel::forward returns
// it) compute them.
//
// The layer, the embedding and its norm, the output norm and the LM head are those of model(), a model of one layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/check.h"
#include "kernels/device.h"
#include "runtime/model/model.h"
#include "runtime/model/weight_source.h"

namespace slipstream {

/// The tensors of a head that no model of one layer has.
struct HeadTensors {
    ConstTensorView projection;   // [d_model, 2 * d_model]
    ConstTensorView hidden_norm;  // [d_model]: norm of hidden states, before the projection
    ConstTensorView target_norm;  // [d_model]: the target's output norm
};

/// Where a head is loaded from. Its weights() are those of its model of one layer, with an embedding and an LM head:
/// its own or the target's; embedding_norm is the norm of the token's embedding.
class HeadSource : public WeightSource {
public:
    [[nodiscard]] virtual HeadTensors head_tensors() const = 0;
    /// Returns whether the LM head is not the target's.
    [[nodiscard]] virtual bool has_own_lm_head() const = 0;
    /// Returns the bytes of the embedding in the files, whose rows are gathered on the host; 0 if it is the target's.
    [[nodiscard]] virtual std::size_t own_embedding_bytes() const = 0;
};

class ProposingHead {
public:
    /// Whether the head loads an LM head, or uses that of the loaded target.
    enum class LmHead : std::uint8_t { Own, OfTarget };
    /// Loads all weights of the head into the memory of `device`; with LmHead::Own also its LM head, or a copy of the
    /// target's, with options.rounding. With LmHead::OfTarget, which a source with an LM head of its own does not allow
    /// (CHECKed), use_lm_head_of() must be called before the first pass. What the arguments refer to must outlive this
    /// object. Throws as Model does.
    ProposingHead(const HeadSource& source, Device& device, const LoadOptions& options, LmHead lm_head);
    /// Returns whether all of the LM head of `target`, loaded from the same files, is resident on the head's device.
    [[nodiscard]] bool can_use_lm_head_of(const Model& target) const;
    /// Returns whether there is an LM head; if not, use_lm_head_of() must be called before the first pass.
    [[nodiscard]] bool has_lm_head() const { return lm_head_ != nullptr; }
    /// Uses the LM head of `target` (CHECKs can_use_lm_head_of()). `target` must outlive this object.
    void use_lm_head_of(const Model& target);
    /// Throws Unsupported, with a line for the user, if devices of this kind have no kernels for a matrix of the head.
    static void check_kernels(const HeadSource& source, DeviceKind kind);
    /// Returns the bytes that the constructor takes from the device's memory budget.
    [[nodiscard]] static std::size_t device_bytes(const HeadSource& source, WeightRounding rounding, LmHead lm_head);

    /// Returns the model of one layer. It has an LM head only if the head has one of its own: see lm_head().
    [[nodiscard]] const Model& model() const { return *model_; }
    /// Returns the parts of the LM head. Requires that there is one (CHECKed): see use_lm_head_of().
    [[nodiscard]] std::span<const MatrixPart> lm_head() const {
        CHECK(lm_head_ != nullptr, "an MTP head before the target's LM head");
        return lm_head_->parts(0, TensorRole::LmHead);
    }
    /// Returns the HeadTensors on the device: the projection packed, the norms as F32.
    [[nodiscard]] const HeadTensors& tensors() const { return tensors_; }

private:
    std::unique_ptr<WeightSource> without_lm_head_;  // null: the head has its own
    std::unique_ptr<Model> model_;
    const Model* lm_head_ = nullptr;  // the model that has the LM head; null: use_lm_head_of() was not called yet
    Buffer memory_;                   // of tensors_
    HeadTensors tensors_;
};

}  // namespace slipstream
