// Checkpoints in process: what is kept, what is restored, what is refused.
#include "megatrain/train/checkpoint.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/number_text.h"
#include "megatrain/base/rng.h"
#include "megatrain/model/layers.h"
#include "tests/hub/fixtures.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

const nlohmann::json kIdentity = {{"batch", 4}, {"precision", "bf16"}};

ModelConfig small_model() {
  return parse_model_config({{"architectures", {"Qwen3ForCausalLM"}},
                             {"vocab_size", 50},
                             {"hidden_size", 24},
                             {"intermediate_size", 36},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"head_dim", 8}},
                            "config.json");
}

// Records with every plane random; bf16 splits the master in two halves.
class State {
 public:
  State(DType dtype, uint64_t seed)
      : device_(make_cpu_device()), records_(make_records(*device_, layouts_, dtype, tiers_)) {
    if (seed == 0) return;
    for (LayerRecord& record : records_) {
      for (const TensorSpec& tensor : record.layout().tensors) {
        std::vector<float> values(static_cast<size_t>(tensor.elements()));
        for (int plane = 0; plane < 3; ++plane) {
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = random_normal_pair(seed, static_cast<uint64_t>(tensor.offset * 3 + plane), i)[0];
          if (plane == 0) record.write_master(tensor.offset, tensor.elements(), values.data());
          if (plane > 0)
            record.write_moment(plane == 1 ? LayerRecord::Moment::first : LayerRecord::Moment::second,
                                tensor.state_offset, tensor.elements(), values.data());
        }
      }
    }
  }

  std::vector<LayerRecord>& records() { return records_; }
  std::string hash() const { return hash_state(records_, 0).state; }
  TensorTypes types() const {
    TensorTypes types;
    for (const LayerLayout& layout : layouts_) {
      for (const TensorSpec& tensor : layout.tensors) types[tensor.name] = tensor.vector ? DType::f32 : DType::f16;
    }
    return types;
  }

 private:
  std::vector<LayerLayout> layouts_ = model_layouts(small_model());
  std::vector<Tier> tiers_ = {Tier::hbm, Tier::host, Tier::hbm, Tier::host};
  std::unique_ptr<Device> device_;
  std::vector<LayerRecord> records_;
};

void save(const TemporaryDirectory& run, int64_t step, State& state, int64_t keep = 2) {
  save_checkpoint(run.path(), step, kIdentity, state.types(), state.records(), keep, 2);
}

}  // namespace

TEST(Checkpoint, RestoresEveryBitOfTheState) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const TemporaryDirectory run;
    State saved(dtype, 5), restored(dtype, 0);
    ASSERT_NE(saved.hash(), restored.hash());
    save(run, 7, saved);
    const std::optional<Checkpoint> found = newest_checkpoint(run.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->step, 7);
    EXPECT_EQ(found->identity, kIdentity);
    EXPECT_EQ(found->types, saved.types());
    restore_checkpoint(*found, restored.records(), 2);
    EXPECT_EQ(restored.hash(), saved.hash());
  }
}

TEST(Checkpoint, KeepsTheNewestAndLeavesNothingElse) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  for (const int64_t step : {1, 2, 9, 10, 100}) save(run, step, state, 3);
  EXPECT_EQ(listing(run / "checkpoints"), (std::set<std::string>{"step-00000009", "step-00000010", "step-00000100"}));
  EXPECT_EQ(listing(run / "checkpoints/step-00000100"),
            (std::set<std::string>{"checkpoint.json", "state.safetensors"}));
  EXPECT_EQ(newest_checkpoint(run.path())->step, 100);
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const TemporaryDirectory run;
  State first(DType::bf16, 5), second(DType::bf16, 6), restored(DType::bf16, 0);
  save(run, 3, first);
  save(run, 3, second);
  restore_checkpoint(*newest_checkpoint(run.path()), restored.records(), 1);
  EXPECT_EQ(restored.hash(), second.hash());
}

TEST(Checkpoint, AHalfWrittenOneIsNotSeenAndIsReplaced) {
  const TemporaryDirectory run;
  EXPECT_FALSE(newest_checkpoint(run.path()).has_value());
  fs::create_directories(run / "checkpoints/step-00000008.partial");
  fs::create_directories(run / "checkpoints/step-");
  write_bytes(run / "checkpoints/step-00000008.partial/state.safetensors", "half");
  EXPECT_FALSE(newest_checkpoint(run.path()).has_value());
  State state(DType::bf16, 5);
  save(run, 8, state);
  EXPECT_EQ(listing(run / "checkpoints"), (std::set<std::string>{"step-", "step-00000008"}));
}

TEST(Checkpoint, FlippedBytesOfTheStateAreFound) {
  const TemporaryDirectory run;
  State saved(DType::bf16, 5), restored(DType::bf16, 0);
  save(run, 2, saved);
  const std::string path = run / "checkpoints/step-00000002/state.safetensors", whole = read_bytes(path);
  for (size_t at = 0; at < whole.size(); at += whole.size() / 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_bytes(path, damaged);
    expect_error(ExitCode::corrupt_checkpoint, {"step-00000002"},
                 [&] { restore_checkpoint(*newest_checkpoint(run.path()), restored.records(), 1); });
  }
}

TEST(Checkpoint, RefusesAStateThatIsNotFiniteByName) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const char* plane : {"", ".exp_avg", ".exp_avg_sq"}) {
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        const TemporaryDirectory run;
        State saved(dtype, 5), restored(dtype, 0);
        LayerRecord& record = saved.records()[2];
        const TensorSpec& tensor = record.layout().tensors.back();
        const std::string name = tensor.name + plane;
        if (plane[0] == 0) {
          record.write_master(tensor.offset + 7, 1, &bad);
        } else {
          record.write_moment(
              std::string(plane) == ".exp_avg" ? LayerRecord::Moment::first : LayerRecord::Moment::second,
              tensor.state_offset + 7, 1, &bad);
        }
        save(run, 2, saved);
        expect_error(ExitCode::corrupt_checkpoint,
                     {"step-00000002/state.safetensors", fmt::format("element 7 of {} is {}", name, number_text(bad))},
                     [&] { restore_checkpoint(*newest_checkpoint(run.path()), restored.records(), 1); });
      }
    }
  }
}

TEST(Checkpoint, RefusesADescriptionThatLacksAField) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 2, state);
  const std::string path = run / "checkpoints/step-00000002/checkpoint.json";
  const nlohmann::json whole = nlohmann::json::parse(read_bytes(path));
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json broken = whole;
    broken.erase(key);
    write_bytes(path, broken.dump());
    expect_error(ExitCode::corrupt_checkpoint, {"step-00000002", key}, [&] { newest_checkpoint(run.path()); });
  }
}

}  // namespace megatrain
