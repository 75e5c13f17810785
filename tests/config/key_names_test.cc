// Messages use the key names of the user's file.
#include "tests/support/axolotl_examples.h"
#include "tests/support/foreign_file.h"

namespace megatrain {
namespace {

TEST(KeyNames, AreThoseOfTheFileUnlessTheCommandLineSaysTheKeyInOurs) {
  const KeyNames names = parse(axolotl_full()).names;
  EXPECT_EQ(names("seq_len"), "sequence_len (seq_len)");
  EXPECT_EQ(names("optim.beta1"), "adam_beta1 (optim.beta1)") << "not given: the file would call it so";
  EXPECT_EQ(names("conventions"), "conventions") << "no key of theirs says it";
  EXPECT_EQ(names("head_chunk"), "head_chunk");
  EXPECT_EQ(parse(axolotl_full(), {"--seq_len=64"}).names("seq_len"), "seq_len");
  EXPECT_EQ(parse(axolotl_full(), {"--sequence_len=64"}).names("seq_len"), "sequence_len (seq_len)");
  EXPECT_EQ(parse(with(supervised(), {{"optim", "adamw_bnb_8bit"}})).names("state.moments"), "optim (state.moments)");
  EXPECT_EQ(parse_config("model: m\ndata: {train: a}\nsteps: 1\n", "c.yaml").names, KeyNames());
}

TEST(KeyNames, ASettingThatTheFileNamesOtherwiseIsGivenOnTheCommandLine) {
  const KeyNames names = parse(axolotl_full()).names;
  EXPECT_EQ(names.setting("data.packing", "true"), "--data.packing=true");
  EXPECT_EQ(names.setting("sample.every", "5"), "sample.every: 5");
  EXPECT_EQ(parse(supervised()).names.setting("data.overlong", "drop"), "data.overlong: drop") << "a rule, no key";
  EXPECT_TRUE(parse(with(axolotl_full(), {{"sample_packing", "false"}}), {"--data.packing=true"}).data.packing);
}

// A file of another trainer whose model is replaced by our model.config, which trains from random weights.
TEST(KeyNames, TheModelOfTheFileMayBeTakenAwayOnTheCommandLine) {
  for (const auto& [keys, word] :
       {std::pair{axolotl_full(), "--base_model=null"}, {supervised(), "--model.path=null"}}) {
    const TrainConfig config = parse(keys, {word, "--model.config=c.json"});
    EXPECT_EQ(config.model.path, "");
    EXPECT_EQ(config.model.config, "c.json");
  }
  EXPECT_TRUE(
      has(refusal(supervised(), {"--model_name_or_path=null"}), "no model; give model_name_or_path (model.path), a"));
}

TEST(KeyNames, StandInWhatIsAskedForAndNotThere) {
  const Keys factory = {{"model_name_or_path", "m"}, {"finetuning_type", "full"}, {"output_dir", "o"}};
  const auto of_factory = [&](const Keys& more) { return refusal(with(factory, more)); };
  EXPECT_TRUE(has(of_factory({{"dataset", "d"}, {"eval_strategy", "steps"}}),
                  "theirs.yaml:6: eval_strategy (eval.every) needs data to evaluate on: give eval_dataset (data.eval) "
                  "or val_size (data.eval_split)"))
      << of_factory({{"dataset", "d"}, {"eval_strategy", "steps"}});
  EXPECT_TRUE(has(of_factory({}), "theirs.yaml: no data; give datasets as dataset (data.train), or a file"));
  const std::string idle =
      logged(with(factory, {{"dataset", "d"}, {"val_size", "0.1"}, {"early_stopping_steps", "1"}}));
  EXPECT_TRUE(has(idle,
                  "theirs.yaml:7: early_stopping_steps (eval.patience) has no effect: the loss is measured only "
                  "at the end; give eval_strategy (eval.every)"))
      << idle;
  EXPECT_TRUE(has(of_factory({{"lr_scheduler_type", "cosine"}, {"lr_scheduler_kwargs", "{min_lr: 1.0e-6}"}}),
                  "theirs.yaml:6: lr_scheduler_kwargs has min_lr, which is of lr_scheduler_type: cosine_with_min_lr, "
                  "and lr_scheduler_type is cosine; give"));
}

TEST(KeyNames, StandInWhatIsRefusedOfSeveralKeys) {
  const auto refused = [](const Keys& more) { return refusal(with(axolotl_full(), more)); };
  EXPECT_TRUE(has(refused({{"sequence_len", "99999999"}}),
                  "sequence_len (seq_len) is '99999999', expected a whole number from 2 to 2097152"))
      << refused({{"sequence_len", "99999999"}});
  EXPECT_TRUE(has(refused({{"val_set_size", "1.5"}}), "val_set_size (data.eval_split) is 1.5, expected a fraction"));
  EXPECT_TRUE(has(refused({{"warmup_ratio", "-"}, {"warmup_steps", "10"}, {"learning_rate", "5000"}}),
                  "learning_rate (optim.lr) is '5000'"));
  EXPECT_TRUE(
      has(refusal(with(axolotl_full(), {{"num_epochs", "2"}}), {"--steps=5"}), "gives num_epochs (epochs) too"));
}

}  // namespace
}  // namespace megatrain
