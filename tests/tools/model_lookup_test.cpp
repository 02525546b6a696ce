#include "tools/machine/model_lookup.h"

#include <map>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A machine with one model in each store, in a folder of its own.
class ModelLookup : public testing::Test {
protected:
    ModelLookup() {
        variables_["HOME"] = folder_.path().string();
        variables_["SLIPSTREAM_MODELS"] =
            fmt::format("{}:{}", (folder_.path() / "mine").string(), (folder_.path() / "absent").string());
        folder_.write("mine/Tiny/config.json", "{}");
        folder_.write("mine/Tiny/model.safetensors", "12345");
        folder_.write("mine/acme/Rocket-GGUF/rocket-Q4_K_M.gguf", "1");
        folder_.write("mine/acme/Rocket-GGUF/rocket-Q8_0.gguf", "12");
        folder_.write("mine/big-00001-of-00002.gguf", "123");
        folder_.write("mine/big-00002-of-00002.gguf", "1234");
        folder_.write("mine/notes/config.json", "{}");  // no weights: no model

        const fs::path hub = ".cache/huggingface/hub/models--meta--Llama-X";
        folder_.write(hub / "refs/main", "abc");
        folder_.write(hub / "snapshots/abc/config.json", "{}");
        folder_.write(hub / "blobs/1", "1234567");
        fs::create_symlink(folder_.path() / hub / "blobs/1", folder_.path() / hub / "snapshots/abc/model.safetensors");
        folder_.write(hub / "snapshots/zzz/config.json", "{}");
        folder_.write(hub / "snapshots/zzz/model.safetensors", "1");

        folder_.write(".cache/llama.cpp/ggml-org_gemma-it-GGUF_gemma-it-Q4_K_M.gguf", "1");
        folder_.write(".cache/llama.cpp/mmproj-x.gguf", "1");

        folder_.write(".ollama/models/manifests/registry.ollama.ai/library/llama3/8b",
                      R"({"layers":[{"mediaType":"application/vnd.ollama.image.license","digest":"sha256:aa"},)"
                      R"({"mediaType":"application/vnd.ollama.image.model","digest":"sha256:bb"}]})");
        folder_.write(".ollama/models/manifests/registry.ollama.ai/library/broken/latest", "{\"layers\": 3");
        folder_.write(".ollama/models/blobs/sha256-aa", "1");
        folder_.write(".ollama/models/blobs/sha256-bb", "12");
    }

    [[nodiscard]] ModelStores stores() const {
        const auto reader = [this](const std::string& name) -> std::optional<std::string> {
            const auto found = variables_.find(name);
            return found == variables_.end() ? std::nullopt : std::optional(found->second);
        };
        return find_models(reader, {});
    }
    [[nodiscard]] std::string resolve(std::string_view name) const {
        return resolve_model(name, [this] { return stores(); }).lexically_relative(folder_.path()).string();
    }
    [[nodiscard]] std::string refusal(std::string_view name) const {
        try {
            return "found " + resolve(name);
        } catch (const RequestError& error) {
            return error.what();
        }
    }

    TemporaryFolder folder_;
    std::map<std::string, std::string> variables_;
};

TEST_F(ModelLookup, ListsEveryStore) {
    std::vector<std::string> found;
    for (const FoundModel& model : stores().models)
        found.push_back(fmt::format("{} {} {} {}", model.name, model.variant, model.format, model.bytes));
    EXPECT_THAT(found,
                testing::ElementsAre(
                    "Tiny  safetensors 5", "acme/Rocket-GGUF/rocket-Q4_K_M rocket-Q4_K_M GGUF 1",
                    "acme/Rocket-GGUF/rocket-Q8_0 rocket-Q8_0 GGUF 2", "big big GGUF 7", "meta/Llama-X  safetensors 7",
                    "ggml-org_gemma-it-GGUF_gemma-it-Q4_K_M ggml-org_gemma-it-GGUF_gemma-it-Q4_K_M GGUF 1",
                    "llama3 8b GGUF 2"));
}

TEST_F(ModelLookup, FindsByNameLetterCaseAside) {
    EXPECT_EQ(resolve("tiny"), "mine/Tiny");
    EXPECT_EQ(resolve("big"), "mine/big-00001-of-00002.gguf");
    EXPECT_EQ(resolve("acme/rocket-gguf:q8_0"), "mine/acme/Rocket-GGUF/rocket-Q8_0.gguf");
    EXPECT_EQ(resolve("rocket-Q4_K_M"), "mine/acme/Rocket-GGUF/rocket-Q4_K_M.gguf");
    EXPECT_EQ(resolve("ggml-org/gemma-it-GGUF"), ".cache/llama.cpp/ggml-org_gemma-it-GGUF_gemma-it-Q4_K_M.gguf");
    EXPECT_EQ(resolve("ggml-org/gemma-it-GGUF:Q4_K_M"), ".cache/llama.cpp/ggml-org_gemma-it-GGUF_gemma-it-Q4_K_M.gguf");
    EXPECT_EQ(resolve("llama3:8b"), ".ollama/models/blobs/sha256-bb");
}

TEST_F(ModelLookup, TakesTheRevisionThatMainNames) {
    EXPECT_EQ(resolve("meta/Llama-X"), ".cache/huggingface/hub/models--meta--Llama-X/snapshots/abc");
    EXPECT_EQ(resolve("llama-x"), ".cache/huggingface/hub/models--meta--Llama-X/snapshots/abc");
    folder_.write(".cache/huggingface/hub/models--meta--Llama-X/refs/main", "gone");
    EXPECT_EQ(resolve("meta/Llama-X"), ".cache/huggingface/hub/models--meta--Llama-X/snapshots/zzz");
}

TEST_F(ModelLookup, HonoursTheToolsOwnVariables) {
    folder_.write("hub/models--a--b/snapshots/r/m-Q5_0.gguf", "1");
    variables_["HF_HUB_CACHE"] = (folder_.path() / "hub").string();
    EXPECT_EQ(resolve("a/b:q5_0"), "hub/models--a--b/snapshots/r/m-Q5_0.gguf");
    variables_.erase("HF_HUB_CACHE");
    variables_["HF_HOME"] = folder_.path().string();
    EXPECT_EQ(resolve("a/b"), "hub/models--a--b/snapshots/r/m-Q5_0.gguf");
    folder_.write("llama/x.gguf", "1");
    variables_["LLAMA_CACHE"] = (folder_.path() / "llama").string();
    EXPECT_EQ(resolve("x"), "llama/x.gguf");
    fs::rename(folder_.path() / ".ollama/models", folder_.path() / "ollama");
    variables_["OLLAMA_MODELS"] = (folder_.path() / "ollama").string();
    EXPECT_EQ(resolve("llama3:8b"), "ollama/blobs/sha256-bb");
}

TEST_F(ModelLookup, SaysWhatWasSearchedAndHowToGetIt) {
    EXPECT_THAT(refusal("meta/absent:Q4"),
                AllOf(HasSubstr(".cache/huggingface/hub"), HasSubstr("hf download meta/absent")));
    EXPECT_THAT(refusal("absent"), AllOf(HasSubstr("Ollama's store"), HasSubstr("ollama pull absent")));
    EXPECT_THAT(refusal("smollm2"), HasSubstr("to get it: tools/get_model smollm2"));
    EXPECT_THAT(refusal("llama3"), HasSubstr("did you mean llama3:8b?"));  // "latest" is not there
    EXPECT_THAT(refusal("tiny:Q4"), HasSubstr("no model of that name"));
}

TEST_F(ModelLookup, OurOwnFolderIsSearchedAndABeginningWillDo) {
    folder_.write(".cache/slipstream/models/smol-135m-instruct.gguf", "1");
    EXPECT_EQ(resolve("smol-135m-instruct"), ".cache/slipstream/models/smol-135m-instruct.gguf");
    EXPECT_EQ(resolve("Smol"), ".cache/slipstream/models/smol-135m-instruct.gguf");
    EXPECT_THAT(refusal("smo"), HasSubstr("no model of that name"));
    EXPECT_THAT(refusal("smo"), AllOf(HasSubstr("did you mean smol-135m-instruct?"), Not(HasSubstr("to get it"))));
    for (const char* mistyped : {"smoll-135m-instruct", "smoll"})
        EXPECT_THAT(refusal(mistyped), HasSubstr("did you mean smol-135m-instruct?")) << mistyped;
    EXPECT_THAT(refusal("README.md"), AllOf(Not(HasSubstr("did you mean")), Not(HasSubstr("to get it"))));
    folder_.write(".cache/slipstream/models/smol-360m.gguf", "1");
    EXPECT_THAT(refusal("smol"), AllOf(HasSubstr("smol-135m-instruct, smol-360m"), HasSubstr("the full name of one")));
    EXPECT_THAT(refusal("mol"), HasSubstr("did you mean smol-135m-instruct or smol-360m?"));
    // The same folder by both ways is one.
    variables_["SLIPSTREAM_MODELS"] = (folder_.path() / ".cache/slipstream/models").string();
    EXPECT_EQ(resolve("smol-360m"), ".cache/slipstream/models/smol-360m.gguf");
}

TEST_F(ModelLookup, SeveralFilesNeedAChoice) {
    EXPECT_THAT(refusal("acme/Rocket-GGUF"), AllOf(HasSubstr("rocket-Q4_K_M, rocket-Q8_0"), HasSubstr(":QUANT")));
}

TEST_F(ModelLookup, OfOneFileInSeveralFoldersTheFirstIsTaken) {
    variables_["SLIPSTREAM_MODELS"] =
        fmt::format("{}:{}", (folder_.path() / "second").string(), (folder_.path() / "mine").string());
    for (const char* place : {"mine", "second"}) folder_.write(fs::path(place) / "dog-Q8_0.gguf", "1");
    EXPECT_EQ(resolve("dog"), "second/dog-Q8_0.gguf");
    EXPECT_EQ(resolve("dog-q8_0"), "second/dog-Q8_0.gguf");
}

TEST_F(ModelLookup, APathIsTakenAsItIs) {
    const auto no_search = []() -> ModelStores { throw std::logic_error("searched for a path"); };
    const fs::path gguf = folder_.path() / "mine/acme/Rocket-GGUF/rocket-Q8_0.gguf";
    EXPECT_EQ(resolve_model(gguf.string(), no_search), gguf);
    EXPECT_EQ(resolve_model((folder_.path() / "mine/Tiny").string(), no_search), folder_.path() / "mine/Tiny");
    // A directory stands for its only model.
    const fs::path only = folder_.write("one/model-00001-of-00002.gguf", "1");
    folder_.write("one/model-00002-of-00002.gguf", "1");
    EXPECT_EQ(resolve_model((folder_.path() / "one").string(), no_search), only);
    EXPECT_THROW(static_cast<void>(resolve_model("/nonexistent", no_search)), IoError);
    EXPECT_THROW(static_cast<void>(resolve_model("nonexistent.gguf", no_search)), IoError);
}

TEST(SplitParts, NamesAllParts) {
    EXPECT_THAT(split_parts("m-00001-of-00003.gguf"),
                testing::ElementsAre("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"));
    EXPECT_THAT(split_parts("m.gguf"), testing::ElementsAre("m.gguf"));
    EXPECT_TRUE(is_later_part("m-00002-of-00003.gguf"));
    EXPECT_FALSE(is_later_part("m-00001-of-00003.gguf"));
    EXPECT_FALSE(is_later_part("m-00004-of-00003.gguf"));
    EXPECT_FALSE(is_later_part("-00002-of-00003.gguf"));
}

TEST(BundledModel, LiesBesideTheProgram) {
    const TemporaryFolder folder;
    EXPECT_TRUE(bundled_model(folder.path() / "build/release").empty());
    folder.write("tools/demo_model/target/config.json", "{}");
    EXPECT_EQ(bundled_model(folder.path() / "build/release"), folder.path() / "tools/demo_model/target");
    folder.write("share/slipstream/demo_model/target/config.json", "{}");
    EXPECT_EQ(bundled_model(folder.path() / "bin"), folder.path() / "share/slipstream/demo_model/target");
}

}  // namespace
}  // namespace slipstream::tools
