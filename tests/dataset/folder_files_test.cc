// No file in a folder of data is silently left out.
#include "megatrain/dataset/folder_files.h"

#include <sys/stat.h>

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class FolderFilesTest : public testing::DatasetTest {
 protected:
  void write_all(const Names& names) const {
    for (const std::string& name : names) write(name, "{}");
  }
  static void expect_parts(const std::string& said, const Names& parts) {
    for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  }
};

TEST_F(FolderFilesTest, LinkedFoldersPipesAndSocketsAreNamed) {
  write_all({"f/a.jsonl", "elsewhere/b.jsonl"});
  fs::create_directory_symlink(path("elsewhere"), path("f/more"));
  fs::create_symlink(path("nothing"), path("f/old"));
  ASSERT_EQ(::mkfifo(path("f/p.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::mknod(path("f/s").c_str(), S_IFSOCK | 0600, 0), 0);
  fs::create_symlink(path("elsewhere/b.jsonl"), path("f/c.jsonl"));
  const Dataset dataset = open_dataset(path("f"));
  EXPECT_EQ(dataset.files, (Names{path("f/a.jsonl"), path("f/c.jsonl")}));
  expect_parts(passed_over_sentence(dataset),
               {path("f/more") + " (a link to a folder)", path("f/old") + " (a broken link",
                path("f/p.jsonl") + " (a pipe)", path("f/s") + " (a socket)"});
}

TEST_F(FolderFilesTest, AFolderWithALinkedFolderAloneIsRefusedWithItsName) {
  write_all({"elsewhere/b.jsonl"});
  fs::create_directories(path("f"));
  fs::create_directory_symlink(path("elsewhere"), path("f/more"));
  expect_parts(refusal([&] { open_dataset(path("f")); }), {"no samples", path("f/more") + " (a link to a folder)"});
}

TEST_F(FolderFilesTest, ADeadLinkUnderTheNameOfADataFileIsRefused) {
  write_all({"f/a.jsonl", "g/a.txt", "h/a.txt"});
  for (const char* const link : {"f/b.jsonl", "g/b.txt", "h/b.jsonl"}) {
    fs::create_symlink(path("nothing"), path(link));
    const std::string folder = fs::path(link).parent_path().string();
    expect_parts(refusal([&] { open_dataset(path(folder)); }), {path(link), "broken or circular link"});
  }
}

TEST_F(FolderFilesTest, MissingShardsAreRefusedByName) {
  write_all({"f/train-00000-of-00002.jsonl"});
  expect_parts(refusal([&] { open_dataset(path("f")); }), {"1 of 2 shards", path("f/train-00001-of-00002.jsonl")});
  EXPECT_EQ(open_dataset(path("f/train-00000-of-00002.jsonl")).files.size(), 1u);  // named explicitly
  write_all({"f/train-00001-of-00002.jsonl"});
  EXPECT_EQ(open_dataset(path("f")).files.size(), 2u);

  write_all({"g/c4.00001-of-00003.json", "g/c4.00003-of-00003.json"});  // numbered from 1
  expect_parts(refusal([&] { open_dataset(path("g")); }), {"2 of 3 shards", path("g/c4.00002-of-00003.json")});
  write_all({"g/c4.00002-of-00003.json"});
  EXPECT_EQ(open_dataset(path("g")).files.size(), 3u);

  write_all({"h/data/train-00000-of-00002-0a1b.jsonl", "h/data/test-00000-of-00001-9f.jsonl"});
  expect_parts(refusal([&] { open_dataset(path("h")); }), {"1 of 2 shards", path("h/data/train-00001-of-00002")});
  EXPECT_EQ(open_dataset(path("h"), "", DatasetUse::evaluate).files.size(), 1u);  // that split is complete

  write_all({"info/i/a-00000-of-00002.json"});
  write("info/dataset_info.json", R"({"d": {"file_name": "i"}})");
  expect_parts(refusal([&] { open_dataset("d", path("info")); }), {"1 of 2 shards"});
}

TEST_F(FolderFilesTest, ShardsBeyondTheirOwnCountAreRefusedByName) {
  write_all({"f/train-00000-of-00002.jsonl", "f/train-00001-of-00002.jsonl", "f/train-00002-of-00002.jsonl"});
  expect_parts(refusal([&] { open_dataset(path("f")); }), {"more shards", path("f/train-00002-of-00002.jsonl")});
  fs::remove(path("f/train-00000-of-00002.jsonl"));
  EXPECT_EQ(open_dataset(path("f")).files.size(), 2u);  // numbered from 1
  write_all({"f/train-00003-of-00002.jsonl"});
  expect_parts(refusal([&] { open_dataset(path("f")); }), {"more shards", path("f/train-00003-of-00002.jsonl")});
}

}  // namespace
}  // namespace megatrain
