// An MoE model that is loaded and exported without training keeps every tensor unchanged.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "megatrain/device/device.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/tensor/mxfp4.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/model.h"
#include "megatrain/train/state_files.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {

class ExportExperts : public ::testing::TestWithParam<std::string> {
 protected:
  // Loads a golden's model into records of this many experts and writes it to `out_`.
  StateHash round_trip(DType dtype, int64_t experts_per_record) {
    const ModelConfig config = parse_model_config(read_json_file(model_ + "/config.json"), "config.json");
    const std::unique_ptr<Device> device = make_cpu_device();
    const std::vector<LayerLayout> layouts = model_layouts(config, dtype, {}, experts_per_record);
    std::vector<LayerRecord> records = make_records(*device, layouts, std::vector<Tier>(layouts.size(), Tier::host));
    const LoadReport report = load_weights(model_, records, 2);
    return export_model(out_, {.config_json = "{}"}, report.types, records, 3);
  }

  std::string model_ = in_repository("tests/parity/goldens/") + GetParam() + "/model";
  TemporaryDirectory directory_;
  std::string out_ = directory_ / "out";
};

TEST_P(ExportExperts, WithoutStepsEveryTensorIsEqual) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const int64_t group : {0, 1, 3}) {
      const StateHash hash = round_trip(dtype, group);
      const ModelFiles before(model_), after(out_);
      ASSERT_EQ(after.tensors().size(), before.tensors().size());
      for (const StoredTensor* tensor : before.tensors()) {
        const StoredTensor* found = after.find(tensor->name);
        ASSERT_NE(found, nullptr) << tensor->name;
        EXPECT_EQ(found->shape, tensor->shape) << tensor->name;
        EXPECT_EQ(found->dtype, tensor->dtype) << tensor->name;
        ASSERT_EQ(found->bytes, tensor->bytes);
        EXPECT_EQ(std::memcmp(found->data, tensor->data, static_cast<size_t>(found->bytes)), 0) << tensor->name;
      }
      EXPECT_EQ(hash.weights, hash_directory(out_).weights);
      EXPECT_EQ(hash.weights, hash_directory(model_).weights);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExportExperts,
                         ::testing::Values("qwen3_moe", "qwen3_moe_dense", "qwen3_moe_skew", "mixtral", "gpt_oss",
                                           "gpt_oss_top1", "qwen3_5_moe", "qwen3_5_moe_packed", "qwen3_next_packed",
                                           "mistral4", "gemma4_moe"),
                         [](const auto& info) { return info.param; });

class ExportMxfp4 : public ExportExperts {};

TEST_P(ExportMxfp4, IsWrittenInBf16WithTheSameValues) {
  round_trip(DType::bf16, 2);
  const ModelFiles before(model_), after(out_);
  int64_t decoded = 0;
  for (const StoredTensor* tensor : after.tensors()) {
    if (const StoredTensor* same = before.find(tensor->name)) {
      EXPECT_EQ(std::memcmp(tensor->data, same->data, static_cast<size_t>(same->bytes)), 0) << tensor->name;
      continue;
    }
    ++decoded;
    ASSERT_EQ(tensor->dtype, StoredType::bf16);
    const StoredTensor &blocks = *before.find(tensor->name + "_blocks"),
                       &scales = *before.find(tensor->name + "_scales");
    const int64_t experts = tensor->shape[0], cols = tensor->shape[1], rows = tensor->shape[2];
    ASSERT_EQ(blocks.shape, (std::vector<int64_t>{experts, rows, cols / 32, 16}));
    std::vector<float> values(static_cast<size_t>(tensor->elements())), numbers(values.size());
    read_as_f32(*tensor, 0, tensor->elements(), values.data());
    decode_mxfp4(blocks.data, scales.data, 0, tensor->elements(), numbers.data());
    for (int64_t i = 0; i < tensor->elements(); ++i) {
      const int64_t expert = i / (rows * cols), row = i / cols % rows, col = i % cols;
      ASSERT_EQ(values[static_cast<size_t>((expert * cols + col) * rows + row)], numbers[static_cast<size_t>(i)]);
    }
  }
  EXPECT_EQ(decoded, 4);
}

INSTANTIATE_TEST_SUITE_P(Models, ExportMxfp4, ::testing::Values("gpt_oss_mxfp4"),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain
