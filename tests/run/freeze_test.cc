// Runs with frozen tensors: what they write, and that they resume exactly, and only with the same tensors frozen.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "megatrain/base/log.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/io/json.h"
#include "megatrain/run/run.h"
#include "tests/run/golden_run.h"

namespace megatrain {

namespace {

constexpr int64_t kSteps = 4;

using Tensors = std::map<std::string, std::pair<std::string, std::string>>;  // stored dtype and bytes

Tensors tensors_of(const std::string& path) {
  Tensors tensors;
  const ModelFiles files(path);
  for (const StoredTensor* stored : files.tensors())
    tensors[stored->name] = {fmt::format("{}", static_cast<int>(stored->dtype)),
                             {reinterpret_cast<const char*>(stored->data), static_cast<size_t>(stored->bytes)}};
  return tensors;
}

class FrozenRun : public GoldenRun, public testing::WithParamInterface<std::string> {
 protected:
  FrozenRun() { golden_ = in_repository("tests/parity/goldens/") + GetParam(); }

  std::string model() const { return golden_ + "/model"; }

  TrainConfig config(const std::string& run) const {
    TrainConfig c = run_config(run);
    c.model.path = model();
    c.freeze = nlohmann::json::parse(read_bytes(golden_ + "/expected.json")).at("freeze");
    c.batch = 4;
    c.steps = kSteps;
    c.optim.lr = 1e-3;
    return c;
  }
};

}  // namespace

TEST_P(FrozenRun, FrozenTensorsComeOutAsTheyWentInAndHaveNeitherGradientNorMoments) {
  for (const std::string precision : {"bf16", "fp32"}) {
    TrainConfig c = config(precision);
    c.precision = precision;
    c.dump.grads = c.dump.state = parse_steps("2");
    run_training(c, {});
    const Tensors before = tensors_of(model()), after = tensors_of(c.run_dir + "/model"),
                  gradients = tensors_of(c.run_dir + "/grads-2.safetensors"),
                  trained = tensors_of(golden_ + "/grads.safetensors"),
                  state = tensors_of(c.run_dir + "/state-2.safetensors");
    ASSERT_EQ(after.size(), before.size());
    ASSERT_LT(trained.size(), before.size());
    EXPECT_EQ(gradients.size(), trained.size());
    EXPECT_EQ(state.size(), before.size() + 2 * trained.size());
    for (const auto& [name, bytes] : before) {
      const bool moves = trained.count(name) > 0;
      EXPECT_EQ(after.at(name) != bytes, moves) << name;
      EXPECT_EQ(gradients.count(name), moves) << name;
      EXPECT_EQ(state.count(name), 1u) << name;
      EXPECT_EQ(state.count(name + ".exp_avg"), moves) << name;
      EXPECT_EQ(state.count(name + ".exp_avg_sq"), moves) << name;
    }
    EXPECT_EQ(hash_file(c.run_dir + "/state-2.safetensors").tensors.size(), state.size());
  }
}

TEST_P(FrozenRun, StoppedAfterAnyStepAndResumedItEndsTheSame) {
  for (const double clip : {1.0, 0.0}) {
    const auto made = [&](const std::string& run) {
      TrainConfig c = config(fmt::format("{}-{}", run, clip));
      c.optim.clip = clip;
      return c;
    };
    const std::string expected = run_training(made("straight"), {}).state_hash;
    for (int64_t step = 1; step < kSteps; ++step) {
      TrainConfig c = made(fmt::format("stop-{}", step));
      run_until(c, step);
      c.resume = true;
      EXPECT_EQ(run_training(c, {}).state_hash, expected) << "clip " << clip << ", stopped after step " << step;
    }
  }
}

TEST_P(FrozenRun, ResumeRefusesOtherPatterns) {
  TrainConfig c = config("run");
  run_until(c, 2);
  c.resume = true;
  const auto refused = [&](const std::string& key, auto&& change) {
    TrainConfig other = c;
    change(other);
    expect_error(ExitCode::bad_config, {key, "step-00000002"}, [&] { run_training(other, {}); });
  };
  refused("freeze", [](TrainConfig& o) { o.freeze.clear(); });
  refused("freeze", [](TrainConfig& o) { o.freeze.push_back("model.norm.weight"); });
  refused("train_only", [](TrainConfig& o) { o.train_only = {"*"}; });
}

TEST_P(FrozenRun, TrainOnlyNamesTheSameTensorsTheOtherWayRound) {
  TrainConfig c = config("freeze"), inverse = config("train_only");
  inverse.freeze.clear();
  for (const auto& [name, bytes] : tensors_of(golden_ + "/grads.safetensors")) inverse.train_only.push_back(name);
  EXPECT_EQ(run_training(c, {}).state_hash, run_training(inverse, {}).state_hash);
}

namespace {

// A copy of the model with all values in `type`.
std::string copy_in(DType type, const std::string& model, const std::string& copy) {
  std::filesystem::copy(model, copy, std::filesystem::copy_options::recursive);
  const std::string file = copy + "/model.safetensors";
  std::filesystem::remove(file);
  const ModelFiles files(model);
  std::vector<TensorDeclaration> tensors;
  for (const StoredTensor* stored : files.tensors()) tensors.push_back({stored->name, type, stored->shape});
  SafetensorsWriter out(file, tensors, {{"format", "pt"}});
  for (const StoredTensor* stored : files.tensors()) {
    std::vector<float> values(static_cast<size_t>(stored->elements()));
    read_as_f32(*stored, 0, std::ssize(values), values.data());
    out.write_f32(stored->name, 0, values.data(), std::ssize(values));
  }
  out.finish();
  return copy;
}

std::string run_file(const TrainConfig& config, const std::string& name) {
  return read_bytes(config.run_dir + "/" + name);
}

int64_t planned_bytes(const TrainConfig& config) {
  const nlohmann::json memory = nlohmann::json::parse(run_file(config, "memory.json"));
  int64_t sum = 0;
  for (const char* place : {"hbm", "host"}) {
    for (const auto& [tag, bytes] : memory.at(place).items()) sum += bytes.get<int64_t>();
  }
  return sum;
}

// Half of the layers, and parts of the others, are frozen. Except for the norms, the size of each of these tensors is a
// multiple of the padding of a plane.
class FrozenSource : public testing::Test {
 protected:
  FrozenSource() {
    set_log_quiet(true);
    narrow_ = copy_in(DType::bf16, golden_ + "/model", directory_ / "bf16");
    wide_ = copy_in(DType::f32, narrow_, directory_ / "fp32");
  }
  ~FrozenSource() override { set_log_quiet(false); }

  TrainConfig config(const std::string& run, const std::string& model) const {
    TrainConfig c;
    c.model.path = model;
    c.data.tokens = golden_ + "/tokens.bin";
    c.data.dtype = "uint16";
    c.freeze = {"*.k_proj.weight", "model.layers.0.mlp.*", "model.layers.0.self_attn.*_proj.weight"};
    c.device = "cpu";
    c.threads = 1;
    c.memory.state = "host";
    c.seq_len = 16;
    c.batch = 4;
    c.micro_batch = 2;
    c.steps = kSteps;
    c.checkpoint.every = 2;
    c.checkpoint.keep = 2;
    c.optim.lr = 1e-3;
    c.run_dir = directory_ / run;
    return c;
  }

  std::string golden_ = in_repository("tests/parity/goldens/qwen2_tied");
  TemporaryDirectory directory_;
  std::string narrow_, wide_;
};

}  // namespace

TEST_F(FrozenSource, InBfloat16TakesTwoBytesAParameterLessAndGivesTheSameStateCheckpointAndExport) {
  const TrainConfig narrow = config("narrow", narrow_), wide = config("wide", wide_);
  EXPECT_EQ(run_training(narrow, {}).state_hash, run_training(wide, {}).state_hash);
  for (const char* step : {"step-00000002", "step-00000004"}) {
    const std::string state = fmt::format("checkpoints/{}/state.safetensors", step);
    ASSERT_FALSE(run_file(narrow, state).empty());
    EXPECT_EQ(run_file(narrow, state), run_file(wide, state)) << step;
  }
  const ModelFiles from_narrow(narrow.run_dir + "/model"), from_wide(wide.run_dir + "/model"), source(narrow_);
  int64_t frozen = 0;
  for (const StoredTensor* stored : source.tensors()) {
    const StoredTensor &made = *from_narrow.find(stored->name), &single = *from_wide.find(stored->name);
    EXPECT_EQ(made.dtype, StoredType::bf16);
    EXPECT_EQ(single.dtype, StoredType::f32);
    std::vector<float> values(static_cast<size_t>(single.elements()));
    read_as_f32(single, 0, std::ssize(values), values.data());
    std::string rounded(static_cast<size_t>(made.bytes), '\0');
    write_from_f32(values.data(), std::ssize(values), DType::bf16, reinterpret_cast<std::byte*>(rounded.data()));
    const std::string bytes(reinterpret_cast<const char*>(made.data), rounded.size());
    EXPECT_EQ(bytes, rounded) << stored->name;
    bool is_frozen = false;
    for (const std::string& pattern : narrow.freeze) is_frozen = is_frozen || matches_pattern(pattern, stored->name);
    if (!is_frozen) continue;
    frozen += stored->elements();
    EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(stored->data), rounded.size())) << stored->name;
  }
  EXPECT_EQ(run_file(narrow, "plan.json"), run_file(wide, "plan.json"));
  EXPECT_EQ(planned_bytes(wide) - planned_bytes(narrow), 2 * frozen);
}

TEST_F(FrozenSource, InEitherTypeOrGoneResumesTheSameCheckpointExactly) {
  const std::string expected = run_training(config("straight", narrow_), {}).state_hash;
  const std::string gone = directory_ / "gone";
  std::filesystem::copy(narrow_, gone, std::filesystem::copy_options::recursive);
  std::filesystem::remove(gone + "/model.safetensors");
  for (const std::string& first : {narrow_, wide_}) {
    for (const std::string& second : {narrow_, wide_, gone}) {
      TrainConfig c = config("run", first);
      c.steps = 2;
      run_training(c, {});
      c.model.path = second;
      c.steps = kSteps;
      c.resume = true;
      EXPECT_EQ(run_training(c, {}).state_hash, expected) << first << ", then " << second;
    }
  }
}

TEST_F(FrozenSource, OfAnotherPrecisionThanTheCheckpointsIsRefused) {
  const std::string golden = in_repository("tests/parity/goldens/llama_linear"), model = golden + "/model";
  TrainConfig c = config("run", model);
  c.data.tokens = golden + "/tokens.bin";
  c.steps = 2;
  run_training(c, {});
  const ModelFiles source(model), made(c.run_dir + "/model");
  const char* name = "model.layers.0.self_attn.k_proj.weight";
  const StoredTensor &before = *source.find(name), &after = *made.find(name);
  ASSERT_EQ(after.dtype, StoredType::f32);
  EXPECT_EQ(std::memcmp(before.data, after.data, static_cast<size_t>(before.bytes)), 0);
  c.model.path = copy_in(DType::bf16, model, directory_ / "rounded");
  c.steps = kSteps;
  c.resume = true;
  expect_error(ExitCode::bad_config, {"frozen tensor model.layers.0", "bf16", "run_dir"}, [&] { run_training(c, {}); });
}

INSTANTIATE_TEST_SUITE_P(Goldens, FrozenRun, testing::Values("llama_frozen", "qwen3_frozen"),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain
