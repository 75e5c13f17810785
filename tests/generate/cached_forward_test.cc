// Logits computed through the cache: equal to transformers' and, bit for bit, to those of a training step's forward. No
// token is computed twice.
#include "megatrain/generate/cached_forward.h"

#include <cmath>

#include "megatrain/model/model.h"
#include "megatrain/ops/op_notes.h"
#include "tests/generate/tiny_models.h"
#include "tests/support/table_layer.h"

namespace megatrain::generation {
namespace {

using Feed = CachedForward::Feed;

const GeneratorOptions kRoomyCache{.max_context = 100, .max_batch = 2, .memory_bytes = kPlenty};

std::vector<float> last_row(std::span<const float> logits, int64_t vocab) {
  return {logits.end() - vocab, logits.end()};
}

TEST(CachedForward, LogitsAreThoseOfTransformersAtTheFirstAndTheLastToken) {
  for (const std::string& name : model_names()) {
    TinyModel model(name);
    CachedForward forward(*model.device, *model.ops, model.config, model.records, kRoomyCache);
    for (const nlohmann::json& answer : goldens().at(name)) {
      const std::vector<int32_t> prompt = answer.at("prompt"), ids = answer.at("ids");
      const auto near = [&](std::span<const float> got, const char* key) {
        const std::vector<float> wanted = answer.at(key);
        ASSERT_EQ(got.size(), wanted.size());
        float scale = 0;
        for (const float x : wanted) scale = std::max(scale, std::abs(x));
        for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-5f * scale) << name << " " << key;
      };
      int64_t position = static_cast<int64_t>(prompt.size());
      near(forward.run({{.sequence = 1, .position = 0, .ids = prompt, .logits = true}}), "first_logits");
      // Starts over: a model may use other RoPE angles for the whole text than for the prompt.
      const int64_t length = std::ssize(prompt) + std::ssize(ids) - 1;
      const auto feed = [&](int64_t at, std::span<const int32_t> some, bool logits) {
        return forward.run({{.sequence = 1, .position = at, .ids = some, .logits = logits, .length = length}});
      };
      feed(0, prompt, false);
      for (size_t i = 0; i + 2 < ids.size(); ++i, ++position) feed(position, std::span(ids).subspan(i, 1), false);
      near(feed(position, std::span(ids).last(2).first(1), true), "last_logits");
    }
  }
}

ModelShape one_document(const std::vector<int32_t>& ids, DType dtype) {
  return {.dtype = dtype, .tokens = std::ssize(ids), .positions = std::ssize(ids)};
}

// Logits of every token of one document, computed by the phases of a training step; `built` is for one_document().
std::vector<float> training_logits(TinyModel& model, const Model& built, const std::vector<int32_t>& ids) {
  const ModelConfig& c = model.config;
  const DType dtype = built.shape.dtype;
  const int64_t tokens = static_cast<int64_t>(ids.size()), row = c.hidden * dtype_bytes(dtype);
  const std::vector<float> tables = built.make_tables();
  std::vector<std::byte> x(static_cast<size_t>(tokens * row)), y(x),
      workspace(static_cast<size_t>(built.workspace_bytes()));
  std::vector<int32_t> positions, begin = {0, static_cast<int32_t>(tokens)};
  for (int64_t t = 0; t < tokens; ++t) {
    positions.push_back(static_cast<int32_t>(t));
    std::memcpy(x.data() + t * row, model.records[0].weights() + ids[static_cast<size_t>(t)] * row,
                static_cast<size_t>(row));
  }
  MicroBatchView micro;
  micro.tokens = tokens;
  micro.positions = positions.data();
  micro.row = ids.data();
  micro.documents = {.begin = begin.data(), .host_begin = begin.data(), .count = 1, .longest = tokens, .uniform = true};
  const auto stream = model.device->make_stream("compute");
  const View embedded = matrix(x.data(), dtype, tokens, c.hidden);
  built.embedding.look_up(*model.ops, *stream, {.table = embedded, .index = positions.data(), .out = embedded});
  for (const Model::NumberedPhase& p : built.phases()) {
    if (!p.phase->decodes()) continue;  // the embedding and the head
    std::vector<std::byte*> weights;
    for (const int64_t record : p.whole) weights.push_back(model.records[static_cast<size_t>(record)].weights());
    View rows;
    if (p.looks_up >= 0) {
      const LayerRecord& table = model.records[static_cast<size_t>(p.looks_up)];
      rows = matrix(table.weights(), dtype, c.vocab, table.layout().tensors.front().cols);
    }
    p.phase->forward(*model.ops, *stream,
                     {.weights = weights,
                      .x = matrix(x.data(), dtype, tokens, c.hidden),
                      .y = matrix(y.data(), dtype, tokens, c.hidden),
                      .micro_batch = micro,
                      .tables = tables.data(),
                      .workspace = workspace.data(),
                      .rows = rows});
    stream->synchronize();
    std::swap(x, y);
  }
  std::vector<float> inv_rms(static_cast<size_t>(tokens)), logits(static_cast<size_t>(tokens * c.vocab));
  model.ops->rmsnorm_forward(*stream, {.x = matrix(x.data(), dtype, tokens, c.hidden),
                                       .weight = built.head.norm().weight(model.records.back().weights()),
                                       .weight_offset = static_cast<float>(c.norm_offset),
                                       .eps = static_cast<float>(c.norm_eps),
                                       .centred = c.norm_centred,
                                       .out = matrix(y.data(), dtype, tokens, c.hidden),
                                       .inv_rms = inv_rms.data()});
  const View table = built.head.table().weight(c.tied ? model.records[0].weights() : model.records.back().weights());
  model.ops->linear_forward(*stream, {.x = matrix(y.data(), dtype, tokens, c.hidden),
                                      .weight = table,
                                      .bias = {},
                                      .residual = {},
                                      .out = matrix(logits.data(), DType::f32, tokens, c.vocab),
                                      .scale = static_cast<float>(c.logits_scale)});
  if (c.logits_cap > 0)
    model.ops->cap_logits(*stream, {.logits = matrix(logits.data(), DType::f32, tokens, c.vocab),
                                    .cap = static_cast<float>(c.logits_cap)});
  stream->synchronize();
  return logits;
}

// Fed token by token, `forward` has these logits, (T, V), of a document.
void expect_logits(CachedForward& forward, const std::vector<int32_t>& ids, const std::vector<float>& wanted,
                   const std::string& name) {
  const size_t vocab = static_cast<size_t>(forward.model().vocab);
  for (size_t t = 0; t < ids.size(); ++t) {
    const std::span<const float> got = forward.run({{.sequence = 0,
                                                     .position = static_cast<int64_t>(t),
                                                     .ids = std::span(ids).subspan(t, 1),
                                                     .logits = true,
                                                     .length = std::ssize(ids)}});
    const std::span<const float> exact = std::span(wanted).subspan(t * vocab, vocab);
    // Training computes a recurrence's chunks of tokens by matmuls, generation token by token.
    const ModelConfig& model = forward.model();
    const float within = model.delta_net.layers.empty() && model.mamba2.layers.empty() ? 0.0f : 1e-5f;
    for (size_t i = 0; i < vocab; ++i)
      ASSERT_NEAR(got[i], exact[i], within * (1 + std::abs(exact[i]))) << name << " token " << t << " logit " << i;
  }
}

TEST(CachedForward, TokenByTokenGivesTheBitsOfTheTrainingStepsForward) {
  for (const std::string& name : model_names()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyModel model(name, dtype);
      CachedForward forward(*model.device, *model.ops, model.config, model.records, kRoomyCache);
      const std::vector<int32_t> ids = goldens().at(name)[3].at("prompt");
      const Model built = make_model(model.config, one_document(ids, dtype));
      expect_logits(forward, ids, training_logits(model, built, ids), name);
    }
  }
}

TEST(CachedForward, LooksUpTablesOfLayersWhereverTheyAre) {
  const std::string name = model_names().front();
  TinyModel model(name);
  const auto with_tables = [&](const ModelShape& shape) {
    Model built = make_model(model.config, shape);
    built.layers.push_back(toy::table_layer("first", model.config, shape, 8));
    built.layers.push_back(toy::table_layer("second", model.config, shape, 24));
    return built;
  };
  const std::vector<int32_t> ids = goldens().at(name)[3].at("prompt");
  const Model built = with_tables(one_document(ids, DType::f32));
  std::vector<float> wanted;
  for (const Tier tier : {Tier::host, Tier::hbm}) {
    std::vector<Tier> tiers(built.layouts().size(), Tier::host);
    tiers[tiers.size() - 2] = tier;  // the second table
    model.records = make_records(*model.device, weights_only(built.layouts()), tiers);
    model.randomize();
    if (wanted.empty()) wanted = training_logits(model, built, ids);
    for (const bool in_place : {true, false}) {
      GeneratorOptions options = kRoomyCache;
      options.in_place = in_place;
      CachedForward forward(*model.device, *model.ops,
                            with_tables({.dtype = DType::f32, .tokens = 16, .positions = options.max_context}),
                            model.records, options);
      expect_logits(forward, ids, wanted, in_place ? "in place" : "through slots");
    }
  }
}

TEST(CachedForward, RaggedFeedsOfOnePassGiveTheBitsOfEachAlone) {
  for (const char* name : {"qwen2_yarn", "mistral_packed"}) {
    TinyModel model(name, DType::bf16);
    CachedForward forward(*model.device, *model.ops, model.config, model.records, kRoomyCache);
    const int64_t vocab = model.config.vocab;
    const std::vector<int32_t> a = goldens().at(name)[3].at("prompt"), b = goldens().at(name)[2].at("prompt");
    const std::vector<float> alone_a = last_row(forward.run({{0, 0, a, true}}), vocab),
                             alone_b = last_row(forward.run({{0, 0, b, true}}), vocab);
    forward.run({{1, 0, std::span(a).first(30), false}, {0, 0, std::span(b).first(1), false}});
    const std::span<const float> both =
        forward.run({{0, 1, std::span(b).subspan(1), true}, {1, 30, std::span(a).subspan(30), true}});
    ASSERT_EQ(both.size(), static_cast<size_t>(2 * vocab));
    EXPECT_EQ(std::vector<float>(both.begin(), both.begin() + vocab), alone_b);
    EXPECT_EQ(last_row(both, vocab), alone_a);
  }
}

// Rows of every matmul and of attention, in the calls since the last query.
int64_t rows_computed(OpNotes& notes) {
  int64_t rows = 0;
  for (const OpNote& note : notes.take()) {
    if (const auto* linear = std::get_if<LinearForward>(&note)) rows += linear->x.rows;
  }
  return rows;
}

TEST(CachedForward, EveryTokenIsComputedOnceAndLogitsAreMadeForTheLastAlone) {
  TinyModel model("llama_packed");
  OpNotes notes;
  CachedForward forward(*model.device, notes, model.config, model.records, kRoomyCache);
  const int64_t matmuls = 4 * model.config.layers;  // qkv, o, gate and up, down
  const int64_t pieces = [&] {                      // the head's matmuls, of one row each
    forward.run({{0, 0, std::vector<int32_t>{1}, true}});
    return rows_computed(notes) - matmuls;
  }();
  EXPECT_GE(pieces, 1);
  const std::vector<int32_t> ids(60, 7);
  forward.run({{0, 0, std::span(ids).first(40), true}, {1, 0, std::span(ids).first(9), false}});
  EXPECT_EQ(rows_computed(notes), 49 * matmuls + pieces);
  for (int64_t position = 40; position < 60; ++position) {
    forward.run({{0, position, std::span(ids).first(1), true}});
    EXPECT_EQ(rows_computed(notes), matmuls + pieces) << "at position " << position;
  }
  forward.run({{1, 9, std::span(ids).first(5), false}});
  EXPECT_EQ(rows_computed(notes), 5 * matmuls);
}

}  // namespace
}  // namespace megatrain::generation
