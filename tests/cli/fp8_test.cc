// Models in block-scaled fp8 as users see them: trained, frozen, adapted, merged, inspected, used for generation.
#include "megatrain/base/bf16.h"
#include "tests/support/command.h"
#include "tests/support/fp8_files.h"

namespace megatrain::cli {
namespace {

constexpr const char* kModels[] = {"qwen3_fp8", "qwen3_moe_fp8"};

// Whether a model directory is plain bf16.
bool is_plain(const std::string& model) {
  if (json::parse(read_bytes(model + "/config.json")).contains("quantization_config")) return false;
  for (const auto& [name, tensor] : read_raw(model + "/model.safetensors")) {
    if (tensor.type != "BF16" || name.ends_with("_scale_inv")) return false;
  }
  return true;
}

// The matrices of a golden model, dequantised by the test's own code.
RawTensors dequantised(const std::string& name) {
  RawTensors tensors = read_raw(golden(name) + "/model/model.safetensors"), plain;
  for (const auto& [tensor, held] : tensors) {
    if (tensor.ends_with("_scale_inv")) continue;
    plain[tensor] = held;
    if (held.type != "F8_E4M3") continue;
    const std::string& scales = tensors.at(tensor + "_scale_inv").bytes;
    Fp8Matrix matrix{.rows = held.shape[0], .cols = held.shape[1], .codes = {}, .scales = {}};
    matrix.codes.resize(held.bytes.size());
    std::memcpy(matrix.codes.data(), held.bytes.data(), held.bytes.size());
    matrix.scales.resize(scales.size() / 4);
    std::memcpy(matrix.scales.data(), scales.data(), scales.size());
    std::vector<bf16> narrow;
    for (const float value : matrix.values(DType::bf16)) narrow.push_back(to_bf16(value));
    plain[tensor] = {"BF16", held.shape, bytes_of(narrow.data(), 2 * narrow.size())};
  }
  return plain;
}

TEST(Fp8, TrainedInFullItBecomesBf16AndTheLogSaysSo) {
  for (const char* name : kModels) {
    const Place place(name, "steps: 2\n");
    const Outcome outcome = succeed({"train", place.config(), "--precision=bf16"});
    EXPECT_NE(outcome.err.find("are in block-scaled fp8 and are read as bf16"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("holds the weights in bf16 and not in block-scaled fp8"), std::string::npos);
    EXPECT_TRUE(is_plain(place.run() + "/model"));
    succeed({"train", place.config(), "--precision=bf16", "--steps=1", "--model.path=" + place.run() + "/model",
             "--run_dir=" + (place / "further")});
  }
}

// Layers are frozen beside a trained embedding, so they stay packed without adapters.
TEST(Fp8, FrozenLayersTakeHalfAndEndWithTheBitsOfBf16) {
  for (const char* name : kModels) {
    const Place place(name, "steps: 4\ncheckpoint.every: 2\nfreeze: ['model.layers.*']\n");
    const std::string bf16 = "--precision=bf16";
    succeed({"train", place.config(), bf16, "--run_dir=" + (place / "unchanged"), "--steps=1", "--optim.lr=0"});
    const std::string plain = place / "unchanged" + "/model";
    const RawTensors expected = dequantised(name), found = read_raw(plain + "/model.safetensors");
    for (const auto& [tensor, held] : expected) EXPECT_EQ(found.at(tensor).bytes, held.bytes) << tensor;

    succeed({"train", place.config(), bf16, "--run_dir=" + (place / "plain"), "--model.path=" + plain});
    succeed({"train", place.config(), bf16, "--run_dir=" + (place / "straight")});
    EXPECT_EQ(hash_of(place / "straight"), hash_of(place / "plain"));
    EXPECT_EQ(hash_of(place / "straight" + "/model"), hash_of(place / "plain" + "/model"));
    succeed({"train", place.config(), bf16, "--steps=2"});
    succeed({"train", place.config(), bf16, "--resume"});
    EXPECT_EQ(hash_of(place.run()), hash_of(place / "straight"));
    EXPECT_TRUE(is_plain(place.run() + "/model"));
  }
}

TEST(Fp8, ABaseUnderAdaptersIsResumedAndMerged) {
  for (const char* name : kModels) {
    const Place place(name, "steps: 4\ncheckpoint.every: 2\nadapter: {rank: 2, alpha: 4}\n");
    const std::string base = golden(name) + "/model", bf16 = "--precision=bf16";
    const Outcome outcome = succeed({"train", place.config(), bf16, "--run_dir=" + (place / "straight")});
    EXPECT_NE(outcome.err.find("stay in block-scaled fp8"), std::string::npos) << outcome.err;
    succeed({"train", place.config(), bf16, "--steps=2"});
    succeed({"train", place.config(), bf16, "--resume"});
    EXPECT_EQ(hash_of(place.run()), hash_of(place / "straight"));
    succeed({"train", place.config(), bf16, "--memory.base=files", "--run_dir=" + (place / "files")});
    EXPECT_EQ(hash_of(place / "files"), hash_of(place / "straight"));

    const Outcome merge = succeed({"merge", base, place.run() + "/model", "--out", place / "merged"});
    const auto bytes = fs::file_size(place / "merged" + "/model.safetensors");
    EXPECT_GT(bytes, fs::file_size(base + "/model.safetensors"));
    EXPECT_NE(merge.err.find("merged into it to " + (place / "merged") + ": "), std::string::npos) << merge.err;
    EXPECT_TRUE(is_plain(place / "merged"));
    const json told = json::parse(succeed({"inspect", place / "merged", "--json"}).out);
    EXPECT_EQ(told.at("problems"), json::array());
    EXPECT_EQ(told.at("weights").at("bytes_by_type").size(), 1);
  }
}

TEST(Fp8, ADirectoryIsInspectedHashedAndPlanned) {
  for (const char* name : kModels) {
    const std::string model = golden(name) + "/model";
    const json told = json::parse(succeed({"inspect", model, "--json"}).out);
    EXPECT_EQ(told.at("supported"), true);
    EXPECT_EQ(told.at("problems"), json::array());
    EXPECT_TRUE(told.at("weights").at("bytes_by_type").contains("F8_E4M3"));
    EXPECT_FALSE(hash_of(model).at("weights").get<std::string>().empty());

    const Place place(name, "steps: 2\nadapter: {rank: 2}\n");
    const std::string own = place / "whole";
    fs::create_directory(own);
    json config = json::parse(read_bytes(model + "/config.json"));
    config.erase("quantization_config");
    write_bytes(own + "/config.json", config.dump());
    write_raw(own + "/model.safetensors", dequantised(name));
    const json packed = json::parse(succeed({"plan", place.config(), "--precision=bf16", "--json"}).out);
    const json whole =
        json::parse(succeed({"plan", place.config(), "--precision=bf16", "--model.path=" + own, "--json"}).out);
    EXPECT_LT(packed.at("peaks").at("host"), whole.at("peaks").at("host"));
  }
}

// From config.json alone: random weights under adapters are as if they had been released.
TEST(Fp8, ARandomBaseStaysPackedAndIsDrawnAgainForAResume) {
  for (const char* name : kModels) {
    const Place place(name, "steps: 4\ncheckpoint.every: 2\nadapter: {rank: 2}\n");
    std::string text = read_bytes(place.config());
    const std::string path = "model.path: " + golden(name) + "/model";
    text.replace(text.find(path), path.size(), "model.config: " + golden(name) + "/model/config.json");
    write_bytes(place.config(), text);
    const auto train = [&](Words more) {
      more.insert(more.begin(), {"train", place.config(), "--precision=bf16"});
      EXPECT_EQ(succeed(more).err.find("are read as"), std::string::npos);
    };
    train({"--run_dir=" + (place / "straight")});
    train({"--steps=2"});
    train({"--resume"});
    EXPECT_EQ(hash_of(place.run()), hash_of(place / "straight"));
  }
}

TEST(Fp8, OtherQuantisationsAreRefusedByName) {
  const std::pair<json, std::string> cases[] = {
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}}, "nf4"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, "8 bits"},
      {{{"quant_method", "gptq"}, {"bits", 4}}, "gptq"},
      {{{"quant_method", "awq"}, {"bits", 4}}, "awq"},
      {{{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}}, "nvfp4-pack-quantized"},
      {{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, "NVFP4"},
      {{{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}}, "weight_block_size"},
      {{{"quant_method", "fp8"}, {"weight_block_size", nullptr}}, "weight_block_size"},
      {{{"quant_method", "fp8"}, {"activation_scheme", "static"}}, "activation_scheme"}};
  for (const auto& [field, part] : cases) {
    Place place("qwen3_fp8", "steps: 1\n");
    const std::string model = place.own_model(), file = model + "/config.json";
    json config = json::parse(read_bytes(file));
    config["quantization_config"] = field;
    write_bytes(file, config.dump());
    for (const Words& words : {Words{"train", place.config()}, {"plan", model}, {"generate", model, "--prompt=a"}})
      expect_refusal(words, ExitCode::bad_input, {"quantization_config", part, "128 x 128", "hf download"});
  }
}

}  // namespace
}  // namespace megatrain::cli
