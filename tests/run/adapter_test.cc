// Runs that train adapters: what they write, exact resume over a base that is only read, and training further.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "megatrain/config/adapter_file.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/run/export_run.h"
#include "megatrain/run/merge_adapter.h"
#include "megatrain/run/run.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/session.h"
#include "tests/run/golden_run.h"
#include "tests/support/flip_byte.h"
#include "tests/support/said.h"

namespace megatrain {

namespace {

class AdapterRun : public GoldenRun {
 protected:
  static constexpr int64_t kSteps = 4;

  AdapterRun() {
    golden_ = in_repository("tests/parity/goldens/llama_mha");
    std::filesystem::copy(golden_ + "/model", base_, std::filesystem::copy_options::recursive);
  }

  TrainConfig config(const std::string& run) const {
    TrainConfig c = run_config(run);
    c.model.path = base_;
    c.batch = 4;
    c.steps = kSteps;
    c.optim.lr = 1e-2;
    c.adapter = {.rank = 4, .alpha = 8, .dropout = 0.1, .also_train = {"model.norm"}};
    return c;
  }

  std::string weights_of(const std::string& directory) const {
    return hash_file(directory + "/adapter_model.safetensors").weights;
  }

  const std::string base_ = directory_ / "base";
};

}  // namespace

TEST_F(AdapterRun, WritesAPeftDirectoryAndLeavesTheBaseAsItWas) {
  const std::string before = read_bytes(base_ + "/model.safetensors");
  const TrainConfig c = config("run");
  run_training(c, {});
  EXPECT_EQ(read_bytes(base_ + "/model.safetensors"), before);
  const AdapterFile file = read_adapter_file(c.run_dir + "/model");
  EXPECT_EQ(file.settings.rank, 4);
  EXPECT_EQ(file.settings.alpha, 8);
  EXPECT_EQ(file.settings.also_train, (std::vector<std::string>{"model.norm"}));
  EXPECT_TRUE(std::filesystem::equivalent(file.base, base_)) << file.base;
  const ModelFiles files(c.run_dir + "/model");
  EXPECT_NE(files.find("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), nullptr);
  EXPECT_NE(files.find("base_model.model.model.norm.weight"), nullptr);
  EXPECT_EQ(files.find("base_model.model.model.layers.0.self_attn.q_proj.weight"), nullptr);
  EXPECT_NO_THROW(verify_model_of_run(c.run_dir + "/model"));
  const ExportedRun exported = export_run(c.run_dir, directory_ / "out", {});
  EXPECT_EQ(exported.step, kSteps);
  EXPECT_EQ(weights_of(directory_ / "out"), weights_of(c.run_dir + "/model"));
  EXPECT_EQ(read_bytes((directory_ / "out") + "/adapter_config.json"),
            read_bytes(c.run_dir + "/model/adapter_config.json"));
  expect_error(ExitCode::bad_config, {"--dtype"}, [&] { export_run(c.run_dir, directory_ / "other", DType::bf16); });
}

// Paths of a configuration are relative to the folder where the run was started.
TEST_F(AdapterRun, ExportedFromAnotherFolderNamesItsBaseByAnAbsolutePath) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  TrainConfig c = config("run");
  c.run_dir = "runs/a";
  c.model.path = "base";
  c.checkpoint.every = 2;
  run_training(c, {});
  std::filesystem::current_path(before);
  const std::string run = directory_ / "runs/a";
  for (const bool finished : {true, false}) {
    const std::string out = directory_ / (finished ? "out" : "out-of-stopped");
    export_run(run, out, {});
    EXPECT_TRUE(std::filesystem::equivalent(read_adapter_file(out).base, base_)) << read_adapter_file(out).base;
    EXPECT_TRUE(std::filesystem::path(read_adapter_file(out).base).is_absolute());
    std::filesystem::remove_all(run + "/model");
    std::filesystem::remove(run + "/hash.json");
  }
}

TEST_F(AdapterRun, StoppedAfterAnyStepAndResumedItEndsTheSame) {
  const TrainConfig straight = config("straight");
  const std::string expected = run_training(straight, {}).state_hash;
  for (int64_t step = 1; step < kSteps; ++step) {
    TrainConfig c = config(fmt::format("stop-{}", step));
    run_until(c, step);
    EXPECT_EQ(export_run(c.run_dir, directory_ / fmt::format("out-{}", step), {}).step, step);
    c.resume = true;
    EXPECT_EQ(run_training(c, {}).state_hash, expected) << "stopped after step " << step;
    EXPECT_EQ(weights_of(c.run_dir + "/model"), weights_of(straight.run_dir + "/model"));
  }
}

// Its magnitudes begin as norms of the weights only in a run that begins.
TEST_F(AdapterRun, OfDoraStoppedAndResumedEndsTheSameAlsoOverItsFiles) {
  const auto config_of = [&](const std::string& run, const char* base) {
    TrainConfig c = config(run);
    c.adapter.dora = true;
    c.memory.base = base;
    return c;
  };
  const TrainConfig straight = config_of("straight", "host");
  const std::string expected = run_training(straight, {}).state_hash;
  EXPECT_TRUE(read_adapter_file(straight.run_dir + "/model").settings.dora);
  const ModelFiles files(straight.run_dir + "/model");
  EXPECT_NE(files.find("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"), nullptr);
  TrainConfig stopped = config_of("stopped", "files");
  run_until(stopped, 2);
  stopped.resume = true;
  EXPECT_EQ(run_training(stopped, {}).state_hash, expected);
  TrainConfig other = config_of("stopped", "files");
  other.adapter.dora = false;
  other.resume = true;
  expect_error(ExitCode::bad_config, {"adapter"}, [&] { run_training(other, {}); });
}

// A checkpoint has the biases by their own names, and an export of it by those of PEFT.
TEST_F(AdapterRun, TrainsBiasesAndExportsThemUnderTheNamesOfPeft) {
  const std::string biased = in_repository("tests/parity/goldens/llama_bias/model");
  const auto config_of = [&](const std::string& run) {
    TrainConfig c = config(run);
    c.model.path = biased;
    c.adapter = {.rank = 2, .targets = {"q_proj", "down_proj"}, .bias = "all"};
    return c;
  };
  const TrainConfig straight = config_of("straight");
  const std::string expected = run_training(straight, {}).state_hash;
  const ModelFiles files(straight.run_dir + "/model");
  for (const char* name :
       {"self_attn.q_proj.base_layer.bias", "self_attn.k_proj.bias", "mlp.down_proj.base_layer.bias"})
    EXPECT_NE(files.find(std::string("base_model.model.model.layers.1.") + name), nullptr) << name;
  EXPECT_EQ(read_adapter_file(straight.run_dir + "/model").settings.bias, "all");
  EXPECT_NO_THROW(verify_model_of_run(straight.run_dir + "/model"));
  TrainConfig c = config_of("stopped");
  run_until(c, 2);
  EXPECT_EQ(export_run(c.run_dir, directory_ / "out", {}).step, 2);
  EXPECT_NE(ModelFiles(directory_ / "out").find("base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias"),
            nullptr);
  TrainConfig further = config_of("further");
  further.model.adapter = directory_ / "out";
  further.adapter = read_adapter_file(directory_ / "out").settings;
  EXPECT_NO_THROW(run_training(further, {}));
  c.resume = true;
  EXPECT_EQ(run_training(c, {}).state_hash, expected);
  EXPECT_EQ(weights_of(c.run_dir + "/model"), weights_of(straight.run_dir + "/model"));
}

TEST_F(AdapterRun, WarnsOfALearningRateFarFromTheUsual) {
  set_log_quiet(false);
  const auto warned = [&](double lr, int64_t rank, const std::string& base) {
    TrainConfig c = config("run");
    c.steps = 1;
    c.optim.lr = lr;
    if (rank == 0) c.adapter = {};
    if (base.empty()) c.model = {.config = base_ + "/config.json"};
    return logged_by([&] { run_training(c, {}); });
  };
  const std::string low = warned(1e-5, 4, base_);
  EXPECT_NE(low.find("optim.lr is 1e-05, which is low for adapters"), std::string::npos) << low;
  const std::string high = warned(1e-2, 4, base_);
  EXPECT_NE(high.find("optim.lr is 0.01, which is high for adapters"), std::string::npos) << high;
  const std::string full = warned(1e-3, 0, base_);
  EXPECT_NE(full.find("optim.lr is 0.001, which is high for all weights"), std::string::npos) << full;
  for (const std::string& quiet : {warned(2e-4, 4, base_), warned(1e-5, 0, base_), warned(1e-3, 0, "")})
    EXPECT_EQ(quiet.find("usual"), std::string::npos) << quiet;
}

TEST_F(AdapterRun, ResumeTakesTheSameTargetsInAnotherOrder) {
  TrainConfig straight = config("straight"), c = config("run");
  straight.adapter.targets = c.adapter.targets = {"q_proj", "down_proj", "v_proj"};
  run_until(c, 2);
  c.adapter.targets = {"v_proj", "q_proj", "down_proj"};
  c.resume = true;
  EXPECT_EQ(run_training(c, {}).state_hash, run_training(straight, {}).state_hash);
}

TEST_F(AdapterRun, ResumeRefusesAnotherAdapterAndAnotherBase) {
  TrainConfig c = config("run");
  run_until(c, 2);
  c.resume = true;
  const auto refused = [&](const std::string& part, const TrainConfig& other) {
    expect_error(ExitCode::bad_config, {part, "step-00000002"}, [&] { run_training(other, {}); });
  };
  TrainConfig other = c;
  other.adapter.alpha = 16;
  refused("adapter", other);
  other = c;
  other.adapter = {};
  refused("adapter", other);
  std::string changed = read_bytes(base_ + "/model.safetensors");
  changed[changed.size() - 3] ^= 1;
  write_bytes(base_ + "/model.safetensors", changed);
  refused("the weights in " + base_ + " have changed", c);
}

TEST_F(AdapterRun, GoesOnFromAnAdapterAndRefusesOneOfAnotherBase) {
  const TrainConfig first = config("first");
  run_training(first, {});
  TrainConfig more = config("more");
  more.model.adapter = first.run_dir + "/model";
  more.steps = 0;
  run_training(more, {});
  EXPECT_EQ(weights_of(more.run_dir + "/model"), weights_of(first.run_dir + "/model"));
  // A resume takes the adapters from the checkpoint: the directory that they began from may be gone.
  more = config("stopped");
  more.model.adapter = first.run_dir + "/model";
  run_until(more, 2);
  std::filesystem::rename(first.run_dir, first.run_dir + "-elsewhere");
  more.resume = true;
  EXPECT_NO_THROW(run_training(more, {}));
  std::filesystem::rename(first.run_dir + "-elsewhere", first.run_dir);
  TrainConfig other = config("other");
  other.model.path = in_repository("tests/parity/goldens/llama_bias/model");
  other.model.adapter = first.run_dir + "/model";
  expect_error(ExitCode::bad_input, {"adapter_model.safetensors", "shape", "the base ask for"},
               [&] { run_training(other, {}); });
}

TEST_F(AdapterRun, RefusesSettingsOfAnotherTypeAndWeightsThatWereDamaged) {
  const TrainConfig first = config("first");
  run_training(first, {});
  const std::string model = first.run_dir + "/model", file = model + "/adapter_config.json";
  const std::string settings = read_bytes(file);
  TrainConfig more = config("more");
  more.model.adapter = model;
  for (const nlohmann::json& base : nlohmann::json::parse(R"([7, 1.5, true, {"a": 1}, [5]])")) {
    nlohmann::json changed = nlohmann::json::parse(settings);
    changed["base_model_name_or_path"] = base;
    write_bytes(file, changed.dump());
    expect_error(ExitCode::bad_input, {"base_model_name_or_path", "expected a text"},
                 [&] { read_adapter_file(model); });
  }
  write_bytes(file, settings);
  flip_byte(model + "/adapter_model.safetensors", 5);
  expect_error(ExitCode::bad_input, {"first/model"}, [&] { run_training(more, {}); });
  expect_error(ExitCode::bad_input, {"first/model"},
               [&] { merge_adapter(base_, model, directory_ / "merged", {}, 1); });
}

TEST_F(AdapterRun, RowsOfTokensBeginAsThoseOfTheBaseAndAreResumed) {
  const auto config_of = [&](const std::string& run) {
    TrainConfig c = config(run);
    c.adapter.trainable_token_indices = {{"embed_tokens", {9, 5}}, {"lm_head", {7}}};
    return c;
  };
  TrainConfig none = config_of("none");
  none.steps = 0;
  run_training(none, {});
  const ModelFiles base(base_), untrained(none.run_dir + "/model");
  const auto rows_of = [](const ModelFiles& files, const std::string& name, int64_t begin, int64_t count) {
    const StoredTensor* tensor = files.find(name);
    std::vector<float> rows(static_cast<size_t>(count * tensor->shape[1]));
    read_as_f32(*tensor, begin * tensor->shape[1], std::ssize(rows), rows.data());
    return rows;
  };
  const std::string of_embedding = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
                    of_head = "base_model.model.lm_head.token_adapter.trainable_tokens_delta";
  EXPECT_EQ(rows_of(untrained, of_embedding, 0, 1), rows_of(base, "model.embed_tokens.weight", 9, 1));
  EXPECT_EQ(rows_of(untrained, of_embedding, 1, 1), rows_of(base, "model.embed_tokens.weight", 5, 1));
  EXPECT_EQ(rows_of(untrained, of_head, 0, 1), rows_of(base, "lm_head.weight", 7, 1));

  const TrainConfig straight = config_of("straight");
  const std::string expected = run_training(straight, {}).state_hash;
  const ModelFiles trained(straight.run_dir + "/model");
  EXPECT_NE(rows_of(trained, of_embedding, 0, 2), rows_of(untrained, of_embedding, 0, 2));
  EXPECT_NE(rows_of(trained, of_head, 0, 1), rows_of(untrained, of_head, 0, 1));
  EXPECT_EQ(read_adapter_file(straight.run_dir + "/model").settings.trainable_token_indices,
            straight.adapter.trainable_token_indices);
  TrainConfig stopped = config_of("stopped");
  run_until(stopped, 2);
  stopped.resume = true;
  TrainConfig other = stopped;
  other.adapter.trainable_token_indices.front().second = {5, 9};
  expect_error(ExitCode::bad_config, {"adapter", "step-00000002"}, [&] { run_training(other, {}); });
  EXPECT_EQ(run_training(stopped, {}).state_hash, expected);
}

// gpt-oss with the experts in MXFP4, drawn from the seed: experts stay packed, and their adapters come back exactly.
TEST_F(AdapterRun, TrainsExpertsOfARandomBaseThatIsPacked) {
  golden_ = in_repository("tests/parity/goldens/gpt_oss_mxfp4");
  const auto config_of = [&](const std::string& run) {
    TrainConfig c = run_config(run);
    c.model.config = golden_ + "/model/config.json";
    c.batch = 4;
    c.steps = kSteps;
    c.optim.lr = 1e-2;
    c.adapter = {.rank = 4, .alpha = 8, .target_parameters = {"mlp.experts.down_proj", "mlp.experts.gate_up_proj"}};
    return c;
  };
  const TrainConfig straight = config_of("straight");
  EXPECT_GT(std::ranges::count_if(Session(straight).workload().records,
                                  [](const RecordWork& record) { return record.packed_bytes > 0; }),
            0);
  const RunResult whole = run_training(straight, {});
  TrainConfig stopped = config_of("stopped");
  run_until(stopped, 2);
  // An export of a run or of its checkpoint has the layout of PEFT.
  export_run(straight.run_dir, directory_ / "out", {});
  EXPECT_EQ(weights_of(directory_ / "out"), weights_of(straight.run_dir + "/model"));
  export_run(stopped.run_dir, directory_ / "out-2", {});
  const auto names_in = [](const std::string& directory) {
    const ModelFiles files(directory);
    std::set<std::string> names;
    for (const StoredTensor* tensor : files.tensors()) names.insert(tensor->name);
    return names;
  };
  EXPECT_EQ(names_in(directory_ / "out-2"), names_in(straight.run_dir + "/model"));
  stopped.resume = true;
  EXPECT_EQ(run_training(stopped, {}).state_hash, whole.state_hash);
  const ModelFiles files(straight.run_dir + "/model");
  EXPECT_NE(files.find("base_model.model.model.layers.0.mlp.experts.base_layer.lora_A.weight"), nullptr);
  EXPECT_EQ(read_adapter_file(straight.run_dir + "/model").settings.target_parameters,
            straight.adapter.target_parameters);
  TrainConfig more = config_of("more");
  more.model.adapter = straight.run_dir + "/model";
  more.adapter = read_adapter_file(more.model.adapter).settings;
  more.steps = 0;
  run_training(more, {});
  EXPECT_EQ(weights_of(more.run_dir + "/model"), weights_of(straight.run_dir + "/model"));
}

}  // namespace megatrain
