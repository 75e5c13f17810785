// The process of tokenising: bad samples, threads, blocks, interruptions, the cache.
#include "megatrain/dataset/tokenize_dataset.h"

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "megatrain/dataset/sample_encoder.h"
#include "megatrain/dataset/sample_writer.h"
#include "megatrain/io/xxh3.h"
#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using Bytes = std::map<std::string, std::string>;
using testing::read_bytes;

class TokenizeTest : public testing::DatasetTest {
 protected:
  // Conversations of many lengths, some of them bad, as JSONL and as a JSON array.
  std::vector<std::string> write_many(int count) {
    std::string lines, array = "[";
    for (int i = 0; i < count; ++i) {
      std::string text = fmt::format("No {}:", i);
      for (int j = 0; j < i * 7 % 40; ++j) text += fmt::format(" wörd{}", j * i);
      const nlohmann::json sample = {{"question", text + "?"}, {"answer", i % 10 == 3 ? "" : text}};
      lines += sample.dump() + "\n";
      array += (i > 0 ? ",\n" : "") + sample.dump(i % 2 == 0 ? 1 : -1);
    }
    return {write("data/1.jsonl", lines), write("data/2.json", array + "]\n")};
  }

  TokenizeOptions in_cache(const std::string& cache) const {
    return {.cache_directory = path(cache), .threads = 2, .skip_bad = 1000, .block_bytes = 500};
  }
  Bytes made(const TokenizeOptions& how) const { return bytes_of(tokenized(path("data"), how)); }
};

TEST_F(TokenizeTest, TheFilesAreTheSameWhateverTheThreadsAndBlocks) {
  write_many(60);
  const SampleStore store = tokenized(path("data"), in_cache("cache"));
  EXPECT_EQ(store.samples(), 108);
  EXPECT_EQ(store.bad().size(), 12u);
  EXPECT_EQ(store.place(54).file, path("data/2.json"));
  int64_t tokens = 0, trained = 0;
  for (int64_t i = 0; i < store.samples(); ++i) {
    tokens += store.length(i);
    for (const uint32_t entry : store.entries(i)) trained += (entry & kTrainedBit) != 0;
  }
  EXPECT_EQ(store.tokens(), tokens);
  EXPECT_EQ(store.trained_tokens(), trained);
  const Bytes expected = bytes_of(store);
  EXPECT_EQ(expected.size(), 4u);
  int number = 0;
  for (const int threads : {1, 3, 8}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{777}, 4 * kMiB}) {
      TokenizeOptions how = in_cache(fmt::format("c{}", number++));
      how.threads = threads;
      how.block_bytes = bytes;
      EXPECT_EQ(made(how), expected) << threads << " " << bytes;
    }
  }
}

TEST_F(TokenizeTest, InputInMemoryStaysWithinTwoBlocksAThread) {
  write_many(400);
  TokenizeOptions how = in_cache("cache");
  int64_t peak = 0;
  how.peak_bytes_in_flight = &peak;
  how.threads = 3;
  how.block_bytes = 2000;
  tokenized(path("data"), how);
  EXPECT_GT(peak, 2000);
  EXPECT_LE(peak, 2 * 3 * 2000);
}

TEST_F(TokenizeTest, BadSamplesAreSkippedUpToTheBoundAndListed) {
  const std::string file = write("a.jsonl", "{\"text\":\"a\"}\n{}\n{\"text\":\"b\"}\n{\"text\":1}\n{\"text\":\"c\"}\n");
  TokenizeOptions how = options();
  how.block_bytes = 1;
  const std::string first = file +
                            ":2: it has no \"text\", but the keys none; all samples of a dataset need the same format: "
                            "add it, or name its column with columns.";
  EXPECT_EQ(refusal([&] { tokenized(file, how); }), first);
  how.skip_bad = 1;
  EXPECT_EQ(refusal([&] { tokenized(file, how); }),
            first + " It is the first of 2 bad samples so far; 1 may be skipped.");
  EXPECT_EQ(refusal([&] { tokenized(file, how); }),
            first + " It is the first of 2 bad samples so far; 1 may be skipped.");
  how.skip_bad = 2;
  const SampleStore store = tokenized(file, how);
  EXPECT_EQ(store.samples(), 3);
  ASSERT_EQ(store.bad().size(), 2u);
  EXPECT_EQ(sentence_of(store.bad()[1]), file + ":4: \"text\" is a number; expected text");
  how.skip_bad = 0;  // what was made before has too many bad samples now
  EXPECT_EQ(refusal([&] { tokenized(file, how); }),
            first + " It is the first of 2 bad samples so far; 0 may be skipped.");
}

TEST_F(TokenizeTest, WhereAllSamplesAreBadTheRefusalSaysWhy) {
  std::string lines;
  for (int i = 0; i < 5; ++i)
    lines += R"({"messages":[{"role":"user","content":"Q"}]})"
             "\n";
  const std::string file = write("a.jsonl", lines);
  TokenizeOptions how = options();
  how.skip_bad = 100;
  for (int again = 0; again < 2; ++again) {
    const std::string said = refusal([&] { tokenized(file, how); });
    for (const char* const part :
         {"no good sample", "all 5", "a.jsonl:1: ", "no assistant message", "a.jsonl:3: ", "2 more"}) {
      EXPECT_NE(said.find(part), std::string::npos) << said;
    }
  }
}

TEST_F(TokenizeTest, ARefusedDatasetLeavesNothingThatPassesForFinished) {
  const std::string file = write("a.jsonl", "{\"text\":\"a\"}\n{\n");
  EXPECT_NE(refusal([&] { tokenized(file); }), "");
  for (const auto& entry : std::filesystem::directory_iterator(path("cache"))) {
    EXPECT_EQ(entry.path().filename(), "hashes");
  }
}

TEST_F(TokenizeTest, GoingOnAfterAnyBlockGivesTheSameBytes) {
  write_many(16);
  const Dataset dataset = open_dataset(path("data"));
  const SampleStore reference = tokenized(path("data"), in_cache("reference"));
  const Bytes expected = bytes_of(reference);
  const TokenizeOptions how = in_cache("cache");
  const TextCoder text = model();
  const SampleEncoder encoder(text, how,
                              SampleForm::settle(DatasetForm::prompt, {}, {{"question", ""}, {"answer", ""}}));
  const std::vector<SampleFile> files = {{path("data/1.jsonl"), true}, {path("data/2.json"), true}};
  const std::string partial =
      path("cache/" + std::filesystem::path(reference.directory()).filename().string() + ".partial");
  int blocks_in_all = 0;
  for (int stop = 1, done = 0; done == 0; ++stop) {
    std::filesystem::remove_all(path("cache"));
    std::filesystem::create_directories(partial);
    {
      SampleWriter writer(partial);
      SampleBlocks blocks(files, {400, kMaxSampleBytes, kMaxDocumentBytes});
      SampleBlock block;
      for (int i = 0; i < stop && done == 0; ++i) {
        if (blocks.next(block)) {
          writer.add(encoder.encode(block), block.after);
        } else {
          done = 1;
        }
      }
      writer.save();
      // A block that was written but not saved, as by a process that was killed.
      if (blocks.next(block)) writer.add(encoder.encode(block), block.after);
    }
    std::ofstream(partial + "/journal.jsonl", std::ios::app) << "[0,12,1";
    std::ofstream(partial + "/store.json") << "{";
    EXPECT_EQ(made(how), expected) << "after " << stop << " blocks";
    blocks_in_all = stop;
  }
  EXPECT_GT(blocks_in_all, 10);
}

TEST_F(TokenizeTest, AStopKeepsWhatIsDone) {
  write_many(100);
  const Bytes expected = made(in_cache("reference"));
  TokenizeOptions how = in_cache("cache");
  volatile std::sig_atomic_t stop = 0;
  how.stop = &stop;
  double seen = 0;
  how.progress = [&](double fraction, int64_t tokens) {
    seen = fraction;
    EXPECT_GT(tokens, 0);
    stop = 1;
  };
  EXPECT_FALSE(tokenize(open_dataset(path("data")), model(), how).has_value());
  EXPECT_GT(seen, 0);
  EXPECT_LT(seen, 0.2);
  stop = 0;
  how.progress = [&](double fraction, int64_t) {
    EXPECT_TRUE(fraction > seen || fraction == 1) << fraction;  // it resumed from there
    seen = fraction;
  };
  EXPECT_EQ(made(how), expected);
  EXPECT_EQ(seen, 1);
}

TEST_F(TokenizeTest, AProcessKilledAnywhereIsGoneOnFrom) {
  write_many(300);
  const SampleStore reference = tokenized(path("data"), in_cache("reference"));
  const Bytes expected = bytes_of(reference);
  const std::string partial =
      path("cache/" + std::filesystem::path(reference.directory()).filename().string() + ".partial");
  const auto saves = [&] {
    const std::string journal = read_bytes(partial + "/journal.jsonl");
    return std::count(journal.begin(), journal.end(), '\n');
  };
  TokenizeOptions how = in_cache("cache");
  how.seconds_between_saves = 0;
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      tokenize(open_dataset(path("data")), model(), how);
      ::_exit(0);
    }
    for (int i = 0; i < 20000 && saves() < before + 3; ++i) std::this_thread::sleep_for(std::chrono::microseconds(500));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it was done before it could be killed";
    EXPECT_GE(saves(), before + 3);  // nothing that was saved is lost
    before = saves();
  }
  EXPECT_EQ(made(how), expected);
}

TEST_F(TokenizeTest, TheSameInputIsNotTokenisedAgainWhereverItsFilesAre) {
  const auto files = write_many(20);
  const SampleStore first = tokenized(path("data"), in_cache("cache"));
  const auto written = std::filesystem::last_write_time(first.directory() + "/tokens.bin");
  TokenizeOptions how = in_cache("cache");
  int64_t peak = 0;  // of input read
  how.peak_bytes_in_flight = &peak;
  std::filesystem::rename(path("data"), path("moved"));
  const SampleStore second = tokenized(path("moved"), how);
  EXPECT_EQ(peak, 0);
  EXPECT_EQ(second.directory(), first.directory());
  EXPECT_EQ(second.fingerprint(), first.fingerprint());
  EXPECT_EQ(second.place(0).file, path("moved/1.jsonl"));
  EXPECT_EQ(std::filesystem::last_write_time(first.directory() + "/tokens.bin"), written);
}

TEST_F(TokenizeTest, WhateverDecidesTheTokensDecidesTheFingerprint) {
  const std::string file = write("a.jsonl", R"({"question":"Q","answer":"A"})");
  std::vector<std::string> seen;
  const auto add = [&](const std::function<void(Dataset&, TextCoder&, TokenizeOptions&)>& change) {
    Dataset dataset = open_dataset(file);
    TextCoder text = model();
    TokenizeOptions how = options();
    change(dataset, text, how);
    seen.push_back(tokenize(dataset, text, how).value().fingerprint());
  };
  add([](Dataset&, TextCoder&, TokenizeOptions&) {});
  add([](Dataset& dataset, TextCoder&, TokenizeOptions&) { dataset.form = DatasetForm::prompt; });
  add([](Dataset& dataset, TextCoder&, TokenizeOptions&) { dataset.columns.prompt = "question"; });
  add([](Dataset&, TextCoder& text, TokenizeOptions&) { text.tokenizer_identity = "another"; });
  add([](Dataset&, TextCoder& text, TokenizeOptions&) { text.template_identity = "another"; });
  add([](Dataset&, TextCoder& text, TokenizeOptions&) { text.eos = 1; });
  add([](Dataset&, TextCoder&, TokenizeOptions& how) { how.train_on = TrainOn::all; });
  add([](Dataset&, TextCoder&, TokenizeOptions& how) { how.variables = {{"enable_thinking", false}}; });
  add([](Dataset&, TextCoder&, TokenizeOptions& how) { how.date.tm_mday = 1; });
  write("a.jsonl", R"({"question":"Q","answer":"B"})");
  add([](Dataset&, TextCoder&, TokenizeOptions&) {});
  EXPECT_EQ(seen.size(), 10u);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  add([](Dataset& dataset, TextCoder&, TokenizeOptions& how) {
    dataset.weight = 3;
    how.threads = 5;
    how.skip_bad = 7;
  });
  EXPECT_TRUE(std::find(seen.begin(), seen.end() - 1, seen.back()) != seen.end() - 1);
}

TEST_F(TokenizeTest, TheStoreTellsHowManyConversationsTrainNothingThatEndsTheLastAnswer) {
  const std::string file = write("a.jsonl", R"({"question":"Q","answer":"A"}
{"question":"Q","answer":"B"}
)");
  EXPECT_EQ(tokenized(file).notes().endless, 0);
  ChatTemplate bare("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "bare");
  bare.add_special_tokens({"<|im_end|>"});
  TextCoder text = model(&bare);
  text.template_identity = "bare";
  for (int again = 0; again < 2; ++again) {  // made, then found
    EXPECT_EQ(tokenize(open_dataset(file), text, options()).value().notes().endless, 2);
  }
}

TEST_F(TokenizeTest, TheStoreTellsWhereReasoningIsLeftOutAndWhereABeginningIsAGuess) {
  const std::string file = write(
      "a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","reasoning":"R"}]})"
                 "\n"
                 R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","tool_calls":["B"]}]})"
                 "\n"
                 R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A","reasoning":null}]})"
                 "\n");
  const std::string start =
      "{% for m in messages %}<|im_start|>{% if m.tool_calls %}calls {{ m.tool_calls[0] }}{% else %}";
  const std::string end = "{{ m.role }}\n{{ m.content }}{% endif %}<|im_end|>{% endfor %}";
  const auto notes = [&](const std::string& source) {
    ChatTemplate chat(source, "t", {{"eos_token", "<|im_end|>"}});
    chat.add_special_tokens({"<|im_start|>"});
    TextCoder text = model(&chat);
    text.template_identity = source;
    return tokenize(open_dataset(file), text, options()).value().notes();
  };
  for (int again = 0; again < 2; ++again) {  // made, then found
    EXPECT_EQ(notes(start + end).unreasoned, 1);
    EXPECT_EQ(notes(start + end).guessed, 1);
    EXPECT_EQ(notes(start + "{{ m.reasoning_content }}" + end).unreasoned, 0);
  }
}

TEST_F(TokenizeTest, TheLastAnswerIsTheLastMessageWhereverTheTemplateWritesIt) {
  const std::string file = write("a.jsonl", R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant",)"
                                            R"("content":"A"},{"role":"user","content":"R"},)"
                                            R"({"role":"assistant","content":"B"}]})");
  const ChatTemplate backwards("{% for m in messages | reverse %}<{{ m.role }}>{{ m.content }}<|im_end|>{% endfor %}",
                               "backwards", {{"eos_token", "<|im_end|>"}});
  TextCoder text = model(&backwards);
  text.template_identity = "backwards";
  TokenizeOptions how = options();
  how.train_on = TrainOn::last;
  EXPECT_EQ(shown(tokenize(open_dataset(file), text, how).value(), 0),
            "<assistant>[B<|im_end|>]<user>R<|im_end|><assistant>A<|im_end|><user>Q<|im_end|>");
}

TEST_F(TokenizeTest, AFileThatChangedInPlaceIsHashedAgain) {
  const std::string file = write("a.txt", "aaaa");
  const auto old = std::filesystem::last_write_time(file) - std::chrono::hours(1);
  std::filesystem::last_write_time(file, old);
  const std::string first = tokenized(file).fingerprint();
  write("a.txt", "bbbb");
  std::filesystem::last_write_time(file, old);
  EXPECT_NE(tokenized(file).fingerprint(), first);
}

TEST_F(TokenizeTest, AnyNumberAtOnceMakeOneStore) {
  write_many(100);
  const Bytes expected = made(in_cache("reference"));
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int result = 1;
      try {
        result = made(in_cache("cache")) == expected ? 0 : 2;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(result);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  int others = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("cache"))) {
    others += entry.path().filename() != "hashes";
  }
  EXPECT_EQ(others, 1);
  EXPECT_EQ(made(in_cache("cache")), expected);
}

TEST_F(TokenizeTest, AStoreThatIsNotAsItWasWrittenIsMadeAgain) {
  write_many(20);
  const SampleStore reference = tokenized(path("data"), in_cache("cache"));
  const std::string store = reference.directory();
  const Bytes expected = bytes_of(reference);
  const auto flip = [&](const std::string& name, size_t at) {
    std::string bytes = read_bytes(store + "/" + name);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ 0x40);
    std::ofstream(store + "/" + name, std::ios::binary) << bytes;
  };
  const auto describe = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(read_bytes(store + "/store.json"));
    json[key] = value;
    std::ofstream(store + "/store.json") << json.dump();
  };
  const std::function<void()> damages[] = {
      [&] { std::filesystem::resize_file(store + "/tokens.bin", 4); },
      [&] { flip("tokens.bin", 9); },
      [&] { flip("samples.bin", 24 + 3); },
      [&] { flip("samples.bin", 16); },
      [&] { flip("bad.jsonl", 2); },
      [&] { std::filesystem::resize_file(store + "/bad.jsonl", 0); },
      [&] { std::filesystem::remove(store + "/tokens.bin"); },
      [&] { std::filesystem::remove(store + "/bad.jsonl"); },
      [&] { std::filesystem::remove(store + "/store.json"); },
      [&] { std::filesystem::resize_file(store + "/store.json", 20); },
      [&] { describe("samples", -1); },
      [&] { describe("tokens", int64_t{1} << 62); },
      [&] { describe("bad", "none"); },
  };
  size_t number = 0;
  for (const auto& damage : damages) {
    damage();
    EXPECT_TRUE(made(in_cache("cache")) == expected) << "damage " << number;
    ++number;
  }
  // Records that match their checksum are checked nevertheless.
  std::string records = read_bytes(store + "/samples.bin");
  records[24 + 5] = '\x7f';  // the end of the second sample
  std::ofstream(store + "/samples.bin", std::ios::binary) << records;
  describe("samples_xxh3", xxh3_128(records.data(), records.size()));
  EXPECT_NE(refusal([&] { SampleStore(store, {path("data/1.jsonl"), path("data/2.json")}); }, ExitCode::io), "");
  EXPECT_TRUE(made(in_cache("cache")) == expected);
}

TEST_F(TokenizeTest, AJournalOrFilesThatAreDamagedAreNotGoneOnWith) {
  write_many(100);
  const SampleStore reference = tokenized(path("data"), in_cache("reference"));
  const Bytes expected = bytes_of(reference);
  const std::string partial =
      path("cache/" + std::filesystem::path(reference.directory()).filename().string() + ".partial");
  const std::function<void()> damages[] = {
      [&] { std::filesystem::resize_file(partial + "/tokens.bin", 0); },
      [&] { std::filesystem::resize_file(partial + "/samples.bin", 24); },
      [&] {
        std::string journal = read_bytes(partial + "/journal.jsonl");
        journal.at(journal.find(',') + 1) = '9';  // the offset to continue at
        std::ofstream(partial + "/journal.jsonl", std::ios::binary) << journal;
      },
  };
  for (const auto& damage : damages) {
    std::filesystem::remove_all(path("cache"));
    TokenizeOptions how = in_cache("cache");
    volatile std::sig_atomic_t stop = 0;
    how.stop = &stop;
    how.progress = [&](double, int64_t) { stop = 1; };
    ASSERT_FALSE(tokenize(open_dataset(path("data")), model(), how).has_value());
    ASSERT_TRUE(std::filesystem::exists(partial));
    damage();
    EXPECT_EQ(made(in_cache("cache")), expected);
  }
}

TEST_F(TokenizeTest, WhatKilledProcessesLeftIsRemovedWhenNoneHoldsItOrWillGoOn) {
  const std::string file = write("a.txt", "some text");
  const auto leave = [&](char digit, const std::string& journal, const char* ending = ".partial") {
    const std::string folder = "cache/" + std::string(32, digit) + ending;
    write(folder + "/tokens.bin", "x");
    if (!journal.empty()) write(folder + "/journal.jsonl", journal);
    return path(folder);
  };
  const std::string unsaved = leave('a', ""), saved = leave('b', "[0]\n"), old = leave('c', "[0]\n");
  const std::string held = leave('d', ""), damaged = leave('e', "", ".damaged");
  write("cache/mine.partial/notes", "not ours");
  std::filesystem::last_write_time(old + "/journal.jsonl",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(8 * 24));
  DirectoryLock lock(held);
  ASSERT_TRUE(lock.try_lock());
  tokenized(file);
  EXPECT_FALSE(std::filesystem::exists(unsaved));
  EXPECT_TRUE(std::filesystem::exists(saved));  // it can be resumed
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(held));
  EXPECT_FALSE(std::filesystem::exists(damaged));
  EXPECT_TRUE(std::filesystem::exists(path("cache/mine.partial/notes")));
}

}  // namespace
}  // namespace megatrain
