#include "draft/models/draft_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

using testing::HasSubstr;

// A tiny Llama in GGUF with `n` tokens "t0", "t1", ..., of which `changed` (where it is one) is spelled otherwise.
GgufWriter gguf_with(int n, int changed = -1) {
    GgufWriter writer = tiny_llama_gguf();
    std::vector<GgufBytes> tokens, scores, types;
    for (int i = 0; i < n; ++i) {
        tokens.push_back(gguf_string(i == changed ? "other" : fmt::format("t{}", i)));
        scores.push_back(gguf_scalar(-static_cast<float>(i)));
        types.push_back(gguf_scalar<std::int32_t>(i == 0 ? 2 : i < 3 ? 3 : 1));
    }
    writer.set("tokenizer.ggml.tokens", gguf_array(tokens)).set("tokenizer.ggml.scores", gguf_array(scores));
    writer.set("tokenizer.ggml.token_type", gguf_array(types));
    writer.floats("token_embd.weight", {n, 8}).floats("output.weight", {n, 8}, 2);
    return writer;
}

class DraftVocabulary : public testing::Test {
protected:
    std::string difference(const GgufWriter& target, const GgufWriter& draft) {
        const auto a = ModelFiles::open(folder_.write("target.gguf", target.bytes()));
        const auto b = ModelFiles::open(folder_.write("draft.gguf", draft.bytes()));
        return error_text<RequestError>([&] { check_draft_vocabulary(*a, *b); });
    }
    TempFolder folder_;
};

TEST_F(DraftVocabulary, TheBundledPairSharesOne) {
    const std::filesystem::path pair = SLIPSTREAM_SOURCE_DIR "/tools/demo_model";
    const auto target = ModelFiles::open(pair / "target");
    const auto draft = ModelFiles::open(pair / "draft");
    EXPECT_NO_THROW(check_draft_vocabulary(*target, *draft));
    const auto other = ModelFiles::open(folder_.write("tiny.gguf", gguf_with(10).bytes()));
    EXPECT_THAT(error_text<RequestError>([&] { check_draft_vocabulary(*target, *other); }),
                HasSubstr("the draft model does not share the target's vocabulary: token 0 is 't0' there and '<unk>'"));
}

TEST_F(DraftVocabulary, TheFirstDifferenceIsNamed) {
    EXPECT_EQ(difference(gguf_with(10), gguf_with(10)), "nothing thrown");
    EXPECT_THAT(difference(gguf_with(10), gguf_with(10, 7)),
                HasSubstr("token 7 is 'other' there and 't7' in the target"));
    EXPECT_THAT(difference(gguf_with(10), gguf_with(10).set<std::uint32_t>("tokenizer.ggml.bos_token_id", 0)),
                HasSubstr("the beginning of a text is token 0 there and 1 in the target"));
    EXPECT_THAT(difference(gguf_with(10), gguf_with(10).set<std::uint32_t>("tokenizer.ggml.eos_token_id", 0)),
                HasSubstr("its end tokens are [0] and the target's [2]"));
}

TEST_F(DraftVocabulary, OneMayBePadded) {
    EXPECT_EQ(difference(gguf_with(10), gguf_with(138)), "nothing thrown");
    EXPECT_EQ(difference(gguf_with(138), gguf_with(10)), "nothing thrown");
    EXPECT_THAT(difference(gguf_with(10), gguf_with(139)),
                HasSubstr("it has 139 tokens and the target 10, more than 128"));
}

TEST_F(DraftVocabulary, KindsThatAreNotServedAreRefused) {
    const auto good = ModelFiles::open(folder_.write("good.gguf", gguf_with(10).bytes()));
    const auto bad =
        ModelFiles::open(folder_.write("bad.gguf", gguf_with(10).set("tokenizer.ggml.model", "bert").bytes()));
    EXPECT_THAT(error_text<Unsupported>([&] { check_draft_vocabulary(*good, *bad); }), HasSubstr("bert"));
    EXPECT_THAT(error_text<Unsupported>([&] { check_draft_vocabulary(*bad, *good); }), HasSubstr("bert"));
}

}  // namespace
}  // namespace slipstream::draft
