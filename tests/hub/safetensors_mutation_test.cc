// Thousands of damaged headers: each is refused with an Error, or describes tensors that lie inside the file.
#include <algorithm>
#include <cstring>
#include <memory>

#include "megatrain/base/rng.h"
#include "megatrain/hub/safetensors.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

constexpr uint64_t kSeed = 20240607;
constexpr int kMutations = 20'000;

const std::string kHeader =
    R"({"__metadata__":{"format":"pt","step":"12"},"model.a":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,64]},)"
    R"("model.b":{"dtype":"F32","shape":[10],"data_offsets":[64,104]},"model.c":{"dtype":"U8","shape":[],)"
    R"("data_offsets":[104,105]},"model.d":{"dtype":"F16","shape":[0,3],"data_offsets":[105,105]}})";
constexpr size_t kDataBytes = 105;

const char* const kTokens[] = {"-1",  "0",    "1e3",  "1.5",  "9223372036854775807", "18446744073709551615",
                               "[]",  "{}",   "null", "\"\"", "4294967296",          "[0,0]",
                               "F64", "BF16", ",",    ":",    "\"shape\":[1],",      "99999999999999999999999"};

// Random numbers that depend only on the mutation.
class Dice {
 public:
  explicit Dice(uint64_t mutation) : mutation_(mutation) {}
  size_t below(size_t bound) { return static_cast<size_t>(random_below(kSeed, mutation_, next_++, bound)); }

 private:
  uint64_t mutation_;
  uint64_t next_ = 0;
};

std::string mutated(uint64_t mutation) {
  Dice dice(mutation);
  std::string header = kHeader;
  std::string data(kDataBytes, 'd');
  bool lie_about_length = false;
  for (size_t edits = 1 + dice.below(4); edits > 0; --edits) {
    const size_t at = dice.below(header.size());
    switch (dice.below(8)) {
      case 0: header[at] = static_cast<char>(dice.below(256)); break;
      case 1: header[at] = static_cast<char>('0' + dice.below(10)); break;
      case 2: header.erase(at, 1 + dice.below(12)); break;
      case 3: header.insert(at, kTokens[dice.below(std::size(kTokens))]); break;
      case 4: header.insert(at, header.substr(dice.below(header.size()), dice.below(60))); break;
      case 5: data.resize(dice.below(2 * kDataBytes)); break;
      case 6: lie_about_length = true; break;
      default: {  // replaces one number by another
        const size_t digit = header.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end = header.find_first_not_of("0123456789", digit);
        header.replace(digit, end - digit, kTokens[dice.below(std::size(kTokens))]);
      }
    }
    if (header.empty()) header.assign(1, '{');
  }
  std::string bytes = safetensors_bytes(header, data);
  if (lie_about_length) bytes[dice.below(8)] = static_cast<char>(dice.below(256));
  if (dice.below(16) == 0) bytes.resize(dice.below(bytes.size()));
  return bytes;
}

TEST(SafetensorsMutation, IsRefusedOrStaysInsideTheFile) {
  int parsed = 0;
  int refused = 0;
  for (int mutation = 0; mutation < kMutations; ++mutation) {
    const std::string bytes = mutated(static_cast<uint64_t>(mutation));
    const auto file = std::make_unique<std::byte[]>(bytes.size());  // exact, for the sanitizer
    std::memcpy(file.get(), bytes.data(), bytes.size());
    const std::byte* const end = file.get() + bytes.size();
    try {
      const auto contents = parse_safetensors(file.get(), static_cast<int64_t>(bytes.size()), "mutated.safetensors");
      ++parsed;
      for (const StoredTensor& tensor : contents.tensors) {
        ASSERT_GE(tensor.data, file.get()) << mutation;
        ASSERT_GE(tensor.bytes, 0) << mutation;
        ASSERT_LE(tensor.bytes, end - tensor.data) << mutation;
        unsigned sum = 0;
        std::for_each(tensor.data, tensor.data + tensor.bytes,
                      [&](std::byte b) { sum += std::to_integer<unsigned>(b); });
        ASSERT_LE(sum, 255u * static_cast<unsigned>(tensor.bytes));
      }
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.code(), ExitCode::bad_input) << mutation << ": " << error.what();
      ASSERT_NE(std::string(error.what()).find("mutated.safetensors"), std::string::npos) << error.what();
    }
  }
  // Both outcomes occur.
  EXPECT_GT(parsed, 100);
  EXPECT_GT(refused, kMutations / 2);
}

}  // namespace
}  // namespace megatrain
