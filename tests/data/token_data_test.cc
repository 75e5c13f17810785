#include "megatrain/data/token_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/said.h"
#include "megatrain/base/error.h"

namespace megatrain {
namespace {

using Ints = std::vector<int32_t>;

class Data : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("data_test_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  template <class T>
  std::string write(const std::string& name, const std::vector<T>& values) {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return (folder_ / name).string();
  }

  // 12 tokens 10..21, sequences of 4, two per step, one per micro-batch.
  TrainConfig small() {
    TrainConfig config;
    config.data.tokens = write<uint16_t>("tokens", {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21});
    config.seq_len = 4;
    config.batch = 2;
    config.micro_batch = 1;
    config.steps = 3;
    return config;
  }

  static std::string refusal(const TrainConfig& config, int64_t vocab = 100, int64_t step = -1) {
    return refused_with(ExitCode::bad_input, [&] {
      TokenData data(config, vocab);
      if (step >= 0) data.batch(step);
    });
  }

  std::filesystem::path folder_;
};

TEST_F(Data, AFileThatIsOverwrittenWhileItIsInUseIsAnErrorOfTheDisk) {
  for (const char* name : {"tokens", "documents", "labels"}) {
    TrainConfig config = small();
    config.data.documents = write<uint64_t>("documents", {0, 3, 8});
    config.data.labels = write<int32_t>("labels", {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21});
    TokenData data(config, 100);
    data.batch(0);
    const auto bytes = std::filesystem::file_size(folder_ / name);
    std::fstream file(folder_ / name, std::ios::binary | std::ios::in | std::ios::out);
    file << std::string(bytes, std::string(name) == "labels" ? '\x7f' : '\xff') << std::flush;
    try {
      data.batch(1);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::io) << name;
      EXPECT_NE(std::string(error.what()).find("changed while in use"), std::string::npos) << error.what();
    }
  }
}

TEST_F(Data, APositionPredictsTheNextTokenAndTheLastOfASequenceIsNotTrained) {
  TokenData data(small(), 100);
  EXPECT_EQ(data.tokens(), 12);
  EXPECT_EQ(data.sequences(), 3);
  const Batch batch = data.batch(0);
  ASSERT_EQ(batch.micro_batches.size(), 2u);
  const MicroBatch& second = batch.micro_batches[1];
  EXPECT_EQ(second.tokens, (Ints{14, 15, 16, 17}));
  EXPECT_EQ(second.labels, (Ints{15, 16, 17, -100}));
  EXPECT_EQ(second.positions, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(second.document_begin, (Ints{0, 4}));
  EXPECT_EQ(second.longest, 4);
  EXPECT_TRUE(second.uniform);
  EXPECT_EQ(second.trained, 3);
  EXPECT_EQ(batch.tokens, 8);
  EXPECT_EQ(batch.trained, 6);
}

TEST_F(Data, WithoutAnOrderSequencesStartOverAfterTheLast) {
  TokenData data(small(), 100);
  EXPECT_EQ(data.batch(1).micro_batches[0].tokens[0], 18);
  EXPECT_EQ(data.batch(1).micro_batches[1].tokens[0], 10);
  EXPECT_EQ(data.batch(2).micro_batches[0].tokens[0], 14);
}

TEST_F(Data, PositionsAndAttentionRestartAtDocumentsAndTheirLastPositionIsNotTrained) {
  TrainConfig config = small();
  config.micro_batch = 2;
  config.data.documents = write<uint64_t>("documents", {0, 3, 6, 7, 8});
  const MicroBatch micro = TokenData(config, 100).batch(0).micro_batches.at(0);
  EXPECT_EQ(micro.tokens, (Ints{10, 11, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(micro.document_begin, (Ints{0, 3, 4, 6, 7, 8}));  // the document 3..6 restarts where the sequence starts
  EXPECT_EQ(micro.positions, (Ints{0, 1, 2, 0, 0, 1, 0, 0}));
  EXPECT_EQ(micro.labels, (Ints{11, 12, -100, -100, 15, -100, -100, -100}));
  EXPECT_EQ(micro.longest, 3);
  EXPECT_FALSE(micro.uniform);
  EXPECT_EQ(micro.trained, 3);
}

TEST_F(Data, AMissingFirstDocumentStartIsZero) {
  TrainConfig config = small();
  config.data.documents = write<uint64_t>("documents", {2});
  EXPECT_EQ(TokenData(config, 100).batch(0).micro_batches[0].document_begin, (Ints{0, 2, 4}));
  EXPECT_TRUE(TokenData(config, 100).batch(0).micro_batches[0].uniform);
  config.data.documents = write<uint64_t>("documents", {});
  EXPECT_EQ(TokenData(config, 100).batch(0).micro_batches[0].document_begin, (Ints{0, 4}));
}

TEST_F(Data, LabelsAreShiftedLikeTokensAndTheirMaskIsKept) {
  TrainConfig config = small();
  config.data.labels = write<int32_t>("labels", {50, -100, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61});
  const Batch batch = TokenData(config, 100).batch(0);
  EXPECT_EQ(batch.micro_batches[0].labels, (Ints{-100, 52, 53, -100}));
  EXPECT_EQ(batch.micro_batches[0].trained, 2);
  EXPECT_EQ(batch.trained, 5);
}

TEST_F(Data, TheOrderIsUsedVerbatim) {
  TrainConfig config = small();
  config.data.order = write<uint64_t>("order", {2, 2, 0, 1, 1, 0});
  TokenData data(config, 100);
  EXPECT_EQ(data.batch(0).micro_batches[0].tokens[0], 18);
  EXPECT_EQ(data.batch(0).micro_batches[1].tokens[0], 18);
  EXPECT_EQ(data.batch(1).micro_batches[1].tokens[0], 14);
  EXPECT_EQ(data.batch(2).micro_batches[1].tokens[0], 10);
}

TEST_F(Data, MicroBatchesOnlyCutTheStepDifferently) {
  TrainConfig config = small();
  config.batch = 6;
  config.data.documents = write<uint64_t>("documents", {0, 1, 5, 9});
  config.micro_batch = 6;
  const Batch whole = TokenData(config, 100).batch(0);
  for (const int64_t width : {1, 2, 3}) {
    config.micro_batch = width;
    const Batch cut = TokenData(config, 100).batch(0);
    Ints tokens, labels, positions;
    for (const MicroBatch& micro : cut.micro_batches) {
      tokens.insert(tokens.end(), micro.tokens.begin(), micro.tokens.end());
      labels.insert(labels.end(), micro.labels.begin(), micro.labels.end());
      positions.insert(positions.end(), micro.positions.begin(), micro.positions.end());
    }
    EXPECT_EQ(tokens, whole.micro_batches[0].tokens);
    EXPECT_EQ(labels, whole.micro_batches[0].labels);
    EXPECT_EQ(positions, whole.micro_batches[0].positions);
    EXPECT_EQ(cut.trained, whole.trained);
  }
}

TEST_F(Data, LoadingIntoAUsedBatchGivesWhatAFreshOneHolds) {
  TrainConfig config = small();
  config.data.documents = write<uint64_t>("documents", {0, 3, 9});
  TokenData data(config, 100);
  Batch used = data.batch(0);
  const int32_t* memory = used.micro_batches[0].tokens.data();
  data.load(1, used);
  const Batch fresh = data.batch(1);
  EXPECT_EQ(used.micro_batches[0].tokens, fresh.micro_batches[0].tokens);
  EXPECT_EQ(used.micro_batches[1].labels, fresh.micro_batches[1].labels);
  EXPECT_EQ(used.micro_batches[1].document_begin, fresh.micro_batches[1].document_begin);
  EXPECT_EQ(used.trained, fresh.trained);
  EXPECT_EQ(used.tokens, fresh.tokens);
  EXPECT_EQ(used.micro_batches[0].tokens.data(), memory);
}

TEST_F(Data, WideIdsAreRead) {
  TrainConfig config = small();
  config.data.tokens = write<uint32_t>("wide", {70000, 1, 2, 3, 4, 5, 6, 7});
  config.data.dtype = "uint32";
  EXPECT_EQ(TokenData(config, 70001).batch(0).micro_batches[0].tokens, (Ints{70000, 1, 2, 3}));
  EXPECT_NE(refusal(config, 70000).find("token 0 has id 70000, but the model's vocabulary has 70000 ids"),
            std::string::npos);
  config.data.tokens = write<uint32_t>("wide", {1, 2, 3, 0xFFFFFFFFu});
  EXPECT_NE(refusal(config, 70000).find("token 3 has id 4294967295"), std::string::npos);
}

TEST_F(Data, AnIdBeyondTheVocabularyIsRefusedWithFilePositionAndId) {
  const std::string message = refusal(small(), 21);
  EXPECT_NE(message.find("/tokens: token 11 has id 21, but the model's vocabulary has 21 ids; tokenize with"),
            std::string::npos)
      << message;
  EXPECT_EQ(refusal(small(), 22), "accepted");
}

TEST_F(Data, ABadIdDeepInALargeFileIsFound) {
  TrainConfig config = small();
  std::vector<uint16_t> ids(300'000, 7);
  ids[200'001] = 9;
  config.data.tokens = write("many", ids);
  EXPECT_NE(refusal(config, 9).find("token 200001 has id 9"), std::string::npos);
}

TEST_F(Data, FilesOfTheWrongSizeAreRefused) {
  TrainConfig config = small();
  config.data.tokens = write<uint8_t>("odd", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_NE(refusal(config).find("has 9 bytes, expected a multiple of 2 (uint16)"), std::string::npos);
  config.data.tokens = write<uint16_t>("short", {1, 2, 3});
  EXPECT_NE(refusal(config).find("has 3 tokens, expected at least one sequence of seq_len 4"), std::string::npos);
  config.data.tokens = write<uint16_t>("none", {});
  EXPECT_NE(refusal(config).find("has 0 tokens"), std::string::npos);
  config.data.tokens = (folder_ / "missing").string();
  EXPECT_NE(refusal(config).find("data.tokens: cannot open "), std::string::npos);
  config.data.tokens = folder_.string();
  EXPECT_NE(refusal(config).find("is not a regular file"), std::string::npos);
  config = small();
  config.data.labels = write<int32_t>("labels", {1, 2, 3});
  EXPECT_NE(refusal(config).find("has 3 labels, expected one for each of the 12 tokens"), std::string::npos);
  config = small();
  config.data.documents = write<uint8_t>("documents", {1, 2, 3});
  EXPECT_NE(refusal(config).find("expected a multiple of 8 (uint64)"), std::string::npos);
}

TEST_F(Data, DocumentStartsMustAscendWithinTheFile) {
  TrainConfig config = small();
  config.data.documents = write<uint64_t>("documents", {0, 5, 5});
  EXPECT_NE(refusal(config).find("entry 2 is 5 after 5, expected strictly ascending"), std::string::npos);
  config.data.documents = write<uint64_t>("documents", {0, 12});
  EXPECT_NE(refusal(config).find("entry 1 is 12, expected a start below the 12 tokens"), std::string::npos);
  config.data.documents = write<uint64_t>("documents", {0, ~uint64_t{0}});
  EXPECT_NE(refusal(config).find("entry 1 is 18446744073709551615"), std::string::npos);
}

TEST_F(Data, LabelsOutsideTheVocabularyAreRefused) {
  for (const int32_t bad : {-1, -101, 100}) {
    TrainConfig config = small();
    Ints labels(12, 1);
    labels[7] = bad;
    config.data.labels = write("labels", labels);
    EXPECT_NE(refusal(config).find("label 7 is " + std::to_string(bad) + ", expected -100"), std::string::npos);
  }
}

TEST_F(Data, AnOrderThatIsTooShortOrNamesNoSequenceIsRefused) {
  TrainConfig config = small();
  config.data.order = write<uint64_t>("order", {0, 1, 2, 0, 1});
  EXPECT_NE(refusal(config).find("has 5 sequence numbers, expected 6 (batch * steps)"), std::string::npos);
  config.data.order = write<uint64_t>("order", {0, 1, 2, 0, 1, 3});
  EXPECT_NE(refusal(config).find("entry 5 is sequence 3, but "), std::string::npos);
}

TEST_F(Data, AStepWithoutATrainedTokenIsRefusedByNumber) {
  TrainConfig config = small();
  Ints labels(12, -100);
  labels[1] = 5;
  config.data.labels = write("labels", labels);
  config.data.order = write<uint64_t>("order", {0, 1, 1, 2, 0, 1});
  EXPECT_EQ(refusal(config, 100, 0), "accepted");
  EXPECT_NE(refusal(config, 100, 1).find("step 2 has no trained tokens among its 8"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
