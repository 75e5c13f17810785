// Generated text equals transformers', and does not depend on how it is computed.
#include "megatrain/generate/generator.h"

#include "tests/generate/tiny_models.h"
#include "tests/support/fixtures.h"

namespace megatrain::generation {
namespace {

// Fewer sizes under a sanitizer: sizes change the bytes that a pass moves, not its threads.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kChunkTokens[] = {7};
constexpr int64_t kExpertsOfARecord[] = {0, 3};
#else
constexpr int64_t kChunkTokens[] = {1, 7};
constexpr int64_t kExpertsOfARecord[] = {0, 1, 3, 8};
#endif

const GeneratorOptions kRoomy{.max_context = 100, .max_batch = 4, .memory_bytes = kPlenty};

std::vector<std::vector<int32_t>> answers(const std::string& name, const GeneratorOptions& options,
                                          DType dtype = DType::f32, Tier tier = Tier::host) {
  TinyModel model(name, dtype, tier);
  return ids_of(model.generator(options).generate(golden_requests(name), {}));
}

TEST(Generator, GreedyIdsAreThoseOfTransformersForEveryFamily) {
  EXPECT_GE(goldens().size(), 15u);
  for (const std::string& name : model_names()) EXPECT_EQ(answers(name, kRoomy), golden_ids(name)) << name;
}

TEST(Generator, APromptAloneIsAnsweredAsAmongOthers) {
  for (const char* name : {"qwen3_window", "llama_llama3", "mistral_window"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      TinyModel model(name, dtype);
      Generator many =
                    model.generator({.max_context = 100, .max_batch = 3, .chunk_tokens = 24, .memory_bytes = kPlenty}),
                one = model.generator({.max_context = 100, .max_batch = 1, .memory_bytes = kPlenty});
      std::vector<GenerationRequest> requests = golden_requests(name);
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].sampling = {.temperature = 1.3, .top_p = 0.95, .seed = 11};
        requests[i].sequence = i;
        requests[i].max_tokens = 12 + static_cast<int64_t>(7 * i);
      }
      const std::vector<std::vector<int32_t>> together = ids_of(many.generate(requests, {}));
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(together[i].size(), static_cast<size_t>(requests[i].max_tokens));
        EXPECT_EQ(ids_of(one.generate({requests[i]}, {}))[0], together[i]) << name << " " << i;
      }
    }
  }
}

TEST(Generator, PromptsFedInPiecesAreAnsweredAsPromptsFedWhole) {
  for (const std::string& name : model_names()) {
    for (const int64_t chunk : kChunkTokens) {
      const GeneratorOptions options{
          .max_context = 100, .max_batch = 1, .chunk_tokens = chunk, .memory_bytes = kPlenty};
      EXPECT_EQ(answers(name, options), golden_ids(name)) << name << " in pieces of " << chunk;
    }
  }
}

TEST(Generator, LayersThatStreamThroughTwoSlotsGiveTheSameIdsAsResidentOnes) {
  for (const std::string& name : model_names()) {
    GeneratorOptions options = kRoomy;
    options.in_place = false;
    TinyModel model(name, DType::bf16);
    if (!model.streams()) continue;
    options.memory_bytes = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
    Generator streaming = model.generator(options);
    EXPECT_LE(model.device->ledger().bytes(), options.memory_bytes) << name;
    EXPECT_EQ(streaming.forward().weights().resident_ranges(), 0) << name;
    const auto ids = ids_of(streaming.generate(golden_requests(name), {}));
    options.memory_bytes = kPlenty;
    Generator resident = model.generator(options);
    EXPECT_EQ(ids_of(resident.generate(golden_requests(name), {})), ids) << name;
    EXPECT_GT(streaming.forward().weights().copied_bytes(), 0) << name;
    EXPECT_EQ(resident.forward().weights().copied_bytes(), 0) << name;
    EXPECT_EQ(answers(name, kRoomy, DType::bf16), ids) << name << " in place";
  }
}

TEST(Generator, LayersOfExpertsThatStreamGiveTheSameIdsAsResidentOnes) {
  for (const char* name : {"qwen3_moe", "mixtral"}) {
    TinyModel model(name, {{"num_hidden_layers", 6}});
    GeneratorOptions options = kRoomy;
    options.in_place = false;
    options.memory_bytes = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
    Generator streaming = model.generator(options);
    EXPECT_LE(model.device->ledger().bytes(), options.memory_bytes) << name;
    EXPECT_EQ(streaming.forward().weights().resident_ranges(), 0) << name;
    const auto ids = ids_of(streaming.generate(golden_requests(name), {}));
    EXPECT_GT(streaming.forward().weights().copied_bytes(), 0) << name;
    options.memory_bytes = kPlenty;
    EXPECT_EQ(ids_of(model.generator(options).generate(golden_requests(name), {})), ids) << name;
    EXPECT_EQ(ids_of(model.generator(kRoomy).generate(golden_requests(name), {})), ids) << name << " in place";
  }
}

TEST(Generator, ATokenBringsTheExpertsItChoosesAlone) {
  for (const char* name : {"qwen3_moe", "gpt_oss"}) {
    for (const int64_t each : kExpertsOfARecord) {
      nlohmann::json changes = {{"num_hidden_layers", 6}};
      if (name == std::string_view("qwen3_moe")) {
        changes["num_experts"] = 16;
      } else {
        changes["num_local_experts"] = 16;
        for (int layer = 0; layer < 6; ++layer)
          changes["layer_types"].push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
      }
      TinyModel model(name, changes, Tier::host, make_cpu_device(), each);
      GeneratorOptions options = kRoomy;
      options.in_place = false;
      options.memory_bytes =
          CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
      Generator generator = model.generator(options);
      CachedForward& forward = generator.forward();
      ASSERT_EQ(forward.weights().resident_ranges(), 0);

      // what every token reads: attention records, the table, and in every layer the experts it chose
      int64_t wanted = model.config.vocab * model.config.hidden * 4, experts = 0;
      for (size_t r = 1; r + 1 < model.records.size(); ++r) {
        const LayerRecord& record = model.records[r];
        const bool of_experts = record.layout().tensors.front().name.find("expert") != std::string::npos;
        (of_experts ? experts : wanted) += record.weight_bytes();
      }
      wanted += experts / model.config.experts.count * model.config.experts.chosen;
      for (int64_t position = 0; position < 6; ++position) {
        const int64_t before = forward.weights().copied_bytes();
        const int32_t id = static_cast<int32_t>(3 + 5 * position);
        forward.run({{.sequence = 0, .position = position, .ids = std::span(&id, 1), .logits = true}});
        if (position > 0) {  // the first token has nothing that was prefetched
          EXPECT_EQ(forward.weights().copied_bytes() - before, wanted) << name << ", " << each << " in a record";
        }
      }

      const auto ids = ids_of(generator.generate(golden_requests(name), {}));
      EXPECT_EQ(ids_of(model.generator(kRoomy).generate(golden_requests(name), {})), ids) << name << ", " << each;
    }
  }
}

TEST(Generator, ExpertsOfALayerInSeveralRecordsGiveTheSameIds) {
  for (const char* name : {"qwen3_moe", "qwen3_moe_dense", "gpt_oss"}) {
    std::vector<std::vector<int32_t>> wanted;
    for (const int64_t each : {0, 1, 3}) {
      TinyModel model(name, nlohmann::json::object(), Tier::host, make_cpu_device(), each);
      const auto ids = ids_of(model.generator(kRoomy).generate(golden_requests(name), {}));
      if (wanted.empty()) wanted = ids;
      EXPECT_EQ(ids, wanted) << name << ", " << each << " in a record";
    }
  }
}

TEST(Generator, AsManyLayersStayAsTheMemoryHoldsAndTheIdsAreTheSame) {
  TinyModel model("llama_packed", {{"num_hidden_layers", 7}, {"vocab_size", 1000}});
  GeneratorOptions options = kRoomy;
  options.in_place = false;
  options.chunk_tokens = 8;
  const int64_t least = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
  const int64_t block = model.records[1].weight_bytes();
  std::vector<GenerationRequest> requests = golden_requests("llama_packed");
  for (GenerationRequest& request : requests) request.sampling = {.temperature = 1, .seed = 3};
  std::vector<std::vector<int32_t>> wanted;
  int64_t copied = 0;
  for (int64_t staying = 0; staying < 9; ++staying) {
    options.memory_bytes = least + staying * block;
    Generator generator = model.generator(options);
    const DeviceWeights& weights = generator.forward().weights();
    ASSERT_GT(weights.ranges(), 9);  // the table is cut into pieces
    EXPECT_EQ(weights.resident_ranges(), staying);
    EXPECT_LE(model.device->ledger().bytes(), options.memory_bytes);
    const auto ids = ids_of(generator.generate(requests, {}));
    if (staying == 0) wanted = ids;
    EXPECT_EQ(ids, wanted) << staying << " stay";
    if (staying > 0) {
      EXPECT_LT(weights.copied_bytes(), copied) << staying << " stay";
    }
    copied = weights.copied_bytes();
  }
  EXPECT_EQ(ids_of(model.generator(kRoomy).generate(requests, {})), wanted) << "in place, prompts whole";
}

void expect_no_second_copy(const Device& device) {
  for (const char* tag : {"resident weights", "weight slots"})
    EXPECT_EQ(device.ledger().table().find(tag), std::string::npos) << device.ledger().table();
}

TEST(Generator, WeightsThatLieOnTheDeviceAreUsedWhereTheyLie) {
  for (const char* name : {"qwen2_tied", "llama_bias"}) {
    TinyModel model(name, DType::f32, Tier::hbm);
    GeneratorOptions options = kRoomy;
    options.in_place = false;
    options.memory_bytes = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
    Generator generator = model.generator(options);
    EXPECT_EQ(ids_of(generator.generate(golden_requests(name), {})), golden_ids(name)) << name;
    EXPECT_EQ(generator.forward().weights().copied_bytes(), 0);
    expect_no_second_copy(*model.device);
  }
}

TEST(Generator, OnTheCpuNoWeightIsHeldTwice) {
  TinyModel model("qwen3_norm");
  Generator generator = model.generator(kRoomy);
  expect_no_second_copy(*model.device);
}

TEST(Generator, EndsAtAnEndTokenWhichIsTheLastId) {
  TinyModel model("llama_mha");
  const std::vector<int32_t> all = golden_ids("llama_mha")[2];
  const int32_t end = all[all.size() / 2];
  const size_t first = static_cast<size_t>(std::find(all.begin(), all.end(), end) - all.begin());
  const GenerationRequest request = golden_requests("llama_mha")[2];
  std::vector<int32_t> seen;
  const Generation got = model.generator(kRoomy).generate({request}, {end}, [&](size_t, int32_t id) {
    seen.push_back(id);
    return true;
  })[0];
  EXPECT_EQ(got.finish, Finish::stop);
  EXPECT_EQ(got.ids, std::vector<int32_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  EXPECT_EQ(seen, std::vector<int32_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first)));
}

TEST(Generator, EndsWhereTheCallerSaysAndWhereTheContextEnds) {
  TinyModel model("llama_mha");
  GenerationRequest request = golden_requests("llama_mha")[1];
  const std::vector<int32_t> all = golden_ids("llama_mha")[1];
  int64_t tokens = 0;
  const Generation stopped =
      model.generator(kRoomy).generate({request}, {}, [&](size_t, int32_t) { return ++tokens < 5; })[0];
  EXPECT_EQ(stopped.finish, Finish::stop);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(all.begin(), all.begin() + 5));

  request.max_tokens = 1000;
  const Generation full = model.generator({.max_context = 20, .memory_bytes = kPlenty}).generate({request}, {})[0];
  EXPECT_EQ(full.finish, Finish::length);
  EXPECT_EQ(full.ids.size() + request.prompt.size(), 20u);
}

TEST(Generator, WhatThePlaceStillHoldsOfAPromptIsNotFedAgainAndTheIdsAreTheSame) {
  for (const std::string& name : model_names()) {
    TinyModel model(name);
    const GeneratorOptions options{.max_context = 100, .max_batch = 2, .memory_bytes = kPlenty};
    Generator keeping = model.generator(options), fresh = model.generator(options);
    std::vector<int32_t> conversation = golden_requests(name)[1].prompt;
    int64_t expected = 0;
    for (int turn = 0; turn < 3; ++turn) {
      const GenerationRequest request{.prompt = conversation, .max_tokens = 9};
      GenerationRequest reusing = request;
      reusing.reuse = true;
      const std::vector<int32_t> ids = keeping.generate({reusing}, {})[0].ids;
      EXPECT_EQ(ids, fresh.generate({request}, {})[0].ids) << name << " turn " << turn;
      EXPECT_EQ(keeping.batch().reused_tokens(), expected) << name << " turn " << turn;
      conversation.insert(conversation.end(), ids.begin(), ids.end());
      expected += std::ssize(conversation) - 1;  // the last id was sampled but not fed
      conversation.insert(conversation.end(), {5, 6, static_cast<int32_t>(7 + turn)});
    }
    EXPECT_EQ(fresh.batch().reused_tokens(), 0);
    conversation[2] = conversation[2] == 9 ? 10 : 9;  // a different conversation from the third token on
    const GenerationRequest other{.prompt = conversation, .max_tokens = 9};
    GenerationRequest reusing = other;
    reusing.reuse = true;
    EXPECT_EQ(keeping.generate({reusing}, {})[0].ids, fresh.generate({other}, {})[0].ids) << name;
  }
}

TEST(Generator, KeysWithTheAnglesOfAnotherLengthAreMadeAgain) {
  TinyModel model("phi3_long");
  const int64_t above = model.config.rope.long_above();
  ASSERT_GT(above, 4);
  ASSERT_LT(above, 90);
  const GeneratorOptions options{.max_context = 100, .memory_bytes = kPlenty};
  Generator keeping = model.generator(options), fresh = model.generator(options);
  std::vector<int32_t> longer;
  for (int64_t i = 0; i < above + 5; ++i) longer.push_back(static_cast<int32_t>(3 + i * 7 % 50));
  const std::vector<int32_t> shorter(longer.begin(), longer.begin() + above - 3);
  for (const auto& prompt : {longer, shorter, longer, shorter}) {
    const GenerationRequest request{.prompt = prompt, .max_tokens = 2};
    GenerationRequest reusing = request;
    reusing.reuse = true;
    EXPECT_EQ(keeping.generate({reusing}, {})[0].ids, fresh.generate({request}, {})[0].ids) << prompt.size();
    EXPECT_EQ(keeping.batch().reused_tokens(), 0);
  }
}

TEST(Generator, AStopEndsEverySequenceBeforeItsFirstTokenToo) {
  TinyModel model("llama_mha");
  Generator generator = model.generator(kRoomy);
  volatile std::sig_atomic_t stop = 1;
  EXPECT_EQ(generator.generate(golden_requests("llama_mha"), {}, {}, &stop)[0].ids.size(), 0u);
  stop = 0;
  const auto all = generator.generate(
      golden_requests("llama_mha"), {},
      [&](size_t, int32_t) {
        stop = 1;
        return true;
      },
      &stop);
  EXPECT_EQ(all[0].ids.size(), 1u);
  EXPECT_TRUE(generator.batch().idle());
}

TEST(Generator, RefusesPromptsThatCannotBe) {
  TinyModel model("llama_mha");
  Generator generator = model.generator({.max_context = 4, .memory_bytes = kPlenty});
  expect_error(ExitCode::bad_input, {"no tokens"}, [&] { generator.generate({{.prompt = {}, .max_tokens = 1}}, {}); });
  expect_error(ExitCode::bad_input, {"5 tokens", "4 fit"}, [&] {
    generator.generate({{.prompt = {1, 2, 3, 4, 5}, .max_tokens = 1}}, {});
  });
  expect_error(ExitCode::bad_input, {"token 64", "0 to 63", "tokenizer.json"},
               [&] { generator.generate({{.prompt = {64}, .max_tokens = 1}}, {}); });
}

TEST(Generator, SaysWhatDoesNotFit) {
  TinyModel model("llama_mha");
  GeneratorOptions options = kRoomy;
  options.in_place = false;
  const int64_t least = CachedForward::least_bytes(*model.device, *model.ops, model.config, model.records, options);
  options.memory_bytes = least - 1;
  expect_error(ExitCode::cannot_fit, {"needs at least", "4 sequences of 100 tokens"},
               [&] { model.generator(options); });
  options.memory_bytes = least;
  EXPECT_NO_THROW(model.generator(options));
}

}  // namespace
}  // namespace megatrain::generation
