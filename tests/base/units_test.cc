#include "megatrain/base/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"

namespace megatrain {
namespace {

// The error message for `text`.
std::string refusal(const std::string& text) {
  try {
    parse_bytes(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    return error.what();
  }
  ADD_FAILURE() << text << " was accepted";
  return "";
}

TEST(ParseBytes, ReadsSizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("24GiB"), 24 * kGiB);
  EXPECT_EQ(parse_bytes("24 GiB"), 24 * kGiB);
  EXPECT_EQ(parse_bytes("24 GB"), 24'000'000'000);
  EXPECT_EQ(parse_bytes("1.5TiB"), 1536 * kGiB);
  EXPECT_EQ(parse_bytes("512 MB"), 512'000'000);
  EXPECT_EQ(parse_bytes("7kB"), 7000);
  EXPECT_EQ(parse_bytes("7KiB"), 7 * kKiB);
  EXPECT_EQ(parse_bytes("3B"), 3);
  EXPECT_EQ(parse_bytes("1048576"), kMiB);
  EXPECT_EQ(parse_bytes(" 2gib "), 2 * kGiB);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("0.1GB"), 100'000'000);
  EXPECT_EQ(parse_bytes("9223372036854775807"), std::numeric_limits<int64_t>::max());
}

TEST(ParseBytes, RefusesGarbageWithTheTextAndTheAcceptedForms) {
  for (const char* text : {"", " ", "GiB", "24 gigs", "24G", "24GiBs", "12,5GB", "1.GiB", ".5GiB", "1.5", "0x10", "1e9",
                           "nan", "inf", "+5", "5 5", "5GiB 3"}) {
    const std::string sentence = refusal(text);
    EXPECT_NE(sentence.find('"' + std::string(text) + '"'), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("24GiB"), std::string::npos) << sentence;
  }
}

TEST(ParseBytes, RefusesNegativeSizes) { EXPECT_NE(refusal("-1GiB").find("negative"), std::string::npos); }

TEST(ParseBytes, RefusesWhatDoesNotFitIn64Bits) {
  for (const char* text :
       {"9223372036854775808", "99999999999999999999999", "8192PiB", "8192.0PiB", "9223372036854775807KiB"}) {
    EXPECT_NE(refusal(text).find("larger"), std::string::npos) << text;
  }
  EXPECT_EQ(parse_bytes("8191PiB"), int64_t{8191} << 50);
}

TEST(FormatBytes, GivesThreeSignificantDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "0.977 KiB");
  EXPECT_EQ(format_bytes(kKiB), "1.00 KiB");
  EXPECT_EQ(format_bytes(1023 * kKiB), "0.999 MiB");
  EXPECT_EQ(format_bytes(25'125'558'681), "23.4 GiB");
  EXPECT_EQ(format_bytes(140 * kGiB), "140 GiB");
  EXPECT_EQ(format_bytes(1536 * kGiB), "1.50 TiB");
  EXPECT_EQ(format_bytes(kGiB - 1), "1.00 GiB");
  EXPECT_EQ(format_bytes(-kMiB), "-1.00 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "8.00 EiB");
}

TEST(FormatBytes, RoundedUpIsNeverLessAndHardlyMore) {
  for (uint64_t i = 0; i < 4000; ++i) {
    const int64_t bytes = static_cast<int64_t>(random_below(1, 2, i, uint64_t{1} << (3 + i % 50)));
    std::string text = format_bytes_up(bytes);
    std::erase(text, ' ');
    EXPECT_GE(parse_bytes(text), bytes) << text;
    EXPECT_LE(static_cast<double>(parse_bytes(text)), 1.011 * static_cast<double>(bytes) + 1) << text;
  }
}

TEST(FormatCount, GivesThreeSignificantDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00K");
  EXPECT_EQ(format_count(9994), "9.99K");
  EXPECT_EQ(format_count(9995), "10.0K");
  EXPECT_EQ(format_count(41'632), "41.6K");
  EXPECT_EQ(format_count(99'949), "99.9K");
  EXPECT_EQ(format_count(99'950), "100K");
  EXPECT_EQ(format_count(658'304), "658K");
  EXPECT_EQ(format_count(999'499), "999K");
  EXPECT_EQ(format_count(999'500), "1.00M");
  EXPECT_EQ(format_count(999'999), "1.00M");
  EXPECT_EQ(format_count(1'000'000), "1.00M");
  EXPECT_EQ(format_count(1'543'714'304), "1.54B");
  EXPECT_EQ(format_count(999'499'999), "999M");
  EXPECT_EQ(format_count(999'500'000), "1.00B");
  EXPECT_EQ(format_count(7'615'616'512), "7.62B");
  EXPECT_EQ(format_count(116'829'156'672), "117B");
  EXPECT_EQ(format_count(999'500'000'000), "1.00T");
  EXPECT_EQ(format_count(999'499'000'000'000), "999T");
  EXPECT_EQ(format_count(1'000'000'000'000'000), "1000T");
  EXPECT_EQ(format_count(-1000), "-1.00K");
  EXPECT_EQ(format_count(std::numeric_limits<int64_t>::max()), "9223372T");
}

TEST(FormatSeconds, HasThreeDigitsAndNoExponent) {
  EXPECT_EQ(format_seconds(0.8091), "0.809 s");
  EXPECT_EQ(format_seconds(38), "38 s");
  EXPECT_EQ(format_seconds(999.4), "999 s");
  EXPECT_EQ(format_seconds(999.6), "1000 s");
  EXPECT_EQ(format_seconds(1913.2), "1913 s");
}

TEST(FormatDuration, GivesTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0.2), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(750), "12m30s");
  EXPECT_EQ(format_duration(7530), "2h05m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(format_duration(-5), "0s");
}

}  // namespace
}  // namespace megatrain
