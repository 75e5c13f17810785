#include "megatrain/io/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <random>

#include <fmt/format.h>

#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  ::deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Two megabytes of which no piece is like another.
std::string long_text() {
  std::mt19937 random(3);
  std::string text;
  while (text.size() < 2'000'000) text += fmt::format("{} and {}\n", random(), random() % 10);
  return text;
}

class ByteSourceTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    write_bytes(folder_ / name, bytes);
    return folder_ / name;
  }
  static std::string read_all(const std::string& path, int64_t piece) {
    ByteSource source(path);
    std::string text;
    while (!source.ends_at(std::ssize(text))) {
      source.forget_before(std::ssize(text));
      source.read(text, std::ssize(text), piece);
    }
    return text;
  }
  static std::string refusal(const std::string& path) {
    try {
      read_all(path, 1 << 20);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      return error.what();
    }
    return "";
  }
  TemporaryDirectory folder_;
};

TEST_F(ByteSourceTest, PackedBytesAreThoseThatWerePacked) {
  const std::string text = long_text();
  const std::string half = text.substr(0, 900'000), rest = text.substr(900'000);
  for (const std::string& bytes : {text, gzip(text), zstd(text), gzip(half) + gzip(rest), zstd(half) + zstd(rest),
                                   gzip(text) + std::string(512, '\0')}) {
    const std::string path = write("a", bytes);
    for (const int64_t piece : {1000, 123'457, 10'000'000}) EXPECT_EQ(read_all(path, piece), text);
  }
  for (const std::string& bytes : {std::string(), gzip(""), zstd("")}) EXPECT_EQ(read_all(write("a", bytes), 10), "");
}

TEST_F(ByteSourceTest, WhatWasForgottenIsReadAgainFromTheBeginning) {
  const std::string text = long_text();
  for (const std::string& bytes : {gzip(text), zstd(text)}) {
    ByteSource source(write("a", bytes));
    for (const int64_t at : {1'500'000, 10, 1'999'000, 700'000, 0}) {
      source.forget_before(at);
      std::string piece;
      EXPECT_EQ(source.read(piece, at, 100), 100);
      EXPECT_EQ(piece, text.substr(static_cast<size_t>(at), 100));
    }
  }
}

TEST_F(ByteSourceTest, ATruncatedFileIsRefusedWhereverItIsCut) {
  const std::string text = long_text();
  for (const std::string& bytes : {gzip(text), zstd(text)}) {
    for (const double part : {0.001, 0.3, 0.5, 0.9, 0.99999}) {
      const auto cut = static_cast<size_t>(static_cast<double>(bytes.size()) * part);
      const std::string path = write("a.jsonl.gz", bytes.substr(0, cut));
      EXPECT_NE(refusal(path).find("the file is incomplete: get it again"), std::string::npos) << cut;
    }
  }
}

TEST_F(ByteSourceTest, ADamagedFileIsRefusedWithItsPlace) {
  const std::string text = long_text();
  std::string changed = gzip(text), after = gzip(text) + "more";
  changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 0x55);
  for (const std::string& bytes : {changed, after}) {
    const std::string said = refusal(write("a.gz", bytes));
    EXPECT_NE(said.find("is damaged near byte "), std::string::npos) << said;
    EXPECT_NE(said.find("a.gz"), std::string::npos) << said;
  }
}

TEST_F(ByteSourceTest, AFileThatUnpacksToMuchMoreIsHeldInPieces) {
  const std::string zeros(300 << 20, '\0');
  ByteSource source(write("bomb.gz", gzip(zeros)));
  int64_t at = 0;
  for (std::string piece; !source.ends_at(at); piece.clear()) {
    source.forget_before(at);
    at += source.read(piece, at, 1 << 20);
    ASSERT_LE(source.held_bytes(), int64_t{4} << 20);
  }
  EXPECT_EQ(at, std::ssize(zeros));
}

}  // namespace
}  // namespace megatrain
