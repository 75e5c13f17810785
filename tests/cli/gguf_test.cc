// `megatrain export --gguf`.
#include <sys/stat.h>

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

}  // namespace megatrain::cli
