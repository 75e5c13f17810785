#include "megatrain/io/object_scan.h"

#include <array>
#include <string>

#include "megatrain/base/rng.h"
#include "megatrain/io/json.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

constexpr std::array<std::string_view, 3> kKeys = {"step", "loss", "by"};

// What the scan accepts is what the parser reads.
void expect_sound(const std::string& line) {
  std::array<std::string_view, 3> values;
  if (!scan_object(line, kKeys, values)) return;
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(object.is_object()) << line;
  for (size_t i = 0; i < kKeys.size(); ++i) {
    const std::string key(kKeys[i]);
    ASSERT_EQ(object.contains(key), !values[i].empty()) << line;
    if (values[i].empty()) continue;
    ASSERT_EQ(nlohmann::json::parse(values[i]), object.at(key)) << line;
    if (const auto integer = scanned_integer(values[i])) {
      ASSERT_EQ(object.at(key), *integer) << line;
    }
    if (const auto number = scanned_number(values[i])) {
      ASSERT_EQ(object.at(key).get<double>(), *number) << line;
    }
    if (const auto text = scanned_text(values[i])) {
      ASSERT_EQ(object.at(key), *text) << line;
    }
  }
}

}  // namespace

TEST(ObjectScan, FindsMembersAndTheirValues) {
  std::array<std::string_view, 3> values;
  ASSERT_TRUE(scan_object(R"( {"lanes":{"step":7,"x":[1,{}, []]},"step": -12 ,"loss":2.5e-3,"by":"compute","n":null} )",
                          kKeys, values));
  EXPECT_EQ(scanned_integer(values[0]), -12);
  EXPECT_EQ(scanned_number(values[0]), -12.0);
  EXPECT_EQ(scanned_number(values[1]), 2.5e-3);
  EXPECT_EQ(scanned_integer(values[1]), std::nullopt);
  EXPECT_EQ(scanned_text(values[2]), "compute");
  EXPECT_EQ(scanned_number(values[2]), std::nullopt);
  ASSERT_TRUE(scan_object("{}", kKeys, values));
  EXPECT_TRUE(values[0].empty());
}

TEST(ObjectScan, VouchesForNothingThatAParserMightReadOtherwise) {
  std::array<std::string_view, 3> values;
  for (const char* line : {"",
                           "{",
                           "[1]",
                           "1",
                           "{\"step\":1}x",
                           "{\"step\":1,}",
                           "{\"step\":01}",
                           "{\"step\":1.}",
                           "{\"step\":-}",
                           "{\"step\":1,\"step\":2}",
                           "{\"a\":1e999}",
                           "{\"a\":\"\\u0041\"}",
                           "{\"\\u0073tep\":1}",
                           "{\"a\":\"\xc3\xa9\"}",
                           "{\"a\":nul}",
                           "{\"a\":NaN}",
                           "{\"a\":+1}",
                           "{a:1}",
                           "{\"a\" 1}",
                           "{\"a\":[1 2]}",
                           "{\"a\":}",
                           "{,}"})
    EXPECT_FALSE(scan_object(line, kKeys, values)) << line;
}

TEST(ObjectScan, AgreesWithTheParserOnDamagedLines) {
  const std::string line =
      R"({"step":12,"steps":40,"loss":2.3025850929940457,"a":{"b":[1,-0.5e-7,true,null]},"by":"compute","t":"x y"})";
  constexpr std::string_view kBytes = "{}[]\",:.-+eE0123456789 \\tnu\x01\x80";
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    std::string damaged = line;
    for (uint64_t change = 0; change <= seed % 3; ++change) {
      const uint64_t at = random_bits(seed, 0, 2 * change) % damaged.size(),
                     what = random_bits(seed, 0, 2 * change + 1);
      if (what % 3 == 0) damaged.erase(at, 1);
      if (what % 3 == 1) damaged[at] = kBytes[what / 3 % kBytes.size()];
      if (what % 3 == 2) damaged.insert(at, 1, kBytes[what / 3 % kBytes.size()]);
    }
    expect_sound(damaged);
  }
  expect_sound(line);
}

}  // namespace megatrain
