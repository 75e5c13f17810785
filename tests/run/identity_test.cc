// What a checkpoint records about its run: every field that affects a step, and whether a difference is refused or
// reported.
#include "megatrain/run/identity.h"

#include <functional>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/data/file_fingerprint.h"
#include "megatrain/data/token_data.h"
#include "megatrain/model/config_fields.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ModelConfig model() {
  ModelConfig c;
  c.architecture = "LlamaForCausalLM";
  c.vocab = 100;
  c.hidden = c.ff = 64;
  c.layers = 2;
  c.heads = c.kv_heads = 4;
  c.head_dim = 16;
  c.max_position = 128;
  c.window = {0, 0};
  c.dtype = DType::bf16;
  return c;
}

// A checkpoint's identity after writing and reading it.
json saved(const TrainConfig& config = {}, const ModelConfig& m = model()) {
  return json::parse(identity_json(config, m, {}, nullptr).dump());
}

// The log lines of a resume that is accepted.
std::string lines_of(const json& before, const ordered_json& now) {
  set_log_quiet(false);
  testing::internal::CaptureStderr();
  try {
    check_identity(before, now, "step-2");
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  return testing::internal::GetCapturedStderr();
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// One change for each field, in the order of model_fields().
std::vector<std::function<void(ModelConfig&)>> changes_of_each_field() {
  return {[](ModelConfig& c) { c.architecture = "MistralForCausalLM"; },
          [](ModelConfig& c) { ++c.vocab; },
          [](ModelConfig& c) { ++c.hidden; },
          [](ModelConfig& c) { ++c.ff; },
          [](ModelConfig& c) { ++c.layers; },
          [](ModelConfig& c) { ++c.heads; },
          [](ModelConfig& c) { --c.kv_heads; },
          [](ModelConfig& c) { c.head_dim += 2; },
          [](ModelConfig& c) { c.full_heads = HeadSizes{.kv_heads = 2, .head_dim = 32}; },
          [](ModelConfig& c) { ++c.max_position; },
          [](ModelConfig& c) { c.norm_eps *= 1 + 1e-15; },
          [](ModelConfig& c) { c.norm_offset = 1; },
          [](ModelConfig& c) { c.init_std = 0.5; },
          [](ModelConfig& c) { c.pad_id = 0; },
          [](ModelConfig& c) { c.tied = true; },
          [](ModelConfig& c) { c.qkv_bias = true; },
          [](ModelConfig& c) { c.o_bias = true; },
          [](ModelConfig& c) { c.mlp_bias = true; },
          [](ModelConfig& c) { c.qk_norm = true; },
          [](ModelConfig& c) { c.attention_gate = true; },
          [](ModelConfig& c) { c.v_norm = true; },
          [](ModelConfig& c) { c.kv_readers = 1; },
          [](ModelConfig& c) { c.wide_readers = true; },
          [](ModelConfig& c) { c.layer_input = 8; },
          [](ModelConfig& c) { c.activation = Activation::gelu_tanh; },
          [](ModelConfig& c) { c.embedding_scale = 2; },
          [](ModelConfig& c) { c.attention_scale = 0.5; },
          [](ModelConfig& c) { c.branch_scale = 0.5; },
          [](ModelConfig& c) { c.logits_scale = 0.5; },
          [](ModelConfig& c) { c.logits_cap = 30; },
          [](ModelConfig& c) { c.window[1] = 8; },
          [](ModelConfig& c) {
            c.no_rope = {false, true};
          },
          [](ModelConfig& c) { c.sinks = true; },
          [](ModelConfig& c) {
            c.delta_net.layers = {true, false};
          },
          [](ModelConfig& c) { c.experts.count = 4; },
          [](ModelConfig& c) { c.dtype = DType::f16; },
          [](ModelConfig& c) { c.rope.scaling = RopeScaling::linear; },
          [](ModelConfig& c) { c.rope.theta = 10000.000000000002; },
          [](ModelConfig& c) { c.rope.factor = 2; },
          [](ModelConfig& c) { c.rope.low_freq_factor = 2; },
          [](ModelConfig& c) { c.rope.high_freq_factor = 2; },
          [](ModelConfig& c) { c.rope.original_max_position = 64; },
          [](ModelConfig& c) { c.rope.beta_fast = 16; },
          [](ModelConfig& c) { c.rope.beta_slow = 2; },
          [](ModelConfig& c) { c.rope.attention_factor = 2; },
          [](ModelConfig& c) { c.rope.truncate = false; },
          [](ModelConfig& c) { c.rope.rotary_dim = 2; },
          [](ModelConfig& c) { c.rope.short_factor = {1.5}; },
          [](ModelConfig& c) { c.rope.long_factor = {2.5}; },
          [](ModelConfig& c) { c.rope.pairs = true; },
          [](ModelConfig& c) { c.rope.query_growth = 0.5; },
          [](ModelConfig& c) { c.rope.proportion = 0.5; },
          [](ModelConfig& c) { c.window_rope = RopeConfig{}; },
          [](ModelConfig& c) {
            c.mamba2.heads = 2;
            c.mamba2.layers = {true, false};
          },
          [](ModelConfig& c) { c.gated_conv.taps = 3; },
          [](ModelConfig& c) {
            c.no_mixer = {false, true};
          },
          [](ModelConfig& c) { c.attention_cap = 50; },
          [](ModelConfig& c) { c.scales.mlp_out = 0.5; },
          [](ModelConfig& c) { c.latent.kv_rank = 8; }};
}

class Identity : public testing::Test {
 protected:
  void TearDown() override { set_log_quiet(false); }
  TemporaryDirectory directory_;
};

}  // namespace

TEST_F(Identity, EveryFieldOfTheModelIsComparedAndThoseThatDecideStepsAreRefused) {
  const auto changes = changes_of_each_field();
  const std::vector<ModelField> before = model_fields(model());
  ASSERT_EQ(changes.size(), before.size());
  int64_t told = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelConfig other = model();
    changes[i](other);
    const std::vector<ModelField> after = model_fields(other);
    for (size_t j = 0; j < after.size(); ++j) EXPECT_EQ(after[j].value != before[j].value, i == j) << before[j].name;
    const ordered_json now = identity_json({}, other, {}, nullptr);
    const std::string &name = after[i].name, was = before[i].value.dump(), is = after[i].value.dump();
    if (after[i].decides_steps) {
      expect_error(ExitCode::bad_config, {"step-2", "the model's " + name, was, is, "config.json"},
                   [&] { check_identity(saved(), now, "step-2"); });
    } else {
      const std::string lines = lines_of(saved(), now);
      EXPECT_NE(lines.find(fmt::format("the model's {} was {} in the checkpoint's run, is {} now", name, was, is)),
                std::string::npos)
          << lines;
      ++told;
    }
  }
  EXPECT_EQ(told, 3);  // max_position_embeddings, initializer_range, torch_dtype
}

TEST_F(Identity, AMemberOfAGroupIsRefusedByItsName) {
  ModelConfig with = model();
  with.experts.count = 8;
  with.experts.chosen = 2;
  with.experts.ff = 32;
  with.experts.layers = {true, true};
  with.window_rope = RopeConfig{};
  const std::vector<std::tuple<std::string, std::string, std::string, std::function<void(ModelConfig&)>>> changes = {
      {"experts.num_experts", "8", "4", [](ModelConfig& c) { c.experts.count = 4; }},
      {"experts.num_experts_per_tok", "2", "3", [](ModelConfig& c) { c.experts.chosen = 3; }},
      {"experts.moe_intermediate_size", "32", "16", [](ModelConfig& c) { c.experts.ff = 16; }},
      {"experts.layers", "[true,true]", "[true,false]", [](ModelConfig& c) { c.experts.layers[1] = false; }},
      {"experts.score", "\"softmax_of_chosen\"", "\"sigmoid\"",
       [](ModelConfig& c) { c.experts.score = RouterScore::sigmoid; }},
      {"experts.router_bias", "false", "true", [](ModelConfig& c) { c.experts.router_bias = true; }},
      {"experts.bias", "false", "true", [](ModelConfig& c) { c.experts.bias = true; }},
      {"experts.hidden_act", "\"silu\"", "\"gelu_sigmoid\"",
       [](ModelConfig& c) { c.experts.gate.activation = Activation::gelu_sigmoid; }},
      {"experts.swiglu_limit", "0.0", "7.0", [](ModelConfig& c) { c.experts.gate.limit = 7; }},
      {"experts.up_offset", "0.0", "1.0", [](ModelConfig& c) { c.experts.gate.up_offset = 1; }},
      {"experts.router_aux_loss_coef", "0.0", "0.25", [](ModelConfig& c) { c.experts.aux_coef = 0.25; }},
      {"experts.output_router_logits", "false", "true", [](ModelConfig& c) { c.experts.aux_in_loss = true; }},
      {"rope_parameters.sliding_attention.rope_theta", "10000.0", "20000.0",
       [](ModelConfig& c) { c.window_rope->theta = 20000; }}};
  const json named = saved({}, with);
  EXPECT_EQ(changes.size() - 1, named.at("model").at("experts").size());
  // checkpoints from before the members had names store them as a list
  json listed = named;
  for (const ModelField& field : model_fields(with)) {
    if (!field.value.is_object()) continue;
    json list = json::array();
    for (const auto& [member, value] : field.value.items()) list.push_back(json(value));
    listed["model"][field.name] = list;
  }
  EXPECT_NE(listed, named);
  for (const json& before : {named, listed}) {
    EXPECT_EQ(lines_of(before, identity_json({}, with, {}, nullptr)), "");
    for (const auto& [name, was, is, change] : changes) {
      ModelConfig other = with;
      change(other);
      const std::string sentence = fmt::format("the model's {} = {}, this run has {}:", name, was, is);
      expect_error(ExitCode::bad_config, {"step-2", sentence, "config.json"},
                   [&] { check_identity(before, identity_json({}, other, {}, nullptr), "step-2"); });
    }
  }
  json lacks = named;
  lacks["model"]["experts"].erase("score");
  EXPECT_NE(lines_of(lacks, identity_json({}, with, {}, nullptr)).find("the model's experts.score is"),
            std::string::npos);
}

TEST_F(Identity, ACheckpointFromBeforeSumsHadANumberGetsALineWhereTheyChanged) {
  const auto line_of = [](int64_t seq_len, int64_t chunk) {
    TrainConfig config;
    config.seq_len = seq_len;
    config.micro_batch = 2;
    RunIdentity identity;
    identity.mlp_chunk = chunk;
    const ordered_json now = identity_json(config, model(), identity, nullptr);
    json before = json::parse(now.dump());
    before.erase("sums");
    return lines_of(before, now);
  };
  EXPECT_EQ(line_of(1024, 2048), "");
  for (const std::string& line : {line_of(1024, 512), line_of(32768, 65536)})
    EXPECT_NE(line.find("step-2 was written by an earlier version"), std::string::npos) << line;
  TrainConfig packed;
  packed.data.documents = "documents.bin";
  EXPECT_EQ(identity_json(packed, model(), {}, nullptr).at("sums"), 4) << "documents where they lie";
  TrainConfig longest;
  longest.seq_len = 131072;
  EXPECT_EQ(identity_json(longest, model(), {}, nullptr).at("sums"), 4) << "a forward over tiles";
  ModelConfig windowed = model();
  windowed.window.assign(static_cast<size_t>(windowed.layers), 128);
  TrainConfig longer;
  longer.seq_len = 32768;
  EXPECT_EQ(identity_json(longer, windowed, {}, nullptr).at("sums"), 3) << "a window in pieces";
  EXPECT_EQ(identity_json(longer, windowed, {.dtype = DType::f32}, nullptr).at("sums"), 2);
  ModelConfig mixture = model();
  mixture.experts.count = 4;
  EXPECT_EQ(identity_json({}, mixture, {}, nullptr).at("sums"), 5) << "a norm that sums experts by themselves";
  const ordered_json now = identity_json({}, model(), {}, nullptr);
  json other = json::parse(now.dump());
  other["sums"] = 3;
  expect_error(ExitCode::bad_config, {"step-2", "sums"}, [&] { check_identity(other, now, "step-2"); });
}

TEST_F(Identity, TheSameRunIsAcceptedWithoutALine) {
  EXPECT_EQ(lines_of(saved(), identity_json({}, model(), {}, nullptr)), "");
}

TEST_F(Identity, ACheckpointFromBeforeMultipliersHadNamesHadNone) {
  nlohmann::json before = saved();
  for (const char* field : {"branch_scale", "logits_scale"}) before.at("model").erase(field);
  EXPECT_EQ(lines_of(before, identity_json({}, model(), {}, nullptr)), "");
  ModelConfig scaled = model();
  scaled.branch_scale = 0.5;
  EXPECT_THROW(check_identity(before, identity_json({}, scaled, {}, nullptr), "step-2"), Error);
}

TEST_F(Identity, AChangedSettingOfTheOptimizerAndAnotherLengthGetALineEach) {
  const std::vector<std::pair<std::string, std::function<void(TrainConfig&)>>> changes = {
      {"steps", [](TrainConfig& c) { c.steps = 9; }},
      {"optim.lr", [](TrainConfig& c) { c.optim.lr = 2e-5; }},
      {"optim.beta1", [](TrainConfig& c) { c.optim.beta1 = 0.5; }},
      {"optim.beta2", [](TrainConfig& c) { c.optim.beta2 = 0.95; }},
      {"optim.eps", [](TrainConfig& c) { c.optim.eps = 1e-6; }},
      {"optim.weight_decay", [](TrainConfig& c) { c.optim.weight_decay = 0; }},
      {"optim.clip", [](TrainConfig& c) { c.optim.clip = 0; }},
      {"optim.schedule", [](TrainConfig& c) { c.optim.schedule = "cosine"; }},
      {"optim.warmup", [](TrainConfig& c) { c.optim.warmup = 3; }},
      {"optim.min_lr", [](TrainConfig& c) { c.optim.min_lr = 1e-6; }},
      {"optim.decay", [](TrainConfig& c) { c.optim.decay = 0.2; }},
      {"conventions", [](TrainConfig& c) { c.conventions = "transformers"; }},
  };
  EXPECT_EQ(changes.size() + 1, saved().at("settings").size());  // data.eval is not a value of the configuration
  TrainConfig all;
  for (const auto& [name, change] : changes) {
    TrainConfig one;
    change(one);
    change(all);
    const std::string lines = lines_of(saved(), identity_json(one, model(), {}, nullptr));
    EXPECT_NE(lines.find(name + " was "), std::string::npos) << lines;
    EXPECT_EQ(count(lines, "\n"), 1) << lines;
  }
  EXPECT_EQ(count(lines_of(saved(), identity_json(all, model(), {}, nullptr)), "\n"), std::ssize(changes));
  TrainConfig faster;
  faster.optim.lr = 2e-5;
  EXPECT_NE(lines_of(saved(), identity_json(faster, model(), {}, nullptr))
                .find("optim.lr was 1e-05 in the checkpoint's run, is 2e-05 now"),
            std::string::npos);
}

TEST_F(Identity, ACheckpointWithoutTheNewFieldsIsAcceptedWithOneLineThatSaysWhatWasNotCompared) {
  json earlier = saved();
  for (const char* group : {"model", "exported", "settings"}) earlier.erase(group);
  const std::string lines = lines_of(earlier, identity_json({}, model(), {}, nullptr));
  EXPECT_EQ(count(lines, "\n"), 1) << lines;
  for (const char* part : {"step-2", "the model's fields", "the optimizer's settings", "could not be compared"})
    EXPECT_NE(lines.find(part), std::string::npos) << lines;

  json lacks = saved(), has = saved();
  lacks["model"].erase("rope_theta");
  has["model"]["logit_scale"] = 2;
  EXPECT_NE(lines_of(lacks, identity_json({}, model(), {}, nullptr)).find("the model's rope_theta is"),
            std::string::npos);
  EXPECT_NE(lines_of(has, identity_json({}, model(), {}, nullptr)).find("the model's logit_scale is"),
            std::string::npos);
  earlier.erase("precision");
  expect_error(ExitCode::bad_config, {"precision = nothing"},
               [&] { check_identity(earlier, identity_json({}, model(), {}, nullptr), "step-2"); });
}

TEST_F(Identity, ADamagedGroupIsACorruptCheckpoint) {
  json damaged = saved();
  damaged["model"] = "LlamaForCausalLM";
  expect_error(ExitCode::corrupt_checkpoint, {"step-2", "model"},
               [&] { check_identity(damaged, identity_json({}, model(), {}, nullptr), "step-2"); });
}

TEST_F(Identity, AnotherByteOfAnyRawFileIsRefusedByItsKey) {
  TrainConfig config;
  config.seq_len = 2;
  config.batch = config.micro_batch = config.steps = 1;
  const std::vector<std::pair<std::string, std::string*>> files = {{"data.tokens", &config.data.tokens},
                                                                   {"data.documents", &config.data.documents},
                                                                   {"data.labels", &config.data.labels},
                                                                   {"data.order", &config.data.order}};
  for (const auto& [key, path] : files) *path = directory_ / key;
  write_bytes(config.data.tokens, std::string("\1\0\2\0\3\0\4\0", 8));
  write_bytes(config.data.documents, std::string("\1\0\0\0\0\0\0\0", 8));
  write_bytes(config.data.labels, std::string("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16));
  write_bytes(config.data.order, std::string(8, '\0'));
  const auto identity = [&](const TrainConfig& c) {
    const TokenData data(c, 100);
    return identity_json(c, model(), {}, &data);
  };
  const json before = json::parse(identity(config).dump());
  EXPECT_EQ(lines_of(before, identity(config)), "");
  for (const auto& [key, path] : files) {
    const std::string bytes = read_bytes(*path);
    std::string other = bytes;
    other[0] ^= 1;
    write_bytes(*path, other);
    expect_error(ExitCode::bad_config, {key + " = ", "give the file"},
                 [&] { check_identity(before, identity(config), "step-2"); });
    write_bytes(*path, bytes);
    if (key == "data.tokens") continue;
    TrainConfig without = config;
    (key == "data.documents" ? without.data.documents
     : key == "data.labels"  ? without.data.labels
                             : without.data.order)
        .clear();
    expect_error(ExitCode::bad_config, {key + " = "}, [&] { check_identity(before, identity(without), "step-2"); });
  }
  TrainConfig moved = config;
  moved.data.tokens = directory_ / "elsewhere";
  write_bytes(moved.data.tokens, read_bytes(config.data.tokens));
  EXPECT_EQ(lines_of(before, identity(moved)), "");  // only the content counts

  json earlier = before;
  earlier.erase("files");
  EXPECT_NE(lines_of(earlier, identity(config)).find("the files of data.tokens"), std::string::npos);
}

TEST_F(Identity, AnOrderMayGrowAtItsEndAndNowhereElse) {
  TrainConfig config;
  config.seq_len = 2;
  config.batch = config.micro_batch = config.steps = 1;
  config.data.tokens = directory_ / "tokens";
  config.data.order = directory_ / "order";
  write_bytes(config.data.tokens, std::string("\1\0\2\0\3\0\4\0", 8));
  const std::string zero(8, '\0'), one = std::string("\1") + std::string(7, '\0');
  const auto identity = [&](const std::string& order) {
    write_bytes(config.data.order, order);
    const TokenData data(config, 100);
    return identity_json(config, model(), {}, &data);
  };
  const json before = json::parse(identity(zero + one).dump());
  const auto resume = [&](const std::string& order) {
    check_identity(before, identity(order), "step-2", config.data.order);
  };
  testing::internal::CaptureStderr();
  resume(zero + one);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  resume(zero + one + zero);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(lines, "\n"), 1) << lines;
  EXPECT_NE(lines.find("data.order was"), std::string::npos) << lines;
  for (const std::string& order : {one + one, zero, zero + zero + one, one + one + zero})
    expect_error(ExitCode::bad_config, {"data.order", "step-2"}, [&] { resume(order); });
}

TEST_F(Identity, AFingerprintIsOfTheWholeContentAndNotOfThreads) {
  const std::string path = directory_ / "file";
  constexpr int64_t kMiB = 1 << 20;
  std::set<std::string> seen;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kMiB - 1, kMiB, kMiB + 1, 40 * kMiB + 3}) {
    std::string content(static_cast<size_t>(bytes), 'a');
    write_bytes(path, content);
    const std::string whole = file_fingerprint(path, 1);
    EXPECT_EQ(file_fingerprint(path, 3), whole);
    EXPECT_TRUE(seen.insert(whole).second) << bytes;
    for (const int64_t at : {int64_t{0}, bytes / 2, bytes - 1}) {
      if (bytes == 0) break;
      content[static_cast<size_t>(at)] = 'b';
      write_bytes(path, content);
      EXPECT_NE(file_fingerprint(path, 3), whole) << at << " of " << bytes;
      content[static_cast<size_t>(at)] = 'a';
    }
  }
}

TEST_F(Identity, OfAFileWithTooManyBlocksTheSizeTheFirstTheLastAndSomeBetweenCount) {
  const std::string path = directory_ / "large";
  constexpr int64_t kMost = 4, kBlocks = 10, kBlock = 1 << 20;
  std::string content(kBlocks * kBlock, 'a');
  const auto fingerprint = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return file_fingerprint(path, 2, {.most = kMost});
  };
  const std::string whole = fingerprint(content);
  EXPECT_NE(fingerprint(content + "a"), whole);
  std::vector<int64_t> seen;
  for (int64_t block = 0; block < kBlocks; ++block) {
    std::string other = content;
    other[block * kBlock + 5] = 'b';
    if (fingerprint(other) != whole) seen.push_back(block);
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 3, 6, 9}));
}

TEST_F(Identity, OtherEvaluationDataGetALine) {
  struct Source : BatchSource {
    void load(int64_t, Batch&) override {}
    int64_t steps() const override { return 0; }
    std::string fingerprint() const override { return "abc"; }
  } eval;
  EXPECT_NE(lines_of(saved(), identity_json({}, model(), {}, nullptr, &eval))
                .find("data.eval was \"\" in the checkpoint's run, is \"abc\" now"),
            std::string::npos);
}

}  // namespace megatrain
