#include "megatrain/data/sample_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/data/tokenize_progress.h"
#include "megatrain/ops/cross_entropy.h"
#include "tests/support/chat_fixture.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

class Samples : public ChatFixture {
 protected:
  SampleData open(const TrainConfig& config) {
    RunData data = open_data(config, model_source());
    return std::move(*data.train_samples);
  }
  std::string refusal(const TrainConfig& config) {
    return refused_with(ExitCode::bad_input, [&] { open(config); });
  }
  // All pieces in a range of sequences of `data`.
  static std::vector<int64_t> samples(SampleData& data, int64_t begin, int64_t end) {
    std::vector<int64_t> all;
    for (int64_t i = begin; i < end; ++i)
      for (const SamplePiece& piece : data.sequence(i)) all.push_back(piece.sample);
    return all;
  }
};

TEST_F(Samples, OnlyTheAssistantsTokensAndTheirEndAreTrained) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("one.jsonl", conversation("hi", "yo"))}};
  config.data.shuffle = false;
  config.batch = config.micro_batch = 1;
  SampleData data = open(config);
  const Batch batch = data.batch(0);
  const MicroBatch& micro = batch.micro_batches.at(0);
  // <im_start>user\nhi<im_end>\n<im_start>assistant\nyo<im_end>\n
  const int64_t tokens = 1 + 5 + 2 + 1 + 1 + 1 + 10 + 2 + 1 + 1, answer = tokens - 4;
  for (int64_t t = 0; t < tokens; ++t)
    EXPECT_EQ(micro.labels[t] != kIgnoreLabel, t + 1 >= answer && t + 1 < tokens - 1) << t;
  EXPECT_EQ(micro.labels[answer - 1], 'y');
  EXPECT_EQ(micro.labels[answer], 'o');
  EXPECT_EQ(micro.labels[answer + 1], kImEnd);
  EXPECT_EQ(batch.trained, 3);
  EXPECT_EQ(micro.document_begin, (std::vector<int32_t>{0, static_cast<int32_t>(tokens), 128}));
  for (int64_t t = tokens; t < 128; ++t) EXPECT_EQ(micro.tokens[t], kPad);
}

TEST_F(Samples, AnEpochHoldsEverySampleOnceInAnOrderOfSeedAndEpoch) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(50))}};
  SampleData data = open(config), again = open(config);
  config.seed = 8;
  SampleData other = open(config);
  const int64_t sequences = data.counts().sequences;
  const auto first = samples(data, 0, sequences), second = samples(data, sequences, 2 * sequences);
  EXPECT_EQ(samples(again, sequences, 2 * sequences), second);  // without having seen the first epoch
  EXPECT_NE(first, second);
  EXPECT_NE(samples(other, 0, sequences), first);
  for (std::vector<int64_t> epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    ASSERT_EQ(epoch.size(), 50u);
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(epoch[i], i);
  }
}

TEST_F(Samples, TheLastStepOfTheEpochsIsFilledWithPadding) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(50))}};
  config.batch = 4;
  config.micro_batch = 2;
  config.epochs = 2;
  SampleData data = open(config);
  const int64_t sequences = 2 * data.counts().sequences;
  EXPECT_EQ(data.steps(), (sequences + 3) / 4);
  int64_t trained = 0;
  for (int64_t step = 0; step < data.steps(); ++step) trained += data.batch(step).trained;
  EXPECT_EQ(trained, 2 * data.counts().trained);
}

TEST_F(Samples, WithoutPackingAMicroBatchEndsSoonAfterItsLastSample) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(40))}};
  config.data.packing = false;
  config.batch = 12;
  config.micro_batch = 4;
  TrainConfig longer = config;
  longer.seq_len = 4096;
  SampleData data = open(config), same = open(longer);
  for (int64_t step = 0; step < 3; ++step) {
    const Batch batch = data.batch(step), other = same.batch(step);
    for (int64_t m = 0; m < 3; ++m) {
      const MicroBatch& micro = batch.micro_batches[m];
      EXPECT_EQ(micro.tokens, other.micro_batches[m].tokens) << "seq_len changes nothing";
      EXPECT_EQ(micro.document_begin, other.micro_batches[m].document_begin);
      int64_t used = 0;
      for (int64_t i = 0; i < 4; ++i) {
        const SamplePiece piece = data.sequence(12 * step + 4 * m + i).at(0);
        const SamplePlace place = data.place(piece.sample);
        EXPECT_EQ(micro.document_begin[i], used) << "sample follows sample";
        for (const int64_t token : {used, used + piece.length - 1})
          EXPECT_EQ(data.place(step, m, token), fmt::format("{}:{}", place.file, place.line));
        used += piece.length;
      }
      EXPECT_EQ(data.place(step, m, used), "");
      EXPECT_LE(std::ssize(micro.tokens), std::max<int64_t>(used + 16, used * 9 / 8));
      EXPECT_LT(std::ssize(micro.tokens), 4 * config.seq_len);
    }
  }
  data.pad_sequences();
  EXPECT_EQ(data.batch(0).tokens, 12 * config.seq_len);
}

TEST_F(Samples, NoDocumentOfPaddingIsLongerThanASequence) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(300))}};
  config.data.packing = false;
  config.batch = config.micro_batch = 256;
  SampleData data = open(config);
  const MicroBatch micro = data.batch(0).micro_batches[0];
  EXPECT_LE(micro.longest, config.seq_len);
  EXPECT_LT(*std::max_element(micro.positions.begin(), micro.positions.end()), config.seq_len);
}

TEST_F(Samples, UnderTransformersConventionsAnEpochEndsWithAStepOfWhatIsLeft) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(21))}};
  config.data.packing = false;
  config.conventions = "transformers";
  config.batch = 8;
  config.micro_batch = 2;
  config.epochs = 1.5;
  SampleData data = open(config);
  EXPECT_EQ(data.steps(), 5);  // 1.5 * 3, rounded up
  for (const int64_t epoch : {0, 1}) {
    std::vector<int64_t> seen;
    const int64_t steps = epoch == 0 ? 3 : 2;
    for (int64_t step = 3 * epoch; step < 3 * epoch + steps; ++step) {
      const auto held = samples(data, 8 * step, 8 * (step + 1));
      EXPECT_EQ(held.size(), step == 2 ? 5u : 8u);
      EXPECT_GT(data.batch(step).trained, 0);
      seen.insert(seen.end(), held.begin(), held.end());
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  }
  // also for a run whose length is given in steps
  config.epochs = 0;
  config.steps = 100;
  SampleData endless = open(config);
  EXPECT_EQ(samples(endless, 8 * 5, 8 * 6).size(), 5u);
  config.conventions = "megatrain";
  EXPECT_NE(open(config).fingerprint(), endless.fingerprint());
}

TEST_F(Samples, ByTurnKeepsPartOfALongPromptAndTheAnswer) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("long.jsonl", conversation(std::string(500, 'q'), "answer"))}};
  config.data.shuffle = false;
  config.batch = config.micro_batch = 1;
  config.data.overlong = "truncate";
  EXPECT_NE(refusal(config), "accepted");  // nothing is trained in the first 128 tokens
  config.data.overlong = "by_turn";
  SampleData data = open(config);
  EXPECT_EQ(data.counts().truncated, 1);
  EXPECT_EQ(data.counts().dropped, 0);
  const Batch batch = data.batch(0);
  EXPECT_EQ(batch.trained, 6 + 1);  // including the end of the turn
  const MicroBatch& micro = batch.micro_batches.at(0);
  EXPECT_EQ(micro.tokens[0], kImStart);
  EXPECT_EQ(micro.labels[128 - 7 - 1], 'a');
}

TEST_F(Samples, AWeightSaysHowOftenAnEpochGoesThroughADataset) {
  TrainConfig config = chat_config();
  const std::string a = write("a.jsonl", conversations(20)), b = write("b.jsonl", conversations(40, 100));
  config.data.train = {{.path = a, .weight = 2}, {.path = b, .weight = 0.25}};
  SampleData data = open(config);
  std::map<int64_t, int64_t> seen;
  for (const int64_t sample : samples(data, 0, data.counts().sequences)) ++seen[sample];
  int64_t of_b = 0;
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(seen[i], 2);
  for (int64_t i = 20; i < 60; ++i) of_b += seen[i];
  EXPECT_EQ(of_b, 10);
}

TEST_F(Samples, AnOverlongConversationIsRefusedCutLeftOutOrTolerated) {
  TrainConfig config = chat_config();
  config.data.train = {
      {.path = write("long.jsonl", conversation("a", "b") + conversation("c", std::string(300, 'x')))}};
  const std::string said = refusal(config);
  EXPECT_NE(said.find("long.jsonl:2: this conversation has 322 tokens, more than seq_len, which is 128"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("data.overlong: truncate"), std::string::npos);
  config.data.overlong = "truncate";
  EXPECT_EQ(open(config).counts().truncated, 1);
  EXPECT_EQ(open(config).counts().dropped, 0);
  config.data.overlong = "drop";
  EXPECT_EQ(open(config).counts().dropped, 1);
  config.data.overlong = "error";
  config.data.skip_bad = 1;
  EXPECT_EQ(open(config).counts().overlong, 1);
}

TEST_F(Samples, WhereEverySampleIsTooLongTheRefusalSaysHowLongAndWhere) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("long.jsonl", conversation("a", std::string(300, 'x')) +
                                                        conversation("c", std::string(400, 'x')))}};
  config.data.overlong = "drop";
  const std::string said = refusal(config);
  for (const char* part : {"2 of 2 samples dropped", "long.jsonl:1 with 322 tokens", "seq_len is 128",
                           "the longest has 422 tokens", "data.overlong: truncate"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST_F(Samples, UnderAxolotlsConventionsTheSplitIsOfTheSamplesThatAreNotTooLong) {
  TrainConfig config = chat_config();
  std::string lines = conversations(10);
  for (int i = 0; i < 10; ++i) lines += conversation("c", std::string(300, 'x'));
  config.data.train = {{.path = write("mixed.jsonl", lines)}};
  config.data.overlong = "drop";
  config.data.eval_split = 0.5;
  config.conventions = "axolotl";
  const RunData data = open_data(config, model_source());
  EXPECT_EQ(data.eval_samples->counts().samples, 5);
  EXPECT_EQ(data.eval_samples->counts().dropped, 0);
  EXPECT_EQ(data.train_samples->counts().samples, 15);
  EXPECT_EQ(data.train_samples->counts().dropped, 10);
  config.conventions = "transformers";
  EXPECT_EQ(open_data(config, model_source()).eval_samples->counts().samples, 10);
}

TEST_F(Samples, ARunThatEndsBeforeItsEpochsAsAxolotlCountsIsWarnedOf) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("seven.jsonl", conversations(7))}};
  config.data.packing = false;
  config.conventions = "axolotl";
  const auto warned = [&] { return logged_by([&] { open_data(config, model_source()); }); };
  config.epochs = 2;  // 7 steps of 2, with 4 steps per epoch
  const std::string said = warned();
  EXPECT_NE(said.find("epochs is 2, which is 7 steps by Axolotl's count, but an epoch of this data has 4: the run ends "
                      "after 1.75 epochs; --epochs=null --steps=8"),
            std::string::npos)
      << said;
  config.epochs = 1;
  EXPECT_EQ(warned().find("by Axolotl's count"), std::string::npos);
}

TEST_F(Samples, AnswersThatTheTemplateWritesOtherwiseThanMeantAreWarnedOf) {
  TrainConfig config = chat_config();
  const auto sample = [](const nlohmann::json& answer) {
    return nlohmann::json{{"messages", {{{"role", "user"}, {"content", "q"}}, answer}}}.dump() + "\n";
  };
  config.data.train = {
      {.path = write("odd.jsonl", sample({{"role", "assistant"}, {"content", "a"}, {"thinking", "because"}}) +
                                      sample({{"role", "assistant"}, {"tool_calls", {"f"}}}))}};
  config.data.chat_template =
      write("odd.jinja",
            "{% for m in messages %}<|im_start|>{% if m.tool_calls %}call of {{ m.tool_calls[0] }}{% else %}{{ m.role "
            "}}\n{{ m.content }}{% endif %}<|im_end|>{% endfor %}");
  const std::string said = logged_by([&] { open_data(config, model_source()); });
  for (const char* part : {"1 of 2 samples the chat template leaves out the reasoning", "training begins is a guess"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST_F(Samples, AFileThatIsTrainedAndEvaluatedOnIsWarnedOfByName) {
  TrainConfig config = chat_config();
  const std::string a = write("a.jsonl", conversations(4)), b = write("b.jsonl", conversations(4, 9));
  std::filesystem::create_symlink(a, at("link.jsonl"));
  std::filesystem::create_hard_link(a, at("hard.jsonl"));
  config.data.train = {{.path = a}};
  const auto said_of = [&](const std::string& eval) {
    config.data.eval = {{.path = eval}};
    return logged_by([&] { open_data(config, model_source()); });
  };
  for (const std::string& same : {a, at("link.jsonl"), at("hard.jsonl"), folder_.string() + "/./a.jsonl"}) {
    const std::string said = said_of(same);
    EXPECT_NE(said.find("data.eval both read " + same), std::string::npos) << said;
  }
  EXPECT_EQ(said_of(b).find("both read"), std::string::npos);
  std::filesystem::copy_file(a, at("copy.jsonl"));
  const std::string said = said_of(at("copy.jsonl"));
  EXPECT_NE(said.find("data.eval both read " + at("copy.jsonl") + " (a copy of " + a), std::string::npos) << said;
  std::string other = conversations(4);
  other[other.find("question 0") + 9] = '7';
  EXPECT_EQ(said_of(write("other.jsonl", other)).find("both read"), std::string::npos) << "as long, and another text";
}

TEST_F(Samples, FilesOfADatasetThatHoldNoSampleAreWarnedOfByName) {
  TrainConfig config = chat_config();
  std::filesystem::create_directory(at("shards"));
  const auto shard = [&](int i, const std::string& text) {
    return write("shards/train-0000" + std::to_string(i) + "-of-00005.jsonl", text);
  };
  const std::vector<std::string> empty = {shard(0, ""), shard(2, "\n"), shard(4, "")};
  const std::vector<std::string> full = {shard(1, conversations(3)), shard(3, conversations(2, 9))};
  config.data.train = {{.path = at("shards")}};
  for (int round = 0; round < 2; ++round) {  // the second time from the cache
    const std::string said = logged_by([&] { open_data(config, model_source()); });
    EXPECT_NE(said.find(empty[0] + ", " + empty[1] + ", " + empty[2]), std::string::npos) << said;
    for (const std::string& file : full) EXPECT_EQ(said.find(file), std::string::npos) << said;
  }
}

TEST_F(Samples, KeysOfConversationsAreWarnedOfWhereAllIsText) {
  TrainConfig config = chat_config();
  config.data.train_on = "last";
  config.data.overlong = "drop";
  config.data.info = at("nowhere");
  const auto warned = [&] { return logged_by([&] { open_data(config, model_source()); }); };
  config.data.train = {{.path = write("book.txt", std::string(1000, 'a'))}};
  const std::string said = warned();
  for (const char* key : {"data.train_on", "data.overlong", "data.info"})
    EXPECT_NE(said.find(std::string(key) + " has no effect"), std::string::npos) << said;
  config.data.train = {{.path = write("chat.jsonl", conversations(5))}};
  config.data.info = "";
  EXPECT_EQ(warned().find("has no effect"), std::string::npos);
}

// The keys of `file`, a file of another trainer, applied to the data and model of `config`.
TrainConfig with_names(TrainConfig config, const std::string& file, const std::vector<std::string>& words = {}) {
  const TrainConfig theirs = parse_config(file, "theirs.yaml", words);
  config.names = theirs.names;
  config.stage = theirs.stage;
  config.conventions = theirs.conventions;
  config.data.overlong = theirs.data.overlong;
  config.data.info = theirs.data.info;
  return config;
}

constexpr const char* kAxolotl =
    "base_model: m\nlearning_rate: 1e-5\ndatasets: [{path: a.jsonl, type: chat_template}]\n";
constexpr const char* kFactory = "model_name_or_path: m\nfinetuning_type: full\ndataset: a\noutput_dir: o\n";

TEST_F(Samples, MessagesNameTheKeysThatTheUsersFileHas) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("long.jsonl", conversation("a", std::string(300, 'x')))}};
  const std::string axolotl = refusal(with_names(config, std::string(kAxolotl) + "sequence_len: 128\n"));
  EXPECT_NE(axolotl.find("sequence_len (seq_len) is 128; raise it (the longest has 322 tokens), or give "
                         "--data.overlong=truncate or by_turn"),
            std::string::npos)
      << axolotl;
  const std::string typed = refusal(with_names(config, kAxolotl, {"--seq_len=128", "--data.overlong=error"}));
  EXPECT_NE(typed.find("more than seq_len, which is 128; raise it, or give data.overlong: truncate"), std::string::npos)
      << typed;
  config.data.eval_split = 0.5;
  const std::string split = refusal(with_names(config, std::string(kFactory) + "val_size: 0.5\n"));
  EXPECT_NE(split.find("val_size (data.eval_split) 0.5 takes 1 of 1 samples"), std::string::npos) << split;
  config.data.train = {{.path = write("other.jsonl", "{\"turns\": []}\n"), .format = "messages"}};
  const std::string column = refusal(with_names(config, kAxolotl));
  EXPECT_NE(column.find("it has no \"messages\""), std::string::npos) << column;
  EXPECT_NE(column.find("field_messages and message_property_mappings, or field (columns)"), std::string::npos)
      << column;
  config.data.cache = write("file", "") + "/below";
  const std::string kept = [&] {
    try {
      open(with_names(config, std::string(kAxolotl) + "dataset_prepared_path: p\n"));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  }();
  EXPECT_NE(kept.find("set dataset_prepared_path (data.cache) to a writable directory"), std::string::npos) << kept;
}

TEST_F(Samples, OfAnotherTrainersFileAnIdleKeyIsWarnedOfUnlessItIsIdleThereToo) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("book.txt", std::string(1000, 'a'))}};
  const auto warned = [&](const std::string& file) {
    testing::internal::CaptureStderr();
    open_data(with_names(config, file), model_source());
    return testing::internal::GetCapturedStderr();
  };
  const std::string factory = std::string(kFactory) + "stage: pt\n";
  EXPECT_EQ(warned(factory).find("has no effect"), std::string::npos) << "their defaults ask for nothing";
  EXPECT_EQ(warned(kAxolotl).find("has no effect"), std::string::npos);
  EXPECT_EQ(warned(std::string(kAxolotl) + "excess_length_strategy: truncate\n").find("has no effect"),
            std::string::npos)
      << "Axolotl cuts text, too";
  const std::string said = warned(factory + "dataset_dir: " + at("nowhere") + "\n");
  EXPECT_NE(said.find("dataset_dir (data.info) has no effect: no dataset is named in its dataset_info.json"),
            std::string::npos)
      << said;
  const std::string ours = warned(std::string(kAxolotl) + "data: {overlong: truncate}\n");
  EXPECT_NE(ours.find("data.overlong has no effect"), std::string::npos) << ours;
}

TEST_F(Samples, TheStageOfALlamaFactoryFileHasToBeThatOfItsSamples) {
  const std::string text = write("book.jsonl", "{\"text\": \"once\"}\n"), pt = std::string(kFactory) + "stage: pt\n";
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("chat.jsonl", conversations(3))}};
  EXPECT_EQ(refusal(with_names(config, kFactory)), "accepted");
  const std::string said = refusal(with_names(config, pt));
  EXPECT_NE(said.find("chat.jsonl:1: this sample is a conversation, but stage: pt trains on text"), std::string::npos)
      << said;
  EXPECT_EQ(refusal(with_names(config, pt, {"--stage=sft"})), "accepted");
  config.data.eval = {{.path = text}};
  EXPECT_NE(refusal(with_names(config, kFactory)).find("book.jsonl:1: this sample is text, but stage: sft"),
            std::string::npos);
  config.data.train = {{.path = text}};
  EXPECT_EQ(refusal(with_names(config, pt)), "accepted");
  EXPECT_EQ(refusal(with_names(config, kAxolotl)), "accepted");
}

TEST_F(Samples, ALongTextIsCutIntoPiecesThatHoldAllOfIt) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("book.txt", std::string(1000, 'a'))}};
  SampleData data = open(config);
  EXPECT_EQ(data.counts().tokens, 1001);  // including the end of the document
  EXPECT_EQ(data.counts().epoch_tokens, 1001);
  EXPECT_EQ(data.counts().sequences, 8);
  EXPECT_EQ(data.counts().trained, 1001 - 8);
}

TEST_F(Samples, OfAFolderTheTrainSplitIsTrainedOnAndTheValidationSplitEvaluated) {
  std::filesystem::create_directory(at("set"));
  write("set/train.jsonl", conversations(20));
  write("set/validation.jsonl", conversations(5, 20));
  write("set/test.jsonl", conversations(3, 25));
  TrainConfig config = chat_config();
  config.data.train = config.data.eval = {{.path = at("set")}};
  const RunData data = open_data(config, model_source());
  EXPECT_EQ(data.train_samples->counts().samples, 20);
  EXPECT_EQ(data.eval_samples->counts().samples, 5);
}

TEST_F(Samples, AnEvaluationSplitTakesItsShareAndNothingTwice) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(50))}};
  config.data.eval_split = 0.2;
  RunData data = open_data(config, model_source());
  EXPECT_EQ(data.train_samples->counts().samples, 40);
  EXPECT_EQ(data.eval_samples->counts().samples, 10);
  auto all = samples(*data.train_samples, 0, data.train_samples->counts().sequences);
  const auto held = samples(*data.eval_samples, 0, data.eval_samples->counts().sequences);
  all.insert(all.end(), held.begin(), held.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.size(), 50u);
  config.data.eval_split = 7;
  EXPECT_EQ(open_data(config, model_source()).eval_samples->counts().samples, 7);
  config.data.eval_split = 50;
  EXPECT_NE(refusal(config).find("takes 50 of 50 samples"), std::string::npos);
}

TEST_F(Samples, EpochsDoneGrowWithStepsAndAreWholeWhereAnEpochEnds) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(50))}};
  config.batch = config.micro_batch = 1;
  SampleData data = open(config);
  const int64_t epoch = data.counts().sequences;
  double last = 0;
  for (int64_t step = 1; step <= 2 * epoch; ++step) {
    data.batch(step - 1);
    const double done = data.epochs_done(step);
    EXPECT_GT(done, last);
    if (step == 1) {
      EXPECT_NEAR(done, 1.0 / static_cast<double>(epoch), 1e-12);
    }
    if (step == epoch) {
      EXPECT_EQ(done, 1);
    }
    last = done;
  }
  EXPECT_NEAR(last, 2, 0.2);  // packed differently, an epoch may have one sequence more or less
  config.epochs = 1;
  config.batch = config.micro_batch = epoch + 3;  // the last step is filled up with padding
  SampleData whole = open(config);
  whole.batch(0);
  EXPECT_EQ(whole.epochs_done(1), 1);
}

TEST(TokenizeProgress, SaysSpeedAndTimeLeftOfWhatThisProcessDoes) {
  TokenizeProgress fresh("chat.jsonl");
  fresh.at(0, 0);
  EXPECT_EQ(fresh.line(2, 0.25, 3'000'000), "tokenising chat.jsonl: 25%, 3.00M tokens, 1.50M tokens/s, 6s left");
  TokenizeProgress resumed("chat.jsonl");
  resumed.at(0.5, 6'000'000);
  EXPECT_EQ(resumed.line(2, 0.75, 9'000'000), "tokenising chat.jsonl: 75%, 9.00M tokens, 1.50M tokens/s, 2s left");
  EXPECT_EQ(resumed.line(0, 0.5, 6'000'000), "tokenising chat.jsonl: 50%, 6.00M tokens");
}

TEST_F(Samples, AnIdThatTheModelLacksIsRefusedWithItsPlace) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("one.jsonl", conversation("hi", "yo"))}};
  ModelSource small = model_source();
  small.config.vocab = 200;
  try {
    open_data(config, small);
    FAIL() << "an id past the vocabulary was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("one.jsonl:1: has token id"), std::string::npos) << e.what();
  }
}

TEST_F(Samples, AnotherOrderPolicyOrSampleIsAnotherFingerprint) {
  TrainConfig config = chat_config();
  config.data.train = {{.path = write("many.jsonl", conversations(20))}};
  const std::string print = open(config).fingerprint();
  EXPECT_EQ(open(config).fingerprint(), print);
  TrainConfig unpacked = config, seeded = config, longer = config, fewer = config;
  unpacked.data.packing = false;
  seeded.seed = 9;
  longer.seq_len = 256;
  fewer.data.max_samples = 10;
  for (const TrainConfig& changed : {unpacked, seeded, longer, fewer}) EXPECT_NE(open(changed).fingerprint(), print);
}

}  // namespace
}  // namespace megatrain
