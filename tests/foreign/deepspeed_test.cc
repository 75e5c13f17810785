#include <gtest/gtest.h>

#include "tests/support/axolotl_examples.h"
#include "tests/support/fixtures.h"
#include "tests/support/foreign_file.h"

namespace megatrain {
namespace {

class DeepSpeedFile : public testing::Test {
 protected:
  // What is reported about LLaMA-Factory's stock file beside this configuration.
  std::string beside(const std::string& text) const {
    write_bytes(path_, text);
    return refusal(with(supervised(), {{"deepspeed", path_}}));
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "ds.json";
};

TEST_F(DeepSpeedFile, AsksForNothingWhereItSaysAutoOrTheSame) {
  EXPECT_EQ(
      beside(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto",
      "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": "auto"},
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}})"),
      "accepted");
  EXPECT_EQ(beside(R"({"train_batch_size": 8, "gradient_accumulation_steps": 8, "gradient_clipping": 1.0,
      "optimizer": {"type": "Adam", "params": {"lr": 1e-5, "betas": [0.9, 0.999], "weight_decay": 0}}})"),
            "accepted");
  EXPECT_EQ(refusal(with(supervised(), {{"deepspeed", "examples/deepspeed/ds_z3_config.json"}})), "accepted");
}

TEST_F(DeepSpeedFile, IsRefusedWhereItWouldTrainOtherwise) {
  const std::string all = beside(R"({"gradient_clipping": 0.3, "scheduler": {"type": "WarmupLR", "params": {}},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})");
  for (const char* said : {"ds.json: optimizer.params.lr is 0.001, and learning_rate is 1e-05",
                           "ds.json: its scheduler (\"WarmupLR\")", "gradient_clipping is 0.3, and max_grad_norm is 1"})
    EXPECT_TRUE(has(all, said)) << said << " in " << all;
  EXPECT_TRUE(has(beside(R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.8, 0.999]}}})"),
                  "optimizer.params.betas[0] is 0.8, and adam_beta1 is 0.9"));
  EXPECT_TRUE(has(beside(R"({"optimizer": {"type": "Lamb"}})"), "its optimizer is \"Lamb\", expected AdamW"));
  EXPECT_TRUE(has(beside(R"({"train_batch_size": 64})"), "train_batch_size is 64, and the batch of one GPU is 8"));
  EXPECT_TRUE(has(beside(R"({"train_micro_batch_size_per_gpu": 4})"), "and per_device_train_batch_size is 1"));
  EXPECT_TRUE(has(beside("{"), "ds.json"));
}

TEST_F(DeepSpeedFile, IsRefusedForMethodsThatAreNotThere) {
  for (const char* name : {"progressive_layer_drop", "curriculum_learning", "data_efficiency", "amp"}) {
    EXPECT_TRUE(has(beside(fmt::format(R"({{"{}": {{"enabled": true}}}})", name)), name)) << name;
    EXPECT_EQ(beside(fmt::format(R"({{"{}": {{"enabled": false}}}})", name)), "accepted") << name;
  }
  const std::string mode = R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})";
  EXPECT_EQ(beside(mode), "accepted") << "without weight decay it is the same";
  EXPECT_TRUE(has(refusal(with(supervised(), {{"deepspeed", path_}, {"weight_decay", "0.1"}})), "adam_w_mode"));
  EXPECT_TRUE(
      has(beside(R"({"optimizer": {"type": "AdamW", "params": {"bias_correction": false}}})"), "bias_correction"));
}

TEST_F(DeepSpeedFile, IsRefusedForAnotherPrecision) {
  const auto with_bf16 = [&](const std::string& text, const std::string& bf16) {
    write_bytes(path_, text);
    return refusal(with(supervised(), {{"deepspeed", path_}, {"bf16", bf16}}));
  };
  EXPECT_EQ(with_bf16(R"({"bf16": {"enabled": true}, "fp16": {"enabled": false}})", "true"), "accepted");
  EXPECT_TRUE(has(with_bf16(R"({"bf16": {"enabled": true}})", "false"), "bf16.enabled"));
  EXPECT_TRUE(has(with_bf16(R"({"bf16": {"enabled": false}})", "true"), "bf16.enabled"));
  EXPECT_TRUE(has(with_bf16(R"({"fp16": {"enabled": true}})", "true"), "fp16.enabled"));
}

TEST_F(DeepSpeedFile, IsReadBesideAxolotlAndInsideAFileToo) {
  write_bytes(path_, R"({"optimizer": {"type": "AdamW", "params": {"weight_decay": 0.3}}})");
  EXPECT_TRUE(has(refusal(with(axolotl_full(), {{"deepspeed", path_}})),
                  "optimizer.params.weight_decay is 0.3, and weight_decay is 0"));
  EXPECT_EQ(refusal(with(supervised(), {{"deepspeed", "{zero_optimization: {stage: 2}, gradient_clipping: 1}"}})),
            "accepted");
  EXPECT_TRUE(has(refusal(with(supervised(), {{"deepspeed", "{gradient_clipping: 0.3}"}})),
                  "deepspeed: gradient_clipping is 0.3, and max_grad_norm is 1"));
  EXPECT_TRUE(has(refusal(with(supervised(), {{"deepspeed", "{scheduler: {type: WarmupLR}}"}})), "its scheduler"));
  const auto inside = [](const std::string& text) { return refusal(with(supervised(), {{"deepspeed", text}})); };
  EXPECT_EQ(inside("{optimizer: {type: AdamW, params: {lr: auto, betas: [0.9, 0.999]}}, bf16: {enabled: auto}}"),
            "accepted");
  EXPECT_TRUE(
      has(inside("{optimizer: {type: AdamW, params: {betas: [0.8, 0.999]}}}"), "optimizer.params.betas[0] is 0.8"));
  EXPECT_TRUE(has(inside("{optimizer: {type: Lamb}}"), "expected AdamW"));
}

}  // namespace
}  // namespace megatrain
