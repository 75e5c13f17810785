// Parses event files as a reader would, checking every CRC.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "megatrain/run/tensorboard.h"
#include "tests/support/fixtures.h"

namespace megatrain {

struct ReadEvent {
  int64_t step = 0;
  std::string version;  // in a file's first event
  std::string tag;      // of a scalar
  float value = 0;
  bool start = false;
};

inline uint64_t fixed(const std::string& bytes, size_t at, int width) {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes.at(at + static_cast<size_t>(i)));
  return value;
}

// Calls use(field, number, bytes) for every field of a protobuf message.
template <class Use>
void for_fields(const std::string& message, const Use& use) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    uint64_t number = 0;
    std::string bytes;
    switch (key & 7) {
      case 0: number = varint(); break;
      case 1: number = fixed(message, at, 8), at += 8; break;
      case 5: number = fixed(message, at, 4), at += 4; break;
      case 2: number = varint(), bytes = message.substr(at, number), at += number; break;
      default: FAIL() << "wire type " << (key & 7);
    }
    use(key >> 3, number, bytes);
  }
}

inline ReadEvent read_event(const std::string& message) {
  ReadEvent event;
  for_fields(message, [&](uint64_t field, uint64_t number, const std::string& bytes) {
    if (field == 2) event.step = static_cast<int64_t>(number);
    if (field == 3) event.version = bytes;
    if (field == 7) for_fields(bytes, [&](uint64_t f, uint64_t status, auto&) { event.start = f == 1 && status == 1; });
    if (field != 5) return;
    for_fields(bytes, [&](uint64_t, uint64_t, const std::string& value) {
      for_fields(value, [&](uint64_t f, uint64_t bits, const std::string& text) {
        if (f == 1) event.tag = text;
        if (f == 2) event.value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      });
    });
  });
  return event;
}

// Every event of a file; fails on a record with a wrong CRC.
inline std::vector<ReadEvent> read_events(const std::string& path) {
  const std::string bytes = read_bytes(path);
  std::vector<ReadEvent> events;
  for (size_t at = 0; at < bytes.size();) {
    const std::string message = bytes.substr(at + 12, fixed(bytes, at, 8));
    EXPECT_EQ(bytes.substr(at, message.size() + 16), tf_record(message)) << path << " at " << at;
    events.push_back(read_event(message));
    at += message.size() + 16;
  }
  return events;
}

}  // namespace megatrain
