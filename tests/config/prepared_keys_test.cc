// A prepared set describes its own files.
#include "megatrain/config/prepared_keys.h"

#include <filesystem>

#include "megatrain/config/prepared_manifest.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/sealed_json.h"
#include "tests/support/fixtures.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class PreparedKeys : public ::testing::Test {
 protected:
  PreparedKeys() { write_set("set"); }

  std::string at(const std::string& name) const { return folder_ / name; }

  void write_set(const std::string& name) const {
    fs::create_directories(at(name));
    PreparedManifest manifest{.checksums = {},
                              .tokens = "tokens.bin",
                              .dtype = "uint32",
                              .labels = "labels.bin",
                              .documents = "documents.bin",
                              .seq_len = 384};
    for (const char* const file : {"tokens.bin", "labels.bin", "documents.bin"}) {
      write_bytes(at(name + "/" + file), "");
      manifest.checksums[file] = "0";
    }
    write_prepared_manifest(at(name), manifest);
  }
  // As written by version 1: only the checksums.
  void write_old() const {
    const nlohmann::json files = {{"tokens.bin", "0"}, {"labels.bin", "0"}, {"documents.bin", "0"}};
    write_bytes(at("set/prepared.json"), json_text(sealed({{"version", 1}, {"files", files}})));
  }

  TrainConfig parse(Words words, const ConfigNeeds& needs = {}) const {
    words.insert(words.begin(), "--data.tokens=" + at("set/tokens.bin"));
    return parse_config("model.path: m\nsteps: 3\n", "c.yaml", words, needs);
  }
  std::string refusal(const Words& words, ExitCode code = ExitCode::bad_config) const {
    return refused_with(code, [&] { parse(words); });
  }

  TemporaryDirectory folder_;
};

TEST_F(PreparedKeys, GiveTheTypeTheLabelsAndTheDocumentsThatAreNotGiven) {
  const TrainConfig config = parse({});
  EXPECT_EQ(config.data.dtype, "uint32");
  EXPECT_EQ(config.data.labels, at("set/labels.bin"));
  EXPECT_EQ(config.data.documents, at("set/documents.bin"));
  // config.resolved.yaml repeats the same settings.
  EXPECT_EQ(parse_config(resolved_yaml(config), "r.yaml", {}).data, config.data);
  EXPECT_EQ(parse({"--data.dtype=uint32", "--data.labels=" + at("set/labels.bin")}).data, config.data);
}

TEST_F(PreparedKeys, LeaveAloneANullAndAFileOfTheUsersOwn) {
  write_bytes(at("mine.bin"), "");
  const TrainConfig config = parse({"--data.labels=" + at("mine.bin"), "--data.documents=null"});
  EXPECT_EQ(config.data.labels, at("mine.bin"));
  EXPECT_EQ(config.data.documents, "");
}

TEST_F(PreparedKeys, AreReadBehindALinkToTheTokens) {
  fs::create_symlink(at("set/tokens.bin"), at("link.bin"));
  const TrainConfig config = parse({"--data.tokens=" + at("link.bin")});
  EXPECT_EQ(config.data.dtype, "uint32");
  EXPECT_TRUE(fs::equivalent(config.data.labels, at("set/labels.bin")));
}

TEST_F(PreparedKeys, RefuseWhatContradictsThemByName) {
  write_set("other");
  const auto expect_parts = [](const std::string& said, const Words& parts) {
    for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  };
  expect_parts(refusal({"--data.dtype=uint16"}), {"--data.dtype", "uint16", at("set/prepared.json"), "uint32"});
  expect_parts(refusal({"--data.labels=" + at("set/documents.bin")}), {"--data.labels", at("set/labels.bin")});
  expect_parts(refusal({"--data.tokens=" + at("set/labels.bin")}), {"--data.tokens", at("set/tokens.bin")});
  expect_parts(refusal({"--data.labels=" + at("other/labels.bin")}), {"--data.labels", "another prepared set"});
}

TEST_F(PreparedKeys, GiveTheLengthOfTheirSequencesAndRefuseAnother) {
  const TrainConfig config = parse({"--batch=64"});
  EXPECT_EQ(config.seq_len, 384);
  EXPECT_EQ(config.micro_batch, 16) << "chosen by the same length";
  EXPECT_EQ(parse({"--seq_len=384"}).seq_len, 384);
  for (const std::string other : {"192", "768"}) {
    const std::string said = refusal({"--seq_len=" + other});
    for (const std::string& part : {std::string("--seq_len"), other, at("set/prepared.json"), std::string("384")})
      EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  nlohmann::json earlier = nlohmann::json::parse(read_bytes(at("set/prepared.json")));
  earlier.erase("seq_len");
  earlier.erase("checksum");
  write_bytes(at("set/prepared.json"), json_text(sealed(earlier)));
  EXPECT_EQ(parse({"--seq_len=192"}).seq_len, 192) << "it was not recorded";
}

TEST_F(PreparedKeys, OfVersionOneNeedTheTypeAndWarnOfLabelsThatAreNotUsed) {
  write_old();
  EXPECT_NE(refusal({}).find("data.dtype: uint32"), std::string::npos) << refusal({});
  const std::string said = logged_by([&] {
    const TrainConfig config = parse({"--data.dtype=uint32", "--data.documents=null"});
    EXPECT_EQ(config.data.dtype, "uint32");
    EXPECT_EQ(config.data.labels, "");
  });
  EXPECT_NE(said.find("data.labels: " + at("set/labels.bin")), std::string::npos) << said;
  EXPECT_EQ(said.find("documents"), std::string::npos) << said;
}

TEST_F(PreparedKeys, OfALaterVersionOrDamagedAreRefused) {
  write_bytes(at("set/prepared.json"), json_text(sealed({{"version", 3}, {"files", nlohmann::json::object()}})));
  EXPECT_NE(refusal({}, ExitCode::bad_input).find("version 3"), std::string::npos);
  for (const nlohmann::json& odd : {nlohmann::json{{"version", "2"}}, nlohmann::json{{"version", 2}, {"files", 1}},
                                    nlohmann::json{{"version", 2}, {"files", {{"tokens.bin", "0"}}}}}) {
    write_bytes(at("set/prepared.json"), json_text(sealed(odd)));
    EXPECT_NE(refusal({}, ExitCode::bad_input).find("damaged"), std::string::npos) << odd;
  }
  EXPECT_EQ(parse({}, {.data = false}).data.dtype, "uint16");  // a run that is only inspected needs no data
}

TEST_F(PreparedKeys, AFileOfTheSetUnderAnotherNameNeedsItsType) {
  fs::rename(at("set/tokens.bin"), at("set/mine.bin"));
  const auto given = [&](Words words) {
    words.insert(words.begin(), "--data.tokens=" + at("set/mine.bin"));
    return parse_config("model.path: m\nsteps: 3\n", "c.yaml", words);
  };
  const std::string said = refused_with(ExitCode::bad_config, [&] { given({}); });
  EXPECT_NE(said.find("does not name it"), std::string::npos) << said;
  const std::string warned = logged_by([&] { EXPECT_EQ(given({"--data.dtype=uint16"}).data.dtype, "uint16"); });
  EXPECT_NE(warned.find("without the set's labels"), std::string::npos) << warned;
}

TEST_F(PreparedKeys, ADeadLinkInPlaceOfTheManifestIsNotPassedOver) {
  fs::remove(at("set/prepared.json"));
  fs::create_symlink("nowhere", at("set/prepared.json"));
  EXPECT_THROW(parse({}), Error);
}

}  // namespace
}  // namespace megatrain
