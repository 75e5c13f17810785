// Which files of a model's directory are copied into an export, and where their links may point.
#include "megatrain/hub/companions.h"

#include <sys/stat.h>

#include "tests/support/hub_folder.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

class Companions : public testing::Test {
 protected:
  Companions() {
    fs::create_directories(model_ + "/files");
    fs::create_directories(model_ + "/additional_chat_templates");
    write_bytes(directory_ / "secret", "private");
    fs::create_directories(directory_ / "model-private");
    write_bytes(directory_ / "model-private/secret", "private");
  }

  void link(const std::string& target, const std::string& name) { fs::create_symlink(target, model_ + "/" + name); }

  // The link is refused by its name and target, both when found and when read.
  void expect_refused(const std::string& name, const std::string& part) {
    expect_error(ExitCode::bad_input, {model_ + "/" + name, part}, [&] { find_companions(model_, true); });
    expect_error(ExitCode::bad_input, {model_ + "/" + name, part}, [&] { read_companion(model_, name); });
    fs::remove(model_ + "/" + name);
    EXPECT_TRUE(find_companions(model_, true).empty());
  }

  TemporaryDirectory directory_;
  const std::string model_ = directory_ / "model";
};

TEST_F(Companions, LinksWithinTheDirectoryAreFollowed) {
  write_bytes(model_ + "/files/real", "text");
  link("files/real", "LICENSE");
  link("LICENSE", "tokenizer.json");                               // a chain
  link(model_ + "/files/real", "merges.txt");                      // absolute
  link("../model/files/../files/real", "vocab.json");              // leaves and comes back
  link("../files/real", "additional_chat_templates/tools.jinja");  // from a subfolder
  const std::vector<std::string> expected = {"LICENSE", "additional_chat_templates/tools.jinja", "merges.txt",
                                             "tokenizer.json", "vocab.json"};
  EXPECT_EQ(find_companions(model_, true), expected);
  for (const std::string& name : expected) EXPECT_EQ(read_companion(model_, name), "text") << name;
  EXPECT_EQ(find_companions(model_, false).size(), 4u);

  fs::create_directory_symlink(model_, directory_ / "by-link");
  EXPECT_EQ(find_companions(directory_ / "by-link", true), expected);
  EXPECT_EQ(read_companion(directory_ / "by-link", "LICENSE"), "text");
}

TEST_F(Companions, LinksThatLeaveTheDirectoryAreRefusedByNameAndTarget) {
  for (const std::string name : {"LICENSE", "LICENSE.txt", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                                 "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                                 "chat_template.jinja", "chat_template.json", "generation_config.json"}) {
    link("../secret", name);
    expect_refused(name, directory_ / "secret");
  }
  link(directory_ / "secret", "LICENSE");
  expect_refused("LICENSE", directory_ / "secret");
  link("../model-private/secret", "LICENSE");  // a name that begins like the directory's
  expect_refused("LICENSE", "model-private");
  link("../../secret", "additional_chat_templates/tools.jinja");
  expect_refused("additional_chat_templates/tools.jinja", directory_ / "secret");

  link("../../secret", "files/hop");
  link("files/hop", "LICENSE");  // inside first, then out
  expect_refused("LICENSE", directory_ / "secret");
  link("../../model-private", "files/folder");
  link("files/folder/secret", "LICENSE");  // through a folder that is a link
  expect_refused("LICENSE", "model-private");
}

TEST_F(Companions, AFolderOfTemplatesThatIsALinkIsNoWayOut) {
  fs::remove_all(model_ + "/additional_chat_templates");
  fs::rename(directory_ / "model-private/secret", directory_ / "model-private/secret.jinja");
  fs::create_directory_symlink("../model-private", model_ + "/additional_chat_templates");
  expect_error(ExitCode::bad_input, {"additional_chat_templates/secret.jinja", "model-private"},
               [&] { find_companions(model_, true); });
  EXPECT_TRUE(find_companions(model_, false).empty());
}

TEST_F(Companions, LinksToNothingAndSpecialFilesAreRefusedAtOnce) {
  link("not-there", "tokenizer.json");
  expect_refused("tokenizer.json", "not-there");
  link("LICENSE", "LICENSE");
  expect_refused("LICENSE", "a link to");
  link("/dev/zero", "LICENSE");
  expect_refused("LICENSE", "/dev/zero");
  ASSERT_EQ(::mkfifo((model_ + "/tokenizer.json").c_str(), 0600), 0);
  expect_refused("tokenizer.json", "neither a file nor a folder");
  fs::create_directories(model_ + "/LICENSE.d");
  EXPECT_TRUE(find_companions(model_, true).empty());
}

TEST_F(Companions, OfASnapshotTheModelsOwnFolderOfTheCacheIsAllowedAndNoOther) {
  const HubFolder hub;
  hub.add("tokenizer.json", "tokens");
  hub.add("LICENSE", "licence");
  const std::vector<std::string> both = {"LICENSE", "tokenizer.json"};
  EXPECT_EQ(find_companions(hub.snapshot(), true), both);
  EXPECT_EQ(read_companion(hub.snapshot(), "tokenizer.json"), "tokens");

  const std::string other = hub.path() + "/models--Org--Other";
  fs::create_directories(other + "/blobs");
  write_bytes(other + "/blobs/private", "private");
  fs::create_symlink("../../../models--Org--Other/blobs/private", hub.snapshot() + "/vocab.json");
  expect_error(ExitCode::bad_input, {"vocab.json", "models--Org--Other"},
               [&] { find_companions(hub.snapshot(), true); });
  expect_error(ExitCode::bad_input, {"vocab.json"}, [&] { read_companion(hub.snapshot(), "vocab.json"); });
  fs::remove(hub.snapshot() + "/vocab.json");

  // the user keeps blobs on another disk
  fs::rename(hub.folder() + "/blobs", directory_ / "blobs");
  fs::create_directory_symlink(directory_ / "blobs", hub.folder() + "/blobs");
  EXPECT_EQ(find_companions(hub.snapshot(), true), both);
}

}  // namespace
}  // namespace megatrain
