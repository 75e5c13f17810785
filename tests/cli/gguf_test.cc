// `megatrain export --gguf`.
#include <sys/stat.h>

#include "megatrain/io/json_file.h"
#include "megatrain/io/new_output.h"
#include "tests/support/command.h"
#include "tests/support/places.h"
#include "tests/support/read_gguf.h"

namespace megatrain::cli {

namespace {

// A run directory whose model has a tokenizer.
struct TokenizedPlace : Place {
  explicit TokenizedPlace(const std::string& more) : Place("qwen2_tied", more), model(own_model()) {
    const std::string text = in_repository("tests/tokenizer/goldens/qwen.tokenizer.json");
    fs::copy_file(text, model + "/tokenizer.json");
    write_bytes(model + "/tokenizer_config.json", R"({"chat_template": "{{ messages[0].content }}"})");
  }
  std::string model;
};

}  // namespace

TEST(ExportGguf, OfARunIsThatOfItsModelDirectory) {
  const TokenizedPlace place("steps: 2\n");
  succeed({"train", place.config()});
  const std::string of_run = place / "run.gguf", of_model = place / "model.gguf";
  const Outcome outcome = succeed({"export", place.run(), "--gguf", "f32", "--out", of_run});
  EXPECT_EQ(outcome.out, of_run + "\n");
  const json told =
      json::parse(succeed({"export", place.run() + "/model", "--gguf=f32", "--out", of_model, "--json"}).out);
  EXPECT_EQ(told.at("gguf"), of_model);
  EXPECT_TRUE(told.at("step").is_null());
  EXPECT_EQ(told.at("architecture"), "qwen2");
  EXPECT_EQ(told.at("bytes"), fs::file_size(of_model));
  EXPECT_EQ(read_bytes(of_run), read_bytes(of_model));
  const ReadGguf file = read_gguf(of_run);
  EXPECT_EQ(file.metadata.at("tokenizer.chat_template"), "{{ messages[0].content }}");
  EXPECT_EQ(told.at("tensors"), file.tensors.size());
  expect_no_partial(place.path());
}

TEST(ExportGguf, OfACheckpointHoldsTheMasters) {
  const TokenizedPlace place("steps: 2\ncheckpoint.every: 1\ncheckpoint.keep: 9\n");
  succeed({"train", place.config(), "--precision=bf16"});
  succeed({"export", place.run(), "--gguf", "f32", "--out", place / "last.gguf"});
  succeed({"export", place.run() + "/checkpoints/step-00000001", "--gguf", "f32", "--out", place / "first.gguf"});
  const auto embedding = [&](const char* name) {
    return read_gguf(place / name).tensors.at("token_embd.weight").bytes;
  };
  const std::string first = embedding("first.gguf"), last = embedding("last.gguf");
  EXPECT_NE(first, last);
  bool wide = false;  // some value has bits that bf16 lacks
  for (size_t at = 0; at < last.size(); at += 4) wide = wide || last.substr(at, 2) != std::string(2, '\0');
  EXPECT_TRUE(wide);
}

TEST(ExportGguf, RefusesWhatItWouldNotObey) {
  const TokenizedPlace place("steps: 2\n");
  const auto refused = [&](const Words& words, int code, const std::string& part) {
    const Outcome outcome = megatrain(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  refused({"export", place.model, "--gguf", "q4_0", "--out", place / "x.gguf"}, 2, "expected f32, bf16, f16 or q8_0");
  refused({"export", place.model, "--gguf", "f32", "--dtype", "bf16", "--out", place / "x.gguf"}, 2,
          "leave --dtype out");
  refused({"export", place.model, "--gguf", "f32"}, 2, "needs --out FILE.gguf");
  refused({"export", place.model, "--gguf", "f32", "--out", "-"}, 2, "cannot be written to standard output");
  refused({"export", place.model, "--out", "-"}, 2, "cannot be written to standard output");
  refused({"export", place.model, "--gguf", "f32", "--out", place / "no/x.gguf"}, 2, "is not a folder");
  write_bytes(place / "there.gguf", "mine");
  refused({"export", place.model, "--gguf", "f32", "--out", place / "there.gguf"}, 2, "already exists");
  EXPECT_EQ(read_bytes(place / "there.gguf"), "mine");
  refused({"export", place / "nowhere", "--gguf", "f32", "--out", place / "x.gguf"}, 3, "nowhere");
  fs::remove(place.model + "/tokenizer.json");
  refused({"export", place.model, "--gguf", "f32", "--out", place / "x.gguf"}, 3, "tokenizer.json");
  EXPECT_FALSE(fs::exists(place / "x.gguf"));
}

TEST(ExportGguf, AFullDiskOrAKillLeavesNoHalfFile) {
  const TokenizedPlace place("steps: 2\n");
  const std::string out = place / "x.gguf";
  const Words words = {"export", place.model, "--gguf", "f32", "--out", out};
  const Outcome full = Process(words, "", "ulimit -f 8; trap '' XFSZ; exec \"$0\" \"$@\"").wait();
  EXPECT_EQ(full.code, 5) << full.err;
  EXPECT_FALSE(fs::exists(out));
  expect_no_partial(place.path());

  const std::string whole = [&] {
    succeed(words);
    const std::string bytes = read_bytes(out);
    fs::remove(out);
    return bytes;
  }();
  for (int kill = 0; kill < 12; ++kill) {
    Process process(words);
    while (!process.ended() && !fs::exists(out + ".partial") && !fs::exists(out)) std::this_thread::yield();
    process.signal(SIGKILL);
    process.wait();
    if (fs::exists(out)) {
      EXPECT_EQ(read_bytes(out), whole);
      fs::remove(out);
    }
  }
  succeed(words);
  EXPECT_EQ(read_bytes(out), whole);
  expect_no_partial(place.path());
}

TEST(ExportGguf, OfTwoAtOnceToOneNameIsOneWholeFile) {
  const TokenizedPlace place("steps: 2\n");
  const std::string out = place / "out.gguf";
  const auto words = [&](const char* type, const std::string& to) {
    return Words{"export", place.model, "--gguf", type, "--out", to};
  };
  succeed(words("f32", place / "f32.gguf"));
  succeed(words("q8_0", place / "q8_0.gguf"));
  for (int round = 0; round < 8; ++round) {
    Process first(words("f32", out)), second(words("q8_0", out));
    const Outcome wide = first.wait(), narrow = second.wait();
    ASSERT_EQ(std::min(wide.code, narrow.code), 0) << wide.err << narrow.err;
    ASSERT_EQ(std::max(wide.code, narrow.code), 2) << wide.err << narrow.err;
    ASSERT_EQ(read_bytes(out), read_bytes(place / (wide.code == 0 ? "f32.gguf" : "q8_0.gguf")));
    expect_no_partial(place.path());
    fs::remove(out);
  }
  const NewOutput held(out);
  expect_refusal(words("f32", out), ExitCode::bad_config, {"another export is writing " + out + "; wait for it"});
}

TEST(ExportGguf, LeavesAloneAPartThatNoExportMade) {
  const TokenizedPlace place("steps: 2\n");
  const std::string out = place / "x.gguf", partial = out + ".partial", mine = place / "keep.gguf";
  const auto refused = [&] {
    expect_refusal({"export", place.model, "--gguf", "q8_0", "--out", out}, ExitCode::io,
                   {partial, "is not from an unfinished export"});
    EXPECT_FALSE(fs::exists(out));
  };
  for (const std::string& text : {std::string("GGUF of someone"), std::string(5000, '\0'), std::string()}) {
    write_bytes(partial, text);
    refused();
    EXPECT_EQ(read_bytes(partial), text);
  }
  fs::remove(partial);
  write_bytes(mine, "mine");
  for (const char* target : {"keep.gguf", "nowhere"}) {
    fs::create_symlink(target, partial);
    refused();
    EXPECT_EQ(fs::read_symlink(partial), target);
    EXPECT_EQ(read_bytes(mine), "mine");
    EXPECT_FALSE(fs::exists(place / "nowhere"));
    fs::remove(partial);
  }
  fs::create_directory(partial);
  refused();
  fs::remove(partial);
  ASSERT_EQ(::mkfifo(partial.c_str(), 0600), 0);
  refused();
}

TEST(ExportGguf, RefusesAModelThatGenerateRefuses) {
  const TokenizedPlace place("steps: 2\n");
  const std::string weights = place.model + "/model.safetensors", config = place.model + "/config.json";
  const auto refused = [&](const std::string& sentence) {
    expect_refusal({"generate", place.model, "--prompt=a"}, ExitCode::bad_input, {sentence});
    expect_refusal({"export", place.model, "--gguf", "f32", "--out", place / "x.gguf"}, ExitCode::bad_input,
                   {sentence});
    EXPECT_FALSE(fs::exists(place / "x.gguf"));
  };
  const std::string sound = read_bytes(weights);
  RawSafetensors raw(weights);
  const std::string table = "model.embed_tokens.weight";
  std::string head = raw.bytes_of(table);
  head[0] = static_cast<char>(head[0] ^ 1);
  raw.header["lm_head.weight"] = raw.header.at(table);
  raw.header.at("lm_head.weight").at("data_offsets") = {raw.data.size(), raw.data.size() + head.size()};
  raw.data += head;
  raw.write(weights);
  refused("lm_head.weight differs from model.embed_tokens.weight (row 0), but config.json says tie_word_embeddings");

  write_bytes(weights, sound);
  json fewer = json::parse(read_bytes(config));
  ASSERT_GT(fewer.at("num_hidden_layers"), 1);
  fewer["num_hidden_layers"] = 1;
  fewer.erase("layer_types");
  write_bytes(config, fewer.dump());
  refused("belongs to a layer beyond the number in config.json (num_hidden_layers is 1)");
  const json problems = json::parse(succeed({"inspect", place.model, "--json"}).out).at("problems");
  ASSERT_EQ(problems.size(), 1u) << problems;
  refused(problems[0]);
}

namespace {

// A base with a tokenizer and an adapter over it, from the goldens.
struct AdaptedBase {
  explicit AdaptedBase(const std::string& name) : adapter(place / "adapter"), base(place / "base") {
    fs::copy(in_repository("tests/parity/adapter_goldens/") + name + "/adapter", adapter);
    json config = read_json_file(adapter + "/adapter_config.json");
    const fs::path named = config.at("base_model_name_or_path").get<std::string>();
    fs::copy(in_repository("tests/parity/goldens/") + named.parent_path().filename().string() + "/model", base);
    fs::copy_file(in_repository("tests/tokenizer/goldens/qwen.tokenizer.json"), base + "/tokenizer.json");
    write_bytes(base + "/tokenizer_config.json", "{}");
    config["base_model_name_or_path"] = base;
    write_bytes(adapter + "/adapter_config.json", config.dump());
  }
  ReadGguf exported(const std::string& from, const std::string& name) const {
    succeed({"export", from, "--gguf=f32", "--out", place / name});
    return read_gguf(place / name);
  }

  const TemporaryDirectory place;
  const std::string adapter, base;
};

}  // namespace

// Names, order of rows and scales are right if adding as llama.cpp does comes to the merged model's file.
TEST(ExportGguf, OfAnAdapterAddsUpToTheMergedModel) {
  for (const char* name :
       {"llama_bias", "qwen2_tied", "rslora", "patterns", "phi3_window", "mistral_packed", "qwen3_norm"}) {
    SCOPED_TRACE(name);
    const AdaptedBase model(name);
    succeed({"merge", model.base, model.adapter, "--out", model.place / "merged", "--dtype=fp32"});
    const ReadGguf adapter = model.exported(model.adapter, "adapter.gguf"),
                   base = model.exported(model.base, "base.gguf"),
                   merged = model.exported(model.place / "merged", "merged.gguf");
    EXPECT_EQ(adapter.metadata.at("general.type"), "adapter");
    EXPECT_EQ(adapter.metadata.at("adapter.type"), "lora");
    EXPECT_EQ(adapter.metadata.at("general.architecture"), base.metadata.at("general.architecture"));
    const double alpha = adapter.metadata.at("adapter.lora.alpha");
    size_t adapted = 0;
    for (const auto& [tensor, wanted] : merged.tensors) {
      std::vector<double> sum = base.tensors.at(tensor).values;
      if (const auto b = adapter.tensors.find(tensor + ".lora_b"); b != adapter.tensors.end()) {
        const ReadTensor& a = adapter.tensors.at(tensor + ".lora_a");
        const size_t rank = static_cast<size_t>(b->second.shape.at(0)), cols = static_cast<size_t>(a.shape.at(0));
        for (size_t i = 0; i < sum.size(); ++i) {
          double product = 0;
          for (size_t r = 0; r < rank; ++r)
            product += b->second.values[i / cols * rank + r] * a.values[r * cols + i % cols];
          sum[i] += alpha / static_cast<double>(rank) * product;
        }
        ++adapted;
      }
      double most = 0;
      for (size_t i = 0; i < sum.size(); ++i) most = std::max(most, std::abs(sum[i] - wanted.values[i]));
      EXPECT_LT(most, 1e-5) << tensor;
    }
    EXPECT_GT(adapted, 0u);
    EXPECT_EQ(adapter.tensors.size(), 2 * adapted);  // and no tensor has another name
  }
}

TEST(ExportGguf, RefusesAnAdapterThatReplacesTensorsOrHasNoBase) {
  const AdaptedBase model("llama_bias");
  const json given = read_json_file(model.adapter + "/adapter_config.json");
  const auto refused = [&](const char* field, const json& value, const std::string& part) {
    json config = given;
    config[field] = value;
    write_bytes(model.adapter + "/adapter_config.json", config.dump());
    expect_refusal({"export", model.adapter, "--gguf=f32", "--out", model.place / "no.gguf"}, ExitCode::bad_input,
                   {part});
    EXPECT_FALSE(fs::exists(model.place / "no.gguf"));
  };
  refused("base_model_name_or_path", nullptr, "names no base model");
  refused("base_model_name_or_path", model.place / "gone", "which is not there");
  refused("bias", "all", "cannot hold biases");
  refused("use_dora", true, "llama.cpp's adapters do not have");
  refused("modules_to_save", {"lm_head"}, "modules_to_save");
  refused("trainable_token_indices", json::array({3}), "trainable_token_indices");
}

}  // namespace megatrain::cli
