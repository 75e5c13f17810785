#include "megatrain/run/tensorboard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/unix_time.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    table[i] = crc;
  }
  return table;
}();

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
  return text;
}

// TFRecord's masking: keeps a CRC strong when it is computed over data that contains CRCs.
uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

// Protobuf: a key is field << 3 | wire type.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7f) | 0x80);
  return text + static_cast<char>(value);
}

std::string key(uint32_t field, WireType type) { return varint(field << 3 | type); }
std::string bytes_field(uint32_t field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.
std::string event(double wall_time, int64_t step) {
  return key(1, kFixed64) + little_endian(std::bit_cast<uint64_t>(wall_time), 8) +
         (step ? key(2, kVarint) + varint(static_cast<uint64_t>(step)) : "");
}

// Readers sort a run's files by name: seconds since 1970, then a counter.
std::string next_name(const std::string& directory) {
  int64_t seconds = static_cast<int64_t>(unix_s()), count = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    seconds = std::max<int64_t>(seconds, std::strtoll(name.c_str() + kPrefix.size(), nullptr, 10));
    ++count;
  }
  return fmt::format("{}{:010}.{:06}", kPrefix, seconds, count);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian(bytes.size(), 8);
  return length + little_endian(masked(crc32c(length)), 4) + std::string(bytes) +
         little_endian(masked(crc32c(bytes)), 4);
}

std::string version_event(double wall_time) { return event(wall_time, 0) + bytes_field(3, "brain.Event:2"); }

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, double value) {
  // Summary: 1 value, repeated; of it 1 tag, 2 simple_value
  const std::string simple = key(2, kFixed32) + little_endian(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
  return event(wall_time, step) + bytes_field(5, bytes_field(1, bytes_field(1, tag) + simple));
}

std::string start_event(double wall_time, int64_t step) {
  constexpr uint64_t kStart = 1;  // SessionLog: 1 status
  return event(wall_time, step) + bytes_field(7, key(1, kVarint) + varint(kStart));
}

EventFile::EventFile(const std::string& directory, int64_t first_step) {
  std::error_code code;
  fs::create_directories(directory, code);
  if (code) fail_io(fmt::format("could not create {}: {}; check the disk", directory, code.message()));
  path_ = directory + "/" + next_name(directory);
  out_.open(path_, std::ios::binary);
  out_ << tf_record(version_event(unix_s())) << tf_record(start_event(unix_s(), first_step));
  flush();
}

void EventFile::scalar(std::string_view tag, int64_t step, double value) {
  out_ << tf_record(scalar_event(unix_s(), step, tag, value));
}

void EventFile::flush() {
  if (!out_.flush()) fail_io(fmt::format("could not write {}; check the disk", path_));
}

}  // namespace megatrain
