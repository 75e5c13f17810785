// Frozen records read from files hold what loading puts into memory, byte for byte, however files store their tensors.
#include "megatrain/model/files/base_files.h"
#include "megatrain/model/parse_config.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include "megatrain/device/device.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/model/model_source.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {
namespace {

// The records of a model with adapters, in memory and in its files.
class BothWays {
 public:
  BothWays(const std::string& directory, DType dtype, int64_t experts_per_record = 0) {
    const ModelConfig config = parse_model_config(read_json_file(directory + "/config.json"), directory);
    const Model model =
        make_model(config, {.dtype = dtype, .tokens = 8, .positions = 8, .experts_per_record = experts_per_record},
                   {.adapter = {.rank = 2}}, stored_types(directory, config));
    std::vector<LayerLayout> layouts = model.layouts();
    for (const LayerLayout& layout : layouts) wanted_.push_back(layout.state_elements == 0);
    memory_ = make_records(*device_, layouts, std::vector<Tier>(layouts.size(), Tier::host));
    load_weights(directory, memory_, 2);
    open(directory);
  }

  // Opens the files again.
  void open(const std::string& directory) {
    std::vector<LayerLayout> layouts;
    for (const LayerRecord& record : memory_) layouts.push_back(record.layout());
    source_ = std::make_unique<BaseFiles>(directory, layouts, wanted_);
    std::vector<DiskPlanes> places;
    for (size_t r = 0; r < layouts.size(); ++r)
      places.push_back({.source = wanted_[r] ? source_.get() : nullptr, .source_record = static_cast<int64_t>(r)});
    files_ = make_records(*device_, layouts, std::vector<Tier>(layouts.size(), Tier::host), places);
  }

  void expect_same() {
    for (size_t r = 0; r < memory_.size(); ++r) {
      if (!wanted_[r]) continue;
      SCOPED_TRACE("record " + std::to_string(r));
      const LayerLayout& layout = memory_[r].layout();
      EXPECT_EQ(layout.low_elements, 0);
      packed_ += layout.packed();
      // MXFP4 may write one value in several ways, so packed records are compared by value.
      std::vector<std::byte> stored(static_cast<size_t>(layout.stored_bytes()), std::byte{0xAA});
      source_->read(static_cast<int64_t>(r), 0, layout.stored_bytes(), stored.data());
      if (!layout.packed()) {
        EXPECT_EQ(std::memcmp(stored.data(), memory_[r].weights(), stored.size()), 0);
      }
      const int64_t bytes = layout.weight_bytes();
      for (const auto& [begin, end] : {std::pair{int64_t{0}, bytes}, {bytes / 7 / 4 * 4, bytes / 2 / 4 * 4}})
        EXPECT_EQ(read(files_[r], begin, end), read(memory_[r], begin, end)) << begin << " to " << end;
    }
  }

  int64_t packed() const { return packed_; }

 private:
  static std::vector<std::byte> read(const LayerRecord& record, int64_t begin, int64_t end) {
    std::vector<std::byte> bytes(static_cast<size_t>(end - begin), std::byte{0xAA});
    record.read_weights(begin, end - begin, bytes.data());
    return bytes;
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  std::vector<bool> wanted_;
  std::vector<LayerRecord> memory_;
  std::unique_ptr<BaseFiles> source_;
  std::vector<LayerRecord> files_;
  int64_t packed_ = 0;  // records
};

TEST(BaseFiles, HoldWhatLoadingGivesForEveryFormOfTensors) {
  int64_t packed = 0;
  for (const char* golden : {"llama_mha", "phi3_packed", "gpt_oss", "gpt_oss_mxfp4", "qwen3_moe", "gemma3_local",
                             "qwen3_fp8", "qwen3_moe_fp8"}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const int64_t group : {0, 3}) {
        SCOPED_TRACE(std::string(golden) + " in " + dtype_name(dtype));
        BothWays both(in_repository(std::string("tests/parity/goldens/") + golden + "/model"), dtype, group);
        both.expect_same();
        packed += both.packed();
      }
    }
  }
  EXPECT_GT(packed, 0);
}

// Sets a byte of a tensor in a copy of a golden model, then reads all of its frozen records.
void read_with_byte(const std::string& golden, const std::string& tensor, int64_t at, char byte) {
  const TemporaryDirectory directory;
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(in_repository("tests/parity/goldens/" + golden + "/model/" + name), directory / name);
  BothWays both(directory.path(), DType::bf16);
  const std::string path = directory / "model.safetensors";
  const SafetensorsFile file(path);
  std::string bytes = read_bytes(path);
  bytes[static_cast<size_t>(file.offset_of(*file.find(tensor)) + at)] = byte;
  write_bytes(path, bytes);
  both.open(directory.path());
  both.expect_same();
}

TEST(BaseFiles, NameAPackedWeightThatIsNotFinite) {
  const std::string scales = "model.layers.0.mlp.experts.gate_up_proj_scales";
  expect_error(ExitCode::bad_input, {"model.safetensors", "model.layers.0.mlp.experts.0.up_proj.weight", "inf"},
               [&] { read_with_byte("gpt_oss_mxfp4", scales, 1, '\xff'); });
}

// Experts of several pieces each, whose sizes are multiples of nothing.
TEST(BaseFiles, TurnAroundLargeFusedExperts) {
  constexpr int64_t kHidden = 612, kFf = 700, kExperts = 3;
  const TemporaryDirectory directory;
  const nlohmann::json config = {{"architectures", {"GptOssForCausalLM"}},
                                 {"vocab_size", 40},
                                 {"hidden_size", kHidden},
                                 {"intermediate_size", kFf},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 2},
                                 {"num_key_value_heads", 1},
                                 {"head_dim", 64},
                                 {"num_local_experts", kExperts},
                                 {"num_experts_per_tok", 2},
                                 {"max_position_embeddings", 64}};
  write_bytes(directory / "config.json", config.dump());
  const std::vector<LayerLayout> layouts = model_layouts(parse_model_config(config, "config.json"));
  std::vector<const TensorSpec*> specs;
  for (const LayerLayout& layout : layouts) {
    for (const TensorSpec& tensor : layout.tensors) specs.push_back(&tensor);
  }
  const std::vector<FileTensor> tensors = file_tensors(specs);
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    std::vector<TensorDeclaration> declared;
    for (const FileTensor& tensor : tensors) declared.push_back({tensor.name, type, tensor.shape});
    std::filesystem::remove(directory / "model.safetensors");
    SafetensorsWriter writer(directory / "model.safetensors", declared);
    float next = 0;
    for (const TensorDeclaration& tensor : declared) {
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      for (float& value : values) value = std::fmod(next += 0.7311F, 3.0F) - 1.5F;
      writer.write_f32(tensor.name, 0, values.data(), std::ssize(values));
    }
    writer.finish();
    for (const DType dtype : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(std::string(dtype_name(type)) + " in " + dtype_name(dtype));
      BothWays(directory.path(), dtype, 2).expect_same();
    }
  }
}

}  // namespace
}  // namespace megatrain
