#include "megatrain/hub/safetensors.h"

#include <cstring>

#include "tests/support/fixtures.h"
#include "tests/support/mapped_pages.h"

namespace megatrain {
namespace {

constexpr const char* kGood = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                              R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]}})";
const std::string kData = "0123456789abcdefghij";  // 20 bytes

SafetensorsFile open_bytes(const std::string& bytes) {
  TemporaryDirectory directory;
  write_bytes(directory / "m.safetensors", bytes);
  return SafetensorsFile(directory / "m.safetensors");
}

void expect_refused(const std::string& header, const std::string& data, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { open_bytes(safetensors_bytes(header, data)); });
  expect_error(ExitCode::bad_input, {"m.safetensors"}, [&] { open_bytes(safetensors_bytes(header, data)); });
}

std::string one_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w.x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, GivesTensorsByNameWithTheirBytes) {
  const SafetensorsFile file = open_bytes(safetensors_bytes(kGood, kData));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
  const StoredTensor* a = file.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, StoredType::bf16);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a->elements(), 6);
  ASSERT_EQ(a->bytes, 12);
  EXPECT_EQ(std::memcmp(a->data, "89abcdefghij", 12), 0);
  EXPECT_EQ(std::memcmp(file.find("b")->data, "01234567", 8), 0);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
}

TEST(Safetensors, ReadsEveryKnownTypeAtItsSize) {
  const std::pair<const char*, int> types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
                                               {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
                                               {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : types) {
    const std::string header =
        one_tensor('"' + std::string(name) + '"', "[3]", "[0," + std::to_string(3 * bytes) + "]");
    const SafetensorsFile file =
        open_bytes(safetensors_bytes(header, std::string(static_cast<size_t>(3 * bytes), 'x')));
    EXPECT_STREQ(stored_type_name(file.find("w.x")->dtype), name);
    EXPECT_EQ(file.find("w.x")->elements(), 3);
  }
}

TEST(Safetensors, AcceptsScalarsEmptyTensorsAndNoTensors) {
  EXPECT_EQ(open_bytes(safetensors_bytes(one_tensor("\"F32\"", "[]", "[0,4]"), "abcd")).find("w.x")->elements(), 1);
  EXPECT_EQ(open_bytes(safetensors_bytes(one_tensor("\"F32\"", "[0,9]", "[0,0]"), "")).find("w.x")->elements(), 0);
  EXPECT_TRUE(open_bytes(safetensors_bytes("{}", "")).tensors().empty());
  EXPECT_TRUE(open_bytes(safetensors_bytes("{}      ", "")).tensors().empty());
}

TEST(Safetensors, KeepsItsTensorsWhenMoved) {
  SafetensorsFile file = open_bytes(safetensors_bytes(kGood, kData));
  const SafetensorsFile moved = std::move(file);
  EXPECT_EQ(std::memcmp(moved.find("b")->data, "01234567", 8), 0);
}

TEST(Safetensors, StaysReadableAfterItsPagesAreReleased) {
  const std::string data(1 << 20, 'q');
  const SafetensorsFile file = open_bytes(safetensors_bytes(one_tensor("\"U8\"", "[1048576]", "[0,1048576]"), data));
  const StoredTensor& tensor = *file.find("w.x");
  EXPECT_EQ(std::memcmp(tensor.data, data.data(), data.size()), 0);
  release_pages(tensor);
  EXPECT_EQ(std::memcmp(tensor.data, data.data(), data.size()), 0);
}

TEST(Safetensors, HoldsNoMoreThanAPieceOfATensorThatIsReleasedInPieces) {
  constexpr int64_t kBytes = 32 << 20, kReadBytes = 1 << 20;
  const std::string data(kBytes, 'q');
  const SafetensorsFile file = open_bytes(safetensors_bytes(one_tensor("\"U8\"", "[33554432]", "[0,33554432]"), data));
  const StoredTensor& tensor = *file.find("w.x");
  const int64_t before = mapped_bytes_now();
  for (int64_t at = 0; at < kBytes; at += kReadBytes) {
    EXPECT_EQ(std::memcmp(tensor.data + at, data.data() + at, kReadBytes), 0);
    EXPECT_LT(mapped_bytes_now() - before, 8 * kReadBytes);
    release_pages(tensor, at, kReadBytes);
  }
}

TEST(Safetensors, RefusesAFileThatIsNotThere) {
  expect_error(ExitCode::bad_input, {"nowhere.safetensors", "No such file", "check the path"},
               [] { SafetensorsFile("nowhere.safetensors"); });
}

TEST(Safetensors, RefusesADirectoryAndAPipe) {
  TemporaryDirectory directory;
  expect_error(ExitCode::bad_input, {"not a regular file"}, [&] { SafetensorsFile file(directory.path()); });
  expect_error(ExitCode::bad_input, {"not a regular file"}, [&] { SafetensorsFile file("/dev/null"); });
}

TEST(Safetensors, RefusesAFileShorterThanItsLength) {
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    expect_error(ExitCode::bad_input, {"has " + std::to_string(bytes) + " bytes", "download it again"},
                 [&] { open_bytes(std::string(bytes, '\0')); });
  }
}

TEST(Safetensors, RefusesAHeaderBeyondTheFile) {
  expect_error(ExitCode::bad_input, {"header has 3 bytes", "ends 2 bytes after", "cut short"},
               [] { open_bytes(length_prefix(3) + "{}"); });
}

TEST(Safetensors, RefusesAHeaderOfMoreThan100Megabytes) {
  expect_error(ExitCode::bad_input, {"100000001", "at most 100000000"},
               [] { open_bytes(length_prefix(100'000'001) + "{}"); });
}

TEST(Safetensors, RefusesAHeaderLengthThatWrapsWithItsPrefix) {
  for (const uint64_t length : {~uint64_t{0}, ~uint64_t{0} - 7, ~uint64_t{0} - 5, uint64_t{1} << 63}) {
    expect_error(ExitCode::bad_input, {std::to_string(length)}, [&] { open_bytes(length_prefix(length) + "{}"); });
  }
}

TEST(Safetensors, RefusesAnEmptyHeader) {
  expect_error(ExitCode::bad_input, {"does not begin with '{'"}, [] { open_bytes(length_prefix(0)); });
}

TEST(Safetensors, RefusesAHeaderThatIsNotAJsonObject) {
  expect_refused("[1,2]", "", {"does not begin with '{'"});
  expect_refused(" {}", "", {"does not begin with '{'"});
  expect_refused("{\"a\":", "", {"not valid JSON", "line 1", "download it again"});
  expect_refused("{} {}", "", {"not valid JSON"});
  expect_refused("{\"a\xff\":1}", "", {"not valid JSON"});
  expect_refused(std::string("{}\0{\"a\":1}", 10), "", {"NUL byte"});
}

TEST(Safetensors, RefusesDeepNesting) {
  expect_refused("{\"a\":" + std::string(100'000, '['), "", {"nests deeper than 64"});
}

TEST(Safetensors, SaysWhenTheFileIsAGitLfsPointer) {
  expect_error(ExitCode::bad_input, {"Git LFS pointer", "git lfs pull"},
               [] { open_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"); });
}

TEST(Safetensors, RefusesDuplicateTensors) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      "x", {"duplicate key \"a\""});
}

TEST(Safetensors, RefusesDuplicateFieldsOfATensor) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"shape":[1],"data_offsets":[0,1]}})", "x",
                 {"duplicate key \"shape\""});
}

TEST(Safetensors, RefusesUnknownTypes) {
  expect_refused(one_tensor("\"F31\"", "[1]", "[0,4]"), "abcd", {"\"w.x\"", "F31", "BF16"});
  expect_refused(one_tensor("\"f32\"", "[1]", "[0,4]"), "abcd", {"f32"});
  expect_refused(one_tensor("7", "[1]", "[0,4]"), "abcd", {"dtype 7"});
}

TEST(Safetensors, RefusesShapesThatAreNotWholeNumbers) {
  for (const char* size :
       {"-1", "1.0", "1e0", "\"1\"", "null", "-0", "true", "18446744073709551617", "9223372036854775808"}) {
    expect_refused(one_tensor("\"U8\"", std::string("[").append(size).append("]"), "[0,1]"), "x", {"\"w.x\"", "shape"});
  }
  expect_refused(one_tensor("\"U8\"", "1", "[0,1]"), "x", {"\"w.x\"", "shape of 1", "list"});
}

TEST(Safetensors, RefusesShapesWhoseProductWraps) {
  expect_refused(one_tensor("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "", {"\"w.x\"", "64 bits"});
  expect_refused(one_tensor("\"U8\"", "[4294967296,4294967296]", "[0,0]"), "", {"64 bits"});
  expect_refused(one_tensor("\"F64\"", "[2305843009213693952]", "[0,0]"), "", {"64 bits"});
  expect_refused(one_tensor("\"U8\"", "[9223372036854775807,2]", "[0,1]"), "x", {"64 bits"});
}

TEST(Safetensors, RefusesOffsetsThatAreNotTwoWholeNumbers) {
  for (const char* offsets : {"[0]", "[0,1,2]", "[0.0,1]", "[0,1.0]", "[0,1e0]", "[-1,0]", "[0,-1]", "[\"0\",1]", "{}",
                              "null", "[0,18446744073709551617]", "[0,9223372036854775808]"}) {
    expect_refused(one_tensor("\"U8\"", "[1]", offsets), "x", {"\"w.x\"", "data_offsets", "two whole numbers"});
  }
}

TEST(Safetensors, RefusesReversedOffsets) {
  expect_refused(one_tensor("\"U8\"", "[1]", "[1,0]"), "x", {"\"w.x\"", "[1, 0]", "before the begin"});
}

TEST(Safetensors, RefusesOffsetsThatDisagreeWithTheShape) {
  expect_refused(one_tensor("\"F32\"", "[2,3]", "[0,10]"), "0123456789",
                 {"\"w.x\"", "10 bytes", "(2, 3) of F32 takes 24", "download it again"});
  expect_refused(one_tensor("\"F32\"", "[2]", "[0,12]"), std::string(12, 'x'), {"12 bytes", "takes 8"});
}

TEST(Safetensors, RefusesOverlappingOffsets) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
      "012345", {"\"b\"", "offset 2", "ends at 4", "overlap"});
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
      "0123", {"overlap"});
}

TEST(Safetensors, RefusesHoles) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
      "01234", {"\"b\"", "hole"});
  expect_refused(one_tensor("\"U8\"", "[2]", "[1,3]"), "012", {"\"w.x\"", "hole"});
}

TEST(Safetensors, RefusesDataThatIsCutShort) {
  expect_refused(kGood, kData.substr(0, 19),
                 {"\"a\"", "ends at offset 20", "only 19", "cut short", "download it again"});
  expect_refused(kGood, "", {"cut short"});
}

TEST(Safetensors, RefusesEveryTruncationOfAFile) {
  const std::string whole = safetensors_bytes(kGood, kData);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    expect_error(ExitCode::bad_input, {"m.safetensors"}, [&] { open_bytes(whole.substr(0, bytes)); });
  }
}

TEST(Safetensors, RefusesDataAfterTheLastTensor) {
  expect_refused(kGood, kData + "!", {"21 bytes of data", "end at 20"});
  expect_refused("{}", "x", {"1 bytes of data", "end at 0"});
}

TEST(Safetensors, RefusesMetadataThatIsNotStringToString) {
  expect_refused(R"({"__metadata__":{"step":7}})", "", {"__metadata__", "\"step\"", "string"});
  expect_refused(R"({"__metadata__":[]})", "", {"__metadata__", "object of strings"});
  expect_refused(R"({"__metadata__":null})", "", {"__metadata__"});
}

TEST(Safetensors, RefusesTensorsThatAreNotDescribedByTheThreeFields) {
  expect_refused(R"({"a":3})", "", {"\"a\"", "object"});
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", "x", {"\"a\"", "no field \"dtype\""});
  expect_refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x", {"no field \"shape\""});
  expect_refused(R"({"a":{"dtype":"U8","shape":[1]}})", "x", {"no field \"data_offsets\""});
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"scale":2}})", "x",
                 {"unknown field \"scale\""});
}

TEST(Safetensors, PrintsHostileNamesEscapedAndCut) {
  const std::string name = "\\u001b[31m" + std::string(100'000, 'n');
  try {
    open_bytes(safetensors_bytes("{\"" + name + "\":3}", ""));
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_LT(std::strlen(error.what()), 600u);
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace megatrain
