// Loading weights from a Hugging Face directory into records: what is used, and what contradicts config.json.
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/parse_config.h"

#include "megatrain/device/device.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/io/json.h"
#include "megatrain/model/model.h"
#include "tests/support/fixtures.h"
#include "tests/support/mapped_pages.h"

namespace megatrain {
namespace {

constexpr int64_t kVocab = 50, kHidden = 24;

ModelConfig small(bool tied, int64_t vocab = kVocab) {
  return parse_model_config({{"architectures", {"LlamaForCausalLM"}},
                             {"vocab_size", vocab},
                             {"hidden_size", kHidden},
                             {"intermediate_size", 36},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 4},
                             {"tie_word_embeddings", tied}},
                            "config.json");
}

// The model's tensors with each element its index, the given head, and extra one-element tensors that the model lacks.
class Weights {
 public:
  void write(const std::vector<float>& head, DType head_type = DType::f32,
             const std::vector<std::string>& others = {}) const {
    std::vector<TensorDeclaration> tensors;
    for (const LayerLayout& layout : model_layouts(small(true)))
      for (const TensorSpec& tensor : layout.tensors)
        tensors.push_back({tensor.name, DType::f32, tensor_shape(tensor)});
    if (!head.empty()) tensors.push_back({"lm_head.weight", head_type, {kVocab, kHidden}});
    for (const std::string& name : others) tensors.push_back({name, DType::f32, {1}});
    SafetensorsWriter writer(path() + "/model.safetensors", tensors, {});
    for (const TensorDeclaration& tensor : tensors) {
      const bool is_head = tensor.name == "lm_head.weight";
      const std::vector<float> values = is_head ? head : numbers(tensor.elements());
      writer.write_f32(tensor.name, 0, values.data(), tensor.elements());
    }
    writer.finish();
  }

  // Small integers, which every dtype can represent.
  static std::vector<float> numbers(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i % 200);
    return values;
  }

  LoadReport load(bool tied) const {
    const std::unique_ptr<Device> device = make_cpu_device();
    std::vector<LayerRecord> records =
        make_records(*device, model_layouts(small(tied), DType::f32), std::vector<Tier>(3, Tier::host));
    return load_weights(path(), records, 2);
  }

  const std::string& path() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

// The pages of a file count as memory of the process, beside the copy in the records.
TEST(LoadWeights, ALargeTensorIsNotHeldTwice) {
  constexpr int64_t kRows = 700'000, kTableBytes = kRows * kHidden * 4;
  const TemporaryDirectory directory;
  const std::vector<LayerLayout> layouts = model_layouts(small(true, kRows), DType::f32);
  std::vector<TensorDeclaration> tensors = {{"lm_head.weight", DType::f32, {kRows, kHidden}}};
  for (const LayerLayout& layout : layouts)
    for (const TensorSpec& tensor : layout.tensors) tensors.push_back({tensor.name, DType::f32, tensor_shape(tensor)});
  SafetensorsWriter writer(directory / "model.safetensors", tensors, {});
  for (const TensorDeclaration& tensor : tensors)
    writer.write_f32(tensor.name, 0, Weights::numbers(tensor.elements()).data(), tensor.elements());
  writer.finish();
  const std::unique_ptr<Device> device = make_cpu_device();
  std::vector<LayerRecord> records = make_records(*device, layouts, std::vector<Tier>(3, Tier::host));
  EXPECT_LT(mapped_bytes_of([&] { load_weights(directory.path(), records, 2); }), kTableBytes / 2);
}

TEST(LoadWeights, ATiedModelRefusesAnotherHead) {
  const Weights weights;
  for (const int64_t element : {int64_t{0}, kVocab * kHidden / 2, kVocab * kHidden - 1}) {
    std::vector<float> head = Weights::numbers(kVocab * kHidden);
    head[static_cast<size_t>(element)] += 1;
    weights.write(head);
    expect_error(ExitCode::bad_input,
                 {"model.safetensors", "lm_head.weight", "model.embed_tokens.weight",
                  "row " + std::to_string(element / kHidden), "tie_word_embeddings"},
                 [&] { weights.load(true); });
    EXPECT_TRUE(weights.load(false).unused.empty());  // untied, so it is the head
  }
}

TEST(LoadWeights, ATiedModelAcceptsNoHeadOrTheSameInAnyType) {
  const Weights weights;
  weights.write({});
  EXPECT_TRUE(weights.load(true).unused.empty());
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    weights.write(Weights::numbers(kVocab * kHidden), type);
    EXPECT_EQ(weights.load(true).unused, (std::vector<std::string>{"lm_head.weight"}));
  }
}

TEST(LoadWeights, RefusesALayerThatTheConfigurationDoesNotCount) {
  const Weights weights;
  for (const char* layer : {"1", "2", "10"}) {
    const std::string prefix = std::string("model.layers.") + layer;
    weights.write({}, DType::f32, {prefix + ".mlp.up_proj.weight", prefix + ".self_attn.rotary_emb.inv_freq"});
    expect_error(ExitCode::bad_input,
                 {"model.safetensors", prefix + ".mlp.up_proj.weight", "num_hidden_layers is 1", "belong together"},
                 [&] { weights.load(true); });
  }
}

TEST(LoadWeights, NamesTheFirstTensorsThatAreMissingBeforeAnyRecordIsMade) {
  const Weights weights;
  weights.write({});
  ModelConfig config = small(true);
  EXPECT_NO_THROW(check_weights(weights.path(), config));
  config.layers = 2000;
  config.window.resize(2000);
  expect_error(ExitCode::bad_input,
               {"no tensor model.layers.1.input_layernorm.weight, model.layers.1.", " more", "belong together"},
               [&] { check_weights(weights.path(), config); });
}

TEST(LoadWeights, DoesNotUseWhatIsNoLayerOfTheModelsKind) {
  const Weights weights;
  // A buffer from older files, then a layer that predicts further tokens, as in DeepSeek's models.
  const std::vector<std::string> others = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                           "model.layers.1.eh_proj.weight",
                                           "model.layers.1.mlp.up_proj.weight",
                                           "model.layers.1x.mlp.up_proj.weight",
                                           "model.mtp_layers.0.mlp.up_proj.weight",
                                           "mtp.layers.1.mlp.up_proj.weight"};
  weights.write({}, DType::f32, others);
  EXPECT_EQ(weights.load(true).unused, others);
}

}  // namespace megatrain
