// Caches and data that are damaged, or truncated while a run reads them, are rebuilt or reported; nothing crashes.
#include "tests/support/byte_model.h"
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

std::string chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += json{{"messages",
                   {{{"role", "user"}, {"content", fmt::format("number {}", i)}},
                    {{"role", "assistant"}, {"content", std::string(1 + i * 11 % 50, 'x')}}}}}
                 .dump() +
             "\n";
  }
  return lines;
}

class DamagedData : public testing::Test {
 protected:
  DamagedData() {
    write_byte_model(folder_ / "model", 32, 1);
    write_bytes(folder_ / "data.jsonl", chats(200));
    const std::string common = fmt::format(
        "model.config: {0}/model/config.json\nrun_dir: {0}/run\ndevice: cpu\nthreads: 1\nprecision: fp32\n"
        "seq_len: 64\nbatch: 1\n",
        folder_.path());
    write_bytes(chat_config(), fmt::format("{1}data: {{tokenizer: {0}/model, train: {0}/data.jsonl, cache: {0}/cache, "
                                           "overlong: truncate}}\n",
                                           folder_.path(), common));
    write_bytes(raw_config(), fmt::format("{1}data: {{tokens: {0}/tokens.bin, labels: {0}/labels.bin, documents: "
                                          "{0}/documents.bin, order: {0}/order.bin, dtype: uint32}}\n",
                                          folder_.path(), common));
  }

  std::string at(const std::string& name) const { return folder_ / name; }
  std::string chat_config() const { return folder_ / "chat.yaml"; }
  std::string raw_config() const { return folder_ / "raw.yaml"; }

  // The only store in the cache.
  std::string store() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.path().filename() != "hashes") return entry.path().string();
    return "";
  }

  template <class T>
  static void write_numbers(const std::string& path, const std::vector<T>& numbers) {
    write_bytes(path, std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)));
  }
  // Many pages of raw tokens, in an order that ends where it began.
  void write_raw(int64_t steps) const {
    constexpr int64_t kSequences = 2048;
    std::vector<uint32_t> tokens(64 * kSequences, 'x');
    std::vector<uint64_t> documents, order;
    for (int64_t i = 0; i < 2 * kSequences; ++i) documents.push_back(static_cast<uint64_t>(32 * i));
    for (int64_t i = 0; i < steps; ++i) order.push_back(static_cast<uint64_t>(i * 7 % kSequences));
    write_numbers(at("tokens.bin"), tokens);
    write_numbers(at("labels.bin"), std::vector<int32_t>(tokens.begin(), tokens.end()));
    write_numbers(at("documents.bin"), documents);
    write_numbers(at("order.bin"), order);
  }

  // The run's output if `damage` is done while the process is stopped, after its first step.
  Outcome damaged_while_running(const std::string& config, const std::function<void()>& damage) const {
    fs::remove_all(at("run"));
    Process process({"train", config, fmt::format("--steps={}", kSteps)});
    EXPECT_TRUE(eventually([&] {
      std::error_code none;
      const auto bytes = fs::file_size(at("run/metrics.jsonl"), none);
      return !none && bytes > 0;
    }));
    process.signal(SIGSTOP);
    damage();
    process.signal(SIGCONT);
    return process.wait();
  }

  static void expect_sentence(const Outcome& outcome, const std::string& file) {
    EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::io)) << outcome.err;
    const size_t at = outcome.err.find("megatrain: ");
    ASSERT_NE(at, std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(file, at), std::string::npos) << outcome.err;
  }

  static constexpr int64_t kSteps = 100000;  // more than a test ever runs
  TemporaryDirectory folder_;
};

void poke(const std::string& path, int64_t offset, uint32_t value) {
  std::string bytes = read_bytes(path);
  bytes.replace(static_cast<size_t>(offset), sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
  write_bytes(path, bytes);  // in place: the same inode
}

}  // namespace

TEST_F(DamagedData, ADamagedTokenCacheIsMadeAgainWithALine) {
  succeed({"train", chat_config(), "--steps=3"});
  const json expected = hash_of(at("run"));
  const std::string tokens = store() + "/tokens.bin", samples = store() + "/samples.bin";
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"an id that no vocabulary has", [&] { poke(tokens, 400, 0x7ffffff0); }},
      {"another id", [&] { poke(tokens, 400, 'q'); }},
      {"a sample that ends far away", [&] { poke(samples, 24 * 3 + 4, 0x00010000); }},
      {"a cut", [&] { fs::resize_file(tokens, fs::file_size(tokens) - 4); }},
      {"no samples", [&] { fs::remove(samples); }},
      {"no description", [&] { write_bytes(store() + "/store.json", "{\"samples\": -3"); }},
  };
  for (const auto& [what, damage] : cases) {
    SCOPED_TRACE(what);
    damage();
    const Outcome outcome = succeed({"train", chat_config(), "--steps=3"});
    EXPECT_NE(outcome.err.find("are damaged"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("rebuilt"), std::string::npos) << outcome.err;
    EXPECT_EQ(hash_of(at("run")), expected);
    EXPECT_EQ(succeed({"train", chat_config(), "--steps=3"}).err.find("damaged"), std::string::npos);
  }
}

TEST_F(DamagedData, ATokenCacheThatIsDamagedUnderTheRunEndsItWithASentence) {
  succeed({"prepare", chat_config()});
  const std::string tokens = store() + "/tokens.bin", samples = store() + "/samples.bin";
  const std::string good_tokens = read_bytes(tokens), good_samples = read_bytes(samples);
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"cut to nothing", [&] { fs::resize_file(tokens, 0); }},
      {"cut inside its last page", [&] { fs::resize_file(tokens, good_tokens.size() - 8); }},
      {"ids of no vocabulary", [&] { write_bytes(tokens, std::string(good_tokens.size(), '\x7f')); }},
      {"samples cut to nothing", [&] { fs::resize_file(samples, 0); }},
      {"samples that end anywhere", [&] { write_bytes(samples, std::string(good_samples.size(), '\x55')); }},
  };
  for (const auto& [what, damage] : cases) {
    SCOPED_TRACE(what);
    expect_sentence(damaged_while_running(chat_config(), damage), store());
    write_bytes(tokens, good_tokens);
    write_bytes(samples, good_samples);
  }
}

TEST_F(DamagedData, RawTokensThatAreDamagedUnderTheRunEndItWithASentence) {
  write_raw(kSteps);
  for (const char* const name : {"tokens.bin", "labels.bin", "documents.bin", "order.bin"}) {
    const std::string path = at(name), good = read_bytes(path);
    SCOPED_TRACE(name);
    expect_sentence(damaged_while_running(raw_config(), [&] { fs::resize_file(path, 0); }), path);
    write_bytes(path, good);
    expect_sentence(damaged_while_running(raw_config(), [&] { fs::resize_file(path, good.size() - 8); }), path);
    write_bytes(path, good);
  }
  expect_sentence(
      damaged_while_running(raw_config(), [&] { write_bytes(at("order.bin"), std::string(8 * kSteps, '\x7f')); }),
      at("order.bin"));
}

TEST_F(DamagedData, AKilledPrepareLeavesNoSetThatTrainAccepts) {
  const Words words = {"prepare", chat_config(), "--out", at("out")};
  for (const int signal : {SIGTERM, SIGKILL}) {
    SCOPED_TRACE(signal);
    Words long_words = words;
    long_words.push_back("--steps=100000000");
    Process process(long_words);
    ASSERT_TRUE(eventually([&] {
      std::error_code none;
      const auto bytes = fs::file_size(at("out.partial/tokens.bin"), none);
      return !none && bytes > 0;
    }));
    process.signal(signal);
    EXPECT_EQ(process.wait().code, signal == SIGKILL ? -SIGKILL : 128 + SIGTERM);
    EXPECT_FALSE(fs::exists(at("out")));
    EXPECT_EQ(fs::exists(at("out.partial")), signal == SIGKILL);
    expect_refusal({"train", raw_config(), "--steps=1", "--data.tokens=" + at("out/tokens.bin"), "--data.labels=null",
                    "--data.documents=null", "--data.order=null"},
                   ExitCode::bad_input, {at("out/tokens.bin")});
  }
  Words short_words = words;
  short_words.push_back("--steps=3");
  succeed(short_words);
  EXPECT_EQ(fs::file_size(at("out/tokens.bin")), 3u * 64 * 4);
  expect_no_partial(folder_.path());
}

TEST_F(DamagedData, PrepareDestroysNothingThatIsThere) {
  fs::create_directories(at("empty"));
  succeed({"prepare", chat_config(), "--steps=2", "--out", at("empty/")});
  EXPECT_TRUE(fs::exists(at("empty/labels.bin")));
  const std::string before = read_bytes(at("empty/tokens.bin"));
  expect_refusal({"prepare", chat_config(), "--steps=1", "--out", at("empty")}, ExitCode::bad_config,
                 {at("empty"), "not empty"});
  EXPECT_EQ(read_bytes(at("empty/tokens.bin")), before);
  fs::create_directories(at("mine"));
  write_bytes(at("mine/notes.txt"), "keep me");
  expect_refusal({"prepare", chat_config(), "--steps=1", "--out", at("mine")}, ExitCode::bad_config, {"not empty"});
  EXPECT_EQ(read_bytes(at("mine/notes.txt")), "keep me");
}

}  // namespace megatrain::cli
