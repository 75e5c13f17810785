// Files that are replaced as a whole, and files that grow by lines.
#include "megatrain/io/file.h"

#include <sys/resource.h>

#include <csignal>

#include "megatrain/io/line_file.h"
#include "megatrain/io/replace.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

// While this lives, no file of this process can grow past `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{bytes, former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit former_{};
};

std::string whole(const File& file) {
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read_at(0, text.data(), file.bytes());
  return text;
}

}  // namespace

TEST(WriteTextFile, LeavesTheFormerTextAsItIsAndTakesItsPlace) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  write_text_file(path, "the former text");
  const File former = File::open_to_read(path);
  write_text_file(path, "new");
  EXPECT_EQ(whole(former), "the former text");  // a kill at any time would have left it in place
  EXPECT_EQ(read_bytes(path), "new");
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"metrics.jsonl"}));
}

TEST(WriteTextFile, FollowsALinkAndWritesToWhatIsNoFileWithoutReplacingIt) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("target.txt", directory / "link.txt");
  for (const char* text : {"made by the link", "again"}) {
    write_text_file(directory / "link.txt", text);
    EXPECT_TRUE(std::filesystem::is_symlink(directory / "link.txt"));
    EXPECT_EQ(read_bytes(directory / "target.txt"), text);
  }
  std::filesystem::create_symlink("/dev/full", directory / "full");
  expect_error(ExitCode::io, {"/dev/full"}, [&] { write_text_file(directory / "full", "text"); });
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(WriteTextFile, ThatFailsLeavesTheFormerTextAndNothingElse) {
  const TemporaryDirectory directory;
  const std::string path = directory / "eval.jsonl";
  write_text_file(path, "the former text");
  {
    const FileSizeLimit limit(1000);
    expect_error(ExitCode::io, {"eval.jsonl"}, [&] { write_text_file(path, std::string(2000, 'x')); });
  }
  EXPECT_EQ(read_bytes(path), "the former text");
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"eval.jsonl"}));
}

TEST(ReplaceDirectory, GivesTheFormerOneBackWhole) {
  const TemporaryDirectory directory;
  for (const char* name : {"fresh", "place"}) {
    fs::create_directory(directory / name);
    write_bytes((directory / name) + "/file", name);
  }
  const std::string former = replace_directory(directory / "fresh", directory / "place", directory / "aside");
  EXPECT_EQ(read_bytes(directory / "place/file"), "fresh");
  EXPECT_EQ(read_bytes(former + "/file"), "place");
  fs::remove_all(former);
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"place"}));
  EXPECT_EQ(replace_directory(directory / "place", directory / "free", directory / "aside"), "");
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"free"}));
}

TEST(CanRead, TellsAnAbsentFileFromOneThatCannotBeOpened) {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "");
  fs::create_symlink("loop", directory / "loop");
  EXPECT_TRUE(can_read(directory / "file"));
  EXPECT_FALSE(can_read(directory / "absent"));
  EXPECT_FALSE(can_read(directory / "file/below"));
  expect_error(ExitCode::io, {"loop"}, [&] { can_read(directory / "loop"); });
}

TEST(LineFile, ALineThatWasCutDoesNotJoinTheNext) {
  const TemporaryDirectory directory;
  const std::string path = directory / "samples.jsonl";
  { LineFile(path).append("one"); }
  { LineFile(path).append("two"); }
  EXPECT_EQ(read_bytes(path), "one\ntwo\n");
  write_bytes(path, "one\nt");
  LineFile file(path);
  file.append("three");
  file.append("four");
  EXPECT_EQ(read_bytes(path), "one\nt\nthree\nfour\n");
}

TEST(CanRead, RefusesWhatIsNoFile) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::io, {directory.path(), "a directory"}, [&] { can_read(directory.path()); });
  expect_error(ExitCode::io, {"/dev/null"}, [&] { can_read("/dev/null"); });
  expect_error(ExitCode::io, {"a directory"}, [&] { read_text_if_there(directory.path(), 10); });
  write_bytes(directory / "file", "text");
  EXPECT_EQ(read_text_if_there(directory / "file", 10), "text");
  EXPECT_FALSE(read_text_if_there(directory / "absent", 10));
}

TEST(KeepLinesUpTo, DropsLaterStepsButNeverInPlace) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  const std::string before = "{\"step\":1}\n{\"note\":\"x\"}\n{\"step\":\"y\"}\n{\"step\":2}\n{\"step\":3}\n{\"st";
  write_bytes(path, before);
  const File former = File::open_to_read(path);
  EXPECT_EQ(keep_lines_up_to(path, 2), 2);
  EXPECT_EQ(read_bytes(path), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(whole(former), before);
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"metrics.jsonl", "metrics.jsonl.damaged"}));
  keep_lines_up_to(directory / "absent", 2);
  EXPECT_FALSE(fs::exists(directory / "absent"));
  fs::create_symlink("loop", directory / "loop");
  expect_error(ExitCode::io, {"loop"}, [&] { keep_lines_up_to(directory / "loop", 2); });
}

TEST(KeepLinesUpTo, MovesLinesThatItCannotReadAsideAndSaysWhich) {
  const TemporaryDirectory directory;
  const std::string path = directory / "metrics.jsonl", aside = path + ".damaged";
  write_bytes(path,
              "{\"step\":1}\n{\"step\":2,\"loss\":}\n{\"step\":3}\n\n[4]\n{\"step\":9}\n{\"step\":\"\\u00e9\"}\n{\"st");
  testing::internal::CaptureStderr();
  keep_lines_up_to(path, 3);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(read_bytes(path), "{\"step\":1}\n{\"step\":3}\n");
  EXPECT_EQ(read_bytes(aside), "{\"step\":2,\"loss\":}\n[4]\n{\"step\":\"\\u00e9\"}\n{\"st\n");
  for (const char* place : {":2,", ":5,", ":7,", ":8:"})
    EXPECT_NE(lines.find(path + place), std::string::npos) << place << " in " << lines;
  EXPECT_NE(lines.find(aside), std::string::npos) << lines;

  write_bytes(path, "{\"step\":1}\nagain\n");  // what was set aside before stays
  testing::internal::CaptureStderr();
  keep_lines_up_to(path, 3);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(path + ":2:"), std::string::npos);
  EXPECT_EQ(read_bytes(aside), "{\"step\":2,\"loss\":}\n[4]\n{\"step\":\"\\u00e9\"}\n{\"st\nagain\n");
  EXPECT_EQ(read_bytes(path), "{\"step\":1}\n");
}

TEST(KeepLinesUpTo, WhatParsesButIsNoRecordIsMovedAsideToo) {
  const TemporaryDirectory directory;
  const std::string path = directory / "eval.jsonl", aside = path + ".damaged";
  const std::string good = "{\"step\":1,\"loss\":2.5}\n{\"loss\":1e-300,\"step\":2}\n";
  const std::vector<std::string> bad = {"{}",
                                        "{\"loss\":1}",
                                        "{\"step\":-1,\"loss\":1}",
                                        "{\"step\":0,\"loss\":1}",
                                        "{\"step\":1.5,\"loss\":1}",
                                        "{\"step\":9223372036854775807,\"loss\":1}",
                                        "{\"step\":18446744073709551615,\"loss\":1}",
                                        "{\"step\":1e300,\"loss\":1}",
                                        "{\"step\":3,\"step\":11,\"loss\":1}",
                                        "{\"step\":3}",
                                        "{\"step\":3,\"loss\":\"low\"}"};
  for (const std::string& line : bad) {
    write_bytes(path, good + line + "\n");
    fs::remove(aside);
    testing::internal::CaptureStderr();
    EXPECT_EQ(keep_lines_up_to(path, 10, {.numbers = {"loss"}}), 2) << line;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(path + ":3:"), std::string::npos) << line << said;
    EXPECT_EQ(read_bytes(path), good) << line;
    EXPECT_TRUE(fs::exists(aside) && read_bytes(aside) == line + "\n") << line;
  }
}

TEST(KeepLinesUpTo, AStepHasOneRecordOrAsManyAsTheFormAllows) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lines.jsonl", aside = path + ".damaged";
  const auto kept = [&](const std::string& text, const LineForm& form) {
    write_bytes(path, text);
    fs::remove(aside);
    testing::internal::CaptureStderr();
    keep_lines_up_to(path, 3, form);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(fs::exists(aside), said.find("a second record") != std::string::npos) << said;
    return read_bytes(path);
  };
  const std::string one = "{\"step\":1,\"x\":1}\n", again = "{\"step\":1,\"x\":2}\n", two = "{\"step\":2}\n",
                    later = "{\"step\":4}\n";
  EXPECT_EQ(kept(one + again + two + one + later + later, {}), one + two);
  EXPECT_EQ(read_bytes(aside), again + one);
  EXPECT_EQ(kept(two + one, {}), two + one) << "in any order";
  EXPECT_EQ(kept(one + again + two + one + two, {.several = true}), one + again + two + one + two);
  const std::string metrics = "{\"step\":1,\"loss\":1}\n{\"step\":1,\"eval_loss\":1}\n";
  EXPECT_EQ(kept(metrics, {.numbers = {"loss", "eval_loss"}}), metrics) << "as earlier runs wrote evaluations";
}

TEST(KeepLinesUpTo, KeepsAWholeLastLineThatLacksItsEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory / "eval.jsonl";
  write_bytes(path, "{\"step\":1}\n{\"step\":2}");
  keep_lines_up_to(path, 3);
  EXPECT_EQ(read_bytes(path), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(listing(directory.path()), std::set<std::string>{"eval.jsonl"});
}

TEST(SyncNewName, SaysThatWhatWasWrittenIsThereWhenTheDirectoryCannotBeSynced) {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "");
  try {
    sync_new_name(directory / "file/new");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::io);
    EXPECT_NE(std::string(error.what()).find("did not confirm"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("try again"), std::string::npos) << error.what();
  }
}

}  // namespace megatrain
