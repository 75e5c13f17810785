// Runs over a multimodal model: its text part is trained, the rest of its directory is kept byte for byte.
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/config/adapter_file.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/kept_tensors.h"
#include "megatrain/run/companion_record.h"
#include "megatrain/run/export_run.h"
#include "megatrain/run/merge_adapter.h"
#include "megatrain/run/run_files.h"
#include "tests/run/golden_run.h"
#include "tests/support/flip_byte.h"
#include "tests/support/said.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

// The bytes of every tensor in a model's files, by name, with its type and shape.
std::map<std::string, std::string> tensors_in(const std::string& directory) {
  std::map<std::string, std::string> tensors;
  const ModelFiles files(directory);
  for (const StoredTensor* tensor : files.tensors())
    tensors[tensor->name] =
        fmt::format("{}{}", stored_type_name(tensor->dtype), format_shape(tensor->shape)) +
        std::string(reinterpret_cast<const char*>(tensor->data), static_cast<size_t>(tensor->bytes));
  return tensors;
}

bool is_of_text(const std::string& name) {
  return name.starts_with("language_model.") || name.starts_with("model.language_model.") || name == "lm_head.weight" ||
         name.starts_with("model.layers.") || name.starts_with("model.embed_tokens.") || name == "model.norm.weight";
}

bool is_trained(const std::string& name) { return is_of_text(name) && !name.ends_with("e_score_correction_bias"); }

class MultimodalRun : public GoldenRun {
 protected:
  // A copy of a golden's model, with files for a processor of images.
  void use(const std::string& golden) {
    golden_ = in_repository("tests/parity/goldens/" + golden);
    fs::copy(golden_ + "/model", model_, fs::copy_options::recursive);
    write_bytes(model_ + "/preprocessor_config.json", "{\"size\": 8}\n");
    write_bytes(model_ + "/processor_config.json", "{\"image_seq_length\": 4}\n");
  }

  // Makes the model, which is a text model, the text part of a multimodal one without other parts.
  void make_text_part_of(const std::string& architecture, const std::string& model_type) const {
    nlohmann::json text = read_json_file(model_ + "/config.json");
    text.erase("architectures");
    const nlohmann::json whole = {{"architectures", {architecture}},
                                  {"model_type", model_type},
                                  {"tie_word_embeddings", text.at("tie_word_embeddings")},
                                  {"text_config", text}};
    write_bytes(model_ + "/config.json", whole.dump());
    fs::remove(model_ + "/model.safetensors.index.json");
    const ModelFiles files(golden_ + "/model");
    const auto name_in_whole = [](const std::string& name) {
      return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
    };
    std::vector<TensorDeclaration> declarations;
    for (const StoredTensor* tensor : files.tensors())
      declarations.push_back({name_in_whole(tensor->name), DType::f32, tensor->shape, tensor->dtype});
    SafetensorsWriter out(model_ + "/model.safetensors", declarations);
    for (const StoredTensor* tensor : files.tensors())
      out.write(name_in_whole(tensor->name), 0, tensor->data, tensor->bytes);
    out.finish();
  }

  TrainConfig config(const std::string& run, int64_t steps) const {
    TrainConfig c = run_config(run);
    c.model.path = model_;
    c.batch = 2;
    c.steps = steps;
    c.optim.lr = 1e-2;
    return c;
  }

  template <class Action>
  static std::string said_by(const Action& action) {
    set_log_quiet(false);
    std::string said = logged_by(action);
    set_log_quiet(true);
    return said;
  }

  const std::string model_ = directory_ / "source";
};

class MultimodalGolden : public MultimodalRun, public testing::WithParamInterface<const char*> {};

}  // namespace

TEST_P(MultimodalGolden, ZeroStepsCopyEveryTensorAndFile) {
  use(GetParam());
  const TrainConfig c = config("run", 0);
  run_training(c, {});
  EXPECT_EQ(tensors_in(c.run_dir + "/model"), tensors_in(model_));
  EXPECT_EQ(read_json_file(c.run_dir + "/model/config.json"), read_json_file(model_ + "/config.json"));
  for (const char* name : {"preprocessor_config.json", "processor_config.json"})
    EXPECT_EQ(read_bytes(c.run_dir + "/model/" + name), read_bytes(model_ + "/" + name)) << name;
}

TEST_P(MultimodalGolden, TrainsTheTextPartAndKeepsTheRest) {
  use(GetParam());
  const TrainConfig c = config("run", 2);
  const std::string said = said_by([&] { run_training(c, {}); });
  const std::string whole = read_json_file(model_ + "/config.json").at("architectures")[0];
  EXPECT_NE(said.find(whole), std::string::npos) << said;
  EXPECT_NE(said.find("are kept as they are"), std::string::npos) << said;
  const auto before = tensors_in(model_), after = tensors_in(c.run_dir + "/model");
  ASSERT_EQ(after.size(), before.size());
  int64_t kept = 0;
  for (const auto& [name, bytes] : before) {
    kept += is_of_text(name) ? 0 : 1;
    EXPECT_EQ(after.at(name) == bytes, !is_trained(name)) << name;
  }
  EXPECT_GT(kept, 8);
  EXPECT_NO_THROW(verify_model_of_run(c.run_dir + "/model"));
}

INSTANTIATE_TEST_SUITE_P(Models, MultimodalGolden,
                         testing::Values("gemma3_whole", "mistral3_whole", "qwen2_5_vl", "qwen3_vl", "mistral4_whole",
                                         "kimi_k25"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(MultimodalRun, ResumesAndExportsAfterItsSourceHasMoved) {
  use("gemma3_whole");
  const TrainConfig straight = config("straight", 4);
  const std::string expected = run_training(straight, {}).state_hash;
  TrainConfig stopped = config("stopped", 4);
  run_until(stopped, 2);
  const std::string moved = directory_ / "moved";
  fs::rename(model_, moved);
  export_run(stopped.run_dir, directory_ / "half", {});
  EXPECT_EQ(tensors_in(directory_ / "half").size(), tensors_in(moved).size());
  EXPECT_EQ(tensors_in(directory_ / "half").at("vision_tower.post_layernorm.weight"),
            tensors_in(moved).at("vision_tower.post_layernorm.weight"));
  stopped.model.path = moved;
  stopped.resume = true;
  EXPECT_EQ(run_training(stopped, {}).state_hash, expected);
  EXPECT_EQ(hash_directory(stopped.run_dir + "/model").weights, hash_directory(straight.run_dir + "/model").weights);
  fs::rename(moved, model_);
  TrainConfig again = config("again", 2);
  again.model.path = stopped.run_dir + "/model";
  EXPECT_NO_THROW(run_training(again, {}));
}

TEST_F(MultimodalRun, NoticesThatItsCopyOfTheOtherTensorsIsDamaged) {
  use("gemma3_whole");
  const TrainConfig c = config("run", 4);
  run_until(c, 2);
  const std::string copy = companions_of(c.run_dir) + "/" + kKeptFile;
  flip_byte(copy, 1);
  expect_error(ExitCode::io, {kKeptFile, "is damaged"}, [&] { export_run(c.run_dir, directory_ / "out", {}); });
}

TEST_F(MultimodalRun, SaysThatLayersOfMultiTokenPredictionAreStale) {
  use("qwen3_vl");
  fs::remove(model_ + "/model.safetensors.index.json");
  std::vector<TensorDeclaration> declarations = {{"mtp.fc.weight", DType::f32, {2}, StoredType::i8}};
  const ModelFiles files(golden_ + "/model");
  for (const StoredTensor* tensor : files.tensors())
    declarations.push_back({tensor->name, DType::f32, tensor->shape, tensor->dtype});
  SafetensorsWriter out(model_ + "/model.safetensors", declarations);
  out.write("mtp.fc.weight", 0, "ab", 2);
  for (const StoredTensor* tensor : files.tensors()) out.write(tensor->name, 0, tensor->data, tensor->bytes);
  out.finish();
  const TrainConfig c = config("run", 1);
  const std::string said = said_by([&] { run_training(c, {}); });
  EXPECT_NE(said.find("(mtp) are kept as they were"), std::string::npos) << said;
  EXPECT_EQ(tensors_in(c.run_dir + "/model").at("mtp.fc.weight"), "I8(2)ab");
}

TEST_F(MultimodalRun, OfRandomWeightsTrainsAndWritesATextModel) {
  use("qwen3_vl");
  TrainConfig c = config("run", 1);
  c.model = {.config = model_ + "/config.json"};
  const std::string said = said_by([&] { run_training(c, {}); });
  EXPECT_NE(said.find("exported as Qwen3ForCausalLM"), std::string::npos) << said;
  const nlohmann::json written = read_json_file(c.run_dir + "/model/config.json");
  EXPECT_EQ(written.at("architectures")[0], "Qwen3ForCausalLM");
  EXPECT_EQ(written.at("model_type"), "qwen3");
  EXPECT_FALSE(written.contains("vision_config"));
  EXPECT_TRUE(tensors_in(c.run_dir + "/model").contains("model.norm.weight"));
  TrainConfig further = config("further", 1);
  further.model.path = c.run_dir + "/model";
  EXPECT_NO_THROW(run_training(further, {}));
}

TEST_F(MultimodalRun, WithAdaptersNamesModulesOfTheTextPartAlone) {
  use("gemma3_whole");
  TrainConfig c = config("run", 2);
  c.adapter = {.rank = 2, .also_train = {"model.norm"}};
  c.memory.base = "files";
  run_training(c, {});
  const nlohmann::json written = read_json_file(c.run_dir + "/model/adapter_config.json");
  EXPECT_EQ(written.at("target_modules"),
            "model\\.language_model\\.(.*\\.)?(down_proj|gate_proj|k_proj|o_proj|q_proj|up_proj|v_proj)");
  EXPECT_EQ(written.at("modules_to_save"), nlohmann::json::array({"model.language_model.norm"}));
  const std::string a = "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight";
  EXPECT_TRUE(tensors_in(c.run_dir + "/model").contains(a));
  EXPECT_FALSE(fs::exists(companions_of(c.run_dir) + "/" + kKeptFile));

  merge_adapter(model_, c.run_dir + "/model", directory_ / "merged", {}, 1);
  const auto before = tensors_in(model_), after = tensors_in(directory_ / "merged");
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, bytes] : before) EXPECT_TRUE(is_of_text(name) || after.at(name) == bytes) << name;
  EXPECT_NE(after.at("language_model.model.layers.0.self_attn.q_proj.weight"),
            before.at("language_model.model.layers.0.self_attn.q_proj.weight"));

  TrainConfig further = config("further", 3);
  further.model.adapter = c.run_dir + "/model";
  further.adapter = read_adapter_file(c.run_dir + "/model").settings;
  EXPECT_NO_THROW(run_training(further, {}));
}

// Gemma 4's per_layer_model_projection lies beside the layers.
TEST_F(MultimodalRun, AdaptersOfModulesBesideTheLayersAreReadAgain) {
  use("gemma4_e2b");
  make_text_part_of("Gemma4ForConditionalGeneration", "gemma4");
  TrainConfig c = config("run", 2);
  c.adapter = {.rank = 2};
  run_training(c, {});
  const std::string module = "model.language_model.per_layer_model_projection";
  EXPECT_TRUE(tensors_in(c.run_dir + "/model").contains("base_model.model." + module + ".lora_A.weight"));
  merge_adapter(model_, c.run_dir + "/model", directory_ / "merged", {}, 1);
  EXPECT_NE(tensors_in(directory_ / "merged").at(module + ".weight"), tensors_in(model_).at(module + ".weight"));
  TrainConfig further = config("further", 1);
  further.model.adapter = c.run_dir + "/model";
  further.adapter = read_adapter_file(c.run_dir + "/model").settings;
  EXPECT_NO_THROW(run_training(further, {}));
}

TEST_F(MultimodalRun, TakesTargetsByTheNamesThatPeftGivesThem) {
  use("gemma3_whole");
  TrainConfig c = config("run", 1);
  c.adapter = {.rank = 2, .targets = {"model\\.language_model\\.layers\\.1\\..*q_proj"}};
  run_training(c, {});
  const auto tensors = tensors_in(c.run_dir + "/model");
  EXPECT_EQ(tensors.size(), 2u);
  EXPECT_EQ(read_json_file(c.run_dir + "/model/adapter_config.json").at("target_modules"),
            nlohmann::json::array({"model.language_model.layers.1.self_attn.q_proj"}));
  c = config("text", 1);
  c.model.path = in_repository("tests/parity/goldens/gemma3_local/model");
  c.adapter = {.rank = 2, .targets = {"language_model.layers.1.self_attn.q_proj"}};
  expect_error(ExitCode::bad_config, {"adapter.targets", "this one is a text model"}, [&] { run_training(c, {}); });
}

}  // namespace megatrain
